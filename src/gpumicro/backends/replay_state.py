"""The clock, the timer and the telemetry of a replayed device: time passes only as recorded spans are played back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from ..device_timers import DISAGREE_OVER, LEAST_GAP_S
from ..errors import CudaError, UsageError
from ..faults import Dead, Events, Faults, Others, Silent, Slow, Throttle
from ..recording import counters_from_json, series_from_json
from ..telemetry import PERIOD_S, Counters, Reading
from ..timers import FloatArray, Tick

LEAST_DURATION_S = 0.05  # of a recorded series, to be gone through again and again


@dataclass(slots=True)
class Course:
    """One device's course through a replay: its time, its faults, and how many kernels it was asked to measure."""

    device: str
    faults: Faults = field(default_factory=Faults)
    now_s: float = 0.0
    measured: int = 0
    lost: str = ""

    def slowness(self) -> float:
        """How many times as long everything takes now."""
        factor = 1.0
        for slow in self.faults.of(Slow, self.device):
            factor *= slow.factor
        return factor * self.throttling()

    def throttling(self) -> float:
        """The part of it that NVML would tell of."""
        factor = 1.0
        for throttle in self._throttles():
            factor *= throttle.factor
        return factor

    def reasons(self, at_s: float) -> int:
        """The bits that faults add to a reading."""
        bits = 0
        for throttle in self.faults.of(Throttle, self.device):
            bits |= throttle.reasons if at_s >= throttle.from_s else 0
        return bits

    def _throttles(self) -> Iterator[Throttle]:
        return (t for t in self.faults.of(Throttle, self.device) if self.now_s >= t.from_s)

    def begin_measurement(self, kernel: str) -> None:
        """Count one more kernel that is about to be measured; raises the CudaError that a fault asks for."""
        self.check_alive()
        self.measured += 1
        for dead in self.faults.of(Dead, self.device):
            if dead.at_measurement == self.measured:
                error = CudaError(
                    "cudaStreamSynchronize", 700, "cudaErrorIllegalAddress", "an illegal memory access (injected)",
                    kernel, "", dead.lost,
                )  # fmt: skip
                self.lost = str(error) if dead.lost else ""
                raise error

    def check_alive(self) -> None:
        """A lost context gives its error again and again, as CUDA's does."""
        if self.lost:
            raise CudaError("cudaLaunchKernel", 700, "cudaErrorIllegalAddress", "the context is lost", lost=True)


class ReplayTimer:
    """Gives back the recorded spans of one measurement, in order and again from their second half.

    A span of another number of runs than the recorded one is scaled, without the overhead in it.
    """

    def __init__(self, kept: Mapping[str, Any], take: Mapping[str, Any], course: Course) -> None:
        self.name: str = kept["name"]
        for key, value in kept["about"].items():
            setattr(self, key, tuple(value) if isinstance(value, list) else value)
        self._tick = Tick(kept["tick_s"], kept["lsb_s"], f"recorded: {kept['how']}")
        self._overheads = np.asarray(kept["overhead_s"])
        self._overhead_s = float(np.median(self._overheads))
        self._counts, self._spans = np.asarray(take["counts"]), np.asarray(take["spans_s"])
        self._flags = set(take["flags"])
        self._course = course
        self._next = self._next_overhead = 0

    def with_cache(self, cache: str) -> ReplayTimer:
        """Itself: the caches were as they were."""
        del cache
        return self

    def tick(self) -> Tick:
        return self._tick

    def overhead(self, n: int = 256) -> FloatArray:
        at = (self._next_overhead + np.arange(n)) % len(self._overheads)
        self._next_overhead += n
        spans: FloatArray = self._overheads[at]
        self._course.now_s += float(spans.sum())
        return spans

    def now(self) -> float:
        return self._course.now_s

    def throttled_s(self) -> float:
        return 0.0

    def take_flags(self) -> set[str]:
        """What the recorded timer said, and `event-wall` where the clocks were made to disagree."""
        found, self._flags = self._flags, set()
        return found

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:
        """The next spans. The wall clock goes on by what they take, whatever an events fault makes them read."""
        if not isinstance(getattr(work, "work", work), ReplayWork):
            raise UsageError("a replay has only the kernels that were recorded")
        self._course.check_alive()
        wanted = np.asarray(counts, dtype=np.int64)
        spans, walls = np.empty(len(wanted)), np.empty(len(wanted))
        reads = 1.0
        for events in self._course.faults.of(Events, self._course.device):
            reads *= events.factor
        for index, runs in enumerate(wanted):
            walls[index] = self._span(int(runs))
            self._course.now_s += walls[index]
            spans[index] = walls[index] if reads == 1.0 else self._on_grid(walls[index] * reads)
        if len(spans):
            apart_s = abs(float(np.median(walls - spans)))
            if apart_s > max(DISAGREE_OVER * float(np.median(spans)), LEAST_GAP_S):
                self._flags.add("event-wall")
        return spans

    def _span(self, runs: int) -> float:
        if self._next >= len(self._spans):
            self._next = len(self._spans) // 2  # the first ones are cold
        span_s, recorded = float(self._spans[self._next]), int(self._counts[self._next])
        self._next += 1
        slowness = self._course.slowness()
        if runs == recorded and slowness == 1.0:
            return span_s
        net_s = max(span_s - self._overhead_s, 0.0) * slowness * runs / recorded
        return self._on_grid(min(span_s, self._overhead_s) + net_s)

    def _on_grid(self, span_s: float) -> float:
        lsb_s = self._tick.lsb_s
        return round(span_s / lsb_s) * lsb_s if lsb_s > 0 else span_s


class ReplayWork:
    """What stands for a recorded kernel where a work is wanted. It can't be called: there is no device."""

    def __init__(self, kernel: str, loop: str) -> None:
        self.kernel, self.loop = kernel, loop

    def __call__(self) -> None:
        raise UsageError(f"{self.kernel} was recorded; only its own replay timer can play it back")


@dataclass(slots=True)
class ReplayTelemetry:
    """Recorded readings, laid along the replay's time again and again, with the faults in them."""

    record: Mapping[str, Any]
    course: Course
    why: dict[str, str] = field(default_factory=dict)
    _readings: list[Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._readings = series_from_json(self.record["series"])
        self.why = dict(self.record["why"])
        for silent in self.course.faults.of(Silent, self.course.device):
            self.why |= dict.fromkeys(silent.missing, f"NVML: {silent.why} (injected)")

    def _silent(self, key: str) -> bool:
        return any(key in silent.missing for silent in self.course.faults.of(Silent, self.course.device))

    def start(self) -> None:
        """Nothing runs beside a replay."""

    def stop(self) -> None:
        """Nothing runs beside a replay."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def now(self) -> float:
        return self.course.now_s

    def facts(self) -> dict[str, Any]:
        facts = dict(self.record["facts"])
        if self._silent("facts"):
            why = self.why["facts"]
            for key in [key for key in facts if not key.endswith("_why")]:
                facts |= {key: None, f"{key}_why": why}
        return facts

    def reading(self) -> Reading:
        return self._at(self.course.now_s)

    def series(self, since_s: float) -> Sequence[Reading]:
        """One reading each PERIOD_S of the replay's time; at most 4096, further apart over a long time."""
        if not self._readings:
            return []
        until_s = self.course.now_s
        step_s = max(PERIOD_S, (until_s - since_s) / 4096)
        times = (since_s + step_s * k for k in count())
        found = []
        for t_s in times:
            if t_s > until_s:
                break
            found.append(self._at(t_s))
        return found

    def _at(self, t_s: float) -> Reading:
        if not self._readings:
            return Reading(t_s)
        duration_s = max(self._readings[-1].t_s, LEAST_DURATION_S)
        place = t_s % duration_s / duration_s * len(self._readings)
        reading = replace(self._readings[min(int(place), len(self._readings) - 1)], t_s=t_s)
        bits = self.course.reasons(t_s)
        if bits and reading.reasons is not None:
            factor = self.course.throttling() if t_s >= self.course.now_s else self._throttling_at(t_s)
            slower = None if reading.sm_hz is None else reading.sm_hz / factor
            reading = replace(reading, reasons=(reading.reasons | bits) & ~0x1, sm_hz=slower)
        hidden = {key: None for key in ("sm_hz", "memory_hz", "power_w", "temperature_c", "utilization", "reasons")
                  if self._silent(key)}  # fmt: skip
        return replace(reading, **hidden)  # type: ignore[arg-type]

    def _throttling_at(self, t_s: float) -> float:
        factor = 1.0
        for throttle in self.course.faults.of(Throttle, self.course.device):
            factor *= throttle.factor if t_s >= throttle.from_s else 1.0
        return factor

    def counters(self) -> Counters:
        """What the recording's counters grew by, in proportion to the time that passed; faults add to them."""
        whole = counters_from_json(self.record["counters"])
        now_s = self.course.now_s
        share = now_s / whole.t_s if whole.t_s > 0 else 0.0
        limited = {name: seconds * share for name, seconds in whole.limited_s.items()}
        for throttle in self.course.faults.of(Throttle, self.course.device):
            for bit, name in _COUNTED.items():
                if throttle.reasons & bit and limited:
                    limited[name] = limited.get(name, 0.0) + max(0.0, now_s - throttle.from_s)
        energy_j = None if whole.energy_j is None else whole.energy_j * share
        return Counters(
            now_s, None if self._silent("energy_j") else energy_j, {} if self._silent("limited_s") else limited
        )

    def others(self) -> Sequence[int] | None:
        if self._silent("processes"):
            return None
        seen = self.record["others"]
        more = {pid for fault in self.course.faults.of(Others, self.course.device) for pid in fault.pids}
        return None if seen is None and not more else sorted({*(seen or ()), *more})


# bits that a counter tells of too
_COUNTED = {0x4: "power", 0x10: "sync boost", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake",
            0x200: "board limit", 0x400: "reliability"}  # fmt: skip
