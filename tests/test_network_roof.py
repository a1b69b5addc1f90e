"""The network as a ceiling of the roofline, what binds a work, and several results in one report."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sweep_files import SIZES, document, item, kinked

from gpumicro import result
from gpumicro.cli.report import command
from gpumicro.collectives.roof import network_ceilings, parse_work, wire_rate
from gpumicro.errors import UsageError
from gpumicro.peaks.links import find_link
from gpumicro.report import plot
from gpumicro.report.collectives import collective_tables
from gpumicro.report.console import render_text
from gpumicro.report.csv import to_csv
from gpumicro.report.page import to_html
from gpumicro.report.together import together

GOLDEN = Path(__file__).parent / "data" / "roofline-cpu.json"
BEST = 1.75 * SIZES[-1] / kinked(SIZES[-1])  # of 8 ranks in a ring


def roofline() -> dict[str, Any]:
    return result.read(GOLDEN)


def shown(*works: str, link: str | None = None, wires: tuple[str, ...] = ()) -> dict[str, Any]:
    return together([("r.json", roofline()), ("c.json", document())], link, works, wires)


def test_the_best_over_the_wire_is_the_ceiling() -> None:
    (network,) = network_ceilings(document())
    assert network["achieved"] == pytest.approx(BEST)
    assert network["recipe"].startswith("all_reduce of 1 GiB, 8 ranks")
    assert network["spec_why"]
    (linked,) = network_ceilings(document(), find_link("400GB/s"))
    assert linked["fraction_of_spec"] == pytest.approx(BEST / 400e9)


def test_nvls_counts_what_crosses_and_not_busbw() -> None:
    rate = wire_rate(item(1 << 20, 1e-3, algorithm="NVLS"))
    assert rate is not None
    assert rate.estimate == pytest.approx(1.125 * (1 << 20) / 1e-3)
    for odd in ({"algorithm": "NVLS", "hosts": 2}, {"algorithm": "CollNetDirect"}, {"status": "failed"}, {"ranks": 1}):
        assert wire_rate(item(1 << 20, 1e-3, **odd)) is None


@pytest.mark.parametrize(
    ("work", "bound"), [("a=1e12,1M,1M", "compute"), ("a=1e9,1T,1M", "memory"), ("a=1e9,1M,1T", "network")]
)
def test_one_table_says_what_binds(work: str, bound: str) -> None:
    doc = shown(work)
    (held,) = doc["works"]
    assert held["bound_by"] == bound
    assert held["least_s"] == max(held[f"{name}_s"] for name in ("compute", "memory", "network"))
    assert "Compute, memory or network bound?" in render_text(doc)
    rows = [row for row in csv.DictReader(to_csv(doc).splitlines()) if row["record"] == "work"]
    assert [(row["bound_by"], row["status"]) for row in rows] == [(bound, "model")]


def test_the_chart_has_the_roof_and_the_work_on_it() -> None:
    doc = shown("step=1e9,1M,64G", link="pcie5")
    lines = {line.get_gid(): line for line in plot.roofline_figure(doc).axes[0].lines if line.get_gid()}
    index = next(i for i, ceiling in enumerate(doc["ceilings"]) if ceiling["kind"] == "network")
    (x0, _), (y0, _) = lines[f"ceiling-{index}"].get_data()
    assert y0 / x0 == pytest.approx(BEST), "the slope is the network's rate"
    (x,), (y,) = lines["work-0-network"].get_data()
    assert y / x == pytest.approx(BEST), "a work that the network binds lies on its roof"
    assert "network bound" in " ".join(text.get_text() for text in plot.roofline_figure(doc).axes[0].texts)
    assert f'id="ceiling-{index}"' in to_html(doc)
    assert "work-0-network" in to_html(doc)


def test_a_point_of_the_file_takes_its_counts_from_there() -> None:
    name = roofline()["points"][0]["name"]
    (held,) = shown(wires=(f"{name}=64M",))["works"]
    assert (held["flops"], held["wire_bytes"], held["dtype"]) == (2 * 2048**3, 64 << 20, "float64")


def test_a_work_is_read_as_the_readme_writes_it() -> None:
    work = parse_work("step=6e12,40G,2.8G")
    assert (work.flops, work.bytes) == (6e12, 40 << 30)
    assert work.wire_bytes == pytest.approx(2.8 * 2**30)


@pytest.mark.parametrize("text", ["", "a", "a=1", "a=x,1M,1M", "a=1e9,1M,one", "a=-1,1,1", "=1,1,1", "a=1,1,1,1,1"])
def test_what_is_no_work_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_work(text)


@pytest.mark.parametrize(
    ("docs", "works", "words"),
    [
        (["roof", "roof"], (), "both rooflines"),
        (["roof", "empty"], (), "neither"),
        (["roof"], ("a=1,1,1",), "against a network"),
        (["roof", "alone"], (), "takes two ranks"),
        (["roof", "all"], ("a=1,1,1,float8",), "measured dtypes: float32, float64|measured dtypes: float64"),
    ],
)
def test_files_that_do_not_go_together_are_named(docs: list[str], works: tuple[str, ...], words: str) -> None:
    alone = [item(size, kinked(size), id=str(size), ranks=1, busbw_bytes_per_s=None) for size in SIZES]
    made = {"roof": roofline(), "empty": document([]), "alone": document(alone), "all": document()}
    with pytest.raises(UsageError, match=words):
        together([(name, made[name]) for name in docs], None, works, ())


def test_the_command_takes_both_files(tmp_path: Path) -> None:
    result.write(tmp_path / "c.json", document())
    ran = CliRunner().invoke(command, [str(GOLDEN), str(tmp_path / "c.json"), "--work", "s=1e9,1M,1G"],
                             catch_exceptions=False)  # fmt: skip
    assert ran.exit_code == 0
    assert "network" in ran.output
    assert "imported from nccl-tests" in ran.output.replace("\n   ", " ")


# -- transports --------------------------------------------------------------------------------------------------------


def over(transport: str, factor: float) -> dict[str, Any]:
    return document([item(size, kinked(size) * factor, id=f"{size}", transport=transport) for size in SIZES])


def test_transports_stand_side_by_side_from_one_file_or_two() -> None:
    doc = together([("a.json", over("ib", 1)), ("b.json", over("socket", 8))], None, (), ())
    assert len({one["id"] for one in doc["measurements"]}) == 2 * len(SIZES), "no row hides another"
    table = next(iter(collective_tables(doc)))
    assert [column.name for column in table.columns] == ["size", "ib", "socket"]
    assert len(table.rows) == len(SIZES)
    assert "At 1 GiB: ib is the fastest; socket 8 times as long." in table.remarks
    assert len(network_ceilings(doc)) == 2, "a roof a transport"


def test_one_transport_has_nothing_beside_it() -> None:
    assert not next(iter(collective_tables(over("ib", 1)))).key.startswith("transports")
