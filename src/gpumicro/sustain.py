"""Holds one kernel for a while: the first second beside what it settles at, with clock and power where told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .stats import median_location
from .timers import Timer, default_timer

WINDOW_S = 0.1  # short against thermal time constants, long against any tick
FIRST_S = 1.0  # what a burst benchmark would have seen
SETTLED_SHARE = 1 / 3  # of the time at the end

RAPL = Path("/sys/class/powercap/intel-rapl:0/energy_uj")  # package 0; AMD's driver uses the same name
CUR_FREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")


def _read_number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Sustained:
    """The rate (work per second) of every window in order, and the state of the machine beside it."""

    ceiling: str
    seconds: float
    t_s: tuple[float, ...]
    value: tuple[float, ...]
    clock_hz: tuple[float | None, ...]
    power_w: tuple[float | None, ...]

    def _part(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, Any]:
        values = np.asarray(self.value)[chosen]
        found = median_location(values)
        return {"value": found.estimate, "ci95": [found.low, found.high], "n": len(values)}

    def to_json(self) -> dict[str, Any]:
        """As schema/result-1.json has it."""
        t = np.asarray(self.t_s)
        out: dict[str, Any] = {
            "ceiling": self.ceiling,
            "seconds": self.seconds,
            "first": self._part(t <= max(FIRST_S, t[0])),
            "settled": self._part(t >= min(t[-1], t[-1] * (1 - SETTLED_SHARE))),
            "series": [
                {"t_s": t_s, "value": value, "clock_hz": clock, "power_w": power}
                for t_s, value, clock, power in zip(self.t_s, self.value, self.clock_hz, self.power_w, strict=True)
            ],
        }
        if None in self.clock_hz:
            out["clock_hz_why"] = f"{CUR_FREQ} cannot be read"
        if None in self.power_w:
            out["power_w_why"] = f"{RAPL} cannot be read"
        return out


def sustain(work: Any, seconds: float, work_per_run: int, ceiling: str, timer: Timer | None = None) -> Sustained:
    """Run `work` without pause for `seconds`; `work_per_run` is its bytes or FLOP."""
    timer = timer or default_timer()
    once_s = float(timer.sample(work, np.ones(3, np.int64)).min())
    per_window = np.array([max(1, round(WINDOW_S / once_s))], np.int64)
    t_s: list[float] = []
    value: list[float] = []
    clock: list[float | None] = []
    power: list[float | None] = []
    begin, energy = timer.now(), _read_number(RAPL)
    while not t_s or t_s[-1] < seconds:
        span_s = float(timer.sample(work, per_window)[0])
        t_s.append(timer.now() - begin)
        value.append(work_per_run * int(per_window[0]) / span_s)
        khz, joules = _read_number(CUR_FREQ), _read_number(RAPL)
        clock.append(None if khz is None else khz * 1e3)
        # The counter wraps every few minutes: a window that saw that has no power.
        grew = None if joules is None or energy is None or joules < energy else (joules - energy) * 1e-6
        power.append(None if grew is None else grew / span_s)
        energy = joules
    return Sustained(ceiling, seconds, tuple(t_s), tuple(value), tuple(clock), tuple(power))
