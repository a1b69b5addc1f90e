"""Measure: choose the batch, warm up, sample until the rule is content, describe.

The same for every clock and backend; the rules are sampling.py's, the numbers stats.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .measurement import Measurement, Policy
from .sampling import LEAST, Baseline, Run
from .timers import Timer, as_timer, default_timer

__all__ = ["Measurement", "MeasurementsInterrupted", "Policy", "measure", "measure_together", "time_kernel"]


def time_kernel(work: Any, *, timer: str | Timer = "auto", **policy: Any) -> Measurement:
    """How long one run of `work` takes, in seconds, with an interval that holds.

    work: a Python callable, a PyCapsule or ctypes pointer of a C function, a prepared kernel (see `timers.as_work`).
    timer: "auto", "tsc", "wall", or a Timer. Every field of `Policy` is a keyword: target, confidence, min_samples,
    max_samples, max_time_s, warmup, max_warmup_s, batch, cache, estimand, throttle, seed.

    Source of the numbers: the spans in `raw_s`, minus an empty region's, over the runs in each. An exception of the
    work and Ctrl-C pass through. UsageError: work or a policy that cannot be had.
    """
    return measure(work, Policy(**policy), as_timer(timer))


def measure(work: Any, policy: Policy | None = None, timer: Timer | None = None) -> Measurement:
    """Measure one work. See `time_kernel`."""
    return measure_together([work], policy, timer)[0]


def measure_together(
    works: Sequence[Any], policy: Policy | None = None, timer: Timer | None = None
) -> list[Measurement]:
    """Measure several works in turns, in random rounds, so that a change of the machine's state meets them alike.

    Each warms up, stops and is described by itself; the budgets of `policy` are for each. Ctrl-C raises
    MeasurementsInterrupted with what there is.
    """
    policy = policy or Policy()
    rng = np.random.default_rng(policy.seed)
    clocks = [timer or getattr(work, "timer", None) or default_timer() for work in works]
    baselines = {id(clock): Baseline(clock) for clock in {id(clock): clock for clock in clocks}.values()}
    runs = [Run(work, policy, baselines[id(clock)], rng) for work, clock in zip(works, clocks, strict=True)]
    prepare(runs)
    active = list(runs)
    try:
        while active:
            for i in rng.permutation(len(active)):
                active[i].sample_some(16 if len(runs) > 1 else policy.max_samples)
            active = [run for run in active if not run.content()]
    except KeyboardInterrupt as stop:
        partial = [run.describe("interrupted") if run.n >= LEAST else None for run in runs]
        raise MeasurementsInterrupted(partial) from stop
    return [run.describe() for run in runs]


class MeasurementsInterrupted(KeyboardInterrupt):
    """Ctrl-C while measuring: `partial` has what each work gave until then, None where that was too little."""

    def __init__(self, partial: list[Measurement | None]) -> None:
        super().__init__()
        self.partial = partial


def prepare(runs: Sequence[Run]) -> None:
    """Choose each batch and warm all up in turns, until each is steady or its budget is spent."""
    for run in runs:
        run.choose_batch()
    cold = list(runs)
    while cold:
        cold = [run for run in cold if not run.warm_some()]
    for run in runs:
        run.lengthen_batch()
        run.spent_s = 0.0
