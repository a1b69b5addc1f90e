"""Every report from the golden file alone: the texts as they were, the page and the picture safe and whole."""

from __future__ import annotations

import copy
import csv as csv_module
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from gpumicro import report, result
from gpumicro.errors import UsageError
from gpumicro.report import console, csv, markdown, page, plot, tables

DATA = Path(__file__).parent / "data"
UPDATE = os.environ.get("GPUMICRO_UPDATE_GOLDEN") == "1"
EVIL = '<script>alert(1)</script> "&< $\\frac{1}$ [red]x[/red] | `*_ \x1b[2J \n中'


@pytest.fixture
def doc() -> dict[str, Any]:
    return result.read(DATA / "roofline-cpu.json")


@pytest.fixture
def evil(doc: dict[str, Any]) -> dict[str, Any]:
    """Every free text in the file is an attack."""
    doc["devices"][0]["name"] = EVIL
    doc["argv"] = [EVIL]
    doc["created"] = "2026-11-30T06:00:00Z"
    doc["gpumicro_version"] = EVIL
    doc["settings"] = {"mode": EVIL}
    doc["environment"] = {"host": {EVIL: EVIL}}
    doc["notes"] = [EVIL]
    doc["verdicts"] = [{"name": EVIL, "passed": False, "text": EVIL}]
    for item in doc["measurements"]:
        item["id"] = item["kernel"] = EVIL
        item["problem"] = {EVIL: 1}
        if item["status"] != "ok":
            item["error"] = item["reason"] = EVIL
        if item["timing"]:
            item["timing"]["flags"], item["timing"]["stop_reason"], item["timing"]["timer"] = [EVIL], EVIL, EVIL
    for ceiling in doc["ceilings"]:
        ceiling["recipe"] = ceiling["operands"] = ceiling["id"] = EVIL
        ceiling["flags"] = [EVIL]
        ceiling["alternatives"] = [{"recipe": EVIL, "achieved": 1e9}]
        for key in ("level", "dtype"):
            ceiling[key] = ceiling[key] and EVIL
        if ceiling["spec"] is None:
            ceiling["spec_why"] = EVIL
    for point in doc["points"]:
        point["name"] = point["dtype"] = point["bound_by"] = point["measurement"] = EVIL
        point["flags"] = [EVIL]
    for ridge in doc["ridge_points"]:
        ridge["memory"] = ridge["arithmetic"] = EVIL
    for gap in doc["gap"]:
        gap["quantity"] = EVIL
        for step in gap["steps"]:
            step["label"] = EVIL
            if step["value"] is None:
                step["value_why"] = EVIL
        for item in (*gap["causes"], *gap["unattributed"]):
            item["cause"] = item["evidence"] = item["note"] = EVIL
    for held in doc["sustained"]:
        held["ceiling"] = held["clock_hz_why"] = EVIL
    result.validate(doc)
    return doc


@pytest.fixture
def bare() -> dict[str, Any]:
    """Nothing was measured."""
    return result.document(
        argv=[], devices=[], measurements=[], environment={}, created="2026-11-30T06:00:00Z", interrupted=True
    )


# -- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("roofline-cpu.txt", console.render_text),
        ("roofline-cpu.md", markdown.to_markdown),
        ("roofline-cpu.csv", csv.to_csv),
    ],
)
def test_texts_are_as_they_were(doc: dict[str, Any], name: str, render: Any) -> None:
    made = render(doc).encode()
    if UPDATE:
        (DATA / name).write_bytes(made)
    assert made.decode() == (DATA / name).read_bytes().decode()


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_console_stays_within_its_width(doc: dict[str, Any], width: int) -> None:
    text = console.render_text(doc, width)
    assert max(map(len, text.splitlines())) <= width
    if width >= 80:
        # nothing that carries a figure is folded or cut
        for table in tables.all_tables(doc):
            for row in table.rows:
                for column, cell in zip(table.columns, row, strict=True):
                    assert not column.right or cell in text


def test_console_prints_to_an_ascii_stream(doc: dict[str, Any]) -> None:
    doc["devices"][0]["name"] = "Größe ® 中"
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    console.print_report(doc, Console(file=stream, width=80))
    stream.flush()
    assert b"Gr??e ? ?" in raw.getvalue()


def test_console_has_no_colour_without_a_terminal_and_no_escapes_from_the_file(evil: dict[str, Any]) -> None:
    text = console.render_text(evil)
    assert "\x1b" not in text
    assert "[red]x[/red]" in text, "texts from the file are no markup"
    buffer = io.StringIO()
    console.print_report(evil, Console(file=buffer, force_terminal=True, width=80, color_system="standard"))
    assert "\x1b[2J" not in buffer.getvalue()


def test_flags_failures_and_gaps_are_told(doc: dict[str, Any]) -> None:
    for text in (console.render_text(doc, 200), markdown.to_markdown(doc).replace("\\", ""), page.to_html(doc)):
        for words in (
            "above-ceiling",
            "wrong output at index 7",
            "no bfloat16 dot product",
            "clock below spec",
            "not attributed",
            "virtual machine: channels unknown",
            "FAILED",
            "Huge pages",
            "95.1%",
        ):
            assert words in text, words


def test_emulated_and_interrupted_runs_cannot_look_like_others(doc: dict[str, Any]) -> None:
    doc["emulated"] = doc["interrupted"] = True
    for text in (console.render_text(doc), markdown.to_markdown(doc), page.to_html(doc)):
        assert "EMULATED" in text
        assert "INTERRUPTED" in text


def test_integer_arithmetic_is_not_called_floating(doc: dict[str, Any]) -> None:
    line = next(row for row in tables.ceilings_table(doc).rows if row[0].startswith("int8"))
    assert any("GOP/s" in cell for cell in line)


def test_every_flag_of_the_vocabulary_has_words() -> None:
    known = [
        "correlated",
        "drift",
        "bimodal",
        "target-missed",
        "not-steady",
        "throttled",
        "unstable",
        "below-resolution",
        "above-ceiling",
        "above-spec",
        "impossible",
        "few-samples",
        "launch-bound",
        "cache-resident",
        "best-run",
        "gate-timeout",
        "sync",
        "nonlinear",
        "event-wall",
        "hung",
        "power-capped",
        "clock-low",
        "other-process",
        "shared-device",
        "shared-power",
        "smaller-size",
        "changes-inputs",
        "prints",
        "side-stream",
    ]
    assert set(known) == set(tables.FLAG_WORDS)


def test_csv_holds_the_unrounded_numbers(doc: dict[str, Any]) -> None:
    rows = list(csv_module.DictReader(io.StringIO(csv.to_csv(doc), newline="")))
    ceilings = [row for row in rows if row["record"] == "ceiling"]
    assert [float(row["value"]) for row in ceilings] == [c["achieved"] for c in doc["ceilings"]]
    points = [row for row in rows if row["record"] == "point"]
    assert [float(row["ci95_low"]) for row in points] == [p["ci95"][0] for p in doc["points"]]
    assert len(rows) == sum(len(doc[key]) for key in ("ceilings", "ridge_points", "points", "measurements"))


def test_csv_has_no_formulas(doc: dict[str, Any]) -> None:
    doc["points"][0]["name"] = "=HYPERLINK(1)"
    assert "'=HYPERLINK" in csv.to_csv(doc)


# -- page ------------------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """Collects the elements of a page and checks that they nest."""

    VOID = frozenset({"meta", "br", "img", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for key, value in attrs:
            assert not key.startswith("on"), "no inline handlers"
            if key == "id":
                self.ids.append(value or "")
            if key in ("src", "href", "xlink:href", "action", "data"):
                self.addresses.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def _parse(text: str) -> _Page:
    parser = _Page()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def test_page_is_whole_and_needs_no_network(doc: dict[str, Any]) -> None:
    text = page.to_html(doc)
    found = _parse(text)
    assert len(found.ids) == len(set(found.ids)), "ids are unique across the pictures"
    assert all(address.startswith("#") for address in found.addresses)
    assert all(address[1:] in found.ids for address in found.addresses)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(found.ids)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_page_hover_finds_its_elements(doc: dict[str, Any]) -> None:
    found = _parse(page.to_html(doc))
    tips = json.loads(found.scripts[0])
    roofs = {f"ceiling-{i}" for i, c in enumerate(doc["ceilings"]) if c["scope"] == "roof"}
    points = {f"point-{i}" for i in range(len(doc["points"]))}
    assert roofs | points <= set(found.ids)
    assert roofs | points <= set(tips)
    assert "above-ceiling" in tips["point-5"]


def test_page_escapes_every_text_from_the_file(evil: dict[str, Any]) -> None:
    text = page.to_html(evil)
    found = _parse(text)
    assert len(found.scripts) == 2, "the data and our own script"
    assert "alert(1)" not in found.scripts[1]
    assert "<script>alert" not in text
    assert "</script>alert" not in text
    assert "alert(1)" in json.loads(found.scripts[0])["point-0"]


def test_pictures_and_texts_survive_hostile_names(evil: dict[str, Any]) -> None:
    svg = plot.to_svg(evil)
    ElementTree.fromstring(svg)
    assert b"<script" not in svg
    assert plot.to_png(evil).startswith(b"\x89PNG")
    assert "<script>" not in re.sub(r"\\<", "", markdown.to_markdown(evil))
    csv.to_csv(evil)


def test_a_run_that_measured_nothing_can_be_shown(bare: dict[str, Any]) -> None:
    for known in report.FORMATS.values():
        assert known.render(bare)
    assert "INTERRUPTED" in console.render_text(bare)


# -- formats ---------------------------------------------------------------------------------------------------------


def test_the_same_file_gives_the_same_bytes(doc: dict[str, Any]) -> None:
    again = copy.deepcopy(doc)
    for name, known in report.FORMATS.items():
        assert known.render(doc) == known.render(again), name
    assert doc == again, "a report changes nothing"


def test_formats_go_by_extension(doc: dict[str, Any], tmp_path: Path) -> None:
    for name in ("a.txt", "a.md", "a.csv", "a.SVG", "a.png", "a.html"):
        report.write_report(doc, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    report.write_report(doc, tmp_path / "noname", "csv")
    for bad in ("a.pdf", "a", ".json"):
        with pytest.raises(UsageError, match=r"known: \.txt, \.md"):
            report.write_report(doc, tmp_path / bad)
    with pytest.raises(UsageError, match=r"unknown report format 'htlm'.*did you mean html"):
        report.find_format("htlm")


def test_textual_reports_do_not_load_the_drawing() -> None:
    code = (
        "import sys; from gpumicro import report, result; "
        f"doc = result.read({str(DATA / 'roofline-cpu.json')!r}); "
        "[report.FORMATS[name].render(doc) for name in ('console', 'md', 'csv')]; "
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_a_gpu_did_is_told_as_far_as_it_is_known(doc: dict[str, Any]) -> None:
    unknown = {"median": None, "min": None, "max": None}
    doc["conditions"] = [
        {"device": "cuda:0", "sm_clock_hz": {"median": 1.9e9, "min": 1.7e9, "max": 1.98e9},
         "power_w": {"median": 600.0, "min": 90.0, "max": 700.0}, "temperature_c": {"max": 71.0},
         "gpu": {"power_limit_w": 700.0}, "limited_fraction": {"power": 0.31, "thermal": 0.0}},
        {"device": "cuda:1", "sm_clock_hz": unknown, "power_w": unknown, "temperature_c": unknown, "gpu": {}},
        {"device": "cuda:2", "sm_clock_hz": None, "sm_clock_hz_why": "NVML: not supported"},
    ]  # fmt: skip
    (line,) = tables.conditions(doc)
    assert line == (
        "cuda:0 under load: SM clock 1.90 GHz (1.70 GHz to 1.98 GHz); 600 W of 700 W at the median; up to 71 C; "
        "held back by power 31% of the time"
    )


@pytest.mark.parametrize(
    ("key", "word"), [("emulated", "EMULATED"), ("replayed", "REPLAYED"), ("synthetic", "SYNTHETIC")]
)
def test_what_was_not_measured_is_said_first_in_every_form(doc: dict[str, Any], key: str, word: str) -> None:
    doc[key] = True
    assert any(line.startswith(word) for line in tables.headline(doc))
    assert word in console.render_text(doc)
