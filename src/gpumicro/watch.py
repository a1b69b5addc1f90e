"""What the machine did while it was measured: clock under load, and who else used it. One contract, two forms."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from .device import Device

PROC_STAT = Path("/proc/stat")
CPU_FOLDER = Path("/sys/devices/system/cpu")
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Watch(Protocol):
    """A context manager around a run on one device. What can't be had is None, its reason in `to_json`."""

    clock_hz: float | None  # of a core or SM, under load
    steal_fraction: float | None  # of all CPU time, given to others by the hypervisor
    others_fraction: float | None  # of all CPU time, used by other processes of this machine
    throttled: int | None  # how often a CPU's core was slowed for heat
    extra_flags: list[str]  # what others found out about the run, such as shared-device

    @property
    def flags(self) -> tuple[str, ...]:
        """What is to be said of the whole run, once it has ended."""

    def mark(self) -> Any:
        """This moment, for `flags_since`."""

    def flags_since(self, mark: Any) -> tuple[str, ...]:
        """What is to be said of a measurement taken since that moment."""

    def to_json(self, device: str) -> dict[str, Any]:
        """JSON-ready, each missing value with its reason."""

    def __enter__(self) -> Watch: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def watch_for(device: Device, clock_hz: float | None = None) -> Watch:
    """The watch of a device's kind; `clock_hz` is the clock that a GPU should hold under load."""
    if device.kind == "cpu":
        return CpuWatch()
    from .nvml import Gpu
    from .telemetry import NvmlTelemetry
    from .watch_gpu import GpuWatch

    return GpuWatch(NvmlTelemetry(Gpu(device.uuid)), clock_hz)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Seconds of all CPUs since boot, from /proc/stat's first line (proc(5)), and of this process."""

    all_s: float
    idle_s: float
    steal_s: float
    own_s: float

    @classmethod
    def parse(cls, text: str, own_s: float) -> Ticks | None:
        """None where the line does not have them."""
        fields = text.partition("\n")[0].split()
        if len(fields) < 9 or fields[0] != "cpu":
            return None
        # user nice system idle iowait irq softirq steal
        seconds = [int(field) / CLOCK_TICKS_PER_S for field in fields[1:9]]
        return cls(sum(seconds), seconds[3] + seconds[4], seconds[7], own_s)

    @classmethod
    def now(cls) -> Ticks | None:
        try:
            text = PROC_STAT.read_text()
        except OSError:
            return None
        mine = os.times()
        return cls.parse(text, mine.user + mine.system)


def throttle_events(folder: Path = CPU_FOLDER) -> int | None:
    """How often cores were throttled for heat since boot (Linux ABI, thermal_throttle); None where it is not told."""
    counts = []
    for path in folder.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        try:
            counts.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return sum(counts) if counts else None


class CpuWatch:
    """A context manager around a run. Each figure is None, with a reason under `<name>_why`, where it can't be had.

    clock_hz: of one core, from a chain of dependent adds. steal_fraction: of all CPU time, given to others by the
    hypervisor. others_fraction: of all CPU time, used by other processes of this machine. throttled: how often a core
    was slowed for heat.
    """

    FIGURES = ("clock_hz", "steal_fraction", "others_fraction", "throttled")

    def __init__(self) -> None:
        self.clock_hz: float | None = None
        self.steal_fraction: float | None = None
        self.others_fraction: float | None = None
        self.throttled: int | None = None
        self._throttled_before: int | None = None
        self.why = dict.fromkeys(self.FIGURES, "not measured yet")
        self._before: Ticks | None = None
        self.extra_flags: list[str] = []

    @property
    def flags(self) -> tuple[str, ...]:
        """What others found; the figures below are judged by the verdicts."""
        return tuple(self.extra_flags)

    def mark(self) -> None:
        """A CPU's figures are of the whole run."""

    def flags_since(self, mark: object) -> tuple[str, ...]:
        """Nothing is known of a part of the run."""
        del mark
        return tuple(self.extra_flags)

    def __enter__(self) -> CpuWatch:
        from ._core import cpu

        self._before, self._throttled_before = Ticks.now(), throttle_events()
        self.clock_hz = cpu.clock_hz() or None
        if self.clock_hz is None:
            self.why["clock_hz"] = "no chain of adds is written for this architecture"
        return self

    def __exit__(self, *_: object) -> None:
        self.see(self._before, Ticks.now())
        events = throttle_events()
        if events is None or self._throttled_before is None:
            self.why["throttled"] = "no thermal_throttle counters in sysfs (usual in virtual machines and on AMD)"
        else:
            self.throttled = events - self._throttled_before

    def see(self, before: Ticks | None, after: Ticks | None) -> None:
        """Take the shares of what lies between two readings."""
        if before is None or after is None or after.all_s <= before.all_s:
            self.why |= dict.fromkeys(self.FIGURES[1:3], f"{PROC_STAT} does not tell")
            return
        all_s = after.all_s - before.all_s
        busy_s = all_s - (after.idle_s - before.idle_s)
        steal_s = after.steal_s - before.steal_s
        self.steal_fraction = steal_s / all_s
        self.others_fraction = max(0.0, busy_s - steal_s - (after.own_s - before.own_s)) / all_s

    def to_json(self, device: str) -> dict[str, Any]:
        """JSON-ready, each missing value with its reason."""
        out: dict[str, Any] = {"device": device}
        for name in self.FIGURES:
            out[name] = getattr(self, name)
            if out[name] is None:
                out[f"{name}_why"] = self.why[name]
        return out | ({"flags": self.extra_flags} if self.extra_flags else {})
