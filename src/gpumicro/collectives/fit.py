"""What a sweep of a collective means: latency alpha, time a byte beta, and where a protocol changes.

time(size) = alpha + size * beta (Hockney's model), fitted robustly to relative residuals. A sweep over a change of
protocol (a library that switches from a low-latency to a bandwidth protocol) is several lines: they are fitted apart
where that is much better, and said. docs/collectives.md derives the rules; sizes in bytes, times in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..stats import t_quantile
from .huber import BoolArray, FloatArray, scale, solve
from .sweeps import Sweep, Timed

LEAST_SIZES = 5  # distinct sizes of one line: two are spent on the line, three show whether it is one
LEAST_SPAN = 8  # greatest over least size: below, alpha and beta cannot be told apart
MOST_REGIMES = 3  # a low-latency, a middle and a bandwidth protocol
KINK_EVIDENCE = 12.0  # least gain of the criterion for each further regime; docs/collectives.md states the false alarms
KINK_GAIN = 1.5  # and the residuals shrink to less than 1 / 1.5
KINK_LEAST = 0.01  # a misfit below 1% is a good line, whatever could be better
OUTLIER = 5.0  # robust standard deviations

Spread = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95% interval; the ends are None together, where there is none."""

    value: float
    low: float | None
    high: float | None

    @property
    def ci95(self) -> tuple[float, float] | None:
        """Both ends."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Regime:
    """One line, from a size to a size. `spread` is the covariance of (alpha, beta) in squared 95% half-widths: (aa, ab,
    bb). `misfit` is the robust relative standard deviation of the residuals."""

    from_bytes: int
    to_bytes: int
    sizes: int
    alpha_s: Interval
    beta_s_per_byte: Interval
    n_half_bytes: Interval | None  # alpha / beta; None where one of them is not resolved
    spread: tuple[float, float, float]
    misfit: float
    outliers: tuple[int, ...]  # sizes

    def time_s(self, size_bytes: float) -> Interval:
        """The line at a size, with the interval of the line (not of one more run)."""
        aa, ab, bb = self.spread
        value = self.alpha_s.value + size_bytes * self.beta_s_per_byte.value
        half = math.sqrt(max(aa + 2 * size_bytes * ab + size_bytes**2 * bb, 0.0))
        return Interval(value, max(value - half, 0.0), value + half)


@dataclass(frozen=True, slots=True)
class Fit:
    """The regimes of a sweep, ascending; none where `why` says what is missing. `single_misfit`: of one line."""

    sweep: Sweep
    regimes: tuple[Regime, ...]
    why: str = ""
    single_misfit: float = 0.0

    @property
    def kinks(self) -> tuple[tuple[int, int], ...]:
        """Between which sizes the line changes."""
        return tuple((a.to_bytes, b.from_bytes) for a, b in zip(self.regimes, self.regimes[1:], strict=False))

    def regime_at(self, size_bytes: float) -> Regime:
        """The line that holds at a size: between two regimes the upper one's, outside the nearest. Needs a regime."""
        return next((regime for regime in self.regimes if size_bytes <= regime.to_bytes), self.regimes[-1])


@lru_cache(maxsize=256)
def fit(sweep: Sweep) -> Fit:
    """Alpha and beta of a sweep, with intervals, in as many regimes as it has (three at most).

    An interval is the wider of two: the jackknife over sizes (how well the line holds) and what the samples' own
    intervals give (how well each time is known). No random number is drawn: the same sweep gives the same figures.
    """
    sizes = np.array(sweep.sizes, dtype=np.float64)
    times = np.array([point.time_s for point in sweep.points])
    if len(sizes) < LEAST_SIZES:
        return Fit(sweep, (), f"{len(sizes)} size{'s' if len(sizes) != 1 else ''}: a line needs {LEAST_SIZES} or more")
    if sizes[-1] < LEAST_SPAN * sizes[0]:
        return Fit(sweep, (), f"the largest size is less than {LEAST_SPAN} times the least: alpha and beta do not part")
    _, _, residuals = solve(sizes, times, np.ones((1, len(sizes)), dtype=bool))
    single = float(scale(residuals)[0])
    regimes = tuple(_regime(sweep.points[start:stop]) for start, stop in _runs(sizes, times, single))
    return Fit(sweep, regimes, single_misfit=single)


# -- one line ----------------------------------------------------------------------------------------------------------


def _regime(points: tuple[Timed, ...]) -> Regime:
    sizes = np.array([point.size_bytes for point in points], dtype=np.float64)
    times = np.array([point.time_s for point in points])
    n = len(points)
    masks = np.vstack((np.ones(n, dtype=bool), ~np.eye(n, dtype=bool)))
    alphas, betas, residuals = solve(sizes, times, masks)
    alpha, beta = float(alphas[0]), float(betas[0])
    fitted = alpha + beta * sizes
    maps = _maps(sizes, fitted)
    spread = _wider(_jackknife(alphas[1:], betas[1:], maps), _sampling(points, maps / fitted))
    misfit = float(scale(residuals[:1])[0])
    far = np.abs(residuals[0]) > OUTLIER * max(misfit, 1e-9)
    return Regime(
        points[0].size_bytes, points[-1].size_bytes, n,
        _with_interval(alpha, math.sqrt(spread[0])), _with_interval(beta, math.sqrt(spread[2])),
        _n_half(alpha, beta, spread), spread, misfit,
        tuple(point.size_bytes for point, is_far in zip(points, far, strict=True) if is_far),
    )  # fmt: skip


def _with_interval(value: float, half: float) -> Interval:
    """No interval where the value sits on its bound: nothing then shows how far it could be from it."""
    return Interval(value, max(value - half, 0.0), value + half) if value > 0 else Interval(value, None, None)


def _maps(sizes: FloatArray, fitted: FloatArray) -> FloatArray:
    """[2, n]: what a relative error of each time does to alpha (s) and to beta (s/B), by least squares."""
    design = np.stack((1 / fitted, sizes / fitted), axis=1)
    unit = np.linalg.norm(design, axis=0)  # seconds and seconds a byte are decades apart
    maps: FloatArray = np.linalg.pinv(design / unit) / unit[:, None]
    return maps


def _jackknife(alphas: FloatArray, betas: FloatArray, maps: FloatArray) -> Spread:
    """From the fits without one size each, times Student's t.

    The latency rests on the small sizes and the time a byte on the large ones: each has as many degrees of freedom as
    there are sizes that bear on it (participation ratio of the squared weights), less one.
    """
    n = len(alphas)
    powers = maps**2 / (maps**2).sum(1, keepdims=True)
    bearing = 1 / (powers**2).sum(1)
    alpha_t, beta_t = (t_quantile(0.975, max(2, min(n - 2, math.floor(count) - 1))) for count in bearing.tolist())
    a, b = alpha_t * (alphas - alphas.mean()), beta_t * (betas - betas.mean())
    part = (n - 1) / n
    return float(part * (a @ a)), float(part * (a @ b)), float(part * (b @ b))


def _sampling(points: tuple[Timed, ...], maps: FloatArray) -> Spread:
    """From the samples' own intervals, with `maps` a second of error; zeros where a size has no interval."""
    halves = [(p.high_s - p.low_s) / 2 for p in points if p.low_s is not None and p.high_s is not None]
    if len(halves) < len(points):
        return 0.0, 0.0, 0.0
    spread = (maps * np.array(halves) ** 2) @ maps.T
    return float(spread[0, 0]), float(spread[0, 1]), float(spread[1, 1])


def _wider(first: Spread, second: Spread) -> Spread:
    """Whichever leaves alpha and beta together less certain."""
    return max(first, second, key=lambda spread: spread[0] * spread[2])


def _n_half(alpha: float, beta: float, spread: Spread) -> Interval | None:
    """alpha / beta with the interval of its logarithm: a ratio of two positive figures is skewed."""
    if alpha <= 0 or beta <= 0:
        return None
    aa, ab, bb = spread
    half = math.sqrt(max(aa / alpha**2 - 2 * ab / (alpha * beta) + bb / beta**2, 0.0))
    value = alpha / beta
    return Interval(value, value * math.exp(-half), value * math.exp(half)) if half < 5 else Interval(value, None, None)


# -- kinks -------------------------------------------------------------------------------------------------------------


def _runs(sizes: FloatArray, times: FloatArray, single: float) -> list[tuple[int, int]]:
    """The runs of sizes that a line each describes: one, unless more are much better."""
    n = len(sizes)
    if single < KINK_LEAST or n < 2 * LEAST_SIZES:
        return [(0, n)]
    costs = _costs(sizes, times)
    best = [(0, n)]
    for count in range(2, min(MOST_REGIMES, n // LEAST_SIZES) + 1):
        runs = _best_runs(costs, n, count)
        gain = _criterion(costs, best, n) - _criterion(costs, runs, n)
        shrunk = sum(costs[run] for run in best) / max(sum(costs[run] for run in runs), 1e-12)
        # three lines may be needed where two are no help: each step is judged from the best so far
        if gain > KINK_EVIDENCE * (len(runs) - len(best)) and shrunk > KINK_GAIN:
            best = runs
    return best


def _costs(sizes: FloatArray, times: FloatArray) -> dict[tuple[int, int], float]:
    """(start, stop) -> sum of the residuals' sizes, of every run that is long enough for a line."""
    n = len(sizes)
    runs = [(i, j) for i in range(n) for j in range(i + LEAST_SIZES, n + 1)]
    masks: BoolArray = np.zeros((len(runs), n), dtype=bool)
    for mask, (start, stop) in zip(masks, runs, strict=True):
        mask[start:stop] = True
    residuals = solve(sizes, times, masks)[2]
    return dict(zip(runs, np.nansum(np.abs(residuals), axis=1).tolist(), strict=True))


def _best_runs(costs: dict[tuple[int, int], float], n: int, count: int) -> list[tuple[int, int]]:
    """The cheapest cut into so many runs."""
    if count == 1:
        return [(0, n)]
    cuts = range((count - 1) * LEAST_SIZES, n - LEAST_SIZES + 1)
    options = [[*_best_runs(costs, cut, count - 1), (cut, n)] for cut in cuts]
    return min(options, key=lambda runs: sum(costs[run] for run in runs))


def _criterion(costs: dict[tuple[int, int], float], runs: list[tuple[int, int]], n: int) -> float:
    """Schwarz's criterion for errors of Laplace's law: two parameters a line and one a kink.

    The mean residual is taken over what the parameters leave free, and never below 0.1%: timing is no better.
    """
    parameters = 3 * len(runs) - 1
    mean = max(sum(costs[run] for run in runs) / (n - 2 * len(runs)), 1e-3)
    return 2 * n * math.log(mean) + parameters * math.log(n)
