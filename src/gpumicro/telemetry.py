"""A GPU's state over a run: readings from a side thread, and counters that catch what a poll misses.

A `Telemetry` is what a GPU watch looks at; live it is NVML, in a replay what was recorded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .nvml import STATE, Answer, Gpu
from .units import from_prefix

PERIOD_S = 0.015  # 66 Hz: clocks change within some 10 ms, and a reading costs the host about 0.1 ms of one core
MOST_READINGS = 16_384  # above, every second one is dropped and the period doubled: bounds the memory of a long run
PROCESSES_S = 1.0  # how often the process list is read: it is slower than the rest
JOIN_S = 2.0  # a driver that hangs must not hang the end of a run

# nvmlPerfPolicyType_t (nvmlDeviceGetViolationStatus) and the field of the event-reason counter, where there is one
POLICIES: Mapping[str, tuple[int | None, int | None]] = {
    "power": (0, 74), "thermal": (1, 75), "sync boost": (2, 76), "board limit": (3, 77), "reliability": (5, 79),
    "software thermal": (None, 269), "hardware thermal": (None, 270), "power brake": (None, 271),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """The state at one moment; None where NVML gave nothing. `reasons` are the bits of nvml.REASONS."""

    t_s: float
    sm_hz: float | None = None
    memory_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    utilization: float | None = None
    reasons: int | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums since the driver was loaded: energy, and the time that each policy held the clock down."""

    t_s: float
    energy_j: float | None = None
    limited_s: Mapping[str, float] = field(default_factory=dict)

    def since(self, before: Counters) -> Counters:
        """What was added since `before`; `t_s` becomes the time between."""
        energy = None if self.energy_j is None or before.energy_j is None else self.energy_j - before.energy_j
        grown = {k: max(0.0, v - before.limited_s[k]) for k, v in self.limited_s.items() if k in before.limited_s}
        # A driver that was loaded anew begins at zero.
        return Counters(self.t_s - before.t_s, energy if energy is None or energy >= 0 else None, grown)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"limited_s": dict(self.limited_s)}


class Telemetry(Protocol):
    """What a GPU watch and a recording look at."""

    why: dict[str, str]  # key of a reading, of Counters or "processes" -> why it cannot be had

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None:
        """Let go of what is asked; what was read stays."""

    def now(self) -> float:
        """Seconds of the clock that the readings carry."""

    def facts(self) -> dict[str, Any]: ...

    def reading(self) -> Reading:
        """The state now."""

    def series(self, since_s: float) -> Sequence[Reading]:
        """The readings from that moment on, in order."""

    def counters(self) -> Counters: ...

    def others(self) -> Sequence[int] | None:
        """Processes of others seen on the device since `start`; None where NVML does not tell."""


class NvmlTelemetry:
    """Reads NVML, between `start` and `stop` also on a thread."""

    def __init__(self, gpu: Gpu, period_s: float = PERIOD_S) -> None:
        self.gpu, self.period_s = gpu, period_s
        self.why: dict[str, str] = {}
        self._readings: list[Reading] = []
        self._others: set[int] | None = None
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def now(self) -> float:
        return time.monotonic()

    def facts(self) -> dict[str, Any]:
        return self.gpu.facts()

    def start(self) -> None:
        """Begin to read; where there is nothing to read, no thread is made."""
        self._readings.clear()
        self._end.clear()
        self._look_for_others()
        self._keep(self.reading())
        if self.gpu.usable and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpumicro-nvml", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, with one reading more."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                self.gpu.give_up(f"NVML did not answer for {JOIN_S:g} s")
            self._thread = None
        self._look_for_others()
        self._keep(self.reading())

    def close(self) -> None:
        self.gpu.close()

    def _run(self) -> None:
        period_s, next_list_s = self.period_s, self.now() + PROCESSES_S
        while not self._end.wait(period_s):
            self._keep(self.reading())
            if self.now() >= next_list_s:
                next_list_s = self.now() + PROCESSES_S
                self._look_for_others()
            if len(self._readings) >= MOST_READINGS:
                period_s *= 2
                with self._lock:
                    del self._readings[1::2]

    def _keep(self, reading: Reading) -> None:
        with self._lock:
            self._readings.append(reading)

    def _look_for_others(self) -> None:
        found = self.gpu.processes()
        if found.value is None:
            self.why["processes"] = found.why
        else:
            self._others = (self._others or set()) | set(found.value)

    def others(self) -> Sequence[int] | None:
        return None if self._others is None else sorted(self._others)

    def _value(self, key: str, answer: Answer) -> Any:
        if answer.value is None:
            self.why[key] = answer.why
        return answer.value

    def reading(self) -> Reading:
        state = {fact.key: self._value(fact.key, self.gpu.fact(fact)) for fact in STATE}
        return Reading(self.now(), **state, reasons=self._value("reasons", self.gpu.reasons()))

    def series(self, since_s: float) -> Sequence[Reading]:
        with self._lock:
            return [reading for reading in self._readings if reading.t_s >= since_s]

    def counters(self) -> Counters:
        energy = self.gpu.ask("nvmlDeviceGetTotalEnergyConsumption", convert=lambda mj: from_prefix(int(mj), "m"))
        limited: dict[str, float] = {}
        refusals: list[str] = []
        for name, (policy, field_id) in POLICIES.items():
            answer = self._limited(policy, field_id)
            if answer.value is None:
                refusals.append(answer.why)
            else:
                limited[name] = answer.value
        if not limited:
            self.why["limited_s"] = refusals[0]
        return Counters(self.now(), self._value("energy_j", energy), limited)

    def _limited(self, policy: int | None, field_id: int | None) -> Answer:
        """Seconds that one policy held the clock down: by the field, or by the older call."""
        answer = self.gpu.ask("nvmlDeviceGetFieldValues", [field_id], convert=_field_seconds)
        if answer.why and policy is not None:
            older = self.gpu.ask(
                "nvmlDeviceGetViolationStatus", policy, convert=lambda v: from_prefix(int(v.violationTime), "n")
            )
            return answer if older.why else older
        return answer


def _field_seconds(values: Any) -> float:
    """nvmlFieldValue_t: nanoseconds of a clock event counter; an error of its own in `nvmlReturn`."""
    one = values[0]
    if int(one.nvmlReturn) != 0:
        raise ValueError(f"NVML error {int(one.nvmlReturn)}")
    return from_prefix(int(one.value.ullVal), "n")
