"""Checkpoint intervals, owning against renting, ranges: known answers, published ones, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumicro.cluster.checkpoint import best_interval, checkpoint_plan, daly_interval, overhead, young_interval
from gpumicro.cluster.cost import spot_cost
from gpumicro.cluster.ownership import Ownership, break_even
from gpumicro.cluster.uncertain import Uncertain, duration, exactly, number, parse_range, share, spread
from gpumicro.errors import UsageError

MINUTE, HOUR = 60.0, 3600.0


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mtbi_s", "published_s"), [(24 * HOUR, 117 * MINUTE), (6 * HOUR, 57 * MINUTE), (15 * MINUTE, 9.1 * MINUTE)]
)
def test_dalys_interval_is_that_of_his_figures_3_to_5(mtbi_s: float, published_s: float) -> None:
    assert daly_interval(5 * MINUTE, mtbi_s) == pytest.approx(published_s, rel=0.006)  # printed to 2 or 3 digits
    assert daly_interval(5 * MINUTE, mtbi_s) == pytest.approx(best_interval(5 * MINUTE, mtbi_s), rel=0.01)


def test_youngs_interval() -> None:
    assert young_interval(50, 3600) == 600
    assert daly_interval(100, 10) == 10  # a checkpoint longer than 2M


def simulated_overhead(work: float, dump: float, restart: float, mtbi: float, segments: int, seed: int) -> float:
    """The job played through: work and dump, over again where an interruption comes before both are done, a restart
    after each, which may itself be interrupted."""
    rng = np.random.default_rng(seed)
    clock, left, next_s, restarting = 0.0, segments, rng.exponential(mtbi), False
    while left:
        span = restart if restarting else work + dump
        if next_s >= clock + span:
            clock += span
            left -= 0 if restarting else 1
            restarting = False
        else:
            clock, restarting = next_s, True
            next_s = clock + rng.exponential(mtbi)
    return clock / (segments * work) - 1


@pytest.mark.parametrize(
    ("work", "dump", "restart", "mtbi"), [(600, 50, 100, 3600), (60, 10, 30, 120), (3000, 60, 0, 1e5)]
)
def test_the_overhead_is_that_of_a_job_played_through(work: float, dump: float, restart: float, mtbi: float) -> None:
    seen = [simulated_overhead(work, dump, restart, mtbi, 4000, seed) for seed in range(8)]
    error = np.std(seen, ddof=1) / math.sqrt(len(seen))
    assert abs(np.mean(seen) - overhead(work, dump, restart, mtbi)) < 4 * error


@settings(deadline=None)
@given(st.floats(1e-3, 1e4), st.floats(1e-2, 1e8))
def test_the_best_interval_is_a_minimum(dump: float, mtbi: float) -> None:
    best = best_interval(dump, mtbi)
    assert 0 < best <= mtbi
    least = overhead(best, dump, 0, mtbi)
    assert all(least <= overhead(best * by, dump, 0, mtbi) * (1 + 1e-9) for by in (0.9, 1.1))


def test_a_million_nodes_never_end_and_nonsense_is_refused() -> None:
    plan = checkpoint_plan(60, 30 * HOUR, 300, nodes=1_000_000)
    assert not plan.ends
    assert plan.overhead_best == math.inf
    assert checkpoint_plan(60, 30 * HOUR, 300, nodes=8).ends
    for wrong in ((0, 10), (10, 0), (-1, 10), (10, math.inf), (math.nan, 10)):
        with pytest.raises(UsageError, match="must be above zero"):
            checkpoint_plan(*wrong)
    with pytest.raises(UsageError, match="nodes must be at least 1, not -2"):
        checkpoint_plan(1, 100, nodes=-2)
    with pytest.raises(UsageError, match="restart's time cannot be negative"):
        checkpoint_plan(1, 100, -5)


def test_spot_pays_where_the_lost_time_costs_less_than_the_discount() -> None:
    seldom = spot_cost(20, exactly(90), exactly(20 * HOUR), exactly(300), fixed_usd_per_hour=55)
    often = spot_cost(50, exactly(90), exactly(0.2 * HOUR), exactly(300), fixed_usd_per_hour=55)
    either = spot_cost(50, exactly(90), Uncertain(30 * HOUR, 0.2 * HOUR, 60 * HOUR), fixed_usd_per_hour=55)
    assert (seldom.verdict, often.verdict, either.verdict) == ("spot", "fixed", "open")
    assert seldom.break_even_overhead == pytest.approx(1.75)
    assert spot_cost(20, exactly(90), exactly(HOUR)).verdict == "unknown"
    with pytest.raises(UsageError, match="spot price must be above zero, not 0"):
        spot_cost(0, exactly(90), exactly(HOUR))


# -- owning ------------------------------------------------------------------------------------------------------------


def ownership(**more: Uncertain) -> Ownership:
    known = {
        "capex_usd": 87_600.0, "opex_usd_per_year": 8_760.0, "lifetime_years": 5.0, "power_w": 10_000.0,
        "idle_power_w": 0.0, "pue": 1.5, "usd_per_kwh": 0.1, "utilisation": 0.5,
    }  # fmt: skip
    return Ownership(**({key: exactly(value) for key, value in known.items()} | more))


def test_owning_by_hand() -> None:
    found = break_even(ownership(), 10.0)
    # 87,600/5 + 8,760 = 26,280 a year: 3 an hour, 6 for each of the half that is used; 10 kW x 1.5 x 0.1 = 1.5
    assert found.own_usd_per_used_hour.value == pytest.approx(7.5)
    assert found.from_utilisation.value == pytest.approx(3 / 8.5)
    # the cloud: 43,800 a year; own: 8,760 + 6,570
    assert found.payback_years.value == pytest.approx(87_600 / (43_800 - 8_760 - 6_570))
    assert found.verdict == "own"
    assert break_even(ownership(), 7.0).verdict == "cloud"


def test_at_the_break_even_utilisation_both_cost_the_same() -> None:
    share_of_hours = break_even(ownership(), 10.0).from_utilisation.value
    at = break_even(ownership(utilisation=exactly(share_of_hours)), 10.0)
    assert at.own_usd_per_used_hour.value == pytest.approx(10.0)


def test_bounds_leave_the_verdict_open_and_electricity_alone_can_cost_more() -> None:
    wide = break_even(ownership(utilisation=Uncertain(0.5, 0.2, 0.8)), 7.6)
    assert wide.verdict == "open"
    assert wide.own_usd_per_used_hour.moves[0].name == "utilisation"
    never = break_even(ownership(), 1.0)
    assert never.from_utilisation.value == math.inf
    assert never.payback_years.value == math.inf


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("capex_usd", 0.0, "capex must be above zero"),
        ("lifetime_years", -1.0, "lifetime must be above zero"),
        ("opex_usd_per_year", -1.0, "opex cannot be negative"),
        ("pue", 0.9, "PUE must be at least 1"),
        ("utilisation", 0.0, "utilisation must be above 0 and at most 1"),
        ("utilisation", 1.1, "utilisation must be above 0 and at most 1"),
        ("power_w", -5.0, "power cannot be negative"),
    ],
)
def test_impossible_ownership_is_refused(key: str, value: float, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ownership(**{key: exactly(value)})
    assert ownership(pue=exactly(1.0))


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_ranges_are_read_with_their_units() -> None:
    assert parse_range("30%..50%", share, "--x") == Uncertain(0.4, 0.3, 0.5)
    assert parse_range("7e9", number, "--x").known
    assert [duration(text) for text in ("90s", "15min", "20h", "3d", "200ms", "1.5 h")] == [
        90,
        900,
        72_000,
        259_200,
        0.2,
        5400,
    ]
    for wrong in ("3..1", "1..2..3", "..", "", "inf"):
        with pytest.raises(UsageError, match=r"^--x"):
            parse_range(wrong, number, "--x")
    for bare in ("20", "h", "5 parsecs", "min"):
        with pytest.raises(UsageError):
            duration(bare)


def test_a_spread_covers_all_corners_and_orders_its_inputs() -> None:
    found = spread(lambda a, b: a / b, {"a": Uncertain(2, 1, 3), "b": Uncertain(10, 5, 20)})
    assert (found.value, found.low, found.high) == (0.2, 0.05, 0.6)
    assert [move.name for move in found.moves] == ["b", "a"]
    with pytest.raises(UsageError, match="13 inputs are ranges; at most 12"):
        spread(lambda **inputs: sum(inputs.values()), {str(i): Uncertain(1, 0, 2) for i in range(13)})
