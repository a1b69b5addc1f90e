"""Timers on a GPU's own clock: events around work behind a gate, and the slope of graph replays.

What a span means, why a gate, and what each flag says: docs/methods.md. The native clock does the mechanics; what to do
when a gate times out, a work synchronises or the clocks disagree is decided here, and tested with a fake clock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from . import stats
from .device_clock import QUEUE_LIMIT, WHOLE, CacheState, Clock, native, native_clock, profiler
from .errors import CudaError, UsageError
from .timers import DITHER, Counts, FakeWork, FloatArray, Tick, as_work, tick_of

LADDER = (1, 2, 4)  # lengths of a graph timer's replays, in batches
LARGEST_GRAPH = 1024  # runs in the batch: the longest graph has four times as many nodes
PROBE_GATE_S = 0.25  # a first gated run that takes longer waits for the device inside
RETAKES = 3  # of a span whose gate timed out
LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout
DISAGREE_OVER = 0.05  # of a span: events and the host's clock may differ by so much
LEAST_GAP_S = 10e-6  # the host sees a completion later or sooner by this much, now and then
SPIN_STEP_CYCLES = 61  # prime, about 40 ns: 64 lengths cross some steps of any event clock


class EventTimer:
    """One launch, or a batch of them, on an otherwise idle device: two events around work that waits behind a gate.

    device: its index. cache: "hot", or "cold": a buffer of twice the L2 is read before each span, which is then one
    run long. watchdog_s: a span that takes longer hangs: CudaError, and flag "hung". stream: handle of the stream that
    it records on, None for the device's measuring stream. current: `current(stream, device)` is entered around all
    spans, and makes the stream the current one of frameworks that know such a thing.

    Flags: "gate-timeout" (a span was taken again, its gate having let go by itself), "sync" (the work waits for the
    device inside, so it is timed without a gate and the host's launch cost is in it), "ungated" (the same for all work:
    a profiler, a debugger, CUDA_LAUNCH_BLOCKING), "event-wall" (events and the host's clock disagree), "hung".
    """

    name = "event"
    estimand = "isolated"

    def __init__(
        self,
        device: int = 0,
        cache: CacheState = "hot",
        *,
        gate_timeout_s: float = 1.0,
        watchdog_s: float = 30.0,
        seed: int = 1,
        stream: int | None = None,
        clock: Clock | None = None,
        spin: Any = None,
        current: Callable[[int, int], AbstractContextManager[object]] | None = None,
    ) -> None:
        if cache not in ("hot", "cold"):
            raise UsageError(f"cache is 'hot' or 'cold', not {cache!r}")
        self.device, self.cache = device, cache
        self._options: dict[str, Any] = {"gate_timeout_s": gate_timeout_s, "watchdog_s": watchdog_s, "seed": seed}
        self._given: dict[str, Any] = {"clock": clock, "spin": spin, "stream": stream, "current": current}
        self._clock: Clock = clock if clock is not None else native_clock(device, cache, stream=stream, **self._options)
        self._spin, self._current = spin, current
        self._tick: Tick | None = None
        self._other: EventTimer | None = None
        self._flags: set[str] = set()
        self._gated: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._gap: tuple[float, float] | None = None  # host's time beside an empty span: median and MAD
        self._walls = np.zeros(0)  # host's time of each span of the last sample
        self._queue_limit = QUEUE_LIMIT
        self.gates = not profiler() and self._clock.gate_holds()  # whether work waits behind one

    @property
    def largest_batch(self) -> int:
        """Runs in a span: of a cold cache only the first is cold."""
        return 1 if self.cache == "cold" else 1 << 20

    def with_cache(self, cache: CacheState) -> EventTimer:
        """This timer, or one of its kind that leaves the caches in another state."""
        if cache == self.cache:
            return self
        if self._other is None:
            # The native clock is made anew, CuPy's knows how, a fake one evicts nothing.
            change = getattr(self._clock, "with_cache", None)
            given = self._given | ({"clock": change(cache)} if change else {})
            self._other = EventTimer(self.device, cache, **self._options, **given)
            self._other._tick = self._tick
        return self._other

    # --- a Timer ---

    def tick(self) -> Tick:
        """LSB and effective step of the event clock, from 2,048 spans around one spinning kernel of 64 lengths."""
        if self._tick is None:
            self._tick = self._find_tick()
            # The delay behind the gate must span a step, or spans would keep one phase against it.
            self._clock.phase_s = max(self._clock.phase_s, self._tick.seconds)
        return self._tick

    def _find_tick(self) -> Tick:
        make = getattr(self._clock, "spin", None)
        if self._spin is None and make is None and self._given["stream"] is not None:
            return EventTimer(self.device, **self._options).tick()  # the native spin is for the measuring stream
        spin = self._spin
        if spin is None:
            spin = make(SPIN_STEP_CYCLES) if make else native().spin(self.device, SPIN_STEP_CYCLES, True)
        return tick_of(self.sample(spin, DITHER))

    def graphs(self, work: Any) -> Any:
        """Graphs of a work, by the clock's own means where it has some; they do not keep the work alive."""
        make = getattr(self._clock, "graphs", None)
        return make(work) if make else native().Graphs(self.device, work, keep=False, stream=self.stream)

    def overhead(self, n: int = 256) -> FloatArray:
        """n spans with nothing between the events, in seconds."""
        empty = np.zeros(n, dtype=np.int64)
        spans = self._take(None, empty, self.gates)
        if n > 0:
            self._gap = (stats.median(self._walls - spans), stats.mad(self._walls - spans))
        return spans

    def host_gaps(self, n: int = 256) -> FloatArray:
        """n times what the host sees beside an empty span: from the gate's opening to the end, less the span."""
        spans = self.overhead(n)
        return self._walls - spans

    def wait(self) -> None:
        """Return when all that was queued on the stream before is done."""
        self._clock.sample(None, np.zeros(1, dtype=np.int64), False)

    def now(self) -> float:
        """Seconds on the host's clock, from an arbitrary origin."""
        return self._clock.now()

    def sample(self, work: Any, counts: npt.ArrayLike, *, whole: bool = False) -> FloatArray:
        """Whole-span seconds by the device's clock; span i is counts[i] runs, the events' own cost included.

        The work must enqueue on the device's measuring stream (`stream`). CudaError where it hangs or fails.
        whole: the work enqueues any number of runs by one launch.
        """
        runnable, lengths = as_device_work(work), np.asarray(counts, dtype=np.int64)
        if len(lengths) == 0:
            return np.zeros(0)
        try:
            with self.current():
                gated = self._knows(runnable, lengths[:1], whole)
                spans = self._take(runnable, lengths, gated, whole)
        except CudaError as error:
            self._flags |= {"hung"} if hangs(error) else set()
            raise
        if gated:
            self._set_against_walls(spans)
        return spans

    def throttled_s(self) -> float:
        """0.0: what holds a GPU back is told by NVML's counters, which are watched elsewhere."""
        return 0.0

    def take_flags(self) -> set[str]:
        """What was seen since the last call."""
        flags, self._flags = self._flags, set()
        return flags

    @property
    def stream(self) -> int:
        """Handle of the stream that it records on: where a Python callable has to enqueue."""
        return int(getattr(self._clock, "stream", 0))

    def current(self) -> AbstractContextManager[object]:
        """A context in which that stream is the current one of the frameworks that know such a thing."""
        return self._current(self.stream, self.device) if self._current else nullcontext()

    # --- the rules of the gate ---

    def _knows(self, work: Any, first: Counts, whole: bool) -> bool:
        """Whether to gate this work. A new one runs first without a gate, then once behind one."""
        if not self.gates:
            self._flags.add("ungated")
            return False
        try:
            known = self._gated.get(work)
        except TypeError:  # no weak reference to it: asked anew each time
            known = None
        if known is None:
            # Loading a kernel waits for the device: behind a closed gate that would be for ever.
            limit = WHOLE if whole else self._queue_limit
            self._clock.sample(work, first, False, limit)
            limit_s, self._clock.gate_timeout_s = self._clock.gate_timeout_s, PROBE_GATE_S
            try:
                known = not bool(np.isnan(self._clock.sample(work, first, True, limit)[0]))
            finally:
                self._clock.gate_timeout_s = limit_s
            with suppress(TypeError):
                self._gated[work] = known
        if not known:
            self._flags.add("sync")
        return known

    def _take(self, work: Any, counts: Counts, gated: bool, whole: bool = False) -> FloatArray:
        """Spans, those whose gate timed out taken again; none is NaN."""
        spans = np.array(self._clock.sample(work, counts, gated, WHOLE if whole else self._queue_limit))
        walls = np.array(self._clock.walls_s)
        for attempt in range(RETAKES + 1):
            bad = np.flatnonzero(np.isnan(spans))
            if len(bad) == 0:
                break
            self._flags.add("gate-timeout")
            # Perhaps the queue was full and the host could not reach the opening: fewer launches behind the gate.
            self._queue_limit = max(1, self._queue_limit // 4)
            again = gated and attempt < RETAKES
            spans[bad] = self._clock.sample(work, counts[bad], again, WHOLE if whole else self._queue_limit)
            walls[bad] = self._clock.walls_s
        self._walls = walls
        return spans

    def _set_against_walls(self, spans: FloatArray) -> None:
        """Flag spans that the host saw take longer or shorter, beyond what it sees of an empty one."""
        walls = self._walls
        if self._gap is None:
            self.overhead(64)
        assert self._gap is not None
        known, spread = self._gap
        excess = stats.median(walls - spans) - known
        if abs(excess) > max(DISAGREE_OVER * stats.median(spans), 10 * spread, LEAST_GAP_S):
            self._flags.add("event-wall")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device}, {self.cache!r})"


class GraphTimer:
    """The steady cost of one run in a chain: the slope of a graph's replay time over the runs captured in it.

    Spans of N, 2N and 4N runs in random order; the fixed cost of a replay is the intercept and falls out. Flag
    "nonlinear": the three lie on no line. UsageError for work that cannot be captured.
    """

    name = "graph"
    estimand = "period"
    cache = "hot"
    ladder = LADDER
    largest_batch = LARGEST_GRAPH

    def __init__(
        self, device: int = 0, *, events: EventTimer | None = None, capture: Any = None, **options: Any
    ) -> None:
        self.device = device
        self.events = events or EventTimer(device, **options)
        # Graphs that kept their work would keep it for ever: they go when it goes.
        self._capture = capture or self.events.graphs
        self._graphs: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()

    def tick(self) -> Tick:
        """The event clock's."""
        return self.events.tick()

    def overhead(self, n: int = 256) -> FloatArray:
        """n spans with nothing between the events, in seconds; a replay's own cost comes from its slope."""
        return self.events.overhead(n)

    def now(self) -> float:
        """Seconds on the host's clock, from an arbitrary origin."""
        return self.events.now()

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:
        """Whole-span seconds; span i is one replay of a graph of counts[i] runs."""
        lengths = np.asarray(counts, dtype=np.int64)
        graphs, replay = self._captured(as_device_work(work))
        for runs in np.unique(lengths).tolist():
            try:
                with self.events.current():
                    graphs.capture(runs)
            except (CudaError, ValueError) as error:
                raise UsageError(f"this work cannot be captured in a graph ({error}); use the event timer") from error
        return self.events.sample(replay, lengths, whole=True)

    def throttled_s(self) -> float:
        """As the event timer's."""
        return self.events.throttled_s()

    def take_flags(self) -> set[str]:
        """What was seen since the last call."""
        return self.events.take_flags()

    def _captured(self, work: Any) -> tuple[Any, Any]:
        """The work's graphs, kept for as long as it lives, and the work that replays them."""
        found = self._graphs.get(work)
        if found is None:
            self.events.sample(work, [1])  # whatever is loaded lazily must be before a capture
            graphs = self._capture(work)
            found = self._graphs[work] = (graphs, graphs.work)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device})"


def as_device_work(work: Any) -> Any:
    """What a device timer can run; FakeWork is for a FakeTimer only."""
    runnable = as_work(work)
    if isinstance(runnable, FakeWork):
        raise UsageError("FakeWork takes fake time only: give it to a FakeTimer")
    return runnable


def hangs(error: CudaError) -> bool:
    """Whether a watchdog raised this: ours, or the driver's own."""
    return error.code == LAUNCH_TIMEOUT
