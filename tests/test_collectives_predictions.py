"""Predictions: the formulas agree with counting steps, and what was not fitted is said."""

from __future__ import annotations

import pytest
from sweep_files import SIZES, kinked, sweep

from gpumicro.collectives.fit import Fit, fit
from gpumicro.collectives.predictions import (
    ALGORITHMS,
    algorithm,
    gamma,
    predict_hierarchical,
    predict_ranks,
    predict_size,
)
from gpumicro.errors import UsageError

A, B, G = 2e-6, 1 / 50e9, 1 / 400e9  # one message: latency, time a byte, reduction of a byte


def made(collective: str, ranks: int, name: str = "ring", gamma: float = 0.0, noise: float = 0.0) -> Fit:
    terms = algorithm(collective, name).terms(ranks)
    beta = terms.bandwidth * B + terms.reduction * gamma
    return fit(sweep(lambda n: terms.latency * A + beta * n, ranks=ranks, collective=collective, noise=noise))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_ring_all_reduce_counts_its_steps(ranks: int) -> None:
    """2(p-1) steps, each of n/p bytes; every second half of them reduces."""
    steps, share = 2 * (ranks - 1), 1 / ranks
    terms = algorithm("all_reduce").terms(ranks)
    assert (terms.latency, terms.bandwidth) == (steps, pytest.approx(steps * share))
    assert terms.reduction == pytest.approx(steps / 2 * share)


def test_tree_depth_is_rounded_up() -> None:
    assert [algorithm("broadcast", "tree").terms(p).latency for p in (1, 2, 3, 4, 5, 8, 9)] == [0, 1, 2, 2, 3, 3, 4]


def test_nothing_is_paid_at_one_rank_by_what_divides_the_data() -> None:
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        terms = algorithm(collective).terms(1)
        assert (terms.latency, terms.bandwidth, terms.reduction) == (0, 0, 0)


@pytest.mark.parametrize(("collective", "name"), [(c, n) for c, found in ALGORITHMS.items() for n in found])
def test_another_rank_count_comes_out_where_the_formula_holds(collective: str, name: str) -> None:
    before, after = made(collective, 8, name), algorithm(collective, name).terms(32)
    for size in (8, 2**20, 2**30):
        found = predict_ranks(before, size, 32, name)
        assert found.time_s.value == pytest.approx(after.latency * A + after.bandwidth * B * size, rel=1e-4)
        assert found.tag == "model"
        assert found.extrapolated
        assert "32 ranks: fitted at 8" in found.beyond
        assert found.formula.startswith(f"{name}: ")


def test_a_size_between_is_no_extrapolation_and_beyond_is() -> None:
    fitted = fit(sweep(kinked, noise=0.01))
    inside = predict_size(fitted, 3 * 2**20)
    assert inside.time_s.ci95 is not None
    assert inside.time_s.ci95[0] <= kinked(3 * 2**20) <= inside.time_s.ci95[1]
    assert not inside.extrapolated
    assert (inside.fitted_from_bytes, inside.fitted_to_bytes) == (8, SIZES[-1])
    assert predict_size(fitted, 100).time_s.value == pytest.approx(kinked(100), rel=0.02), "the lower regime's line"
    beyond = predict_size(fitted, 2**33)
    assert beyond.extrapolated
    assert beyond.time_s.value == pytest.approx(kinked(2**33), rel=0.02)


def test_hierarchical_is_the_sum_of_its_three_parts() -> None:
    inside, between = made("all_reduce", 4), made("all_reduce", 2)
    found = predict_hierarchical(inside, between, 2**20, ranks_per_node=8, nodes=4)
    expected = 2 * 7 * A + 2 * 7 / 8 * 2**20 * B + 2 * 3 * A + 2 * 3 / 4 * 2**17 * B
    assert found.time_s.value == pytest.approx(expected, rel=1e-4)
    assert found.ranks == 32
    assert found.beyond == ("8 ranks a node: fitted at 4", "4 nodes: fitted at 2")


def test_gamma_needs_a_collective_that_only_moves() -> None:
    moving = made("all_gather", 8, noise=0.002)
    for reducing in ("all_reduce", "reduce_scatter"):
        found = gamma(made(reducing, 8, gamma=G, noise=0.002), moving)
        assert found.ci95 is not None
        assert found.ci95[0] <= G <= found.ci95[1]
        assert found.value == pytest.approx(G, rel=0.3)
    with pytest.raises(UsageError, match="gamma is found by"):
        gamma(moving, moving)
    with pytest.raises(UsageError, match="same ranks"):
        gamma(made("all_reduce", 4), moving)


def test_refusals_name_the_cure() -> None:
    fitted = made("all_reduce", 8)
    with pytest.raises(UsageError, match="ring, tree, double-tree"):
        predict_ranks(fitted, 8, 16, "xyz")
    with pytest.raises(UsageError, match="how many ranks"):
        predict_ranks(fit(sweep(ranks=None)), 8, 16)
    with pytest.raises(UsageError, match="at one rank"):
        predict_ranks(fit(sweep(ranks=1)), 8, 16)
    with pytest.raises(UsageError, match="nothing was fitted"):
        predict_size(fit(sweep(sizes=SIZES[:3])), 8)
    with pytest.raises(UsageError, match="above 0"):
        predict_size(fitted, 0)
    with pytest.raises(UsageError, match="ranks must be"):
        predict_ranks(fitted, 8, 0)
