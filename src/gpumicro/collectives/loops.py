"""The timed loop of one rank on a CPU: the library's own where it is compiled, else Python's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import stats
from .native_loop import Spans
from .ranks import Ints, Ranks

_CALLS = 2000  # to find out what a call alone costs, in a compiled loop


def spans(ranks: Ranks, run: Callable[[], object], count: int) -> tuple[Ints, Ints]:
    """(when each of `count` runs began, how long it took), each after a barrier; nanoseconds of this rank's clock."""
    if isinstance(run, Spans):
        begun, ended = run.spans(count)
        return begun, ended - begun
    barrier, clock = ranks.barrier, ranks.clock_ns
    starts, ends = [0] * count, [0] * count
    for i in range(count):
        barrier()
        start = clock()
        run()
        ends[i] = clock()
        starts[i] = start
    first = np.array(starts, dtype=np.int64)
    return first, np.array(ends, dtype=np.int64) - first


def row(ranks: Ranks, run: Callable[[], object], count: int) -> int:
    """Nanoseconds of `count` runs with nothing between them."""
    if isinstance(run, Spans):
        return run.row(count)
    begun = ranks.clock_ns()
    for _ in range(count):
        run()
    return ranks.clock_ns() - begun


def call_alone(run: Callable[[], object]) -> tuple[float, float, float] | None:
    """What a call costs in the compiled loop with nobody to talk to: median seconds, interval. None for Python's."""
    if not isinstance(run, Spans):
        return None
    begun, ended = run.spans(_CALLS)
    found = stats.median_location((ended - begun)[_CALLS // 10 :].astype(np.float64) * 1e-9)
    return found.estimate, found.low, found.high
