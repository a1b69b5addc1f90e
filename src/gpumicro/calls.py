"""What a function's calls took, by how much they did: kept as they come, described when asked.

The times are the host's, around calls as a script makes them: cold or warm, few or many, with whatever ran beside them.
They say where a script stands. For a figure to publish use `roof.place(f, *args)` or `gm.time_kernel`, which repeat,
warm up and stop by the interval.
"""

from __future__ import annotations

import threading
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import stats
from .counts import Counts, Declared
from .errors import UsageError
from .notebook import html_table
from .placed import Placed, with_interval
from .sampling import LEAST

KEPT = 10_000  # calls of one function whose times are kept: 80 kB
SHORT_S = 10e-6  # a shorter call is timed to some 3% at best: two readings of the clock and a call are within it


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Calls of one function that did as much each. Seconds of the host's clock; the first call is shown apart."""

    name: str
    n: int  # calls behind the estimate
    estimate_s: float  # median
    ci95_s: tuple[float, float] | None  # None below 6 calls
    flags: tuple[str, ...]
    first_s: float  # of the first call, which compiles, allocates and warms up; in the estimate only where it is alone
    counts: Counts | None

    @property
    def __gpumicro_counts__(self) -> Declared:
        return Declared(counts=self.counts)

    def rows(self) -> list[tuple[str, str]]:
        """Names and values in words."""
        only = "" if self.ci95_s else "; fewer than 6 calls give no interval"
        return [
            ("calls", f"{self.n}{only}"),
            ("time", with_interval(self.estimate_s, self.ci95_s, "s")),
            ("first call", with_interval(self.first_s, None, "s")),
            ("flags", ", ".join(self.flags)),
        ]


@dataclass(frozen=True, slots=True)
class Report:
    """What the calls of a function took, by how much they did, each with its place under the roof that was given."""

    name: str
    groups: tuple[tuple[CallTimes, Placed | None], ...]
    remarks: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Names and values in words, group after group."""
        found: list[tuple[str, str]] = []
        for times, placed in self.groups:
            found += [row for row in times.rows() if not placed or row[0] != "flags"]
            found += [row for row in placed.rows() if row[0] != "time"] if placed else []
        return [*(row for row in found if row[1]), *(("note", remark) for remark in self.remarks)]

    def __str__(self) -> str:
        return "\n".join([self.name, *(f"  {name}: {value}" for name, value in self.rows())])

    def _repr_html_(self) -> str:
        return html_table(self.name, self.rows())


@dataclass(slots=True)
class Calls:
    """The calls of one function, as they came. `kept` calls have their time; later ones are only counted."""

    name: str
    keep: int = KEPT
    made: int = 0
    failed: int = 0  # raised; not timed
    seconds: dict[Counts | None, array[float]] = field(default_factory=dict)  # of the kept calls, in order
    trouble: str = ""  # why a call's counts could not be found
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, seconds: float, counts: Counts | None) -> None:
        """One call that came back."""
        with self.lock:
            self.made += 1
            if self.made <= self.keep:
                self.seconds.setdefault(counts, array("d")).append(seconds)

    def clear(self) -> None:
        """Forget them: after a warm-up of the script's own."""
        with self.lock:
            self.made = self.failed = 0
            self.seconds, self.trouble = {}, ""

    def times(self) -> list[CallTimes]:
        """By how much the calls did, in the order of their first. Each group has its own first call apart: a framework
        compiles for each shape."""
        with self.lock:
            groups = {counts: np.array(kept) for counts, kept in self.seconds.items()}
        return [_times(self.name, seen[1:] if len(seen) > 1 else seen, float(seen[0]), counts)
                for counts, seen in groups.items()]  # fmt: skip

    def remarks(self) -> tuple[str, ...]:
        """What a reader must know beside the figures."""
        told = ["host time around each call: what a call only starts is not in it"]
        told += [f"{self.failed} more calls raised and were not timed"] if self.failed else []
        told += [f"{self.made - self.keep} later calls were counted but not timed"] if self.made > self.keep else []
        return (*told, *([self.trouble] if self.trouble else []))


def _times(name: str, seen: Any, first_s: float, counts: Counts | None) -> CallTimes:
    location = stats.median_location(seen)
    estimate = location.estimate
    flags = {
        "correlated": location.dependence.correlated,
        "drift": abs(stats.drift(seen, location.dependence.tau)) > max(0.01, location.relative),
        "bimodal": stats.modes(seen, 0.0) is not None,
        "below-resolution": estimate < SHORT_S,
        "few-samples": len(seen) < LEAST,
    }
    ends = (location.low, location.high) if len(seen) >= LEAST else None
    return CallTimes(name, len(seen), estimate, ends, tuple(k for k, v in flags.items() if v), first_s, counts)


def report(calls: Calls, roof: Any = None, **where: Any) -> Report:
    """What the calls took; with a `gm.Roofline` each group stands under it (`where`: level, unit, device of `place`).

    Nothing is added to the roofline's chart. UsageError before the first call.
    """
    found = calls.times()
    if not found:
        raise UsageError(f"{calls.name} has not been called, so there is nothing to report")
    groups = tuple(
        (one, roof.look(one, counts=one.counts, **where) if roof is not None and one.counts else None) for one in found
    )
    return Report(calls.name, groups, calls.remarks())
