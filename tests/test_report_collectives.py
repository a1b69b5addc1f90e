"""Collectives in every report format: the rows, the fit, the link that busbw is, or must not be, a share of."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sweep_files import SIZES, document, item, kinked

from gpumicro import imports, result
from gpumicro.cli.report import command as report_command
from gpumicro.errors import UsageError
from gpumicro.peaks.links import find_link, link_specs
from gpumicro.report import busbw, plot
from gpumicro.report.collectives import collective_tables
from gpumicro.report.console import render_text
from gpumicro.report.csv import to_csv
from gpumicro.report.markdown import to_markdown
from gpumicro.report.page import tips, to_html

DATA = Path(__file__).parent / "data" / "imports"
HOSTILE = "<script>alert(1)</script>$x$\x1b[31m"


def tables(doc: dict[str, Any]) -> dict[str, Any]:
    return {table.key: table for table in collective_tables(doc)}


def linked(doc: dict[str, Any], name: str) -> dict[str, Any]:
    return {**doc, "settings": {"link": name}}


def remarks(doc: dict[str, Any]) -> str:
    return "\n".join(remark for table in collective_tables(doc) for remark in table.remarks)


def shares(doc: dict[str, Any]) -> list[str]:
    table = tables(doc)["collective-0"]
    names = [column.name for column in table.columns]
    return [row[names.index("of link")] for row in table.rows] if "of link" in names else []


def test_an_imported_log_shows_its_rows_wrong_elements_and_counts() -> None:
    doc = imports.import_results([str(DATA / "nccl.txt")])
    out, into, _ = collective_tables(doc)
    assert out.title == "all_reduce, float32 sum, 4 ranks, out-of-place"
    assert [column.name for column in out.columns] == ["size", "count", "time", "algbw", "busbw", "wrong"]
    assert out.rows[1] == ("64 MiB", "16,777,216", "400 us", "168 GB/s", "252 GB/s", "0")
    assert into.rows[1][-2:] == ("7", "failed"), "a wrong result is shown, and as such"
    assert into.rows[0][-2:] == ("", ""), "not checked is not 0"
    assert "2 sizes: a line needs 5" in remarks(doc)


def test_collectives_stand_in_one_place() -> None:
    text = render_text(imports.import_results([str(DATA / "nccl.txt"), str(DATA / "osu.txt")]))
    assert text.count("67,108,864") == 0
    assert text.count("16,777,216") == 2
    assert "Messages" in text


def test_the_fit_has_a_row_a_regime_and_says_so() -> None:
    fits = tables(document())["collective-fits"]
    assert [row[0] for row in fits.rows] == ["all_reduce, float32 sum, 8 ranks, out-of-place"] * 2
    assert fits.rows[0][1] == "8 B to 64 KiB"
    assert any("changes between 64 KiB and 128 KiB" in remark for remark in fits.remarks)
    assert "Latency and bandwidth (model)" in render_text(document())


def test_every_own_key_has_its_column() -> None:
    own = item(1024, 1e-5, count=256, skew_s=2e-6, time_mean_rank_s=9e-6, flags=["few-samples"])
    own["time_s"] |= {"ci95": [0.9e-5, 1.1e-5]}
    table = tables(document([own]))["collective-0"]
    row = dict(zip([column.name for column in table.columns], table.rows[0], strict=True))
    assert row["95% interval"] == "9.0 to 11.0"
    assert (row["avg"], row["skew"], row["count"], row["flags"]) == ("9.00 us", "2.00 us", "256", "few-samples")
    average = tables(document([own | {"nccl_tests_average_s": 8e-6}]))["collective-0"]
    assert "8.00 us" in average.rows[0], "nccl-tests' own average before the mean over ranks"


# -- the link ---------------------------------------------------------------------------------------------------------


def test_a_link_that_cannot_reduce_gives_a_share() -> None:
    found = shares(linked(document(), "pcie5"))
    assert found[0] == "0.00%"
    assert found[-1] == "277%", "above the link: shown, not hidden"
    assert "PCIe 5 x16, 63.0 GB/s" in remarks(linked(document(), "pcie5"))
    assert "above the link's spec" in remarks(linked(document(), "pcie5"))
    assert "above the link's spec" not in remarks(linked(document(), "900GB/s"))


@pytest.mark.parametrize("link", ["nvlink4", "ib-ndr"])
def test_where_the_switch_may_have_reduced_there_is_no_share(link: str) -> None:
    doc = linked(document(), link)
    assert shares(doc) == []
    assert "does not say whether" in remarks(doc)
    assert all(not row["fraction_of_reference"] for row in csv.DictReader(to_csv(doc).splitlines()))


@pytest.mark.parametrize("algorithm", ["NVLS", "NVLSTree", "CollNetDirect", "SHARP"])
@pytest.mark.parametrize("link", ["nvlink4", "pcie5", "46GB/s"])
def test_reduced_in_the_switch_is_never_a_share_of_any_link(algorithm: str, link: str) -> None:
    items = [item(size, kinked(size), id=str(size), algorithm=algorithm) for size in SIZES]
    assert shares(linked(document(items), link)) == []
    assert "reduced in the switch" in remarks(linked(document(items), link))


def test_a_named_ring_and_a_send_are_shares_of_a_switch_too() -> None:
    ring = [item(size, kinked(size), id=str(size), algorithm="Ring") for size in SIZES]
    assert shares(linked(document(ring), "nvlink4"))[-1] == "38.8%"
    send = [item(size, kinked(size), id=str(size), collective="sendrecv") for size in SIZES]
    assert shares(linked(document(send), "nvlink4")) != []


def test_one_rank_has_no_bus() -> None:
    doc = document([item(size, kinked(size), id=str(size), ranks=1, busbw_bytes_per_s=None) for size in SIZES])
    assert "no busbw" in remarks(doc)
    axes = plot.collectives_figure(doc).axes[0]  # type: ignore[union-attr]
    assert axes.get_ylabel() == "Size over time (B/s)"


@pytest.mark.parametrize("name", ["nvlink4", "NVLink 4", "NVLINK-4"])
def test_links_are_found_by_id_or_name(name: str) -> None:
    assert find_link(name).bytes_per_s == 450e9


def test_links_are_one_direction_and_have_sources() -> None:
    assert all(link.source and link.bytes_per_s > 0 and "each way" in link.note for link in link_specs())
    assert len({link.id for link in link_specs()}) == len(link_specs())
    assert find_link("ethernet-100").bytes_per_s == find_link("ib-edr").bytes_per_s == 12.5e9
    assert find_link("46 GB/s").bytes_per_s == 46e9
    for wrong in ("nvlink9", "0GB/s", "-1GB/s", "", "5 furlong/s"):
        with pytest.raises(UsageError):
            find_link(wrong)


# -- formats ----------------------------------------------------------------------------------------------------------


def test_csv_has_rates_and_the_fit_in_si_units() -> None:
    rows = list(csv.DictReader(to_csv(linked(document(), "pcie5")).splitlines()))
    last = [row for row in rows if row["record"] == "busbw"][-1]
    assert float(last["reference"]) == 63e9
    assert float(last["fraction_of_reference"]) == pytest.approx(float(last["value"]) / 63e9)
    alphas = [row for row in rows if row["record"] == "alpha"]
    assert [float(row["value"]) for row in alphas] == pytest.approx([6e-6, 18e-6], rel=1e-5)
    assert {row["status"] for row in alphas} == {"model"}


def test_the_chart_has_every_point_both_lines_and_the_link() -> None:
    doc = linked(document(), "pcie5")
    axes = plot.report_figure(doc).axes[0]
    gids = {line.get_gid() for line in axes.lines}
    assert {f"point-busbw-0-{number}" for number in range(len(SIZES))} <= gids
    assert set(dict(busbw.tips(doc))) <= gids
    assert any("PCIe 5 x16 spec" in text.get_text() for text in axes.texts)
    assert plot.to_svg(doc) == plot.to_svg(doc)


def test_the_page_has_the_chart_first_and_no_empty_roofline() -> None:
    page = to_html(document())
    assert "<title>Collectives: " in page
    assert "Roofline of" not in page
    assert page.index("<svg") < page.index("out-of-place</h2>")
    assert 'id="point-busbw-0-3"' in page


def test_hostile_names_are_escaped_everywhere() -> None:
    items = [item(size, kinked(size), id=str(size), collective=HOSTILE, variant=HOSTILE) for size in SIZES]
    doc = document(items)
    assert "<script>alert" not in to_html(doc)
    assert "<script>" not in to_markdown(doc)
    assert "\x1b" not in render_text(doc) + to_csv(doc) + json.dumps(list(tips(doc).values()), ensure_ascii=False)
    plot.to_svg(doc)


def test_the_command_takes_a_link(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    result.write(file, document())
    page = tmp_path / "r.html"
    ran = CliRunner().invoke(report_command, [str(file), "--link", "pcie5", "--html", str(page)])
    assert ran.exit_code == 0, ran.output
    assert "PCIe 5 x16" in page.read_text("utf-8")
    wrong = CliRunner().invoke(report_command, [str(file), "--link", "nvlink9", "-o", str(tmp_path / "x.md")])
    assert isinstance(wrong.exception, UsageError)
    assert not (tmp_path / "x.md").exists()


def test_a_barrier_has_a_time_and_nothing_to_fit() -> None:
    nothing = {"algbw_bytes_per_s": None, "busbw_bytes_per_s": None, "wrong": None, "op": None}
    doc = document([item(8, 5e-6) | nothing | {"size_bytes": 0, "collective": "barrier"}])
    assert tables(doc)["collective-0"].rows == (("-", "5.00 us"),)
    assert remarks(doc) == ""
    assert plot.collectives_figure(doc) is None
    plot.to_svg(doc)


# -- what the library picked ------------------------------------------------------------------------------------------


def picked(*names: str, **more: Any) -> dict[str, Any]:
    """A sweep whose sizes were run by these algorithms in turn."""
    sizes = [1 << (20 + i) for i in range(len(names))]
    return document([
        item(size, kinked(size), id=str(size), algorithm=name, protocol="Simple", channels=16, **more)
        for size, name in zip(sizes, names, strict=True)
    ])  # fmt: skip


def column(doc: dict[str, Any], name: str) -> list[str]:
    table = tables(doc)["collective-0"]
    names = [column.name for column in table.columns]
    return [row[names.index(name)] for row in table.rows] if name in names else []


def test_each_size_is_set_against_what_its_algorithm_moves() -> None:
    doc = linked(picked("Ring", "NVLS", "Tree", "CollNetDirect"), "nvlink4")
    assert [bool(text) for text in column(doc, "of link")] == [True, False, False, False]
    assert [bool(text) for text in column(doc, "of bound")] == [False, True, True, False]
    assert column(doc, "picked")[0] == "Ring, Simple, 16 channels"
    said = remarks(doc)
    assert "allows an algbw of 400 GB/s (model)" in said, "NVLink 4's 450 GB/s over 1 + 1/8 bytes a byte"
    assert "under CollNetDirect is not known here" in said
    rows = [row for row in csv.DictReader(to_csv(doc).splitlines()) if row["record"] in ("algbw", "busbw")]
    assert [row["reference"] for row in rows if row["record"] == "busbw"] == ["450000000000.0", "", "", ""]
    assert [row["reference"] for row in rows if row["record"] == "algbw"][1:3] == ["400000000000.0", "225000000000.0"]


def test_over_several_hosts_the_bound_of_one_is_not_taken() -> None:
    assert column(linked(picked("NVLS", hosts=2), "nvlink4"), "of bound") == []


def test_algorithms_by_size_are_one_sweep_and_forced_ones_are_several() -> None:
    assert [key for key in tables(picked("Tree", "Ring", "NVLS")) if key != "collective-fits"] == ["collective-0"]
    both = [item(1024, 1e-5, id=name, algorithm=name) for name in ("Ring", "Tree")]
    titles = [table.title for table in collective_tables(document(both))]
    assert [title.rpartition(", ")[2] for title in titles[:2]] == ["Ring", "Tree"]


def test_an_algorithm_that_is_not_named_is_said_beside_its_shares() -> None:
    assert "does not name the algorithm" in remarks(linked(document(), "pcie5"))
    assert "does not name the algorithm" not in remarks(linked(picked("Ring"), "pcie5"))


def test_no_line_of_the_link_is_drawn_where_nothing_is_a_share_of_it() -> None:
    for name, there in (("Ring", True), ("NVLS", False)):
        figure = plot.collectives_figure(linked(picked(name, name, name), "nvlink4"))
        assert figure is not None
        said = " ".join(text.get_text() for text in figure.axes[0].texts)
        assert ("NVLink 4 spec" in said) is there


# -- runs in a row ----------------------------------------------------------------------------------------------------


def delayed(collective: str = "all_reduce", wait_s: float = 10e-3) -> dict[str, Any]:
    """Own rows over a link of 10 ms and 10 MB/s, whose ranks leave the barrier `wait_s` apart."""
    sizes = [1 << i for i in range(15, 21)]
    return document([
        item(size, wait_s + 10e-3 + size / 10e6, id=str(size), collective=collective, ranks=2,
             nccl_tests_average_s=10e-3 + size / 10e6)
        for size in sizes
    ])  # fmt: skip


def test_over_a_network_the_runs_in_a_row_are_fitted_too() -> None:
    fits = tables(delayed())["collective-fits"]
    assert [row[fits.columns.index(next(c for c in fits.columns if c.name == "alpha"))] for row in fits.rows] == [
        "20.00 ms", "10.00 ms",
    ]  # fmt: skip
    assert fits.rows[1][0].endswith("runs in a row")
    assert any("leave a barrier a delay apart" in remark for remark in fits.remarks)
    rows = [row for row in csv.DictReader(to_csv(delayed()).splitlines()) if row["record"] == "alpha"]
    assert ["runs in a row" in row["name"] for row in rows] == [False, True]


@pytest.mark.parametrize("doc", [delayed(wait_s=0.5e-3), delayed("broadcast"), document()])
def test_where_they_say_nothing_else_they_are_left_out(doc: dict[str, Any]) -> None:
    assert not any("in a row" in row[0] for row in tables(doc)["collective-fits"].rows)
