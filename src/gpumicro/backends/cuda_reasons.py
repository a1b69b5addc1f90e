"""Why CUDA has no device to run on, in words. Pure: takes what the runtime and the system said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

INSUFFICIENT_DRIVER, NO_DEVICE = 35, 100
PROHIBITED = 2  # cudaComputeModeProhibited

# What else cudaGetDeviceCount is known to say, with what helps.
_CURES = {
    3: "CUDA cannot be used in a process that was forked after its first use; start a new one",
    46: "Another process holds the GPU for itself; wait for it, or allow sharing with nvidia-smi -c 0",
    101: "CUDA_VISIBLE_DEVICES may name what is not there",
    802: "The machine's NVSwitch fabric is not up: start nvidia-fabricmanager",
    803: "The driver's library and its kernel module differ in version: restart after the driver's update",
    804: "This GPU takes no CUDA forward-compatibility package: update the driver itself",
    999: "Look for the driver's own message with dmesg; nvidia-smi tells whether it works at all",
}


def version(number: int) -> str:
    """13000 is "13.0"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def gpus_of_machine(root: Path = Path("/")) -> int | None:
    """GPUs that the kernel's module has, hidden ones too; None where it does not tell."""
    folder = root / "proc/driver/nvidia/gpus"
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return None


def no_device(probe: Mapping[str, object], environment: Mapping[str, str], machine: int | None) -> tuple[str, str]:
    """(reason, remedy) of a probe that found no device; the reason reads well after "because".

    `machine`: GPUs that the kernel's module has, as `gpus_of_machine` tells.
    """
    code, driver, runtime = (int(str(probe[key])) for key in ("code", "driver", "runtime"))
    if code == INSUFFICIENT_DRIVER and driver == 0:
        return (
            "this machine has no NVIDIA driver (libcuda.so.1 cannot be opened)",
            f"Install a driver for CUDA {version(runtime)}; in a container, start it with its GPUs (--gpus all)",
        )
    if code == INSUFFICIENT_DRIVER:
        return (
            f"the NVIDIA driver is too old: it serves CUDA {version(driver)}, this build needs {runtime // 1000}.0",
            f"Update the driver, or build gpumicro with an nvcc of CUDA {version(driver)}",
        )
    if code in (0, NO_DEVICE):
        return _none_visible(environment.get("CUDA_VISIBLE_DEVICES"), machine)
    return f"CUDA says {probe['error']} ({code}): {probe['text']}", _CURES.get(code, "")


def _none_visible(visible: str | None, machine: int | None) -> tuple[str, str]:
    if visible is None or machine == 0:
        return "the NVIDIA driver finds no GPU", "nvidia-smi -L shows the ones that it knows"
    of = f"the {machine} GPUs of this machine" if machine else "the machine's GPUs, if it has any"
    verb = "hides" if visible.strip() in ("", "-1") else "names none of"
    return f"CUDA_VISIBLE_DEVICES={visible!r} {verb} {of}", "Unset it, or name a GPU that nvidia-smi -L shows"


def not_covered(capability: tuple[int, int], architectures: Sequence[str]) -> str:
    """ "" where code for one of `architectures` ("90a-real", "120-virtual") runs on that capability, else why not.

    Machine code runs on its own major version from its minor version on, that of an "a" architecture on exactly its
    own; PTX (virtual) on everything later. CUDA programming guide, "Binary compatibility", "PTX compatibility".
    """
    for entry in architectures:
        name, _, kind = entry.partition("-")
        digits = name.rstrip("af")
        if not digits.isdigit():  # "native", "all": made for what is here
            return ""
        made = int(digits[:-1]), int(digits[-1])
        exact = name.endswith("a")
        as_code = capability[0] == made[0] and capability[1] >= made[1] and (not exact or capability == made)
        as_ptx = capability >= made and (not exact or capability == made)
        if (kind != "virtual" and as_code) or (kind != "real" and as_ptx):
            return ""
    wanted = f"{capability[0]}.{capability[1]}"
    return f"this build has no code for compute capability {wanted}, only {', '.join(architectures)}"


def notes(facts: Mapping[str, Mapping[str, object]], environment: Mapping[str, str], machine: int | None) -> list[str]:
    """What a user should know about devices that can be used or are left out; `facts` by device id."""
    found = []
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and machine is not None and len(facts) < machine:
        found.append(f"CUDA_VISIBLE_DEVICES={visible!r} shows {len(facts)} of the {machine} GPUs of this machine.")
    for name, fact in facts.items():
        if fact["compute_mode"] == PROHIBITED:
            found.append(f"{name} is left out, because its compute mode is prohibited (nvidia-smi -c 0 allows it).")
        elif fact["mig"]:
            found.append(f"{name} is a MIG instance ({fact['name']}): a part of a GPU, which shares power and clocks.")
        if fact["emulated"]:
            found.append(f"{name} is emulated: its results show that kernels are right, never how fast.")
    return found
