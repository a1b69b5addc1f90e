"""Every kernel of the catalogue with a form for a GPU, in each type and variant, at small and odd sizes.

As a script, under the test double: runs the cases that stand on standard input as JSON and prints what became of each,
with what the double counted for one run beside what the record claims.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpumicro import kernels
from gpumicro.backends.gpu_backend import device_of
from gpumicro.device import Device
from gpumicro.spec import Execution, KernelSpec, Problem

# What the double says of itself: the facts that records ask a device for.
FACTS: Mapping[str, Any] = {
    "name": "PTXEMU compute 9.0 (emulated)", "compute_capability": "9.0", "sm_count": 2, "memory_bytes": 256 << 20,
    "l2_bytes": 64 << 10, "shared_bytes_per_sm": 233472, "shared_bytes_per_block": 232448, "max_threads_per_sm": 2048,
    "emulated": True, "managed": True, "clock_hz": 1e9, "uuid": "",
}  # fmt: skip
DEVICE = device_of("cuda:0", FACTS)

# By the names of a problem's sizes.
SIZES: Mapping[tuple[str, ...], tuple[dict[str, int], ...]] = {
    ("n",): ({"n": 1}, {"n": 31}, {"n": 33}, {"n": 1_000_003}),
    ("m", "n", "k"): ({"m": 1, "n": 1, "k": 1}, {"m": 17, "n": 33, "k": 65}, {"m": 129, "n": 130, "k": 67}),
    ("blocks", "steps"): ({"blocks": 1, "steps": 1}, {"blocks": 3, "steps": 5}),
    ("blocks", "reps"): ({"blocks": 1, "reps": 1}, {"blocks": 3, "reps": 5}),
    ("blocks", "n", "reps"): ({"blocks": 1, "n": 1, "reps": 1}, {"blocks": 3, "n": 333, "reps": 3}),
    ("n", "hops"): ({"n": 1, "hops": 1}, {"n": 31, "hops": 33}, {"n": 1000, "hops": 1001}),
    ("nodes",): ({"nodes": 1}, {"nodes": 33}),
    ("n", "to"): ({"n": 31, "to": 1}, {"n": 1_000_003, "to": 1}),
    (): ({},),
}
MANAGED_BY_PAGES = ({"n": 4096}, {"n": 40960})  # copy.managed by touch: whole pages
NEEDS_NO_PTX_ALONE = ("peak.wgmma", "gemm.wgmma")  # code for sm_90a alone, which PTX for 9.0 is not


@dataclass(frozen=True)
class Case:
    """One kernel, type, variant and size."""

    kernel: str
    dtype: str
    variant: str
    sizes: dict[str, int]

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.sizes.values()))
        return "-".join(part for part in (self.kernel, self.dtype, self.variant, sizes) if part)

    @property
    def spec(self) -> KernelSpec:
        return kernels.find(self.kernel)

    @property
    def problem(self) -> Problem:
        return Problem.of(self.dtype, **self.sizes)


def sizes_of(spec: KernelSpec, variant: str) -> tuple[dict[str, int], ...]:
    assert spec.gpu is not None
    if spec.name == "copy.managed" and variant == "touch":
        return MANAGED_BY_PAGES
    return SIZES[spec.sizes if spec.gpu.sizes is None else spec.gpu.sizes]


def cases(device: Device = DEVICE) -> Iterator[Case]:
    """All that the emulated device supports."""
    for spec in kernels.CATALOGUE:
        if spec.gpu is None or spec.name in NEEDS_NO_PTX_ALONE:
            continue
        for dtype in spec.gpu.dtypes:
            if spec.gpu.why_not(dtype, device):
                continue
            for variant in spec.gpu.variants(dtype, device):
                for sizes in sizes_of(spec, variant):
                    yield Case(spec.name, dtype, variant, sizes)


def run_case(case: Case, device: Device, double: ctypes.CDLL) -> dict[str, Any]:
    """Checked, then run once more and counted."""
    from gpumicro.backends.cuda import CudaBackend

    spec, problem = case.spec, case.problem
    with CudaBackend().prepare(spec, problem, Execution(variant=case.variant), device) as prepared:
        check = prepared.verify()
        facts = dict(prepared.facts)
        counts: dict[str, Any] = {}
        if hasattr(prepared, "run"):
            double.ptxemu_counts_reset()
            prepared.run(1)
            counts = json.loads(double.ptxemu_counts_json())
    return {
        "passed": check.passed, "worst": check.worst, "bound": check.bound, "elements": check.elements,
        "facts": {key: value for key, value in facts.items() if isinstance(value, str | int | list)},
        "counts": list(counts.values()), "bytes": spec.bytes_moved(problem), "flops": spec.flops(problem),
    }  # fmt: skip


def main() -> None:
    """A line of JSON for each case: [name, result]. Ends early where the context is lost: the rest needs a new one."""
    from gpumicro.backends.cuda import CudaBackend

    double = ctypes.CDLL("libcudart.so.13")  # loaded already: by its name
    double.ptxemu_counts_json.restype = ctypes.c_char_p
    device = CudaBackend().devices()[0]
    for wanted in json.load(sys.stdin):
        case = Case(**wanted)
        try:
            result = run_case(case, device, double)
        except Exception as error:  # one case's failure is that case's result
            result = {"error": f"{type(error).__name__}: {error}"}
            double.ptxemu_last_message.restype = ctypes.c_char_p
            result["log"] = double.ptxemu_last_message().decode()
            say([str(case), result])
            if getattr(error, "lost", False):
                return
            continue
        say([str(case), result])


def say(line: list[Any]) -> None:
    """One line of JSON, at once: what was done stays said if the next case ends the process."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def as_json(chosen: list[Case]) -> str:
    return json.dumps([asdict(case) for case in chosen])


if __name__ == "__main__":
    main()
