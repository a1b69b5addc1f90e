"""Who in a fleet is slow, by which ceiling, and what do they share? Fleets of known truth, and broken files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from fleet_files import CEILINGS, healthy, node_file, noisy, write_fleet

from gpumicro import fleet, result
from gpumicro.cluster.fleet_cells import student_tails
from gpumicro.cluster.fleet_files import HEAD_BYTES, TAIL_BYTES, read_devices
from gpumicro.cluster.fleet_groups import codes_of, compare_groups
from gpumicro.errors import SchemaError, UsageError
from gpumicro.stats import t_quantile

DRAM = CEILINGS.index("dram (2 threads)")


def test_a_slow_node_is_named_with_the_ceiling_that_gives_it_away(tmp_path: Path) -> None:
    nodes = healthy(40) | {"n017": noisy(np.random.default_rng(99), slow={DRAM: 0.85})}
    found = fleet(write_fleet(tmp_path, nodes))
    assert found.slow_nodes == ("n017",)
    shown = found.slow[0].shown_by
    assert shown.ceiling == "dram (2 threads)"
    assert shown.ci95[0] < shown.ratio < shown.ci95[1] < 0.9
    assert abs(shown.ratio - 0.85) < 0.03
    assert found.tests == 40 * len(CEILINGS)
    assert not found.fast


def test_a_healthy_fleet_has_next_to_nobody_named_even_without_a_margin(tmp_path: Path) -> None:
    named = []
    for seed in range(6):
        found = fleet(write_fleet(tmp_path / str(seed), healthy(60, seed)), margin=1e-9)
        named.append(len(found.slow) + len(found.fast))
    assert sum(count > 0 for count in named) <= 1, named


def test_no_distance_within_the_margin_is_called_slow(tmp_path: Path) -> None:
    nodes = healthy(40) | {"n000": [0.97] * len(CEILINGS)}
    assert fleet(write_fleet(tmp_path, nodes), margin=0.05).slow == ()


def test_a_slow_rack_is_a_group_and_its_nodes_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    nodes = {
        f"r{rack:02d}-n{i:02d}": noisy(rng, slow=dict.fromkeys(range(8), 0.9) if rack == 3 else None)
        for rack in range(6)
        for i in range(10)
    }
    found = fleet(write_fleet(tmp_path, nodes))
    assert {(group.factor, group.group) for group in found.groups} == {("rack", "r03")}
    group = found.groups[0]
    assert (group.n, group.rest) == (10, 50)
    assert group.ci95[0] < group.ratio < group.ci95[1] < 0.95
    assert found.members["rack"]["r03"] == 10
    assert all(outlier.shared == ("rack r03",) for outlier in found.slow)


def test_a_slow_rack_makes_no_room_for_false_names(tmp_path: Path) -> None:
    false = named = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        nodes = {
            f"r{rack:02d}-n{i:02d}": noisy(rng, slow=dict.fromkeys(range(8), 0.9) if rack == 3 else None)
            for rack in range(10)
            for i in range(10)
        }
        found = fleet(write_fleet(tmp_path / str(seed), nodes), margin=1e-9)
        every = {outlier.node for outlier in (*found.slow, *found.fast)}
        named += len(every)
        false += sum(not node.startswith("r03") for node in every)
    assert named - false == 40
    assert false <= 0.1 * named


def test_an_old_driver_shows_as_a_group_where_its_nodes_are_slow(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    nodes = {f"a{i}": node_file(noisy(rng), driver="580.95") for i in range(20)}
    nodes |= {f"b{i}": node_file(noisy(rng, slow={5: 0.93, 6: 0.93}), driver="535.01") for i in range(8)}
    found = fleet(write_fleet(tmp_path, nodes))
    assert {(g.factor, g.group) for g in found.groups if g.ratio < 1} == {("driver", "535.01")}


def test_state_while_measured_explains_a_slow_node(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    state = {"clock_hz": 3e9, "temperature_c": {"max": 60.0}, "flags": []}
    hot = {
        "clock_hz": 2.4e9,
        "temperature_c": {"max": 93.0},
        "flags": ["throttled"],
        "limited_fraction": {"thermal": 0.4},
    }
    nodes = {f"n{i}": node_file(noisy(rng), state=state) for i in range(20)}
    slow = {place: 0.8 for place in range(8) if place not in (3, 4)}
    nodes["n3"] = node_file(noisy(rng, slow=slow), state=hot)
    hints = " ".join(fleet(write_fleet(tmp_path, nodes)).slow[0].hints)
    for words in ("-20% from the others'", "93 C", "throttled", "thermal limit 40%", "the core clock"):
        assert words in hints


@pytest.mark.parametrize("sd", [0.0, 1e-9])
def test_a_fleet_without_spread_is_judged_by_an_assumed_one(tmp_path: Path, sd: float) -> None:
    rng = np.random.default_rng(8)
    nodes = {f"n{i}": noisy(rng, sd) for i in range(30)} | {"n7": noisy(rng, sd, {DRAM: 0.8})}
    found = fleet(write_fleet(tmp_path, nodes))
    assert found.slow_nodes == ("n7",)
    assert all(ceiling.floored and ceiling.spread == 0.005 for ceiling in found.ceilings)
    assert any("a spread of 0.5% was assumed" in note for note in found.notes)


def test_one_node_says_only_what_cannot_be_judged(tmp_path: Path) -> None:
    found = fleet(write_fleet(tmp_path, {"alone": 1.0}))
    assert (found.tests, found.slow, found.fast, found.groups) == (0, (), (), ())
    assert len(found.ceilings) == len(CEILINGS)
    assert all("8 are needed" in ceiling.why for ceiling in found.ceilings)
    assert "One node" in found.notes[0]


def test_few_nodes_have_a_median_and_no_outliers(tmp_path: Path) -> None:
    found = fleet(write_fleet(tmp_path, healthy(6) | {"n0": 0.5}))
    assert found.tests == 0
    assert found.ceilings[0].n == 7


def test_devices_of_another_kind_are_set_against_their_own(tmp_path: Path) -> None:
    nodes = healthy(20)
    for name in ("n003", "n004"):
        nodes[name]["devices"][0]["name"] = "Another CPU"
        for ceiling in nodes[name]["ceilings"]:
            ceiling["achieved"] /= 4
    found = fleet(write_fleet(tmp_path, nodes))
    assert not found.slow
    assert {ceiling.model for ceiling in found.ceilings} == {"AMD EPYC (Zen 3)", "Another CPU"}


def test_what_was_replayed_is_not_mixed_with_what_was_measured(tmp_path: Path) -> None:
    found = fleet(write_fleet(tmp_path, healthy(10) | {"x": node_file(3.0, replayed=True)}))
    assert {ceiling.model for ceiling in found.ceilings} == {"AMD EPYC (Zen 3)", "AMD EPYC (Zen 3) (replayed)"}
    assert any("No device was measured" in note for note in found.notes)


# -- files -------------------------------------------------------------------------------------------------------------


def test_broken_and_foreign_files_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path, healthy(10))
    whole = (folder / "n000.json").read_text()
    broken = {
        "cut": (whole[: len(whole) // 2], "truncated"),
        "cut-in-a-measurement": (whole[: whole.index('"ceilings"') - 400], "truncated"),
        "empty": ("", "empty"),
        "foreign": ('{"schema": "other/1"}', "another schema"),
        "newer": (whole.replace("gpumicro/1", "gpumicro/7"), "newer"),
        "list": ("[1, 2]", "not a gpumicro result"),
        "binary": ("\0\1\2", "not JSON"),
        "nan": (whole.replace('"achieved": ', '"achieved": NaN, "x": ', 1), "finite"),
        "huge": (whole.replace('"achieved": ', '"achieved": 1e999, "x": ', 1), "finite"),
        "text": (whole.replace('"achieved": ', '"achieved": "fast", "x": ', 1), r"ceilings\[0\]"),
    }
    for name, (text, _) in broken.items():
        (folder / f"{name}.json").write_text(text)
    (folder / "latin.json").write_bytes(b"\xff\xfe{}")
    (folder / "gone.json").symlink_to(folder / "nowhere")
    found = fleet(folder)
    whys = {fault.file: fault.why for fault in found.faults}
    assert set(whys) == {f"{name}.json" for name in (*broken, "latin", "gone")}
    for name, (_, why) in broken.items():
        assert re.search(why, whys[f"{name}.json"]), whys[f"{name}.json"]
    assert (found.files, found.nodes) == (10, 10)


def test_reading_in_haste_gives_what_the_whole_file_gives(tmp_path: Path) -> None:
    doc = json.loads((Path(__file__).parent / "data" / "roofline-cpu.json").read_text())
    as_written, indented = tmp_path / "a.json", tmp_path / "b.json"
    as_written.write_text(result.dumps(doc))
    indented.write_text(json.dumps(doc, indent=3))
    assert read_devices(as_written, "x") == read_devices(indented, "x")
    assert {r.name for r in read_devices(as_written, "x")[0].readings} >= {*CEILINGS, "gemm float64"}


@pytest.mark.parametrize("repeats", [1, 40])
def test_a_large_file_is_read_at_its_ends_only(tmp_path: Path, repeats: int) -> None:
    doc = json.loads((Path(__file__).parent / "data" / "roofline-cpu.json").read_text())
    small, large = tmp_path / "a.json", tmp_path / "b.json"
    small.write_text(result.dumps(doc))
    doc["measurements"] *= repeats
    large.write_text(result.dumps(doc))
    assert read_devices(large, "x") == read_devices(small, "x")
    assert repeats == 1 or large.stat().st_size > 2 * (HEAD_BYTES + TAIL_BYTES)
    text = large.read_text()
    large.write_text(text[: len(text) - len(text) // 20])
    with pytest.raises(SchemaError, match="truncated"):
        read_devices(large, "x")


def test_several_processes_find_what_one_does(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path, healthy(9))
    (folder / "empty.json").write_text("")
    one, two = fleet(folder, processes=1), fleet(folder, processes=2)
    assert one == two
    assert len(two.faults) == 1


def test_files_of_one_node_become_one(tmp_path: Path) -> None:
    nodes = {f"{name}/run{run}": doc for run in (1, 2) for name, doc in healthy(9, run).items()}
    for name in {key.partition("/")[0] for key in nodes}:
        (tmp_path / name).mkdir()
    found = fleet(write_fleet(tmp_path, nodes), node="^[^/]+")
    assert found.nodes == 9
    assert all(len(device.files) == 2 for device in found.devices)


def test_a_copy_of_a_file_is_no_second_node(tmp_path: Path) -> None:
    nodes = healthy(10)
    nodes["copy"] = nodes["n004"]
    assert any("copy as" in note or "n004 as copy" in note for note in fleet(write_fleet(tmp_path, nodes)).notes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"margin": 0}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"fdr": 1.0}, "fdr"),
        ({"rack": "("}, "no regular expression"),
        ({"processes": 0}, "processes"),
    ],
)
def test_wrong_wishes_are_refused(tmp_path: Path, options: dict[str, object], words: str) -> None:
    write_fleet(tmp_path, {"a": 1.0})
    with pytest.raises(UsageError, match=words):
        fleet(tmp_path, **options)  # type: ignore[arg-type]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \.json file"):
        fleet(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        fleet(tmp_path / "none")


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 3, 30, 3700])
@pytest.mark.parametrize("p", [0.5, 0.1, 1e-3, 1e-6])
def test_students_tails_invert_the_quantiles(freedom: int, p: float) -> None:
    t = np.array([t_quantile(1 - p / 2, freedom)])
    assert student_tails(t, float(freedom))[0] == pytest.approx(p, rel=2e-3 if freedom > 1000 else 1e-5)


def test_students_tails_at_the_ends() -> None:
    tails = student_tails(np.array([0.0, -5.0, 5.0, 1e9]), 7.4)
    assert tails[0] == 1
    assert tails[1] == tails[2]
    assert 0 <= tails[3] < 1e-40


def test_the_rank_sum_keeps_its_level() -> None:
    rng = np.random.default_rng(0)
    codes, names = codes_of(["a"] * 6 + ["b"] * 14)
    p = [compare_groups(np.round(rng.normal(size=20), 1), codes, len(names))[0].p for _ in range(1000)]
    assert np.mean(np.array(p) <= 0.05) <= 0.06
    assert min(p) < 0.01


def test_a_group_below_five_is_not_tested() -> None:
    codes, names = codes_of(["a"] * 4 + ["b"] * 20 + [None])
    assert compare_groups(np.arange(25.0), codes, len(names)) == []
