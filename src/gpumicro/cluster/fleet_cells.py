"""Who in a fleet is out of line, by one ceiling: median, robust spread, and each device's distance with its p-value.

Arrays in, numbers out. Values are judged by their logarithm: what is slow is slow by a factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..collectives.huber import MAD_TO_SD
from ..collectives.pairs import LEAST_SPREAD
from ..stats import FloatArray, mad, median, median_location, normal_quantile, t_quantile

LEAST_DEVICES = 8  # fewer have no majority that a spread could be told from
MAD_EFFICIENCY = 0.37  # of the MAD against the standard deviation, for normal values: so many of n - 1 degrees are left
LEAST_FOR_TAIL = 100  # values; fewer do not show their 97.5% quantile
_STEPS = 400  # of the continued fraction; the largest fleets need some 40


@dataclass(frozen=True, slots=True)
class Located:
    """One ceiling over all devices of a model. Logarithms; `spread` is a robust standard deviation of them."""

    n: int
    centre: float
    low: float  # 95% interval of the centre
    high: float
    spread: float
    floored: bool  # the spread seen was smaller than any that is believed (MAD 0 in the extreme)
    tested: bool  # enough devices to call one out of line


def locate(logs: FloatArray) -> Located:
    """Median with its order-statistic interval, and 1.4826 MAD, of one value or more."""
    n = len(logs)
    where = median_location(np.random.default_rng(0).permutation(logs))  # the order of files' names means nothing
    seen = MAD_TO_SD * mad(logs)
    # Below a thousandth of the distance to the nearest others it is an artefact of ties, not of a quiet fleet.
    return Located(n, where.estimate, where.low, where.high, max(seen, LEAST_SPREAD), seen < LEAST_SPREAD,
                   n >= LEAST_DEVICES)  # fmt: skip


def distances(logs: FloatArray, halves: FloatArray, where: Located) -> FloatArray:
    """z of each value: its distance from the centre in robust standard deviations.

    `halves`: half-width of each value's own 95% interval, 0 where there is none. A value that is less sure than the
    typical one of its fleet has the rest of its variance added to the spread.
    """
    own = halves / 1.96
    scale = np.sqrt(where.spread**2 + np.maximum(0.0, own**2 - median(own) ** 2))
    z: FloatArray = (logs - where.centre) / scale
    return z


def heaviness(z: FloatArray) -> float:
    """1 / degrees of freedom of the Student's t whose tail is as heavy as that of healthy devices; 0 is normal.

    Told from the fast side alone, all ceilings of a model together: the 97.5% quantile over the 75% quantile. Nobody is
    fast by a fault, so that slow devices do not pass for a heavy tail; the healthy spread is taken to be symmetric.
    """
    if len(z) < LEAST_FOR_TAIL:
        return 0.0
    near, far = np.quantile(z, (0.75, 0.975))
    return float(np.interp(far / near, *_tail_table())) if near > 0 else 0.0


@lru_cache(maxsize=1)
def _tail_table() -> tuple[list[float], list[float]]:
    """Quantile ratios of Student's t, ascending, and 1 / degrees of freedom; the normal law's first."""
    freedoms = (200, 100, 50, 30, 20, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2)
    ratios = [t_quantile(0.975, freedom) / t_quantile(0.75, freedom) for freedom in freedoms]
    return [normal_quantile(0.975) / normal_quantile(0.75), *ratios], [0.0, *(1 / freedom for freedom in freedoms)]


def p_values(z: FloatArray, where: Located, heavy: float) -> FloatArray:
    """Two-sided p of each z; 1 where there are too few to test.

    The scale is itself an estimate from n values, so z is set against Student's t with 0.37 (n - 1) degrees of freedom:
    the MAD is worth that part of a standard deviation (Rousseeuw and Croux 1993). On normal values it errs to the safe
    side for every n from 8 on. What `heaviness` saw beyond that is the fleet's own: it adds to 1 / degrees, and z is
    stretched to the quartiles of that law, to which the MAD is fitted.
    """
    if not where.tested:
        return np.ones(len(z))
    few = 1 / (MAD_EFFICIENCY * (where.n - 1))
    own = max(0.0, heavy - few)
    quartile = t_quantile(0.75, max(1, round(1 / own))) if own > 1 / 200 else normal_quantile(0.75)
    return student_tails(z * (quartile / normal_quantile(0.75)), 1 / (few + own))


def student_tails(t: FloatArray, freedom: float) -> FloatArray:
    """P(|T| > |t|) of Student's t, any freedom above 0: the incomplete beta function I_x(freedom/2, 1/2) at
    x = freedom / (freedom + t^2), by its continued fraction (Abramowitz and Stegun 26.5.8, Lentz's method)."""
    square = np.square(np.asarray(t, dtype=np.float64))
    x = freedom / (freedom + square)
    a, b = freedom / 2, 0.5
    turned = x > (a + 1) / (a + b + 2)  # the fraction converges fast on the other side
    p = np.where(turned, b, a), np.where(turned, a, b)
    with np.errstate(divide="ignore"):
        log_x, log_y = np.log(x), np.log(square / (freedom + square))
    front = np.exp(a * log_x + b * np.where(square > 0, log_y, 0.0) - _log_beta(a, b)) / p[0]
    part = front * _fraction(np.where(turned, 1 - x, x), *p)
    part = np.where(square > 0, part, np.where(turned, 0.0, 1.0))
    tails: FloatArray = np.clip(np.where(turned, 1 - part, part), 0.0, 1.0)
    return tails


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _fraction(x: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """1/(1+ d1/(1+ d2/(1+ ...))) of the incomplete beta function."""
    tiny = 1e-300
    c = np.ones_like(x)
    d = 1 - (a + b) * x / (a + 1)
    d = 1 / np.where(np.abs(d) < tiny, tiny, d)
    value = d.copy()
    for m in range(1, _STEPS):
        change = np.ones_like(x)
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d = 1 / np.where(np.abs(d) < tiny, tiny, d)
            c = np.where(np.abs(c) < tiny, tiny, c)
            change = d * c
            value *= change
        if np.all(np.abs(change - 1) < 1e-12):
            break
    found: FloatArray = value
    return found
