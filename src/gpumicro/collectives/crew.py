"""The ranks of one process, on CPUs or GPUs: their data, their runs, their clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..measure import measure
from ..measurement import Policy
from ..timers import FloatArray, Tick, tick_of
from . import loops
from .buffers import HostBuffers, Layout
from .clocks import Clocks
from .operations import Counts
from .ranks import Case, Ints, Ranks

_OVERHEAD_S = 0.1  # for finding out what a call alone costs
LOST = 1 << 62  # a span whose gate let go by itself: longer than any, so that all ranks hear of it
Interval = tuple[float, float, float]  # median and the ends of its interval, in seconds


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Nanoseconds of each run, over the ranks of this process: the longest (LOST: to be taken again), the sum, and when
    they were there first and last; of the latter only differences mean something."""

    longest: Ints
    total: Ints
    first: Ints
    last: Ints


class Crew(Protocol):
    """The ranks of this process. `tick`, `overhead`, `call_overhead` and `take_flags` are asked of rank 0's alone; the
    others are called by all processes, in the same order."""

    size: int  # ranks of all processes
    unit: int  # operations in a run
    clock: str
    estimand: str
    loop: str  # "native" or "python": who starts the runs

    @property
    def skew_error_s(self) -> float:
        """By which the clocks of different hosts may falsify when runs began, since `load`."""

    def load(self, case: Case) -> None:
        """Make the case the one at work."""

    def fill(self) -> None:
        """Fresh data to send, poison wherever a result must come."""

    def run(self) -> object:
        """One operation, to its end."""

    def wrong(self) -> int:
        """Elements of the results here that are not what they must be."""

    def sample(self, count: int) -> Taken:
        """So many runs, each after all ranks have come."""

    def average(self, count: int) -> int:
        """So many runs in a row, warmed up: nanoseconds of all of them, the sum over the ranks here."""

    def call_overhead(self, case: Case) -> Interval | None:
        """What the call costs with nobody to talk to; None where it is no part of the time."""

    def tick(self) -> Tick: ...

    def overhead(self, n: int) -> FloatArray:
        """n spans of an empty region, in seconds."""

    def take_flags(self) -> set[str]:
        """What was seen since the last call."""

    def ungate(self) -> None:
        """Take runs without a gate from now on."""


class HostCrew:
    """One rank on a CPU, its data in the host's memory."""

    unit = 1
    clock = "perf_counter, longest of the ranks"
    estimand = "host"

    def __init__(self, ranks: Ranks, cases: Sequence[Case]) -> None:
        self._ranks, self.size, self.loop = ranks, ranks.size, ranks.loop
        largest = max((case.counts.shown for case in cases), default=0)
        self._buffers = HostBuffers(cases[0].dtype if cases else "float32", largest)
        self._layout: Layout | None = None
        self._run: Callable[[], object] = lambda: None
        self._clocks, self._looks = Clocks(ranks), 0

    @property
    def skew_error_s(self) -> float:
        return self._clocks.uncertainty_ns * 1e-9

    @property
    def layout(self) -> Layout:
        """Of the case at work."""
        assert self._layout is not None
        return self._layout

    def load(self, case: Case) -> None:
        self._layout = Layout(case, self._ranks.rank, self.size)
        self._run = self._ranks.bind(case, self._buffers.send, self._buffers.receive)
        self._looks = 0
        self._clocks.forget()

    def fill(self) -> None:
        self._buffers.fill(self.layout)

    def run(self) -> object:
        return self._run()

    def wrong(self) -> int:
        return self._buffers.wrong(self.layout)

    def sample(self, count: int) -> Taken:
        self._looks += 1
        if self._looks & (self._looks - 1) == 0:  # the 1st, 2nd, 4th, 8th ... time of a row
            self._clocks.refresh()
        starts, spans = loops.spans(self._ranks, self._run, count)
        began = starts - self._clocks.offset_ns
        return Taken(spans, spans, began, began)

    def average(self, count: int) -> int:
        self._clocks.refresh()  # once more, for the samples before
        self._run()  # to warm up
        self._ranks.barrier()
        return loops.row(self._ranks, self._run, count)

    def call_overhead(self, case: Case) -> Interval | None:
        """One element, a communicator of this rank alone."""
        elements = min(1, case.counts.shown)
        alone = Case(case.kind, Counts(elements, elements, elements), case.dtype, case.op, 0, case.in_place)
        buffers = HostBuffers(case.dtype, 1)
        run = self._ranks.alone().bind(alone, buffers.send, buffers.receive)
        if (compiled := loops.call_alone(run)) is not None:
            return compiled
        found = measure(
            run,
            Policy(target=0.05, max_time_s=_OVERHEAD_S, max_warmup_s=_OVERHEAD_S, max_samples=1000),
        )
        return found.estimate_s, *found.ci95_s

    def tick(self) -> Tick:
        return tick_of(self._spans(64, 2048))

    def overhead(self, n: int) -> FloatArray:
        return self._spans(1, n)

    def _spans(self, lengths: int, n: int) -> FloatArray:
        clock, found = self._ranks.clock_ns, []
        for i in range(n):
            begun = clock()
            for _ in range(i % lengths):
                pass
            found.append(clock() - begun)
        return np.array(found, dtype=np.float64) * 1e-9

    def take_flags(self) -> set[str]:
        return set()

    def ungate(self) -> None:
        """There is none."""
