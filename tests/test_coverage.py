"""The claims of docs/methods.md on the fake clock, with fixed seeds: full runs, from the probe to the stop."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from gpumicro import FakeTimer, FakeWork, Measurement, time_kernel

GPU_CLOCK = {"overhead_s": 1.3e-6, "overhead_sd_s": 1e-7, "float32_ms": True}


def runs(count: int, true_s: float, clock: dict[str, Any], batch: int | None = None, **work: Any) -> list[Measurement]:
    return [
        time_kernel(FakeWork(true_s, **work), timer=FakeTimer(seed=seed, **clock), seed=seed, batch=batch)
        for seed in range(count)
    ]


def covered(measurements: list[Measurement], truth: float) -> float:
    return float(np.mean([m.ci95_s[0] <= truth <= m.ci95_s[1] for m in measurements]))


def median_of_two_modes(spread: float, share: float, factor: float) -> float:
    """Median of the mixture of N(1, spread) and N(factor, factor spread)."""
    fast, slow = NormalDist(1.0, spread), NormalDist(factor, factor * spread)
    low, high = 0.5, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        below = (1 - share) * fast.cdf(middle) + share * slow.cdf(middle)
        low, high = (middle, high) if below < 0.5 else (low, middle)
    return low


@pytest.mark.parametrize("law", ["normal", "lognormal", "exponential", "two-modes"])
def test_the_interval_covers_the_truth_of_independent_noise(law: str) -> None:
    spread = 0.02 if law == "two-modes" else 0.05
    truth = median_of_two_modes(spread, 0.3, 1.04) if law == "two-modes" else 1.0
    measurements = runs(1000, 1e-4, {}, law=law, spread=spread)
    assert covered(measurements, truth * 1e-4) >= 0.93
    assert np.mean(["correlated" in m.flags for m in measurements]) <= 0.05
    assert np.mean(["drift" in m.flags for m in measurements]) <= 0.02


@pytest.mark.parametrize(("rho", "count"), [(0.3, 300), (0.6, 300), (0.9, 60)])
def test_the_interval_covers_the_truth_of_a_chain_or_is_flagged(rho: float, count: int) -> None:
    measurements = runs(count, 1e-4, {}, spread=0.05, rho=rho)
    assert covered(measurements, 1e-4) >= 0.88
    honest = [m.ci95_s[0] <= 1e-4 <= m.ci95_s[1] or "correlated" in m.flags for m in measurements]
    assert np.mean(honest) >= 0.93


@pytest.mark.parametrize("tick_ns", [32, 1024])
@pytest.mark.parametrize("true_us", [2.0, 6.3, 40.0])
@pytest.mark.parametrize("batch", [None, 1])
def test_the_error_is_within_the_target_on_any_tick(tick_ns: int, true_us: float, batch: int | None) -> None:
    measurements = runs(200 if batch else 100, true_us * 1e-6, {"tick_s": tick_ns * 1e-9, **GPU_CLOCK}, batch)
    errors = [abs(m.estimate_s / (true_us * 1e-6) - 1) for m in measurements]
    assert np.quantile(errors, 0.95) <= 0.01
    assert covered(measurements, true_us * 1e-6) >= 0.92
    assert all(m.stop_reason == "target-met" for m in measurements)


def test_spikes_leave_the_location_where_it_was() -> None:
    clean = runs(300, 1e-4, {})
    spiked = runs(300, 1e-4, {}, spike_probability=0.01, spike_factor=3.0)
    shift = np.mean([m.estimate_s for m in spiked]) / np.mean([m.estimate_s for m in clean]) - 1
    assert abs(shift) <= 0.002
    assert covered(spiked, 1e-4) >= 0.92


@pytest.mark.parametrize(
    ("spread", "law", "samples"),
    [(0.01, "normal", 100), (0.05, "normal", 220), (0.05, "exponential", 130)],
)
def test_a_measurement_costs_no_more_samples_than_designed(spread: float, law: str, samples: int) -> None:
    mean = np.mean([m.n for m in runs(100, 1e-4, {}, law=law, spread=spread)])
    assert 0.8 * samples <= mean <= 1.2 * samples
