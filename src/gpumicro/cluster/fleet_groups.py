"""Whether what devices have in common (host, rack, driver, clock) goes with being slow: each group against the rest.

Arrays in, numbers out. Wilcoxon's rank-sum test asks whether a group lies lower or higher than all others together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ratios import Interval, difference
from ..stats import FloatArray, median_location

LEAST_MEMBERS = 5  # of a group and of the rest: below, the normal law of the rank sum does not hold

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Compared:
    """A group against all others in one column: medians' difference of logarithms with its 95% interval."""

    group: int
    n: int
    rest: int
    difference: float
    p: float


def codes_of(labels: Sequence[str | None]) -> tuple[Codes, list[str]]:
    """A number for each label, -1 for None, and the labels by number."""
    names = sorted({label for label in labels if label is not None})
    place = {name: i for i, name in enumerate(names)}
    return np.array([-1 if label is None else place[label] for label in labels], dtype=np.int64), names


def group_medians(values: FloatArray, codes: Codes, count: int) -> FloatArray:
    """The median of each group's finite values, NaN where it has none."""
    known = np.isfinite(values) & (codes >= 0)
    order = np.lexsort((values[known], codes[known]))
    ordered, sizes = values[known][order], np.bincount(codes[known], minlength=count)
    starts = np.cumsum(sizes) - sizes
    medians = np.full(count, np.nan)
    some = sizes > 0
    low, high = starts[some] + (sizes[some] - 1) // 2, starts[some] + sizes[some] // 2
    medians[some] = (ordered[low] + ordered[high]) / 2
    return medians


def compare_groups(values: FloatArray, codes: Codes, count: int) -> list[Compared]:
    """Each group with enough members against the rest of those that have a value and a group."""
    known = np.isfinite(values) & (codes >= 0)
    x, g = values[known], codes[known]
    n = len(x)
    sizes = np.bincount(g, minlength=count)
    wanted = np.flatnonzero((sizes >= LEAST_MEMBERS) & (n - sizes >= LEAST_MEMBERS))
    if len(wanted) == 0:
        return []
    _, inverse, ties = np.unique(x, return_inverse=True, return_counts=True)
    after = np.cumsum(ties)
    ranks = (after - (ties - 1) / 2)[inverse.reshape(-1)]
    sums = np.bincount(g, weights=ranks, minlength=count)
    tied = float(np.sum(ties.astype(np.float64) ** 3 - ties)) / (n * (n - 1))
    medians = group_medians(x, g, count)
    ordered = np.sort(x)
    return [
        Compared(i, int(sizes[i]), n - int(sizes[i]),
                 float(medians[i]) - _median_of_rest(ordered, np.sort(x[g == i])),
                 _rank_sum_p(float(sums[i]), int(sizes[i]), n, tied))
        for i in wanted.tolist()
    ]  # fmt: skip


def _median_of_rest(ordered: FloatArray, group: FloatArray) -> float:
    """The median of all values but the group's, both ordered."""
    rest = np.delete(ordered, np.searchsorted(ordered, group, "left") + _occurrence(group))
    return float(rest[(len(rest) - 1) // 2] + rest[len(rest) // 2]) / 2


def _occurrence(ordered: FloatArray) -> Codes:
    """0 for the first of equal values, 1 for the second ..."""
    first = np.searchsorted(ordered, ordered, "left")
    return np.asarray(np.arange(len(ordered)) - first, dtype=np.int64)


def _rank_sum_p(total: float, size: int, n: int, tied: float) -> float:
    """Two-sided, by the normal law with a correction for continuity and for ties."""
    variance = size * (n - size) / 12 * (n + 1 - tied)
    if variance <= 0:
        return 1.0
    away = max(0.0, abs(total - size * (n + 1) / 2) - 0.5)
    return math.erfc(away / math.sqrt(2 * variance))


def interval_of(values: FloatArray, codes: Codes, group: int) -> tuple[float, float]:
    """95% interval of the difference of medians, the group's less the rest's: each median's order-statistic interval,
    put together by squares (ratios.difference)."""
    known = np.isfinite(values) & (codes >= 0)
    inside, outside = values[known & (codes == group)], values[known & (codes != group)]
    sides = []
    for side in (outside, inside):
        found = median_location(np.random.default_rng(0).permutation(side))
        sides.append(Interval(found.estimate, found.low, found.high, found.confidence))
    apart = difference(*sides)
    return apart.low, apart.high
