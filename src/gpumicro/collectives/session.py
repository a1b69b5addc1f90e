"""The ranks at work: rank 0 says what comes next, the others follow. All that is timed is timed here.

One sample is one run after a barrier: the longest of the ranks' times. Rank 0 alone decides when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..timers import Counts as Runs
from ..timers import FloatArray, Tick, default_timer, tick_of
from . import loops
from .buffers import Buffers, Loaded
from .clocks import Clocks
from .ranks import Case, Ints, Ranks

END, LOAD, SAMPLE, AVERAGE, CHECK, AGAIN = range(6)


class Session:
    """One rank's part. `beat` is called with words whenever something has moved on: a watchdog listens."""

    def __init__(self, ranks: Ranks, cases: Sequence[Case], beat: Callable[[str], None] = lambda _: None) -> None:
        self.ranks, self.cases, self._beat = ranks, cases, beat
        largest = max((case.counts.shown for case in cases), default=0)
        self._buffers = Buffers(cases[0].dtype, largest) if cases else None
        self._loaded: Loaded | None = None
        self.clocks, self._looks = Clocks(ranks), 0
        self.means: list[float] = []  # of the samples of this case: over the ranks, in seconds
        self.skews: list[float] = []  # last start less first start

    # --- rank 0 ---

    def command(self, word: int, number: int = 0) -> Any:
        """Tell all ranks, and do the same here."""
        self.ranks.tell(np.array([word, number], dtype=np.int64))
        return self._do(word, number)

    # --- the others ---

    def follow(self) -> None:
        """Do what rank 0 says until it says that it is over."""
        while True:
            words = np.zeros(2, dtype=np.int64)
            self.ranks.tell(words)
            word, number = (int(value) for value in words)
            if word == END:
                return
            self._do(word, number)

    # --- all ---

    def _do(self, word: int, number: int) -> Any:
        if word == END:
            return None
        steps = {LOAD: self._load, SAMPLE: self._sample, AVERAGE: self._average, CHECK: self._check}
        found = (steps | {AGAIN: self._check_again})[word](number)
        self._beat(self._words())
        return found

    def _words(self) -> str:
        if self._loaded is None:
            return "the start"
        case = self._loaded.case
        return f"{case.kind.name} of {case.size_bytes} B, {case.place}"

    def _load(self, index: int) -> None:
        assert self._buffers is not None
        self._loaded = Loaded(self.ranks, self.cases[index], self._buffers)
        self._loaded.fill()
        self.means.clear()
        self.skews.clear()
        self._looks = 0
        self.clocks.forget()

    @property
    def loaded(self) -> Loaded:
        """The case at work."""
        assert self._loaded is not None
        return self._loaded

    def _check(self, _: int) -> int:
        """Run once on fresh data and count the wrong elements of all ranks (rank 0)."""
        self.loaded.fill()
        self.ranks.barrier()
        self.loaded.run()
        return self._wrong()

    def _check_again(self, number: int) -> int:
        """What the timed runs left; where they overwrote what they were given, one more run."""
        return self._check(number) if self.loaded.case.in_place else self._wrong()

    def _wrong(self) -> int:
        return int(self.ranks.total(np.array([self.loaded.wrong()], dtype=np.int64))[0])

    def _sample(self, count: int) -> FloatArray:
        """Seconds of each run, the longest of the ranks (rank 0)."""
        starts, spans = self._timed(count)
        most = self.ranks.greatest(np.concatenate((spans, starts, -starts)))
        total = self.ranks.total(spans)
        longest, last, first = most[:count], most[count : 2 * count], -most[2 * count :]
        self.means += (total / self.ranks.size * 1e-9).tolist()
        self.skews += ((last - first) * 1e-9).tolist()
        return np.multiply(longest, 1e-9, dtype=np.float64)

    def _timed(self, count: int) -> tuple[Ints, Ints]:
        self._looks += 1
        if self._looks & (self._looks - 1) == 0:  # the 1st, 2nd, 4th, 8th ... time of a row
            self.clocks.refresh()
        starts, spans = loops.spans(self.ranks, self.loaded.run, count)
        return starts - self.clocks.offset_ns, spans

    def _average(self, count: int) -> float:
        """Seconds of a run as nccl-tests has them: `count` in a row, the mean over the ranks (rank 0)."""
        self.clocks.refresh()  # once more, for the samples before
        self.loaded.run()  # to warm up
        self.ranks.barrier()
        span = loops.row(self.ranks, self.loaded.run, count)
        return float(self.ranks.total(np.array([span], dtype=np.int64))[0]) / self.ranks.size / count * 1e-9


class RankTimer:
    """The clock of all ranks together, as rank 0 has it: see `timers.Timer`."""

    name = "perf_counter, longest of the ranks"

    def __init__(self, session: Session) -> None:
        self._session, self._clock = session, session.ranks.clock_ns
        self._tick: Tick | None = None

    def tick(self) -> Tick:
        """LSB and effective step."""
        if self._tick is None:
            self._tick = tick_of(self._spans(64, 2048))
        return self._tick

    def overhead(self, n: int = 256) -> FloatArray:
        """n spans of an empty region, in seconds."""
        return self._spans(1, n)

    def _spans(self, lengths: int, n: int) -> FloatArray:
        clock, found = self._clock, []
        for i in range(n):
            begun = clock()
            for _ in range(i % lengths):
                pass
            found.append(clock() - begun)
        return np.array(found, dtype=np.float64) * 1e-9

    def now(self) -> float:
        """Seconds on this clock."""
        return self._clock() * 1e-9

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:  # noqa: ARG002  (each rank has its own)
        """Seconds of len(counts) runs, each after a barrier; every count is 1."""
        runs: Runs = np.asarray(counts, dtype=np.int64)
        assert (runs == 1).all(), "a span between ranks is one run"
        found: FloatArray = self._session.command(SAMPLE, len(runs))
        return found

    def throttled_s(self) -> float:
        """Seconds in which rank 0's cgroup was stopped."""
        return default_timer().throttled_s()
