"""Instances, prices, unit costs, runs: known answers and bad input."""

from __future__ import annotations

import json
import math
from datetime import date, timedelta
from pathlib import Path

import pytest

import gpumicro as gm
from gpumicro.cluster.cost import (
    cost_efficiency_score,
    figures_for,
    machine_cost,
    run_by_flop,
    run_by_steps,
    training_flop,
)
from gpumicro.cluster.figures import figures_of, read_figures
from gpumicro.cluster.prices import Offer, load_prices, offer_of
from gpumicro.cluster.uncertain import Uncertain, exactly
from gpumicro.errors import SchemaError, UsageError
from gpumicro.peaks import find_gpu
from gpumicro.peaks.instances import Price, find_instance, instance_specs, read_instances

RESULT = Path(__file__).parent / "data" / "roofline-cpu.json"


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


def test_a_sustained_run_gives_work_for_a_joule_of_the_same_seconds(tmp_path: Path) -> None:
    doc = json.loads(RESULT.read_text(encoding="utf-8"))
    run = doc["sustained"][0]
    for point in run["series"]:
        point["power_w"] = 90.0 if point["t_s"] < 5 else 120.0  # hotter at the end, which is what settles
    (device,) = figures_of(doc, "r.json").devices
    rate, watts = device.settled["float64"]
    assert (rate.estimate, watts.estimate, watts.origin) == (run["settled"]["value"], 120.0, "measured")
    offer = offer_of("box", own=load_prices(prices(tmp_path, MINE)))
    units = machine_cost(offer, [figures_of(doc, "r.json")], pue=exactly(1.2)).units
    by_name = {unit.what: unit for unit in units}
    found = by_name["sustained float64"].per_joule
    assert found
    assert found.value == pytest.approx(rate.estimate / (120 * 1.2))
    assert by_name["GEMM float64"].per_joule is None
    assert figures_of(json.loads(RESULT.read_text(encoding="utf-8")), "r.json").devices[0].settled == {}


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
