"""What the machine did while it was measured: clock under load and time taken by the hypervisor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROC_STAT = Path("/proc/stat")


def cpu_ticks(text: str) -> tuple[int, int] | None:
    """(all, stolen) ticks of all CPUs from /proc/stat's first line, None where it does not have them (proc(5))."""
    fields = text.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None
    ticks = [int(field) for field in fields[1:9]]  # user nice system idle iowait irq softirq steal
    return sum(ticks), ticks[7]


def _read_ticks() -> tuple[int, int] | None:
    try:
        return cpu_ticks(PROC_STAT.read_text())
    except OSError:
        return None


class Watch:
    """A context manager around a run; `clock_hz` and `steal_fraction` are None, with a reason, where not to be had."""

    def __init__(self) -> None:
        self.clock_hz: float | None = None
        self.clock_hz_why = "not measured yet"
        self.steal_fraction: float | None = None
        self.steal_fraction_why = "not measured yet"
        self._before: tuple[int, int] | None = None

    def __enter__(self) -> Watch:
        self._before = _read_ticks()
        self._see_clock()
        return self

    def __exit__(self, *_: object) -> None:
        after, before = _read_ticks(), self._before
        if after is None or before is None or after[0] <= before[0]:
            self.steal_fraction_why = f"{PROC_STAT} gives no steal time"
            return
        idle_excluded = after[0] - before[0]
        self.steal_fraction = (after[1] - before[1]) / idle_excluded

    def _see_clock(self) -> None:
        from ._core import cpu

        self.clock_hz = cpu.clock_hz() or None
        if self.clock_hz is None:
            self.clock_hz_why = "no chain of adds is written for this architecture"

    def to_json(self, device: str) -> dict[str, Any]:
        """JSON-ready, each missing value with its reason."""
        out: dict[str, Any] = {"device": device}
        for key in ("clock_hz", "steal_fraction"):
            value = getattr(self, key)
            out[key] = value
            if value is None:
                out[f"{key}_why"] = getattr(self, f"{key}_why")
        return out
