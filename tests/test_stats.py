from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumicro import stats

SAMPLES = st.lists(st.floats(1e-9, 1.0), min_size=2, max_size=60).map(np.array)


@pytest.mark.parametrize(
    ("df", "expected"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (5, 2.57058), (19, 2.09302), (100, 1.98397), (2000, 1.96115)],
)
def test_t_quantile_agrees_with_tables(df: int, expected: float) -> None:
    assert stats.t_quantile(0.975, df) == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("n", [6, 7, 20, 101, 1000])
def test_median_ranks_are_the_narrowest_exact_ones(n: int) -> None:
    def coverage(low: int) -> float:  # of (x_(low), x_(n + 1 - low)), by counting
        return 1 - 2 * sum(math.comb(n, k) for k in range(low)) / 2**n

    low, high, reached = stats.quantile_ranks(n, 0.5, 0.95)
    assert high == n + 1 - low
    assert reached == pytest.approx(coverage(low))
    assert coverage(low) >= 0.95 > coverage(low + 1)


def test_median_of_five_reports_the_confidence_it_reaches() -> None:
    assert stats.median_location(np.arange(1.0, 6.0)).confidence == pytest.approx(1 - 2 / 2**5)


def test_quantile_interval_has_no_bound_where_there_are_too_few_samples() -> None:
    x = np.arange(1.0, 101.0)
    estimate, low, high = stats.quantile(x, 0.99)
    assert low is not None
    assert low < estimate
    assert high is None
    assert None not in stats.quantile(x, 0.9)
    for q in (0.01, 0.25, 0.5, 0.95, 0.99):
        assert stats.quantile(x[:7], q)[0] == pytest.approx(float(np.quantile(x[:7], q)))


@settings(derandomize=True, deadline=None)
@given(SAMPLES, st.floats(0.0, 1e-3), st.floats(0.0, 1e-3))
def test_no_interval_has_zero_width(x: np.ndarray, tick: float, baseline: float) -> None:
    for location in (stats.median_location(x), stats.clipped_mean_location(x, tick)):
        wide = location.widened(tick / 2, baseline)
        assert wide.low < wide.estimate < wide.high
        assert wide.high - wide.low >= tick * (1 - 1e-9)


@settings(derandomize=True, deadline=None)
@given(SAMPLES)
def test_median_is_numpys(x: np.ndarray) -> None:
    assert stats.median(x) == pytest.approx(float(np.median(x)), rel=1e-15)


def test_tau_of_a_chain_is_found_and_independence_left_alone() -> None:
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(20_000)
    assert not stats.dependence(noise).correlated
    chain = np.empty_like(noise)
    chain[0] = 0.0
    for i in range(1, len(noise)):
        chain[i] = 0.6 * chain[i - 1] + 0.8 * noise[i]
    # The sign of a Gaussian chain has correlations 2/pi asin(rho^k).
    truth = 1 + 2 * sum(2 / math.pi * math.asin(0.6**k) for k in range(1, 60))
    found = stats.dependence(chain)
    assert found.correlated
    assert found.tau == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize("x", [np.ones(50), np.repeat([1.0, 2.0], [45, 5]), np.array([1.0, 2.0] * 30)])
def test_grids_and_alternation_are_not_called_correlated(x: np.ndarray) -> None:
    assert stats.dependence(x) == stats.Dependence(False, 1.0)


def test_drift_is_found_with_its_size_and_ties_are_no_drift() -> None:
    rng = np.random.default_rng(2)
    flat = 1.0 + 0.01 * rng.standard_normal(300)
    assert stats.drift(flat) == 0.0
    assert stats.drift(flat * np.linspace(1.0, 1.06, 300)) == pytest.approx(0.04, abs=0.005)
    assert stats.drift(np.round(rng.uniform(0.8, 2.2, 300))) == 0.0
    assert stats.drift(np.ones(300)) == 0.0


def test_two_modes_are_found_and_one_is_not_split() -> None:
    rng = np.random.default_rng(3)
    for one in (rng.standard_normal(500), rng.exponential(size=500), rng.uniform(size=500), rng.lognormal(size=500)):
        assert stats.modes(one + 10, 0.0) is None
    two = np.concatenate((rng.normal(1.0, 0.004, 300), rng.normal(1.04, 0.004, 100)))
    rng.shuffle(two)
    found = stats.modes(two, 0.0)
    assert found is not None
    assert (found.fast, found.slow, found.slow_share) == pytest.approx((1.0, 1.04, 0.25), abs=0.002)
    assert stats.modes(two, 0.02) is None  # neighbours on a grid are not modes


def test_outliers_are_counted_by_tukeys_fences() -> None:
    x = np.concatenate((np.linspace(1.0, 2.0, 101), [3.0, 3.6, -0.6]))
    assert stats.outliers(x) == (3, 2)


def test_clipping_counts_what_it_leaves_out() -> None:
    x = np.concatenate((np.tile([1.0, 2.0], 50), [50.0]))
    location = stats.clipped_mean_location(x, 1.0)
    assert location.clipped == 1
    assert location.estimate == pytest.approx(1.5)


def _grid_spans(lsb: int, step: int, seed: int) -> np.ndarray:
    """Spans in seconds of a clock that jumps every `step` ns, each jump off by a random -1, 0 or 1 lsb (ns)."""
    rng = np.random.default_rng(seed)
    edges = np.arange(4000) * step + (rng.integers(-1, 2, 4000) * lsb if lsb != step else 0)
    start = rng.uniform(0, 1000 * step, 3000)
    stop = start + rng.uniform(0, 20 * step, 3000)
    read = [edges[np.searchsorted(edges, t, side="right") - 1] for t in (start, stop)]
    return 1e-9 * (read[1] - read[0])


@pytest.mark.parametrize(("lsb", "step"), [(32, 32), (500, 500), (1024, 1024), (32, 1024), (1, 10)])
def test_tick_detector_finds_lsb_and_step(lsb: int, step: int) -> None:
    for seed in range(5):
        found = stats.detect_tick(_grid_spans(lsb, step, seed))
        assert found == pytest.approx((lsb * 1e-9, step * 1e-9), rel=1e-6)


def test_tick_detector_finds_none_in_a_continuous_clock() -> None:
    assert stats.detect_tick(np.random.default_rng(4).uniform(0, 1e-5, 3000)) == (0.0, 0.0)
    assert stats.detect_tick(np.full(3000, 1e-6)) == (0.0, 0.0)


def test_quantile_ranks_are_monotone_in_the_confidence() -> None:
    widths = [high - low for low, high, _ in (stats.quantile_ranks(500, 0.5, c) for c in (0.5, 0.8, 0.95, 0.999))]
    assert all(a < b for a, b in pairwise(widths))
