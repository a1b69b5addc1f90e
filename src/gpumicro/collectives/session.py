"""The ranks at work: rank 0 says what comes next, the others follow. All that is timed is timed here.

One sample is one run after a barrier: the longest of the ranks' times. Rank 0 alone decides when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..timers import Counts as Runs
from ..timers import FloatArray, Tick, default_timer
from .crew import LOST, Crew
from .ranks import Case, Control

END, LOAD, SAMPLE, AVERAGE, CHECK, AGAIN, UNGATE = range(7)
RETAKES = 3  # of a run whose gate let go by itself


@dataclass(slots=True, eq=False)
class Sampled:
    """Seconds of an operation in each run: the longest of the ranks (NaN: to be taken again), their mean, the skew."""

    longest: FloatArray
    mean: FloatArray
    skew: FloatArray  # last start less first start

    def put(self, places: npt.NDArray[np.intp], other: Sampled) -> None:
        """Replace those runs."""
        self.longest[places], self.mean[places], self.skew[places] = other.longest, other.mean, other.skew


class Session:
    """One process's part. `beat` is called with words whenever something has moved on: a watchdog listens."""

    def __init__(
        self, control: Control, cases: Sequence[Case], crew: Crew, beat: Callable[[str], None] = lambda _: None
    ) -> None:
        self.control, self.cases, self.crew, self._beat = control, cases, crew, beat
        self.case: Case | None = None  # at work

    # --- rank 0 ---

    def command(self, word: int, number: int = 0) -> Any:
        """Tell all ranks, and do the same here."""
        self.control.tell(np.array([word, number], dtype=np.int64))
        return self._do(word, number)

    # --- the others ---

    def follow(self) -> None:
        """Do what rank 0 says until it says that it is over."""
        while True:
            words = np.zeros(2, dtype=np.int64)
            self.control.tell(words)
            word, number = (int(value) for value in words)
            if word == END:
                return
            self._do(word, number)

    # --- all ---

    def _do(self, word: int, number: int) -> Any:
        if word == END:
            return None
        steps: dict[int, Callable[[int], Any]] = {
            LOAD: self._load,
            SAMPLE: self._sample,
            AVERAGE: self._average,
            CHECK: self._check,
        }
        found = (steps | {AGAIN: self._check_again, UNGATE: self._ungate})[word](number)
        self._beat(self._words())
        return found

    def _words(self) -> str:
        case = self.case
        return "the start" if case is None else f"{case.kind.name} of {case.size_bytes} B, {case.place}"

    def _load(self, index: int) -> None:
        self.case = self.cases[index]
        self.crew.load(self.case)
        self.crew.fill()

    def _check(self, _: int) -> int:
        """Run once on fresh data and count the wrong elements of all ranks (rank 0)."""
        self.crew.fill()
        self.control.barrier()
        self.crew.run()
        return self._wrong()

    def _check_again(self, number: int) -> int:
        """What the timed runs left; where they overwrote what they were given, one more run."""
        return self._check(number) if self.case and self.case.in_place else self._wrong()

    def _wrong(self) -> int:
        return int(self.control.total(np.array([self.crew.wrong()], dtype=np.int64))[0])

    def _sample(self, count: int) -> Sampled:
        """So many runs (rank 0 knows)."""
        taken = self.crew.sample(count)
        most = self.control.greatest(np.concatenate((taken.longest, taken.last, -taken.first)))
        total = self.control.total(taken.total)
        longest, last, first = most[:count], most[count : 2 * count], -most[2 * count :]
        second = 1e-9 / self.crew.unit
        spans = np.where(longest == LOST, np.nan, longest * second)
        return Sampled(spans, np.multiply(total, second / self.crew.size), np.multiply(last - first, 1e-9))

    def _ungate(self, _: int) -> None:
        self.crew.ungate()

    def _average(self, count: int) -> float:
        """Seconds of an operation as nccl-tests has them: `count` runs in a row, the mean over the ranks (rank 0)."""
        span = self.crew.average(count)
        total = float(self.control.total(np.array([span], dtype=np.int64))[0])
        return total / self.crew.size / (count * self.crew.unit) * 1e-9


class RankTimer:
    """The clock of all ranks together, as rank 0 has it: see `timers.Timer`."""

    def __init__(self, session: Session) -> None:
        self._session, self._crew = session, session.crew
        self.name, self.estimand = session.crew.clock, session.crew.estimand
        self._tick: Tick | None = None
        self._flags: set[str] = set()
        self.means: list[float] = []  # of each sample so far: over the ranks, in seconds
        self.skews: list[float] = []

    def tick(self) -> Tick:
        """LSB and effective step, of one operation's share of a run."""
        if self._tick is None:
            found = self._crew.tick()
            self._tick = Tick(found.seconds / self._crew.unit, found.lsb_s / self._crew.unit, found.how)
        return self._tick

    def overhead(self, n: int = 256) -> FloatArray:
        """n spans of an empty region, in seconds of one operation's share."""
        return self._crew.overhead(n) / self._crew.unit

    def now(self) -> float:
        """Seconds on this clock."""
        return 1e-9 * self._session.control.clock_ns()

    def sample(self, work: Any, counts: npt.ArrayLike) -> FloatArray:  # noqa: ARG002  (each rank has its own)
        """Seconds of len(counts) runs, each after all ranks have come; every count is 1."""
        runs: Runs = np.asarray(counts, dtype=np.int64)
        assert (runs == 1).all(), "a span between ranks is one run"
        found: Sampled = self._session.command(SAMPLE, len(runs))
        for attempt in range(RETAKES + 1):
            lost = np.flatnonzero(np.isnan(found.longest))
            if len(lost) == 0:
                break
            self._flags.add("gate-timeout")
            if attempt == RETAKES:
                self._session.command(UNGATE)
                self._flags.add("ungated")
            found.put(lost, self._session.command(SAMPLE, len(lost)))
        self.means += found.mean.tolist()
        self.skews += found.skew.tolist()
        return found.longest

    def throttled_s(self) -> float:
        """Seconds in which rank 0's cgroup was stopped."""
        return default_timer().throttled_s()

    def take_flags(self) -> set[str]:
        """What rank 0 saw since the last call."""
        flags, self._flags = self._flags, set()
        return flags | self._crew.take_flags()
