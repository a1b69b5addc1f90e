"""Alpha and beta of made-up sweeps come back, intervals hold the truth as often as they say, kinks are never hidden."""

from __future__ import annotations

import numpy as np
import pytest
from sweep_files import ALPHA_S, BETA_S_PER_BYTE, SIZES, document, item, kinked, line, sweep

from gpumicro.collectives.fit import LEAST_SIZES, Fit, Interval, fit
from gpumicro.collectives.huber import solve
from gpumicro.collectives.sweeps import sweeps_of


def holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.ci95 is not None and interval.ci95[0] <= truth <= interval.ci95[1]


def only(fitted: Fit) -> tuple[float, float]:
    (regime,) = fitted.regimes
    return regime.alpha_s.value, regime.beta_s_per_byte.value


def test_a_line_without_noise_comes_back_whole() -> None:
    fitted = fit(sweep())
    assert only(fitted) == (pytest.approx(ALPHA_S, rel=1e-6), pytest.approx(BETA_S_PER_BYTE, rel=1e-6))
    (regime,) = fitted.regimes
    assert regime.n_half_bytes is not None
    assert regime.n_half_bytes.value == pytest.approx(ALPHA_S / BETA_S_PER_BYTE, rel=1e-6)
    assert (regime.from_bytes, regime.to_bytes, regime.outliers) == (8, SIZES[-1], ())


@pytest.mark.parametrize(("count", "noise"), [(8, 0.03), (18, 0.1)])
def test_intervals_hold_the_truth_in_95_of_100_sweeps(count: int, noise: float) -> None:
    # 200 sweeps: 95% is 190, with a standard deviation of 3; none below 91%, and alpha not so wide that it is always in
    sizes = [round(8 * (SIZES[-1] / 8) ** (k / (count - 1))) for k in range(count)]
    inside = np.zeros(3)
    for seed in range(200):
        (regime,) = fit(sweep(noise=noise, seed=seed, sizes=sizes)).regimes
        inside += [
            holds(regime.alpha_s, ALPHA_S), holds(regime.beta_s_per_byte, BETA_S_PER_BYTE),
            holds(regime.n_half_bytes, ALPHA_S / BETA_S_PER_BYTE),
        ]  # fmt: skip
    assert inside.min() >= 182
    assert inside[0] < 200


def test_the_samples_own_intervals_widen_the_fit() -> None:
    (quiet,) = fit(sweep(noise=0.001)).regimes
    (unsure,) = fit(sweep(noise=0.001, half=0.2)).regimes
    assert quiet.alpha_s.ci95 is not None
    assert unsure.alpha_s.ci95 is not None
    low, high = unsure.alpha_s.ci95
    # a dozen sizes bear on alpha, each known to 20%
    assert 0.2 / np.sqrt(28) < (high - low) / 2 / ALPHA_S < 0.2
    assert quiet.alpha_s.ci95[1] - quiet.alpha_s.ci95[0] < (high - low) / 10


@pytest.mark.parametrize("factor", [3.0, 30.0, 0.1])
def test_spikes_do_not_steer_the_line_and_are_named(factor: float) -> None:
    spikes = {SIZES[3]: factor, SIZES[20]: factor}
    fitted = fit(sweep(noise=0.01, spikes=spikes))
    alpha, beta = only(fitted)
    assert alpha == pytest.approx(ALPHA_S, rel=0.03)
    assert beta == pytest.approx(BETA_S_PER_BYTE, rel=0.03)
    assert fitted.regimes[0].outliers == (SIZES[3], SIZES[20])


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_a_change_of_protocol_is_found_where_it_is(noise: float) -> None:
    found = [fit(sweep(kinked, noise=noise, seed=seed)) for seed in range(20)]
    assert all(fitted.kinks == ((65536, 131072),) for fitted in found)
    low, high = found[0].regimes
    assert holds(low.alpha_s, 6e-6)
    assert holds(high.beta_s_per_byte, 1 / 100e9)
    assert found[0].single_misfit > 0.1


def test_three_protocols_are_three_lines() -> None:
    def truth(size: float) -> float:
        if size <= 32768:
            return 6e-6 + size / 2e9
        return 20e-6 + size / 40e9 if size <= 2**22 else 60e-6 + size / 100e9

    assert fit(sweep(truth, noise=0.02)).kinks == ((32768, 65536), (2**22, 2**23))


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_noise_alone_makes_no_kink(noise: float) -> None:
    assert sum(len(fit(sweep(noise=noise, seed=seed)).regimes) > 1 for seed in range(100)) <= 1


def test_too_few_sizes_say_so() -> None:
    few = fit(sweep(sizes=SIZES[: LEAST_SIZES - 1]))
    assert few.regimes == ()
    assert "4 sizes" in few.why
    close = fit(sweep(sizes=range(1000, 1010)))
    assert close.regimes == ()
    assert "do not part" in close.why


def test_what_does_not_show_has_no_interval() -> None:
    """A sweep of small sizes has no bandwidth, one of large sizes no latency: neither is given a figure of chance."""
    flat = fit(sweep(lambda _: 1e-5)).regimes[0]
    assert flat.alpha_s.value == pytest.approx(1e-5)
    steep = fit(sweep(lambda size: size / 1e9 if size < 1e9 else size / 0.99e9)).regimes[0]
    assert steep.alpha_s.value == pytest.approx(0, abs=1e-12)
    assert steep.alpha_s.value > 0 or steep.alpha_s.ci95 is None
    falling = fit(sweep(lambda size: 1e-5 * (1.0 - size / 1e10))).regimes[0]
    assert falling.beta_s_per_byte.value == 0
    assert falling.beta_s_per_byte.ci95 is None
    assert falling.n_half_bytes is None


def test_the_solver_gives_each_subset_its_own_line() -> None:
    sizes, times = np.array(SIZES, float), np.array([kinked(size) for size in SIZES])
    masks = np.array([sizes <= 65536, sizes > 65536])
    alpha, beta, residuals = solve(sizes, times, masks)
    assert alpha == pytest.approx([6e-6, 18e-6])
    assert beta == pytest.approx([1 / 4e9, 1 / 100e9])
    assert np.isnan(residuals[~masks]).all()


# -- sweeps of a document ----------------------------------------------------------------------------------------------


def test_a_document_falls_into_sweeps_by_all_but_the_size() -> None:
    items = [item(size, line(size), id=f"{place} {size}", variant=place) for place in ("a", "b") for size in SIZES[:6]]
    first, second = sweeps_of(document(items))
    assert (first.sizes, first.ranks, first.factor) == (SIZES[:6], 8, pytest.approx(1.75))
    assert first.name == "all_reduce, float32 sum, 8 ranks, a"
    assert second.how == "b"


def test_wrong_elements_repeats_and_empty_sizes_are_no_points() -> None:
    items = [
        item(8, 1e-5, id="a"), item(8, 3e-5, id="b"), item(16, 2e-5, id="c", status="failed", error="7 wrong"),
        item(32, 1e-5, id="d", repeat_of="a"), item(0, 1e-5, id="e"),
    ]  # fmt: skip
    (only_one,) = sweeps_of(document(items))
    (point,) = only_one.points
    assert (point.size_bytes, point.time_s, point.low_s) == (8, pytest.approx(2e-5), None)
