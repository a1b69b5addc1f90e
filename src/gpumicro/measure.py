"""Measure: choose the batch, warm up, sample until the rule is content, describe.

The same for every clock and backend; the rules are sampling.py's, the numbers stats.py's.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from .baselines import Baseline
from .errors import GpumicroError
from .measurement import Measurement, Policy
from .sampling import HUNG, LEAST, Run
from .timers import Timer, as_timer, default_timer
from .works import BY_DEVICE, Timed, as_timed

__all__ = [
    "Measurement", "MeasurementsInterrupted", "Policy", "measure", "measure_each", "measure_together", "time_kernel",
]  # fmt: skip


def time_kernel(work: Any, *args: Any, stream: Any = None, timer: str | Timer = "auto", **policy: Any) -> Measurement:
    """How long one run of `work(*args)` takes, in seconds, with an interval that holds.

    work: a callable (of Python, PyTorch, JAX, Numba, ctypes), a kernel of CuPy or Numba (`kernel[grid, block]`) with
    its arguments, a PyCapsule of a C function, a prepared kernel (`timers.as_work`). It is called before anything is
    timed (once; twice where a GPU is in use): compilers are kept out, and what it returns tells whether it is done.
    On a CUDA device it has to enqueue on the measuring stream, or on `stream` (a raw pointer, or a stream of any
    framework): that is the current stream of PyTorch (so Triton) and CuPy while it runs, and what a parameter named
    `stream` gets. What counts as work of a device: `works.as_timed`.

    timer: "auto" (a device's events for its work, else the host's clock), "tsc", "wall", "event", "graph", or a Timer.
    Every field of `Policy` is a keyword: target, confidence, min_samples, max_samples, max_time_s, warmup,
    max_warmup_s, batch, cache, estimand, throttle, seed.

    Source of the numbers: the spans in `raw_s`, minus an empty region's, over the runs in each. An exception of the
    work passes through, with a note on when it came. Ctrl-C raises MeasurementsInterrupted; `partial[0]` is what was
    seen. A UserWarning says when the first call took longer than the whole budget. UsageError: work, arguments or a
    policy that cannot be had; BackendUnavailable: work of a device that is not here.
    """
    rules, named = Policy.of(**policy), timer if timer in ("auto", *BY_DEVICE) else as_timer(timer)
    timed = as_timed(work, args, stream, named)
    warn_if_slow(timed, rules)
    if isinstance(timed, Timed):
        return measure(timed, rules)
    return measure(timed, rules, None if timer == "auto" else as_timer(timer))


def warn_if_slow(timed: Any, policy: Policy) -> None:
    """A UserWarning where the first call took longer than everything may; what follows takes as long at least."""
    first_s = getattr(timed, "facts", {}).get("first_call_s", 0.0) if isinstance(timed, Timed) else 0.0
    budget_s = policy.max_time_s + policy.max_warmup_s
    if first_s <= budget_s:
        return
    warnings.warn(
        f"the first call took {first_s:.3g} s, longer than the {budget_s:.3g} s for all of it (max_time_s and "
        "max_warmup_s). It is called again, since a first call may compile; if that is as slow, there will be few "
        "samples. Ctrl-C keeps those that there are",
        stacklevel=_depth_here() + 1,
    )


def _depth_here() -> int:
    """Frames from the caller of this one to the line outside gpumicro that a warning is about."""
    frame: FrameType | None = sys._getframe(1)
    depth = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gpumicro":
        frame, depth = frame.f_back, depth + 1
    return depth


def measure(work: Any, policy: Policy | None = None, timer: Timer | None = None) -> Measurement:
    """Measure one work. See `time_kernel`."""
    return measure_together([work], policy, timer)[0]


def measure_together(
    works: Sequence[Any], policy: Policy | None = None, timer: Timer | None = None
) -> list[Measurement]:
    """Measure several works in turns, in random rounds, so that a change of the machine's state meets them alike.

    Each is read by `timer`, without one by its own clock (`work.timer`) where it has any, else by the host's; each
    warms up, stops and is described by itself, and the budgets of `policy` are for each. The first error of any ends
    all. Ctrl-C raises MeasurementsInterrupted with what there is.
    """
    return [one for one in _measure(works, policy, timer, ()) if isinstance(one, Measurement)]


def measure_each(
    works: Sequence[Any], policy: Policy | None = None, timer: Timer | None = None
) -> list[Measurement | GpumicroError]:
    """As `measure_together`, but a work that fails leaves the others alone: its error stands in its place.

    A work whose device hangs after some samples is described by these, with stop reason and flag "hung".
    """
    return _measure(works, policy, timer, (GpumicroError,))


def _measure(
    works: Sequence[Any], policy: Policy | None, timer: Timer | None, caught: tuple[type[GpumicroError], ...]
) -> list[Measurement | GpumicroError]:
    policy = policy or Policy()
    rng = np.random.default_rng(policy.seed)
    group = _group_of(works, policy, timer, rng, caught)
    try:
        group.prepare()
        active = [i for i in group.alive() if not group.runs[i].spent]
        while active:
            order = [active[i] for i in rng.permutation(len(active))]
            group.each(order, lambda run: run.sample_some(16 if len(works) > 1 else policy.max_samples))
            active = [i for i in active if i not in group.failed and not group.runs[i].content()]
    except KeyboardInterrupt as stop:
        raise MeasurementsInterrupted([group.partial(i) for i in range(len(works))]) from stop
    return [group.outcome(i) for i in range(len(works))]


class _Group:
    """Works under measurement together, by their places; those that raised one of `caught` are in `failed`."""

    def __init__(
        self, runs: dict[int, Run], failed: dict[int, GpumicroError], caught: tuple[type[GpumicroError], ...]
    ) -> None:
        self.runs, self.failed, self.caught = runs, failed, caught

    def alive(self) -> list[int]:
        return [i for i in self.runs if i not in self.failed]

    def each(self, places: Sequence[int], step: Callable[[Run], bool | None]) -> list[int]:
        """Take a step of each; those for which it was true."""
        found = []
        for i in places:
            try:
                if step(self.runs[i]):
                    found.append(i)
            except self.caught as error:
                self.failed[i] = error
        return found

    def prepare(self) -> None:
        """Choose each batch and warm all up in turns, until each is steady or its budget is spent."""
        self.each(self.alive(), Run.choose_batch)
        cold = self.alive()
        while cold:
            warm = self.each(cold, Run.warm_some)
            cold = [i for i in cold if i not in warm and i not in self.failed]
        self.each(self.alive(), Run.end_warmup)

    def outcome(self, i: int) -> Measurement | GpumicroError:
        """What is to be said of a work in the end."""
        error = self.failed.get(i)
        if error is None:
            return self.runs[i].describe()
        run = self.runs.get(i)
        return run.describe(HUNG) if run and HUNG in run.told and run.n >= LEAST else error

    def partial(self, i: int) -> Measurement | None:
        """What can be said of a work at an interruption."""
        alive = i in self.runs and i not in self.failed
        return self.runs[i].describe("interrupted") if alive and self.runs[i].n >= 1 else None


def _group_of(
    works: Sequence[Any],
    policy: Policy,
    timer: Timer | None,
    rng: np.random.Generator,
    caught: tuple[type[GpumicroError], ...],
) -> _Group:
    group = _Group({}, {}, caught)
    baselines: dict[int, Baseline] = {}  # one for each clock
    for i, work in enumerate(works):
        try:
            clock = clock_for(work, policy, timer)
            if id(clock) not in baselines:
                baselines[id(clock)] = Baseline(clock)
            group.runs[i] = Run(work, policy, baselines[id(clock)], rng)
        except caught as error:
            group.failed[i] = error
    return group


def clock_for(work: Any, policy: Policy, timer: Timer | None = None) -> Timer:
    """The timer given, else the work's own, else the host's; one that evicts where the policy wants that."""
    clock: Timer = timer or getattr(work, "timer", None) or default_timer()
    if policy.cache == "cold" and hasattr(clock, "with_cache"):
        clock = clock.with_cache("cold")
    return clock


def prepare(runs: Sequence[Run]) -> None:
    """Choose each batch and warm all up in turns, until each is steady or its budget is spent."""
    _Group(dict(enumerate(runs)), {}, ()).prepare()


class MeasurementsInterrupted(KeyboardInterrupt):
    """Ctrl-C while measuring: `partial` has what each work gave until then, None where that was too little."""

    def __init__(self, partial: list[Measurement | None]) -> None:
        kept = ", ".join(str(one.n if one else 0) for one in partial)
        super().__init__(f"interrupted; samples that `partial` keeps of each work: {kept}")
        self.partial = partial
