"""`gm.measured`: what a script's own calls took, and how much each does, kept beside the function itself.

The times here are the host's, around calls as the script makes them: cold or warm, few or many, with whatever ran
beside them. They say where a script stands. For a figure to publish use `roof.place(f, *args)` or `gm.time_kernel`,
which repeat, warm up and stop by the interval.
"""

from __future__ import annotations

import inspect
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np

from . import stats
from .counts import ATTRIBUTE, Amount, Counts, Declared
from .errors import UsageError
from .notebook import html_table
from .placed import Placed, with_interval

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

KEPT = 10_000  # calls of one function whose times are kept: 80 kB
LEAST = 6  # calls below which a median has no 95% interval
SHORT_S = 10e-6  # a call below this is timed to 10% at best: the wrapper's own two readings are within it
PLAIN = "__gpumicro_plain__"  # where a measured function keeps the one that it wraps


class MeasuredFunction(Protocol[P, R_co]):
    """The function as it was, with its calls beside it."""

    calls: Calls

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def report(self, roof: Any = None, **where: Any) -> Report: ...


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Calls of one function that did as much each. Seconds of the host's clock; the first call is shown apart."""

    name: str
    n: int  # calls behind the estimate
    estimate_s: float  # median
    ci95_s: tuple[float, float] | None  # None below 6 calls
    flags: tuple[str, ...]
    first_s: float  # the very first call, which compiles, allocates and warms up; not in the estimate where n > 1
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
            found += times.rows()
            found += [row for row in placed.rows() if row[0] not in ("time", "flags")] if placed else []
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
    first_s: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, seconds: float, counts: Counts | None) -> None:
        """One call that came back."""
        with self.lock:
            self.made += 1
            if self.first_s is None:
                self.first_s = seconds
            if self.made <= self.keep:
                self.seconds.setdefault(counts, array("d")).append(seconds)

    def clear(self) -> None:
        """Forget them: after a warm-up of the script's own."""
        with self.lock:
            self.made = self.failed = 0
            self.seconds, self.trouble, self.first_s = {}, "", None

    def times(self) -> list[CallTimes]:
        """By how much the calls did, in the order of their first."""
        with self.lock:
            groups = {counts: np.array(kept) for counts, kept in self.seconds.items()}
            first_s = self.first_s
        found = []
        for i, (counts, seen) in enumerate(groups.items()):
            warm = seen[1:] if i == 0 and len(seen) > 1 else seen
            found.append(_times(self.name, warm, float(seen[0]) if i else float(first_s or seen[0]), counts))
        return found

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
        "few-calls": len(seen) < LEAST,
    }
    ends = (location.low, location.high) if len(seen) >= LEAST else None
    return CallTimes(name, len(seen), estimate, ends, tuple(k for k, v in flags.items() if v), first_s, counts)


@dataclass(slots=True)
class Region:
    """One region of a script, timed once: no interval. `gm.measured` as a context manager gives it."""

    name: str
    declared: Declared
    time_s: float | None = None  # None until the region has ended, and where it raised

    @property
    def __gpumicro_counts__(self) -> Declared:
        return self.declared

    @property
    def estimate_s(self) -> float:
        """Its seconds; UsageError where it has not come to its end."""
        if self.time_s is None:
            raise UsageError(f"{self.name} has no time: the region has not ended, or it raised")
        return self.time_s

    @property
    def ci95_s(self) -> None:
        """One time has no interval."""
        return

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader must know of it."""
        short = self.time_s is not None and self.time_s < SHORT_S
        return ("few-calls", "below-resolution") if short else ("few-calls",)

    def __str__(self) -> str:
        took = "has not ended" if self.time_s is None else with_interval(self.time_s, None, "s")
        return f"{self.name}: {took} (once: no interval)"

    def _repr_html_(self) -> str:
        return html_table(self.name, [("time", str(self).partition(": ")[2])])


@dataclass(slots=True)
class Measuring:
    """What `gm.measured(...)` gives: decorate a function with it, or enter it."""

    declared: Declared
    name: str | None = None
    keep: int = KEPT
    sync: Callable[[], object] | None = None
    _entered: list[tuple[Region, float]] = field(default_factory=list)

    def __call__(self, function: Callable[P, R]) -> MeasuredFunction[P, R]:
        return _measured_function(self, function)

    def __enter__(self) -> Region:
        region = Region(self.name or "region", self.declared)
        if self.sync:
            self.sync()  # what was started before the region is not its work
        self._entered.append((region, time.perf_counter()))
        return region

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.sync:
            self.sync()
        ended = time.perf_counter()
        region, began = self._entered.pop()
        if kind is None:
            region.time_s = ended - began


@overload
def measured(function: Callable[P, R], /) -> MeasuredFunction[P, R]: ...
@overload
def measured(
    *, flops: Amount | None = None, bytes: Amount | None = None,
    counts: Counts | Callable[..., Counts] | None = None, dtype: Any = None, name: str | None = None,
    keep: int = KEPT, sync: Callable[[], object] | None = None,
) -> Measuring: ...  # fmt: skip
def measured(
    function: Callable[P, R] | None = None, /, *, flops: Amount | None = None, bytes: Amount | None = None,
    counts: Counts | Callable[..., Counts] | None = None, dtype: Any = None, name: str | None = None,
    keep: int = KEPT, sync: Callable[[], object] | None = None,
) -> Any:  # fmt: skip
    """Say once how much a function does, and keep what its calls take; or time one region.

    As a decorator: the function returns, raises and prints as before. `flops` and `bytes` are those of one call, as
    numbers or functions of its arguments (`counts`: a `gm.counts.Counts`, or a function that gives one), and are
    found by `roof.place(f, *args)` and `gpumicro run`. The first `keep` calls have their host time kept in `f.calls`;
    of a recursion the outermost call counts. `f.report(roof)` says what they took, by how much they did.

    As a context manager: `with gm.measured(flops=..., bytes=...) as m:` times one region once (no interval), for
    `roof.place(m)`.

    sync: called before the clock stops, for work that a call only starts (`torch.cuda.synchronize`).
    UsageError: a coroutine or generator function (calling it runs nothing), counts that are half given.
    """
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise UsageError(f"keep must be a whole number from 1 up, not {keep!r}")
    made = Measuring(Declared(flops, bytes, counts, dtype), name, keep, sync)
    return made if function is None else made(function)


def _measured_function(how: Measuring, function: Callable[P, R]) -> MeasuredFunction[P, R]:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{function.__name__}: calling it runs nothing; measure a function that runs it to its end")
    if not callable(function):
        raise UsageError(f"gm.measured decorates a function, not {type(function).__name__}")
    calls = Calls(how.name or str(getattr(function, "__name__", "work")), how.keep)
    depth = threading.local()
    declared, sync, clock = how.declared, how.sync, time.perf_counter

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if getattr(depth, "inside", False):
            return function(*args, **kwargs)
        depth.inside = True
        try:
            began = clock()
            found = function(*args, **kwargs)
            if sync:
                sync()
            seconds = clock() - began
        except BaseException:
            calls.failed += 1
            raise
        finally:
            depth.inside = False
        calls.add(seconds, _counts_of(declared, calls, args, kwargs))
        return found

    setattr(wrapper, ATTRIBUTE, declared)
    setattr(wrapper, PLAIN, function)
    made = cast(MeasuredFunction[P, R], wrapper)
    made.calls = calls
    made.report = partial(report, calls)  # type: ignore[method-assign]
    return made


def _counts_of(declared: Declared, calls: Calls, args: Any, kwargs: Any) -> Counts | None:
    """Of this call; what goes wrong with the counts must not reach the script, and is told in the report."""
    try:
        return declared.of(*args, **kwargs) if declared else None
    except UsageError as error:
        calls.trouble = f"counts are missing: {error}"
        return None


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


def undecorated(work: Any) -> Any:
    """The function under `gm.measured`, so that timing it has no timing inside; anything else as it is."""
    plain = getattr(work, PLAIN, None)
    if plain is None:
        return work
    owner = getattr(work, "__self__", None)
    return plain if owner is None else partial(plain, owner)
