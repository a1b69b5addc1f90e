"""How often to write a checkpoint where work is interrupted at random, and what that costs.

Interruptions are taken to come at random at a constant rate (Poisson), independently of each other and of the work. A
job over n nodes stops when any one of them does, so its mean time between interruptions is the n-th part of a node's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import UsageError


def young_interval(checkpoint_s: float, mtbi_s: float) -> float:
    """Seconds of work between checkpoints: sqrt(2 d M) [J. W. Young, A first order approximation to the optimum
    checkpoint interval, CACM 17(9), 1974]. `checkpoint_s`: to write one, d; `mtbi_s`: between interruptions, M."""
    _check(checkpoint_s, mtbi_s)
    return math.sqrt(2 * checkpoint_s * mtbi_s)


def daly_interval(checkpoint_s: float, mtbi_s: float) -> float:
    """Seconds of work between checkpoints [J. T. Daly, A higher order estimate of the optimum checkpoint interval for
    restart dumps, Future Generation Computer Systems 22(3), 2006]: for d < 2M

        sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d,   else M.
    """
    _check(checkpoint_s, mtbi_s)
    if checkpoint_s >= 2 * mtbi_s:
        return mtbi_s
    part = checkpoint_s / (2 * mtbi_s)
    return math.sqrt(2 * checkpoint_s * mtbi_s) * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint_s


def best_interval(checkpoint_s: float, mtbi_s: float) -> float:
    """Seconds of work between checkpoints at which `overhead` is least: the root of (1 - t/M) exp((t + d)/M) = 1, its
    derivative set to zero (Daly's equation before it is approximated), found by bisection between 0 and M."""
    _check(checkpoint_s, mtbi_s)
    part = checkpoint_s / mtbi_s
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        # log1p and not the exponential, which overflows where a checkpoint takes many times M
        if middle < 1 and math.log1p(-middle) + middle + part > 0:
            low = middle
        else:
            high = middle
        if high - low <= 1e-15 * high:
            break
    return (low + high) / 2 * mtbi_s


def overhead(work_s: float, checkpoint_s: float, restart_s: float, mtbi_s: float) -> float:
    """Time lost as a share of the work: M exp(R/M) (exp((t + d)/M) - 1) / t - 1 [Daly 2006, the complete model].

    t: work between checkpoints, d: to write one, R: from an interruption to work again, M: between interruptions. It
    holds checkpoints, work done twice, restarts, and interruptions during all of these. Infinite where it never ends.
    """
    _check(checkpoint_s, mtbi_s)
    if not (work_s > 0 and restart_s >= 0):
        raise UsageError(
            f"work between checkpoints must be above zero and a restart not negative: {work_s}, {restart_s}"
        )
    try:
        return mtbi_s * math.exp(restart_s / mtbi_s) * math.expm1((work_s + checkpoint_s) / mtbi_s) / work_s - 1
    except OverflowError:
        return math.inf


def _check(checkpoint_s: float, mtbi_s: float) -> None:
    if not (0 < checkpoint_s < math.inf and 0 < mtbi_s < math.inf):
        raise UsageError(
            f"a checkpoint's time and the time between interruptions must be above zero: {checkpoint_s}, {mtbi_s}"
        )


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """All in seconds but the overheads, which are shares of the work. `mtbi_s` is the whole job's."""

    nodes: int
    mtbi_s: float
    checkpoint_s: float
    restart_s: float
    young_s: float
    daly_s: float
    best_s: float
    overhead_young: float
    overhead_daly: float
    overhead_best: float

    @property
    def ends(self) -> bool:
        """Whether the work gets anywhere: with 100 times the work lost it is said not to."""
        return self.overhead_best < 100


def checkpoint_plan(checkpoint_s: float, mtbi_s: float, restart_s: float = 0.0, nodes: int = 1) -> CheckpointPlan:
    """The three intervals with what each costs; `mtbi_s` is one node's. Raises UsageError for what is not positive."""
    if nodes < 1:
        raise UsageError(f"nodes must be at least 1, not {nodes}")
    if restart_s < 0:
        raise UsageError(f"a restart's time cannot be negative, and {restart_s:g} is")
    whole = mtbi_s / nodes
    found = [rule(checkpoint_s, whole) for rule in (young_interval, daly_interval, best_interval)]
    costs = [overhead(interval, checkpoint_s, restart_s, whole) if interval > 0 else math.inf for interval in found]
    return CheckpointPlan(nodes, whole, checkpoint_s, restart_s, *found, *costs)
