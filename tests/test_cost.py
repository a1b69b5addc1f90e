"""Prices, unit costs, checkpoints, owning: known answers, published ones, and bad input."""

from __future__ import annotations

import math
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumicro as gm
from gpumicro.cluster.checkpoint import best_interval, checkpoint_plan, daly_interval, overhead, young_interval
from gpumicro.cluster.cost import (
    cost_efficiency_score,
    figures_for,
    machine_cost,
    run_by_flop,
    run_by_steps,
    spot_cost,
    training_flop,
)
from gpumicro.cluster.figures import read_figures
from gpumicro.cluster.ownership import Ownership, break_even
from gpumicro.cluster.prices import Offer, load_prices, offer_of
from gpumicro.cluster.uncertain import Uncertain, duration, exactly, number, parse_range, share, spread
from gpumicro.errors import SchemaError, UsageError
from gpumicro.peaks import find_gpu
from gpumicro.peaks.instances import Price, find_instance, instance_specs, read_instances

RESULT = Path(__file__).parent / "data" / "roofline-cpu.json"
MINUTE, HOUR = 60.0, 3600.0


def prices(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


MINE = """
[[price]]
instance = "p5.48xlarge"
usd_per_hour = 21.6
date = 2026-11-30
source = "a contract"
kind = "spot"

[[price]]
instance = "box"
gpu_count = 2
usd_per_hour = 3.6
date = "2026-11-01"
source = "the landlord"
"""


# -- the data ----------------------------------------------------------------------------------------------------------


def test_the_instances_name_known_gpus_and_no_price_lacks_its_day_and_source() -> None:
    specs = instance_specs()
    assert len(specs) == 55
    for one in specs:
        assert one.gpu is not None
        assert find_gpu(one.gpu).id == one.gpu
        assert one.source
        if one.price:
            assert one.price.source
            assert one.price.region
            assert ("usd_per_hour" in one.unknown) is False


def test_known_instances_are_as_their_providers_describe_them() -> None:
    p4d, a2, nd = (find_instance(name) for name in ("p4d.24xlarge", "a2-highgpu-8g", "Standard_ND96asr_v4"))
    assert (p4d.gpu_count, p4d.gpu, p4d.network_bits_per_s) == (8, "a100-sxm4-40", 400e9)
    assert (a2.gpu_count, a2.gpu) == (8, "a100-sxm4-40")
    assert (nd.gpu_count, nd.gpu, nd.network_bits_per_s) == (8, "a100-sxm4-40", 1.6e12)
    assert find_instance("aws:P4D.24xlarge") is p4d


def test_an_unknown_instance_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown instance 'p5\.48xl'; did you mean p5\.48xlarge.*--list"):
        find_instance("p5.48xl")
    with pytest.raises(UsageError, match=r"unknown instance 'zzzz'; `gpumicro cost --list`"):
        find_instance("zzzz")


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ('gpu = "h900"', "gpu: unknown spec 'h900'"),
        ("gpu_count = -8", "gpu_count must be a positive number, not -8"),
        ("usd_per_hour = 0", "usd_per_hour must be a positive number, not 0"),
        ("usd_per_hour = 3.0", "price_date is missing"),
        ("netwrok_gbps = 3", "netwrok_gbps: unknown key"),
    ],
)
def test_a_wrong_instance_file_names_the_place(wrong: str, what: str, tmp_path: Path) -> None:
    lines = {"provider": '"X"', "instance": '"y"', "gpu": '"t4"', "gpu_count": "1", "source": '"s"'}
    key, _, value = wrong.partition(" = ")
    lines[key] = value
    path = prices(tmp_path, "[[instance]]\n" + "\n".join(f"{k} = {v}" for k, v in lines.items()))
    with pytest.raises(SchemaError, match=f"mine.toml: instance\\[0\\].{what}"):
        read_instances(path, "mine.toml")


def test_a_users_price_wins_and_the_list_price_stands_where_there_is_none(tmp_path: Path) -> None:
    own = load_prices(prices(tmp_path, MINE))
    spot = offer_of("p5.48xlarge", "spot", own).price
    assert spot
    assert (spot.usd_per_hour, spot.day, spot.source) == (21.6, date(2026, 11, 30), "a contract")
    listed = offer_of("p5.48xlarge", "on-demand", own).price
    assert listed
    assert listed.region == "us-east-1"
    box = offer_of("box", "on-demand", own)
    assert (box.instance.gpu, box.instance.gpu_count) == (None, 2)
    assert offer_of("a3-highgpu-8g").price is None
    assert offer_of("p5.48xlarge", "reserved", own).price is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("21.6", "0"), r"price\[0\]\.usd_per_hour must be a positive number, not 0"),
        (("21.6", "-4"), r"usd_per_hour must be a positive number, not -4"),
        (("21.6", "nan"), r"usd_per_hour must be a positive number, not nan"),
        (('source = "a contract"\n', ""), r"price\[0\]\.source is missing"),
        (("date = 2026-11-30\n", ""), r"price\[0\]\.date is missing: a price needs the day"),
        (("2026-11-30", '"November"'), r"date must be a day such as 2026-11-30, not 'November'"),
        (('"spot"', '"cheap"'), "kind must be one of on-demand, spot, reserved, not 'cheap'"),
        (("p5.48xlarge", "p5.48xl"), r"price\[0\]\.instance: unknown instance 'p5\.48xl'; did you mean"),
        (("gpu_count = 2", 'gpu_count = 2\ngpu = "h1000"'), r"price\[1\]\.gpu: unknown spec 'h1000'"),
        (("gpu_count = 2", "gpus = 2"), r"price\[1\]\.gpus: unknown key"),
    ],
)
def test_a_wrong_price_is_refused_with_its_place(change: tuple[str, str], what: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=f"prices.toml: .*{what}"):
        load_prices(prices(tmp_path, MINE.replace(*change)))


def test_two_prices_of_a_kind_need_a_region(tmp_path: Path) -> None:
    two = MINE + MINE.replace('kind = "spot"', 'kind = "spot"\nregion = "eu"').replace("box", "box2")
    own = load_prices(prices(tmp_path, two))
    with pytest.raises(UsageError, match=r"several regions \(None, eu\); choose one with --region"):
        offer_of("p5.48xlarge", "spot", own)
    assert offer_of("p5.48xlarge", "spot", own, "eu").price
    with pytest.raises(SchemaError, match="is there twice"):
        load_prices(prices(tmp_path, MINE + MINE))
    with pytest.raises(SchemaError, match=r"holds no \[\[price\]\] table"):
        load_prices(prices(tmp_path, "schema = 1"))


# -- unit costs --------------------------------------------------------------------------------------------------------


def test_a_measured_rate_times_a_price_is_what_it_must_be(tmp_path: Path) -> None:
    document = read_figures(str(RESULT))
    offer = offer_of("box", own=load_prices(prices(tmp_path, MINE)))
    machine = machine_cost(offer, [document], power_w=exactly(100.0), pue=exactly(1.5))
    by_name = {unit.what: unit for unit in machine.units}
    gemm, dram = by_name["GEMM float64"], by_name["DRAM"]
    rate = document.devices[0].gemm["float64"]
    assert gemm.usd
    # 3.60 dollars an hour is 0.001 a second, over two devices
    assert gemm.usd.value == pytest.approx(0.001 / (2 * rate.estimate) * 1e15)
    assert rate.ci95
    assert gemm.usd.low == pytest.approx(0.001 / (2 * rate.ci95[1]) * 1e15)
    assert (gemm.unit, dram.unit, gemm.rate.origin) == ("USD/PFLOP", "USD/TB", "measured")
    assert gemm.per_joule
    assert gemm.per_joule.value == pytest.approx(rate.estimate / 150)


def test_without_a_result_the_data_sheet_stands_in_and_says_so() -> None:
    machine = machine_cost(offer_of("p5.48xlarge"), dtypes=["bfloat16"])
    assert machine.origin_note == "data sheet of NVIDIA H100 80GB HBM3, not measured"
    assert {unit.rate.origin for unit in machine.units} == {"spec"}
    assert machine_cost(offer_of("a3-highgpu-8g")).units[0].usd is None


def test_a_result_of_another_device_is_not_taken_for_the_instances() -> None:
    document = read_figures(str(RESULT))
    assert figures_for(offer_of("p5.48xlarge"), [document])[1].startswith("data sheet")
    nameless = Offer(
        find_instance("p5.48xlarge").__class__("own", "x", None, 1, *[None] * 3, "", "", None, None, (), (), ""), None
    )
    with pytest.raises(UsageError, match="x names no GPU: give one result of it"):
        figures_for(nameless, [])


def test_an_unmeasured_dtype_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no figure of float128; there are .*bfloat16"):
        machine_cost(offer_of("p5.48xlarge"), dtypes=["float128"])


def test_a_run_by_flop_is_work_over_rate_and_keeps_its_bounds() -> None:
    machine = machine_cost(offer_of("p5.48xlarge"))
    assert training_flop(7e9, 2e12) == 8.4e22  # Kaplan et al. 2020: 6 N D
    run = run_by_flop(machine, exactly(8.4e22), Uncertain(0.4, 0.3, 0.5), "bfloat16", nodes=16)
    rate = machine.figures.gemm["bfloat16"].estimate
    assert run.wall_s.value == pytest.approx(8.4e22 / (128 * rate * 0.4))
    assert run.usd
    assert run.usd.value == pytest.approx(run.wall_s.value / 3600 * 16 * 55.04)
    assert run.usd.low == pytest.approx(run.usd.value * 0.4 / 0.5)
    assert [move.name for move in run.usd.moves] == ["efficiency"]
    assert run.device_hours.value == pytest.approx(run.wall_s.value * 128 / 3600)


def test_a_run_by_steps_and_bad_counts() -> None:
    machine = machine_cost(offer_of("p5.48xlarge"))
    run = run_by_steps(machine, exactly(0.36), 10_000, nodes=2)
    assert run.usd
    assert run.usd.value == pytest.approx(2 * 55.04)
    for nodes in (0, -3):
        with pytest.raises(UsageError, match=f"nodes must be at least 1, not {nodes}"):
            run_by_steps(machine, exactly(0.36), 10, nodes=nodes)
    with pytest.raises(UsageError, match="steps must be at least 1"):
        run_by_steps(machine, exactly(0.36), 0)
    with pytest.raises(UsageError, match=r"efficiency must be above 0 and at most 1, not 1\.2"):
        run_by_flop(machine, exactly(1e20), Uncertain(1.0, 0.8, 1.2), "bfloat16")
    with pytest.raises(UsageError, match="no rate of float128"):
        run_by_flop(machine, exactly(1e20), exactly(0.5), "float128")
    million = run_by_flop(machine, exactly(1e26), exactly(0.4), "bfloat16", nodes=125_000)
    assert math.isfinite(million.wall_s.value)


def test_the_score_is_as_defined_and_refuses_what_makes_no_sense() -> None:
    assert gm.cost_efficiency_score is cost_efficiency_score
    assert cost_efficiency_score(10, 0.5) == pytest.approx(0.2)
    assert cost_efficiency_score(5, 0.5) == pytest.approx(2 * cost_efficiency_score(10, 0.5))
    for wrong in ((0, 1), (1, 0), (-1, 1), (1, math.inf), (math.nan, 1)):
        with pytest.raises(UsageError, match="must be above zero and finite"):
            cost_efficiency_score(*wrong)


def test_an_old_price_says_its_age() -> None:
    price = Price(1.0, date(2026, 7, 20), "list", "us-east-1")
    assert price.words(date(2026, 11, 30)) == "on-demand, us-east-1, 2026-07-20 (133 days old)"
    assert "1 days ahead" in price.words(price.day - timedelta(1))


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
        ("pue", 0.9, "PUE must be above 1"),
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
