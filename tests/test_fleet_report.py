"""The fleet on a terminal, as JSON, as a page, and the command's exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fleet_files import healthy, node_file, noisy, write_fleet

from gpumicro import __main__, fleet
from gpumicro.cli import cli
from gpumicro.report.fleet import fleet_tables, headline
from gpumicro.report.fleet_page import fleet_html, map_data

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nodes = healthy(12) | {"n003": noisy(np.random.default_rng(1), slow={3: 0.8})}
    write_fleet(tmp_path / "fleet", nodes)
    (tmp_path / "fleet" / "cut.json").write_text('{"schema": "gpumicro/1"')
    return tmp_path / "fleet"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = __main__.main(["fleet", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_terminal_names_node_ceiling_and_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(folder))
    assert code == 0
    assert "12 nodes: 1 slow, 0 fast; 1 file cannot be read" in out
    for words in ("n003", "dram (2 threads)", "cut.json", "truncated"):
        assert words in out


def test_exit_codes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "accept.toml"
    rules.write_text("[fleet]\nslow_max = 0")
    code, out, _ = run(capsys, str(folder), "--accept", str(rules))
    assert (code, "FAILED: not accepted" in out) == (1, True)
    rules.write_text("[fleet]\nslow_max = 1")
    code, out, _ = run(capsys, str(folder), "--accept", str(rules))
    assert (code, "ACCEPTED by" in out) == (0, True)
    rules.write_text("[fleet]\nslow = 1")
    assert run(capsys, str(folder), "--accept", str(rules))[0] == 2
    assert run(capsys, str(tmp_path / "none"))[0] == 2
    assert run(capsys, str(folder), "--html", "-")[0] == 2
    assert run(capsys, str(folder), "--margin", "much")[0] == 2
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.json").write_text("{}")
    code, _, err = run(capsys, str(tmp_path / "bad"))
    assert (code, "none of the files" in err) == (2, True)


def test_json_on_standard_output_is_clean(folder: Path) -> None:
    done = CliRunner().invoke(cli, ["fleet", str(folder), "-o", "-"], standalone_mode=False)
    record = json.loads(done.stdout)
    assert record["schema"] == "gpumicro-fleet/1"
    assert record["slow"][0]["node"] == "n003"
    assert len(record["devices"]) == 12
    assert record["acceptance"] is None
    assert record["acceptance_why"]


def test_the_page_stands_alone_and_escapes_what_files_say(tmp_path: Path) -> None:
    nodes = healthy(10)
    for doc in nodes.values():
        doc["devices"][0]["name"] = EVIL
        doc["environment"]["driver"] = EVIL
    nodes["</script><b>x"] = nodes.pop("n002")
    nodes["</script><b>x"]["verdicts"] = [{"name": EVIL, "passed": False, "text": EVIL}]
    (tmp_path / "<").mkdir()
    text = fleet_html(fleet(write_fleet(tmp_path, nodes)).to_json())
    assert EVIL not in text
    assert "</script><b>" not in text
    assert not re.search(r"(src|href)=[\"']?https?:|@import|url\(", text)
    data = re.search(r'id="fleet">(.*?)</script>', text)
    assert data is not None
    assert len(json.loads(data[1])["nodes"]) == 10


def test_the_map_has_each_device_with_its_distances(folder: Path) -> None:
    data = map_data(fleet(folder).to_json())
    assert [node[0] for node in data["nodes"]][:4] == ["n000", "n001", "n002", "n003"]
    device, model, parts, out = data["nodes"][3][3][0]
    assert (device, data["models"][model]) == ("cpu", "AMD EPYC (Zen 3)")
    place = data["names"].index("dram (2 threads)")
    assert -2200 < parts[place] < -1800
    assert out == [place]


def test_tables_of_a_node_alone_say_why_nothing_is_judged(tmp_path: Path) -> None:
    record = fleet(write_fleet(tmp_path, {"alone": 1.0})).to_json()
    assert headline(record) == "1 node: nobody can be judged against others"
    assert {table.key for table in fleet_tables(record)} == {"ceilings"}


def test_a_file_without_ceilings_is_a_node_without_figures(tmp_path: Path) -> None:
    bare = node_file()
    bare["ceilings"] = []
    bare["measurements"] = []
    found = fleet(write_fleet(tmp_path, healthy(9) | {"bare": bare}))
    assert found.nodes == 10
    assert any("Without any figure: bare" in note for note in found.notes)
    fleet_html(found.to_json())
