"""Holds one kernel for a while: the first second beside what it settles at, with clock and power where told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .limits import read_number
from .stats import median_location
from .telemetry import Telemetry
from .timers import Timer, default_timer
from .watch import Watch

WINDOW_S = 0.1  # short against thermal time constants, long against any tick
FIRST_S = 1.0  # what a burst benchmark would have seen
SETTLED_SHARE = 1 / 3  # of the time at the end
MOST_LAUNCHES = 256  # in one span of a device's clock: a stream's queue holds some 1000 before the host blocks
LEAST = 6  # windows below which a median has no 95% interval

RAPL = Path("/sys/class/powercap/intel-rapl:0/energy_uj")  # package 0; AMD's driver uses the same name
CUR_FREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")


class Meter(Protocol):
    """Clock and power beside a window; the reasons say why one can't be had."""

    clock_why: str
    power_why: str

    def read(self, span_s: float) -> tuple[float | None, float | None]:
        """(Hz, W) of the window of that many seconds which just ended."""


class CpuMeter:
    """The first core's clock from cpufreq, the package's energy from RAPL."""

    def __init__(self) -> None:
        self.clock_why, self.power_why = f"{CUR_FREQ} cannot be read", f"{RAPL} cannot be read"
        self._energy = read_number(RAPL)

    def read(self, span_s: float) -> tuple[float | None, float | None]:
        khz, joules, before = read_number(CUR_FREQ), read_number(RAPL), self._energy
        # The counter wraps every few minutes: a window that saw that has no power.
        grew = None if joules is None or before is None or joules < before else (joules - before) * 1e-6
        self._energy = joules
        return (None if khz is None else khz * 1e3), (None if grew is None else grew / span_s)


class GpuMeter:
    """SM clock and power as NVML tells them at the window's end; the power is a running mean of about a second."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.clock_why = self.power_why = ""
        self._telemetry = telemetry

    def read(self, span_s: float) -> tuple[float | None, float | None]:
        del span_s
        now = self._telemetry.reading()
        why = self._telemetry.why
        self.clock_why, self.power_why = why.get("sm_hz", "not told"), why.get("power_w", "not told")
        return now.sm_hz, now.power_w


def meter_for(watch: Watch) -> Meter:
    """The meter of the device that is watched."""
    telemetry: Telemetry | None = getattr(watch, "telemetry", None)
    return CpuMeter() if telemetry is None else GpuMeter(telemetry)


@dataclass(frozen=True, slots=True)
class Sustained:
    """The rate (work per second) of every window in order, and the state of the machine beside it."""

    ceiling: str
    seconds: float
    t_s: tuple[float, ...]
    value: tuple[float, ...]
    clock_hz: tuple[float | None, ...]
    power_w: tuple[float | None, ...]
    clock_why: str
    power_why: str

    def _part(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, Any]:
        values = np.asarray(self.value)[chosen]
        found = median_location(values)
        out: dict[str, Any] = {"value": found.estimate, "ci95": [found.low, found.high], "n": len(values)}
        if len(values) < LEAST:
            out |= {"ci95": None, "ci95_why": f"{len(values)} windows of {WINDOW_S:g} s are too few for an interval"}
        return out

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
            out["clock_hz_why"] = self.clock_why
        if None in self.power_w:
            out["power_w_why"] = self.power_why
        return out


class SustainInterrupted(KeyboardInterrupt):
    """Ctrl-C while a ceiling was held: `partial` is what was seen until then, None where that was nothing."""

    def __init__(self, partial: Sustained | None) -> None:
        super().__init__()
        self.partial = partial


def sustain(
    work: Any, seconds: float, work_per_run: int, ceiling: str, timer: Timer | None = None, meter: Meter | None = None
) -> Sustained:
    """Run `work` without pause for `seconds`; `work_per_run` is its bytes or FLOP.

    A device's clock takes a window in spans of at most 256 launches. Ctrl-C raises SustainInterrupted with the windows
    until then.
    """
    meter = meter or CpuMeter()
    most = (1 << 40) if timer is None else min(MOST_LAUNCHES, getattr(timer, "largest_batch", MOST_LAUNCHES))
    timer = timer or default_timer()
    once_s = float(timer.sample(work, np.ones(3, np.int64)).min())
    runs = max(1, round(WINDOW_S / max(once_s, 1e-9)))
    spans = -(-runs // most)
    counts = np.full(spans, -(-runs // spans), np.int64)
    rows: list[tuple[float, float, float | None, float | None]] = []  # time, rate, clock, power
    begin = timer.now()
    try:
        while not rows or rows[-1][0] < seconds:
            span_s = float(timer.sample(work, counts).sum())
            rows.append((timer.now() - begin, work_per_run * int(counts.sum()) / span_s, *meter.read(span_s)))
    except KeyboardInterrupt as stop:
        raise SustainInterrupted(_seen(ceiling, rows[-1][0], rows, meter) if rows else None) from stop
    return _seen(ceiling, seconds, rows, meter)


def _seen(
    ceiling: str, seconds: float, rows: Sequence[tuple[float, float, float | None, float | None]], meter: Meter
) -> Sustained:
    t_s, value, clock_hz, power_w = zip(*rows, strict=True)
    return Sustained(ceiling, seconds, t_s, value, clock_hz, power_w, meter.clock_why, meter.power_why)
