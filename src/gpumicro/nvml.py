"""What NVML tells of one GPU: its facts and its state now. Every call may fail; a value that can't be had is None.

The GPU is found by the UUID that CUDA gives it, never by its index: CUDA_VISIBLE_DEVICES renumbers CUDA's devices and
not NVML's. Source of meanings and units: NVML API reference; the call's name stands beside each fact.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .units import from_prefix

# nvmlClockType_t, nvmlTemperatureSensors_t and nvmlClockId_t
SM_CLOCK, MEMORY_CLOCK = 1, 2
_DIE = 0
_APPLICATION_TARGET = 1
# nvmlClocksEventReasons: the bits of a reading and what they say
REASONS: Mapping[int, str] = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake", 0x100: "display clocks",
    0x200: "board limit", 0x400: "reliability",
}  # fmt: skip
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_VIRTUAL = {0: None, 1: "passthrough", 2: "vGPU", 3: "vGPU host", 4: "vGPU host SR-IOV"}
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel: no container around us

_MODULE = "pynvml"
_REMEDY = "pip install nvidia-ml-py"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gave, or None and why; the reason reads well after 'because'."""

    value: Any
    why: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: its key, the call, the call's further arguments, and what makes a plain value in SI units of it."""

    key: str
    call: str
    arguments: tuple[int, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value


def _hz(mhz: Any) -> float:
    return from_prefix(int(mhz), "M")


def _watts(milliwatts: Any) -> float:
    return from_prefix(int(milliwatts), "m")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _truth(value: Any) -> bool:
    return bool(getattr(value, "value", value))  # some calls give a ctypes integer


def _first(value: Any) -> bool:
    """Of (current, pending)."""
    return bool(value[0])


FACTS = (
    Fact("name", "nvmlDeviceGetName", (), _text),
    Fact("ecc", "nvmlDeviceGetEccMode", (), _first),
    # error type 0: corrected, 1: uncorrected; counter 0: since the driver was loaded
    Fact("ecc_corrected", "nvmlDeviceGetTotalEccErrors", (0, 0), int),
    Fact("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", (1, 0), int),
    Fact("mig", "nvmlDeviceGetMigMode", (), _first),
    Fact("persistence", "nvmlDeviceGetPersistenceMode", (), _truth),
    Fact("compute_mode", "nvmlDeviceGetComputeMode", (), lambda v: _COMPUTE_MODES.get(int(v), str(v))),
    Fact("power_limit_w", "nvmlDeviceGetPowerManagementLimit", (), _watts),
    Fact("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", (), _watts),
    Fact("power_limit_max_w", "nvmlDeviceGetPowerManagementLimitConstraints", (), lambda v: _watts(v[1])),
    Fact("clock_max_hz", "nvmlDeviceGetMaxClockInfo", (SM_CLOCK,), _hz),
    Fact("memory_clock_max_hz", "nvmlDeviceGetMaxClockInfo", (MEMORY_CLOCK,), _hz),
    Fact("application_clock_hz", "nvmlDeviceGetClock", (SM_CLOCK, _APPLICATION_TARGET), _hz),
    Fact("application_memory_clock_hz", "nvmlDeviceGetClock", (MEMORY_CLOCK, _APPLICATION_TARGET), _hz),
    Fact("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", (), int),
    Fact("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", (), int),
    Fact("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", (), int),
    Fact("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", (), int),
    Fact("virtualization", "nvmlDeviceGetVirtualizationMode", (), lambda v: _VIRTUAL.get(int(v), str(v)) or "none"),
)
STATE = (
    Fact("sm_hz", "nvmlDeviceGetClockInfo", (SM_CLOCK,), _hz),
    Fact("memory_hz", "nvmlDeviceGetClockInfo", (MEMORY_CLOCK,), _hz),
    Fact("power_w", "nvmlDeviceGetPowerUsage", (), _watts),  # of the last second on recent GPUs, arXiv 2312.02741
    Fact("temperature_c", "nvmlDeviceGetTemperature", (_DIE,), float),
    Fact("utilization", "nvmlDeviceGetUtilizationRates", (), lambda v: v.gpu / 100),
)
_REASON_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_PROCESS_CALLS = (
    "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)  # fmt: skip


class Gpu:
    """NVML's handle of one GPU. It can always be made and asked; `why` says what is wrong where nothing answers.

    Of a MIG slice `mig_slice` is True and the handle is its parent's: clocks and power belong to the whole GPU.
    """

    def __init__(self, uuid: str | None, library: Any = None) -> None:
        self.uuid, self.mig_slice, self.why = uuid, False, ""
        self._handle: Any = None
        self._library, self.why = (library, "") if library is not None else _load()
        if self._library is None:
            return
        started = self._call("nvmlInit")
        if started.why:
            self._library, self.why = None, started.why
            return
        self._open(uuid)

    def _open(self, uuid: str | None) -> None:
        if not uuid:
            self.why = "CUDA tells no UUID of this device"
            return
        bare = uuid.partition("-")[2] if uuid.startswith(("GPU-", "MIG-")) else uuid
        answers = [self._call("nvmlDeviceGetHandleByUUID", name) for name in dict.fromkeys((uuid, f"MIG-{bare}"))]
        found = next((one for one in answers if not one.why), None)
        if found is None:
            self.why = f"NVML knows no device {uuid}: {answers[0].why}"
            return
        self._handle = found.value
        if _truth(self._call("nvmlDeviceIsMigDeviceHandle", self._handle).value or 0):
            self.mig_slice = True
            parent = self._call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self._handle)
            self._handle = self._handle if parent.why else parent.value

    @property
    def usable(self) -> bool:
        """Whether there is a device to ask."""
        return self._handle is not None

    def give_up(self, why: str) -> None:
        """Ask nothing any more: a call hangs, and the next one would too."""
        self._library = self._handle = None
        self.why = why

    def close(self) -> None:
        """Let go of NVML; what is asked after that has no answer."""
        if self._library is not None:
            self._call("nvmlShutdown")
        self._library = self._handle = None
        self.why = self.why or "NVML is closed"

    def _call(self, name: str, *arguments: Any) -> Answer:
        """One call of the library, whatever it raises."""
        function = getattr(self._library, name, None)
        if function is None:
            return Answer(None, f"this {_MODULE} has no {name}")
        try:
            return Answer(function(*arguments))
        except Exception as error:  # NVMLError; a driver that goes away may also raise others through ctypes
            return Answer(None, f"NVML: {error} ({name})")

    def ask(self, name: str, *arguments: Any, convert: Callable[[Any], Any] | None = None) -> Answer:
        """What a call about this device gives, converted, or None and why. Never raises."""
        if self._handle is None:
            return Answer(None, self.why)
        answer = self._call(name, self._handle, *arguments)
        if answer.why or convert is None:
            return answer
        try:
            return Answer(convert(answer.value))
        except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
            return Answer(None, f"{name} gave what cannot be read ({error})")

    def fact(self, fact: Fact) -> Answer:
        """The answer to one entry of FACTS or STATE."""
        return self.ask(fact.call, *fact.arguments, convert=fact.convert)

    def level_to(self, other: Gpu) -> Answer:
        """nvmlGpuTopologyLevel_t of what both hang from: 0 one board, 10 one switch, ... 50 another node."""
        if other._handle is None:
            return Answer(None, other.why)
        return self.ask("nvmlDeviceGetTopologyCommonAncestor", other._handle, convert=int)

    def first(self, names: tuple[str, ...], convert: Callable[[Any], Any]) -> Answer:
        """The first answer of several calls that mean the same: names differ by the version of NVML."""
        answers = [self.ask(name, convert=convert) for name in names[:1]]
        for name in names[1:]:
            if not answers[-1].why:
                break
            answers.append(self.ask(name, convert=convert))
        return answers[0] if answers[-1].why else answers[-1]

    def reasons(self) -> Answer:
        """The bits of REASONS that hold the clock back now."""
        return self.first(_REASON_CALLS, int)

    def facts(self) -> dict[str, Any]:
        """JSON-ready: every fact, a missing one null with its reason beside it."""
        out: dict[str, Any] = {}
        driver = self._call("nvmlSystemGetDriverVersion") if self._library is not None else Answer(None, self.why)
        _put(out, "driver", Answer(driver.value and _text(driver.value), driver.why))
        for fact in FACTS:
            _put(out, fact.key, self.fact(fact))
        out |= {"locked_clocks": None, "locked_clocks_why": "NVML cannot be asked for locked clocks"}
        out["mig_slice"] = self.mig_slice
        out["wsl"] = _in_wsl()
        return out

    def processes(self) -> Answer:
        """Process ids on this GPU other than ours, sorted.

        In a container NVML tells the host's ids, so ours is not to be recognised: one of them is taken for us.
        """
        if not self.usable:
            return Answer(None, self.why)
        found: set[int] = set()
        asked = [self.ask(name, convert=lambda rows: {int(row.pid) for row in rows}) for name in _PROCESS_CALLS]
        if all(answer.why for answer in asked):
            return Answer(None, asked[0].why)
        for answer in asked:
            found |= answer.value or set()
        if os.getpid() in found or not _foreign_pids():
            return Answer(sorted(found - {os.getpid()}))
        return Answer(sorted(found)[1:])


def uuids(library: Any = None) -> Answer:
    """The UUIDs of all GPUs that NVML shows, in its order, as a tuple; None and why where it shows none."""
    asked = Gpu(None, library)
    try:
        if asked._library is None:
            return Answer(None, asked.why)
        count = asked._call("nvmlDeviceGetCount")
        if not count.value:
            return Answer(None, count.why or "NVML shows no GPU")
        handles = [asked._call("nvmlDeviceGetHandleByIndex", index) for index in range(int(count.value))]
        found = [one if one.why else asked._call("nvmlDeviceGetUUID", one.value) for one in handles]
        known = tuple(_text(one.value) for one in found if not one.why)
        return Answer(known) if known else Answer(None, found[0].why)
    finally:
        asked.close()


def _put(out: dict[str, Any], key: str, answer: Answer) -> None:
    out[key] = answer.value
    if answer.value is None:
        out[f"{key}_why"] = answer.why or "NVML gives nothing"


def _load() -> tuple[Any, str]:
    """The module, or None and why; it is part of the extras cuda12 and cuda13."""
    try:
        return import_module(_MODULE), ""
    except ImportError as error:
        return None, f"{_MODULE} cannot be imported ({error}; {_REMEDY})"
    except Exception as error:  # a broken module must not cost the run
        return None, f"{_MODULE} cannot be used: {error}"


def _foreign_pids(link: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether this process lives in a PID namespace of its own, so that its id is not what the driver knows it by."""
    try:
        return str(link.readlink()) != _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _in_wsl(release: Path = Path("/proc/sys/kernel/osrelease")) -> bool:
    """Whether this is Linux under Windows, where NVML answers little and clocks are set from Windows."""
    try:
        return "microsoft" in release.read_text().lower()
    except OSError:
        return False
