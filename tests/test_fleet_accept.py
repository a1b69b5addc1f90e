"""Thresholds files: what is taken, what is refused with its place, and that what cannot be judged is no pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet_files import healthy, node_file, write_fleet

from gpumicro import fleet
from gpumicro.cluster.fleet_accept import FLEET_KEYS, NODE_KEYS, read_thresholds
from gpumicro.cluster.fleet_records import Acceptance
from gpumicro.errors import SchemaError

MODEL = "AMD EPYC*"


def accept(tmp_path: Path, text: str, nodes: dict[str, object] | None = None) -> Acceptance:
    folder = write_fleet(tmp_path / "fleet", healthy(12) if nodes is None else nodes)
    path = tmp_path / "accept.toml"
    path.write_text(text)
    found = fleet(folder, accept=path).acceptance
    assert found is not None
    return found


GOOD = """
[fleet]
nodes_min = 12
unreadable_max = 0
slow_max = 0

[node]
verdicts = "all"

[[ceiling]]
name = "dram (2 threads)"
device = "AMD EPYC*"
min = "30 GB/s"
of_median_min = 0.9

[[ceiling]]
name = "float*"
of_spec_min = 0.5
"""


def test_a_healthy_fleet_passes(tmp_path: Path) -> None:
    found = accept(tmp_path, GOOD)
    assert found.passed, found.refusals
    assert found.checked > 12 * 4


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        ("[fleet]\nnodes_min = 13", "fleet.nodes_min = 13", "12 nodes were read"),
        ("[fleet]\nspread_max = 0.0001", "fleet.spread_max", "spreads by"),
        ("[node]\ndriver = '580'", "node.driver", "cannot be judged"),
        ("[node]\nclock_min = '3 GHz'", "node.clock_min", "cannot be judged"),
        ("[[ceiling]]\nname = 'dram (2 threads)'\nmin = '1 TB/s'", ">= 1.00 TB/s", "GB/s"),
        ("[[ceiling]]\nname = 'dram (2 threads)'\nmin = '1 TFLOP/s'", "TFLOP/s", "cannot be judged"),
        ("[[ceiling]]\nname = 'l1 (2 threads)'\nof_spec_min = 0.1", "of spec", "no spec peak"),
        ("[[ceiling]]\nname = 'dram (2'\nmin = 1", "'dram (2'", "did you mean dram (2 threads)"),
        ("[[ceiling]]\nname = 'dram*'\nmin = 1\ndevice = 'H200'", "'H200'", "fits nothing"),
        ("[[ceiling]]\nname = 'float16'\nrequired = true", "float16", "not measured"),
    ],
)
def test_what_is_not_met_or_not_known_is_no_pass(tmp_path: Path, text: str, rule: str, words: str) -> None:
    found = accept(tmp_path, text)
    assert not found.passed
    assert any(rule in one.rule and words in one.text for one in found.refusals), (
        found.refusals[:2] + found.refusals[-2:]
    )


def test_the_slow_node_is_the_one_refused(tmp_path: Path) -> None:
    nodes = healthy(12) | {"bad": 0.7}
    found = accept(tmp_path, "[[ceiling]]\nname = '*'\nof_median_min = 0.9\n[fleet]\nslow_max = 0", nodes)
    assert {one.node for one in found.refusals} == {"bad", ""}


def test_states_are_held_to_their_limits(tmp_path: Path) -> None:
    good = {"clock_hz": 3e9, "temperature_c": {"max": 60.0}, "gpu": {"driver": "580", "ecc_uncorrected": 0}}
    bad = {"clock_hz": 2e9, "temperature_c": {"max": 95.0}, "gpu": {"driver": "1", "ecc_uncorrected": 2},
           "flags": ["throttled"]}  # fmt: skip
    nodes = {"good": node_file(state=good), "bad": node_file(state=bad)}
    nodes["bad"]["verdicts"] = [{"name": "roof", "passed": False, "text": "x"}]
    text = (
        '[node]\ndriver = ["580", "581"]\ntemperature_max_c = 88\necc_uncorrected_max = 0\nclock_min = "2.5 GHz"\n'
        'without_trouble = true\nverdicts = ["roof"]\n'
    )
    found = accept(tmp_path, text, nodes)
    assert {one.node for one in found.refusals} == {"bad"}
    assert len(found.refusals) == 6


def test_one_node_passes_absolute_thresholds_and_no_relative_ones(tmp_path: Path) -> None:
    rule = "[[ceiling]]\nname = 'dram*'\n"
    assert accept(tmp_path, rule + "min = 1e9", {"alone": 1.0}).passed
    found = accept(tmp_path, rule + "of_median_min = 0.5", {"alone": 1.0})
    assert not found.passed
    assert "cannot be judged: 1 of 8" in found.refusals[0].text
    assert not accept(tmp_path, "[fleet]\nslow_max = 0", {"alone": 1.0}).passed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[fleet]\nnode_min = 3",
            r"accept\.toml: fleet|accept\.toml\.fleet: unknown key 'node_min'; did you mean nodes_min",
        ),
        ("[ceilings]\nx = 1", "unknown key 'ceilings'; did you mean ceiling"),
        ("[[ceiling]]\nname = 'dram'\nminimum = 1", "unknown key 'minimum'"),
        ("[[ceiling]]\nmin = 1", "name is missing"),
        ("[[ceiling]]\nname = 'dram'", "no threshold"),
        ("[[ceiling]]\nname = 'dram'\nmin = 'fast'", "must be a rate"),
        ("[[ceiling]]\nname = 'dram'\nmin = -1", "must be a rate"),
        ("[[ceiling]]\nname = 'dram'\nof_spec_min = 90", "a share"),
        ("[[ceiling]]\nname = 'dram'\nrequired = 'no'", "true or false"),
        ("[fleet]\nslow_max = -1", "0 or more"),
        ("[fleet]\nslow_max = true", "0 or more"),
        ("[fleet]\nslow_max = nan", "0 or more"),
        ("[node]\nclock_min = '3 GB'", "a quantity"),
        ("[node]\ndriver = 580", "string"),
        ("[[fleet]]\nnodes_min = 1", r"one table, \[fleet\]"),
        ("[ceiling]\nname = 'x'", r"\[\[ceiling\]\]"),
        ("fleet = 3", "a table"),
        ("", "no threshold in it"),
        ("[fleet", "not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "accept.toml"
    path.write_text(text)
    with pytest.raises(SchemaError, match=words) as caught:
        read_thresholds(path)
    assert "accept.toml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no such file"):
        read_thresholds(tmp_path / "none.toml")


def test_the_format_in_the_documentation_is_the_one_that_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "fleet.md").read_text()
    path = tmp_path / "accept.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    found = read_thresholds(path)
    assert set(found.fleet) == set(FLEET_KEYS)
    assert set(found.node) == set(NODE_KEYS)
    assert len(found.rules) == 1
