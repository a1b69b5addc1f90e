"""From log ratios of times to an interval, a p-value and a verdict: what every comparison shares, whatever it repeats.

Pure: arrays of ln(time) or ln(b/a) in, numbers out. docs/methods.md derives the rules.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from . import stats
from .sampling import GROWTH, LEAST
from .stats import FloatArray

Verdict = Literal["faster", "slower", "equivalent", "inconclusive"]

# Half-widths that are found with 80% power. 3.9 sd/sqrt(blocks) by simulation, and the sign interval of normal noise is
# 2.45 sd/sqrt(blocks) wide to each side; from the interval it holds for noise of any shape.
POWER = 3.9 / 2.45
LEAST_TIME_S = 1e-18  # stands for a time that came out at zero or below
LEVELS = tuple(digit * 10.0**-power for power in range(6, 0, -1) for digit in (1, 2, 5))  # that a p-value can have


@dataclass(frozen=True, slots=True)
class Interval:
    """Of a logarithm, or of a difference of logarithms. `confidence` is what it reaches."""

    estimate: float
    low: float
    high: float
    confidence: float

    @property
    def half(self) -> float:
        """Half its width."""
        return (self.high - self.low) / 2

    def widened(self, half: float) -> Interval:
        """With an independent error of that half-width in quadrature."""
        low, high = (math.hypot(end - self.estimate, half) for end in (self.low, self.high))
        return Interval(self.estimate, self.estimate - low, self.estimate + high, self.confidence)

    def at_least(self, half: float) -> Interval:
        """Reaching at least `half` to both sides."""
        low, high = min(self.low, self.estimate - half), max(self.high, self.estimate + half)
        return Interval(self.estimate, low, high, self.confidence)


def judge(low: float, high: float, margin: float) -> Verdict:
    """The verdict of a ratio's interval, in this order: within 1 +- margin, above 1, below 1, none of these."""
    if 1 - margin <= low and high <= 1 + margin:
        return "equivalent"
    return "slower" if low > 1 else "faster" if high < 1 else "inconclusive"


def need(n: int, mde: float, effect: float) -> int:
    """Repetitions that find `effect` with 80% power, where n of them would have found `mde`."""
    return max(LEAST, math.ceil(n * (mde / effect) ** 2))


class Looks:
    """When to look at an interval as repetitions come in: looking after each would cost coverage."""

    def __init__(self, first: int) -> None:
        self.next = first

    def resolved(self, n: int, margin: float, locate: Callable[[], stats.Location]) -> bool:
        """Whether n is a moment to look, and the interval's half-width then is at most half the margin."""
        if n < self.next:
            return False
        self.next = math.ceil(GROWTH * n)
        location = locate()
        return (location.high - location.low) / 2 <= margin / 2


def of_processes(logs: FloatArray, confidence: float) -> Interval:
    """ln(b/a) of processes, one value each: the median, in the wider of its sign-test interval and the t-interval.

    Below six values there is no sign-test interval, and the t-interval stands alone.
    """
    n, centre = len(logs), stats.median(logs)
    half = stats.t_quantile((1 + confidence) / 2, n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    middle = float(logs.mean())
    low, high = min(middle - half, centre), max(middle + half, centre)
    if n >= LEAST:
        sign = stats.median_location(logs, confidence)
        low, high = min(low, sign.low), max(high, sign.high)
    return Interval(centre, low, high, confidence).at_least(stats.LEAST_WIDTH)


def of_location(location: stats.Location) -> Interval:
    """ln of a time with its interval; one that reaches zero is open below."""
    low = math.log(location.low) if location.low > 0 else -math.inf
    estimate, high = (math.log(max(value, LEAST_TIME_S)) for value in (location.estimate, location.high))
    return Interval(estimate, low, high, location.confidence)


def difference(a: Interval, b: Interval) -> Interval:
    """b - a of independent values: the distances of the ends from the estimates add in quadrature, side by side.

    (Zou and Donner 2008, "square-and-add"; for symmetric intervals it is the sum of variances.)
    """
    centre = b.estimate - a.estimate
    low = centre - math.hypot(b.estimate - b.low, a.high - a.estimate)
    high = centre + math.hypot(b.high - b.estimate, a.estimate - a.low)
    return Interval(centre, low, high, min(a.confidence, b.confidence))


def of_groups(a: FloatArray, b: FloatArray, confidence: float) -> Interval:
    """The difference of two groups' medians in Welch's t-interval (of the means, reaching the difference itself).

    A group of one takes the other's spread. One of them must have two.
    """
    spreads = [float(x.var(ddof=1)) if len(x) > 1 else math.nan for x in (a, b)]
    spreads = [other if math.isnan(own) else own for own, other in zip(spreads, reversed(spreads), strict=True)]
    parts = [spread / len(x) for spread, x in zip(spreads, (a, b), strict=True)]
    total = sum(parts)
    lost = sum(part**2 / (len(x) - 1) for part, x in zip(parts, (a, b), strict=True) if len(x) > 1)
    if min(len(a), len(b)) == 1:
        freedom = float(max(len(a), len(b)) - 1)
    else:
        freedom = total**2 / lost if lost > 0 else float(len(a) + len(b) - 2)
    half = stats.t_quantile((1 + confidence) / 2, max(1, math.floor(freedom))) * math.sqrt(total)
    middle, centre = float(b.mean() - a.mean()), stats.median(b) - stats.median(a)
    return Interval(centre, min(middle - half, centre), max(middle + half, centre), confidence)


def p_value(interval_at: Callable[[float], Interval]) -> float:
    """An upper bound of the p-value of "no difference": the least of LEVELS at which the interval leaves out zero.

    So the p-value promises no more than the interval does: few samples that reach no 99% interval give none below 1%.
    1.0 where even the widest level does not leave out zero.
    """

    def kept(level: float) -> bool:
        found = interval_at(1 - level)
        return found.confidence < 1 - level - 1e-12 or found.low <= 0 <= found.high

    place = bisect_left(LEVELS, True, key=lambda level: not kept(level))
    return LEVELS[place] if place < len(LEVELS) else 1.0


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: those at most q have a share of false ones of at most q, on average.

    Benjamini and Hochberg 1995; holds for independent tests and for those that depend positively.
    """
    order = np.argsort(p)[::-1]
    n, least = len(p), 1.0
    adjusted = [1.0] * n
    for place, i in enumerate(order.tolist()):
        least = min(least, p[i] * (n / (n - place)))  # the greatest stays exactly what it is
        adjusted[i] = least
    return adjusted
