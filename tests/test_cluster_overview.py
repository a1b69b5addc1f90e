"""The cluster's page: files of every command in, verdicts and what to do next in order of gain out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet_files import healthy, node_file, noisy, write_fleet
from sweep_files import document as collectives

from gpumicro import __main__, cluster_overview, fleet, result
from gpumicro.cluster.overview import SECTIONS
from gpumicro.cluster.overview_page import cluster_html
from gpumicro.errors import SchemaError, UsageError

EVIL = "<img src=x onerror=alert(1)>"


def figure(value: float, unit: str = "FLOP/s") -> dict[str, Any]:
    return {"estimate": value, "ci95": [value * 0.99, value * 1.01], "unit": unit, "origin": "measured", "source": "x"}


def scaling() -> dict[str, Any]:
    """Two fabrics; the slow one stops paying at 8."""

    def curve(name: str, rates: dict[int, float], stop: dict[str, Any] | None) -> dict[str, Any]:
        rows = [
            {"gpus": n, "step_s": n / rate, "samples_per_s": rate, "speedup": rate, "efficiency": rate / n,
             "bound": "network", "fits": True}
            for n, rate in rates.items()
        ]  # fmt: skip
        return {"fabric": {"name": name}, "rows": rows, "stop": stop}

    stop = {"gpus": 8, "beyond": 16, "gain": 0.5, "reason": "network"}
    rates = {"device": "GPU", "dtype": "bfloat16", "flop_per_s": figure(1e15), "dram_bytes_per_s": figure(3e12, "B/s")}
    return {
        "schema": "gpumicro/scale/1", "setting": {"rates": rates},
        "curves": [curve("ib", {8: 8.0, 64: 60.0}, None), curve("eth", {8: 8.0, 64: 20.0}, stop)],
    }  # fmt: skip


def cost() -> dict[str, Any]:
    def machine(name: str, usd: float) -> dict[str, Any]:
        price = {"value": usd, "low": usd, "high": usd}
        unit = {"what": "GEMM bfloat16", "rate": figure(1e15), "usd": price, "unit": "USD/PFLOP"}
        return {"instance": name, "units": [unit]}

    return {"kind": "cost", "machines": [machine("cheap", 0.001), machine("dear", 0.0015)], "runs": [],
            "checkpoints": {"best_s": 3600.0, "overhead_best": 0.03}}  # fmt: skip


def storage(share: float = 0.5) -> dict[str, Any]:
    doc = node_file()
    rate = share * 800
    supply = {"name": "loader", "what": "a file each", "samples_per_s": rate, "judged_samples_per_s": rate}
    part = {
        "name": "read",
        "mode": "read",
        "use": "",
        "block_bytes": 4096,
        "depth": 1,
        "bytes_per_s": 1e9,
        "measurement": "",
    }
    place = {"directory": "/data", "file_system": "ext4", "free_bytes": 1 << 40, "size_bytes": 1 << 41, "disks": [],
             "cufile": None}  # fmt: skip
    need = {"gpus": 8, "samples_per_s": 100.0, "sample_bytes": 1e5, "bytes_per_s": 8e7, "origin": "given", "source": ""}
    doc |= {"ceilings": [], "measurements": [], "verdicts": [{"name": "feeds", "passed": share >= 1, "text": "so-so"}]}
    doc["storage"] = {"place": place, "direct": True, "fio": "fio-3.33", "parts": [part], "loader": None,
                      "supplies": [supply], "sample_bytes": 1e5, "need": need}  # fmt: skip
    return doc


def monitor() -> dict[str, Any]:
    doc = node_file() | {"ceilings": [], "measurements": []}
    metric = {"title": "GPU", "unit": "", "p5": 0.1, "p50": 0.5, "p95": 0.9, "min": 0.0, "max": 1.0, "average": 0.5,
              "n": 2}  # fmt: skip
    watched = {"energy_j": None, "series": {"t_s": []}}
    gpu = {"index": 0, "uuid": "GPU-0", "name": "GPU", "facts": {}, "held_back": {}, "flags": []}
    command = {"argv": ["train"], "exit_code": 0, "user_s": 1.0, "system_s": 0.1, "most_memory_bytes": 1 << 20}
    doc["monitor"] = {
        "begin_unix_s": 1.7e9, "duration_s": 2.0, "samples": 2, "command": command,
        "cost": {"sample_s": 1e-3, "cpu_s": 1e-3, "cpu_fraction": 1e-3},
        "host": {"metrics": {"cpu": metric, "x": None}, **watched},
        "gpus": [{"metrics": {"utilization": metric}, **watched, **gpu}],
        "verdicts": [{"subject": "GPU 0", "verdict": "input-bound", "reason": "waits"}],
    }  # fmt: skip
    return doc


def precision() -> dict[str, Any]:
    rows = [
        {"dtype": d, "rate": figure(1e13 * s), "speedup": s, "step": t, "kernel": "gemm.vendor"}
        for d, s, t in (("float32", 1.0, 1.0), ("bfloat16", 10.0, 6.0))
    ]
    return {"schema": "gpumicro/precision/1", "devices": [{"name": "GPU", "rows": rows, "advice": ["narrow"]}]}


def memory() -> dict[str, Any]:
    one = {"size_bytes": 65536, "malloc_s": figure(3e-6, "s"), "pool_s": None}
    return {"devices": [{"kind": "memory", "device": "cuda:0", "origin": "measured", "allocations": [one],
                         "advice": ["use the pool"]}]}  # fmt: skip


def every(tmp_path: Path) -> Path:
    """A folder with a file of each command."""
    nodes = healthy(12) | {"n003": noisy(np.random.default_rng(1), slow={3: 0.8})}
    judged = fleet(write_fleet(tmp_path / "fleet", nodes)).to_json()
    files = {
        "roofline": node_file(),
        "collectives": collectives(), "scale": scaling(), "storage": storage(), "monitor": monitor(), "cost": cost(),
        "precision": precision(), "memory": memory(), "fleet": judged,
    }  # fmt: skip
    folder = tmp_path / "all"
    folder.mkdir()
    for name, doc in files.items():
        (folder / f"{name}.json").write_text(json.dumps(doc))
    return folder


def test_every_file_fills_its_section_and_nothing_is_missing(tmp_path: Path) -> None:
    overview = cluster_overview([every(tmp_path)])
    assert not overview.missing
    text = cluster_html(overview)
    assert "Cannot be shown" not in text
    for words in ("Over ib", "What it feeds", "of train", "USD/PFLOP", "cudaMalloc", "n003", "busbw"):
        assert words in text, words
    anchors = set(re.findall(r'id="([^"]+)"', text))
    links = set(re.findall(r'<a href="#([^"]+)"', text))
    assert links <= anchors, links - anchors


def test_advice_comes_by_gain_and_what_cannot_be_believed_first(tmp_path: Path) -> None:
    folder = every(tmp_path)
    quiet = {"name": "quiet machine", "passed": False, "text": "others"}
    (folder / "loud.json").write_text(json.dumps(node_file(verdicts=[quiet])))
    advice = cluster_overview([folder]).advice
    assert advice[0].what.startswith("Measure again")
    gains = [one.gain for one in advice if one.gain is not None]
    assert gains == sorted(gains, reverse=True)
    by = {one.section: one for one in reversed(advice) if one.gain is not None}
    assert by["precision"].gain == pytest.approx(5.0)
    assert by["storage"].gain == pytest.approx(1.0)
    assert by["cost"].gain == pytest.approx(0.5)
    assert by["monitor"].gain == pytest.approx(1.0)
    assert by["fleet"].gain == pytest.approx(1 / 0.8 - 1, abs=0.03)
    joins = next(one for one in advice if one.what.startswith("Join"))
    assert (joins.gain, joins.basis) == (pytest.approx(2.0), "model")


def test_figures_of_a_disturbed_run_are_called_doubtful(tmp_path: Path) -> None:
    doc = json.loads((Path(__file__).parent / "data" / "roofline-cpu.json").read_text())
    doc["verdicts"] = [{"name": "repeat", "passed": False, "text": "moved"}]
    for point in doc["points"]:
        point["flop_per_s"] /= 2
    for item in doc["measurements"]:
        if item["family"] == "gemm":
            item["flop_per_s"] = {"estimate": item["flop_per_s"]["estimate"] / 2, "ci95": None, "ci95_why": "x"}
            item["flop_per_s"]["ci95"] = [item["flop_per_s"]["estimate"]] * 2
    (tmp_path / "r.json").write_text(json.dumps(doc))
    tune = next(one for one in cluster_overview([tmp_path / "r.json"]).advice if one.what.startswith("Tune"))
    assert tune.gain is not None
    assert tune.gain > 0.5
    assert tune.basis.endswith("doubtful")


def test_what_no_file_says_is_named_with_the_command_that_brings_it(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(node_file()))
    overview = cluster_overview([tmp_path / "one.json"])
    assert {kind for kind, _ in overview.missing} == set(SECTIONS) - {"facts", "roofline"}
    text = cluster_html(overview)
    for _, missing in overview.missing:
        assert f"<code>{missing.command}</code>" in text
    assert all(one.command for one in overview.advice if one.section in {kind for kind, _ in overview.missing})


def test_a_file_of_another_shape_says_so_and_the_rest_stands(tmp_path: Path) -> None:
    folder = every(tmp_path)
    for name in ("scale", "cost", "precision"):
        doc = json.loads((folder / f"{name}.json").read_text())
        bare = {key: value for key, value in doc.items() if key in ("schema", "kind")}
        (folder / f"{name}.json").write_text(json.dumps(bare))
    text = cluster_html(cluster_overview([folder]))
    assert text.count("what this gpumicro does not find in it") >= 2
    assert "What it feeds" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ('{"schema": "gpumicro/1"', "truncated"),
        ('{"schema": "other/1"}', "none of gpumicro's files: its schema is 'other/1'"),
        ('{"schema": 3}', "none of gpumicro's"),
        ("[]", "not a gpumicro result"),
        ('{"schema": "gpumicro/9"}', "newer"),
        ('{"schema": "gpumicro/1"}', "must contain"),
    ],
)
def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(SchemaError, match=words) as caught:
        cluster_overview([path])
    assert "x.json" in str(caught.value)


def test_no_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give the files"):
        cluster_overview([])
    with pytest.raises(UsageError, match=r"no \.json file"):
        cluster_overview([tmp_path])
    with pytest.raises(SchemaError, match="no such file"):
        cluster_overview([tmp_path / "none.json"])


def test_the_page_stands_alone_and_escapes_what_files_say(tmp_path: Path) -> None:
    evil = node_file(verdicts=[{"name": EVIL, "passed": False, "text": EVIL}], argv=[EVIL])
    evil["devices"][0]["name"] = EVIL
    (tmp_path / "a.json").write_text(json.dumps(evil))
    prices = cost()
    prices["machines"][0]["instance"] = EVIL
    (tmp_path / "b.json").write_text(json.dumps(prices))
    text = cluster_html(cluster_overview([tmp_path]))
    assert EVIL not in text
    assert not re.search(r"""(src|href)=["']?https?:|@import""", text)


def test_two_rooflines_share_no_id(tmp_path: Path) -> None:
    doc = json.loads((Path(__file__).parent / "data" / "roofline-cpu.json").read_text())
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(doc))
    text = cluster_html(cluster_overview([tmp_path]))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_the_command_prints_writes_and_ends_with_its_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = every(tmp_path)
    page, record = tmp_path / "c.html", tmp_path / "c.out"
    assert __main__.main(["cluster", str(folder), "--html", str(page), "-o", str(record)]) == 1
    out = capsys.readouterr().out
    assert "What to do next" in out
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert result.missing_reasons(json.loads(record.read_text())) == []
    for name in ("storage", "fleet"):
        (folder / f"{name}.json").unlink()
    assert __main__.main(["cluster", str(folder)]) == 0
    assert __main__.main(["cluster", str(folder), "--html", "-"]) == 2
    assert __main__.main(["cluster", str(folder / "scale.json"), "-o", str(folder / "scale.json")]) == 2
