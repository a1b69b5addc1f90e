"""`gm.measured`: says once how much a function does, and keeps what its calls take; or times one region."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from .calls import KEPT, SHORT_S, Calls, Report, report
from .counts import ATTRIBUTE, Amount, Counts, Declared
from .errors import UsageError
from .notebook import html_table
from .placed import with_interval

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

PLAIN = "__gpumicro_plain__"  # where a measured function keeps the one that it wraps


class MeasuredFunction(Protocol[P, R_co]):
    """The function as it was, with its calls beside it."""

    calls: Calls

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def report(self, roof: Any = None, **where: Any) -> Report: ...


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
        return ("few-samples", "below-resolution") if short else ("few-samples",)

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
    lazy = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_lazy(function) for is_lazy in lazy):
        raise UsageError(f"{function.__name__}: calling it runs nothing; measure a function that runs it to its end")
    if not callable(function):
        raise UsageError(f"gm.measured decorates a function, not {type(function).__name__}")
    calls = Calls(how.name or str(getattr(function, "__name__", "work")), how.keep)
    depth = threading.local()
    declared, sync, clock = how.declared, how.sync, time.perf_counter
    always = declared.of() if declared.fixed else None

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
        calls.add(seconds, always or _counts_of(declared, calls, args, kwargs))
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


def undecorated(work: Any) -> Any:
    """The function under `gm.measured`, so that timing it has no timing inside; anything else as it is."""
    if isinstance(work, partial):
        return partial(undecorated(work.func), *work.args, **work.keywords)
    plain = getattr(work, PLAIN, None)
    if plain is None:
        return work
    owner = getattr(work, "__self__", None)
    return plain if owner is None else partial(plain, owner)
