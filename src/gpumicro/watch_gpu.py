"""What a GPU did while it was measured: clocks, power, heat, what held the clock back, and who else was there.

The rules are pure functions of readings and counters.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .nvml import REASONS
from .telemetry import Counters, Reading, Telemetry

# What slows a GPU against its will (heat, a supply that brakes); of the time. A single touch is no throttling.
THROTTLED_OVER = 0.01
# Boost touches the power cap all the time, so a share is only worth a flag where it is large.
CAPPED_OVER = 0.10
CLOCK_LOW_UNDER = 0.90  # of the clock that is promised, under load
SETTLE_S = 0.1  # a change of the P-state may also show as a hardware slowdown
LEAST_READINGS = 2  # with a bit set, below which the poll is not believed

_IDLE, _POWER_CAP, _HW_SLOWDOWN = 0x1, 0x4, 0x8
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80
_SLOWED_COUNTERS = ("thermal", "software thermal", "hardware thermal", "power brake", "reliability")
FLAGS = ("throttled", "power-capped", "clock-low", "other-process", "shared-power")


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a run, to ask later what happened since."""

    t_s: float
    counters: Counters


def loaded(readings: Sequence[Reading]) -> list[Reading]:
    """Those taken while the GPU had work. Where NVML tells neither reasons nor utilization, all of them."""
    busy = [r for r in readings if r.reasons is not None and not r.reasons & _IDLE]
    if busy or any(r.reasons is not None for r in readings):
        return busy
    known = [r for r in readings if r.utilization is not None]
    return [r for r in known if r.utilization] if known else list(readings)


def reason_share(readings: Sequence[Reading], bits: int) -> float:
    """The share of the readings with one of the bits, 0.0 where fewer than two have one."""
    told = [r.reasons for r in readings if r.reasons is not None]
    hits = sum(1 for reasons in told if reasons & bits)
    return hits / len(told) if hits >= LEAST_READINGS else 0.0


def _counter_share(spent: Counters, names: Sequence[str]) -> float:
    if spent.t_s <= 0:
        return 0.0
    return max((spent.limited_s.get(name, 0.0) for name in names), default=0.0) / spent.t_s


def state_flags(
    readings: Sequence[Reading], spent: Counters, begin_s: float, expected_hz: float | None = None
) -> tuple[str, ...]:
    """throttled, power-capped, clock-low: what the readings and counters of a stretch of time say.

    `spent` is what the counters grew by in it; `expected_hz` the clock that the GPU should hold.
    """
    early = [r for r in readings if r.t_s - begin_s < SETTLE_S]
    late = [r for r in readings if r.t_s - begin_s >= SETTLE_S]
    without = [Reading(r.t_s, reasons=r.reasons & ~_HW_SLOWDOWN) for r in early if r.reasons is not None]
    slowed = max(reason_share([*without, *late], _SLOWED), _counter_share(spent, _SLOWED_COUNTERS))
    capped = max(reason_share(readings, _POWER_CAP), _counter_share(spent, ("power",)))
    clocks = [r.sm_hz for r in loaded(readings) if r.sm_hz]
    low = bool(expected_hz and clocks and statistics.median(clocks) < CLOCK_LOW_UNDER * expected_hz)
    found = {"throttled": slowed > THROTTLED_OVER, "power-capped": capped > CAPPED_OVER, "clock-low": low}
    return tuple(name for name, raised in found.items() if raised)


def _range(values: Sequence[float | None], why: str) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"median": None, "median_why": why, "min": None, "min_why": why, "max": None, "max_why": why}
    return {"median": statistics.median(known), "min": min(known), "max": max(known)}


class GpuWatch:
    """A context manager around a run on one GPU. `clock_hz` is the median SM clock under load.

    steal_fraction, others_fraction and throttled are questions about CPUs; here they are None.
    """

    steal_fraction: float | None = None
    others_fraction: float | None = None
    throttled: int | None = None

    def __init__(self, telemetry: Telemetry, expected_hz: float | None = None) -> None:
        self.telemetry, self.expected_hz = telemetry, expected_hz
        self.clock_hz: float | None = None
        self.extra_flags: list[str] = []  # what others found, such as shared-device
        self._facts: dict[str, Any] = {}
        self._begin = Mark(0.0, Counters(0.0))
        self._spent = Counters(0.0)
        self._readings: Sequence[Reading] = ()
        self._left = False

    def __enter__(self) -> GpuWatch:
        self._facts = self.telemetry.facts()
        if self.expected_hz is None:
            self.expected_hz = self._facts.get("clock_max_hz")
        self.telemetry.start()
        self._begin = self.mark()
        return self

    def __exit__(self, *_: object) -> None:
        self.telemetry.stop()
        self._spent = self.telemetry.counters().since(self._begin.counters)
        self._readings = self.telemetry.series(self._begin.t_s)
        clocks = [r.sm_hz for r in loaded(self._readings) if r.sm_hz]
        self.clock_hz = statistics.median(clocks) if clocks else None
        self.telemetry.close()
        self._left = True

    def mark(self) -> Mark:
        """Now, for `flags_since`."""
        return Mark(self.telemetry.now(), self.telemetry.counters())

    def flags_since(self, mark: Mark | None) -> tuple[str, ...]:
        """What is to be said of a measurement taken since that moment."""
        if mark is None:
            return ()
        spent = self.telemetry.counters().since(mark.counters)
        found = state_flags(self.telemetry.series(mark.t_s), spent, mark.t_s, self.expected_hz)
        return (*found, *self._company(), *self.extra_flags)

    def _company(self) -> tuple[str, ...]:
        found = {
            "other-process": bool(self.telemetry.others()),
            "shared-power": bool(self._facts.get("mig_slice") or self._facts.get("mig")),
        }
        return tuple(name for name, raised in found.items() if raised)

    def seen(self) -> tuple[float, Counters, Sequence[Reading], Mapping[str, Any]]:
        """When the run began, what the counters grew by, the readings and the facts: for a recording."""
        return self._begin.t_s, self._spent, self._readings, self._facts

    @property
    def flags(self) -> tuple[str, ...]:
        """Of the whole run."""
        found = state_flags(self._readings, self._spent, self._begin.t_s, self.expected_hz)
        return (*found, *self._company(), *self.extra_flags)

    def to_json(self, device: str) -> dict[str, Any]:
        """JSON-ready, each missing value with its reason."""
        why = self.telemetry.why
        busy = loaded(self._readings)
        no_load = "" if busy else "no reading was taken under load"
        out: dict[str, Any] = {"device": device, "kind": "gpu", **_value("clock_hz", self.clock_hz, self._why("sm_hz"))}
        for name in ("steal_fraction", "others_fraction", "throttled"):
            out |= {name: None, f"{name}_why": "asked of CPUs only"}
        for key, reading_key in (
            ("sm_clock_hz", "sm_hz"), ("memory_clock_hz", "memory_hz"), ("power_w", "power_w"),
            ("temperature_c", "temperature_c"), ("utilization", "utilization"),
        ):  # fmt: skip
            out[key] = _range([getattr(r, reading_key) for r in busy], no_load or self._why(reading_key))
        out |= self._limits(busy)
        others = self.telemetry.others()
        out |= _value("other_processes", None if others is None else list(others), why.get("processes", "not asked"))
        out |= {"readings": len(self._readings), "duration_s": self._spent.t_s, "flags": list(self.flags)}
        return out | {"gpu": self._facts}

    def _why(self, key: str) -> str:
        if not self._left:
            return "the run has not ended"
        return self.telemetry.why.get(key) or "no reading was taken under load"

    def _limits(self, busy: Sequence[Reading]) -> dict[str, Any]:
        """What held the clock back: shares of the readings by bit, of the time by counter; energy of the run."""
        told = any(r.reasons is not None for r in busy)
        shares = {name: reason_share(busy, bit) for bit, name in REASONS.items() if bit != _IDLE}
        seen = {name: share for name, share in shares.items() if share > 0}
        out = _value("reasons", seen if told else None, self._why("reasons"))
        limited: Mapping[str, float] | None = self._spent.limited_s or None
        shared = {k: v / self._spent.t_s for k, v in limited.items()} if limited and self._spent.t_s > 0 else None
        out |= _value("limited_fraction", shared, self.telemetry.why.get("limited_s", "no counter was read"))
        # The energy counter steps by some 20 ms, so that a short run has no power from it.
        long_enough = self._spent.t_s >= 2.0
        why = self._why("energy_j") if long_enough else "shorter than 2 s"
        return out | _value("energy_j", self._spent.energy_j if long_enough else None, why)


def _value(key: str, value: Any, why: str) -> dict[str, Any]:
    return {key: value} if value is not None else {key: None, f"{key}_why": why}
