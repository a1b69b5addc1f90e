"""Straight lines through spans of several lengths: cost per run as slope, fixed cost as intercept. No clock, no I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import stats

FloatArray = npt.NDArray[np.float64]

NONLINEAR = 0.01  # of a rung's own rise: further from the line than this, runs do not cost the same each


@dataclass(frozen=True, slots=True)
class Line:
    """spans = intercept + slope * runs, in seconds.

    intercept_half_s: half-width of the intercept's interval. bend: largest distance of a rung from the line, relative
    to what its runs take; bend_half: how large that may be by chance.
    """

    slope_s: float
    intercept_s: float
    intercept_half_s: float
    bend: float
    bend_half: float

    @property
    def nonlinear(self) -> bool:
        """Whether the rungs lie on no line: by more than 1% and more than chance."""
        return self.bend > max(NONLINEAR, self.bend_half)


def theil_sen(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """(slope, intercept): the median of all pairs' slopes and the median of what is left [Sen, JASA 63 (1968) 1379].

    ValueError where no two x differ.
    """
    i, j = np.triu_indices(len(x), 1)
    apart = x[i] != x[j]
    if not apart.any():
        raise ValueError("a slope needs two different lengths")
    i, j = i[apart], j[apart]
    slope = stats.median((y[j] - y[i]) / (x[j] - x[i]))
    return slope, stats.median(y - slope * x)


def through_rungs(counts: npt.NDArray[np.int64], spans: FloatArray, tick_s: float, coarse: bool = False) -> Line:
    """The line through the locations of the spans of each length.

    counts, spans: runs in and seconds of each span, in the order of taking. coarse: clipped means instead of medians,
    for spans short against the tick. ValueError for fewer than two lengths.
    """
    rungs = np.unique(counts)
    found = [_locate(spans[counts == rung], tick_s, coarse) for rung in rungs]
    x, y = rungs.astype(np.float64), np.array([location.estimate for location in found])
    half = np.array([math.hypot(location.statistical, tick_s / 4) for location in found])
    slope, intercept = theil_sen(x, y)
    reach = x[-1] - x[0]
    # Extrapolated to zero runs from the first and the last rung: the middle one only helps.
    intercept_half = math.hypot(x[-1] * half[0], x[0] * half[-1]) / reach
    away = np.abs(y - (intercept + slope * x)) / np.maximum(np.abs(slope) * x, 1e-15)
    worst = int(np.argmax(away))
    by_chance = float(np.hypot(half, half.max())[worst] / max(abs(slope) * x[worst], 1e-15))
    return Line(slope, intercept, float(intercept_half), float(away[worst]), by_chance)


def _locate(spans: FloatArray, tick_s: float, coarse: bool) -> stats.Location:
    return stats.clipped_mean_location(spans, tick_s) if coarse else stats.median_location(spans)
