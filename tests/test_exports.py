"""A result for services that watch benchmarks, and for pandas: the documented shapes, nothing that is not measured."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from result_files import entry, file

from gpumicro import Roofline, __main__, report, result
from gpumicro.errors import BackendUnavailable
from gpumicro.report import action, bencher

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "roofline-cpu.json"
UPDATE = os.environ.get("GPUMICRO_UPDATE_GOLDEN") == "1"
# As https://bencher.dev/docs/reference/bencher-metric-format documents it, and closed to other keys.
BMF = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {key: {"type": "number"} for key in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                    "additionalProperties": False,
                }
            },
        }
    },
}
# As https://github.com/benchmark-action/github-action-benchmark documents its custom tools.
ACTION = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"value": {"type": "number"}}
        | {key: {"type": "string"} for key in ("name", "unit", "range", "extra")},
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("ending", "schema"), [(".bmf.json", BMF), (".smaller.json", ACTION), (".bigger.json", ACTION)]
)
def test_exports_are_as_they_were_and_of_the_documented_shape(ending: str, schema: Any) -> None:
    made = report.format_for(f"x{ending}").render(result.read(GOLDEN))
    fastjsonschema.compile(schema)(json.loads(made))
    kept = DATA / f"roofline-cpu{ending}"
    if UPDATE:
        kept.write_bytes(made)
    assert made.decode() == kept.read_text(encoding="utf-8")


def test_numbers_are_those_of_the_result_in_the_unit_that_is_named() -> None:
    doc = result.read(GOLDEN)
    good = [m for m in doc["measurements"] if m["status"] == "ok"]
    found = json.loads(bencher.to_bytes(doc))
    assert set(found) == {m["id"] for m in good}
    smaller = {one["name"]: one for one in json.loads(action.to_smaller(doc))}
    bigger = {one["name"]: one for one in json.loads(action.to_bigger(doc))}
    for one in good:
        time = one.get("latency_s") or one["time_s"]
        assert found[one["id"]]["latency"]["value"] == pytest.approx(1e9 * time["estimate"])
        assert smaller[one["id"]]["value"] == pytest.approx(1e9 * time["estimate"])
        assert smaller[one["id"]]["unit"] == "ns"
        if one["bandwidth_bytes_per_s"]:
            rate = one["bandwidth_bytes_per_s"]
            metric = found[one["id"]]["bandwidth"]
            assert metric["lower_value"] == pytest.approx(rate["ci95"][0] / 1e9)
            assert bigger[f"{one['id']} bandwidth"]["value"] == pytest.approx(metric["value"])
            assert bigger[f"{one['id']} bandwidth"]["unit"] == "GB/s"
        if one["flop_per_s"] and one["dtype"] == "int8":
            assert bigger[f"{one['id']} op-rate"]["unit"] == "GOP/s"


def test_what_is_no_measurement_here_never_has_a_measurements_name() -> None:
    name = entry()["id"]
    for tag in ("emulated", "synthetic", "replayed"):
        doc = file(entry(), **{tag: True})
        assert list(json.loads(bencher.to_bytes(doc))) == [f"{tag}: {name}"]
        assert json.loads(action.to_smaller(doc))[0]["name"] == f"{tag}: {name}"
    imported = file(entry(), imported={"tool": "nvbench", "version": None, "file": "x"})
    assert "imported from nvbench" in json.loads(action.to_smaller(imported))[0]["extra"]


def test_repeats_and_what_failed_are_left_out_and_nothing_gives_an_empty_file() -> None:
    first = entry()
    again = first | {"id": first["id"] + "#repeat", "repeat_of": first["id"]}
    assert list(json.loads(bencher.to_bytes(file(first, again)))) == [first["id"]]
    assert bencher.to_bytes(file()) == b"{}\n"
    assert action.to_smaller(file()) == b"[]\n"


def test_the_report_command_and_save_write_them_and_a_plain_json_stays_a_result(tmp_path: Path, capfd: Any) -> None:
    outputs = [tmp_path / name for name in ("a.bmf.json", "b.smaller.json", "c.json")]
    assert __main__.main(["report", str(GOLDEN), "-o", str(outputs[0])]) == 0
    assert __main__.main(["report", str(GOLDEN), "-f", "action-bigger", "-o", str(outputs[2])]) == 0
    assert json.loads(outputs[2].read_text())[0]["unit"] == "GB/s"
    assert __main__.main(["roofline", "-o", str(tmp_path / "r.bmf.json")]) == 2
    assert "as JSON, not as" in capfd.readouterr().err
    roof = Roofline.load(GOLDEN)
    roof.save(outputs[1])
    roof.save(outputs[2])
    assert isinstance(json.loads(outputs[0].read_text()), dict)
    assert isinstance(json.loads(outputs[1].read_text()), list)
    assert result.read(outputs[2])["schema"] == "gpumicro/1"


def test_a_frame_has_the_rows_of_the_csv() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    roof = Roofline.load(GOLDEN)
    frame = roof.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    counts = frame["record"].value_counts()
    assert counts["measurement"] == len(roof.document["measurements"])
    assert counts["ceiling"] == len(roof.ceilings)
    dram = frame[(frame.record == "ceiling") & (frame.level == "dram") & (frame.threads == 2)]
    best = [c["achieved"] for c in roof.ceilings if (c["level"], c["threads"]) == ("dram", 2)]
    assert sorted(dram["value"]) == sorted(best)
    assert frame["value"].dtype == float


def test_without_pandas_there_is_a_reason_and_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BackendUnavailable, match="pip install pandas"):
        Roofline.load(GOLDEN).to_dataframe()
