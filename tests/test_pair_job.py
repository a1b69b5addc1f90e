"""`collectives --pairs`: every rank meets every other, the suspects are timed again, every report names the slow."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_ranks import World
from sweep_files import document, item

from gpumicro import imports, result
from gpumicro.cli.collectives import command
from gpumicro.collectives import crew, pair_job, settings
from gpumicro.collectives.job import Output
from gpumicro.collectives.settings import Settings
from gpumicro.collectives.sizes import Sweep
from gpumicro.collectives.watchdog import Watchdog
from gpumicro.errors import UsageError
from gpumicro.report import plot
from gpumicro.report.collectives import collective_tables
from gpumicro.report.console import render_text
from gpumicro.report.csv import to_csv
from gpumicro.report.markdown import to_markdown
from gpumicro.report.page import to_html
from gpumicro.report.stragglers import is_pairs

SIZE = 4096
WISHES = Settings(("sendrecv",), Sweep(SIZE, SIZE), iters=2, max_time_s=0.02)


def alike(a: str, b: str) -> float:
    """Seconds of a pair of healthy nodes, a little different each."""
    return 1e-3 * (1 + 0.01 * (sum(map(ord, a + b)) % 5))


def slow_link(a: str, b: str) -> float:
    return alike(a, b) * (2 if {a[-1], b[-1]} == {"1", "4"} else 1)


def slow_node(a: str, b: str) -> float:
    return alike(a, b) * (1.5 if "3" in (a[-1], b[-1]) else 1)


def hunt(
    monkeypatch: pytest.MonkeyPatch,
    file: Path,
    truth: Callable[[str, str], float],
    ranks: int = 6,
    rounds: int | None = None,
) -> tuple[list[int], list[str]]:
    """Exit codes of all ranks and the lines of rank 0; times are those of `truth`, all else is run."""

    class Hunt(pair_job._Hunt):
        def _record(self, row: Any, pair: Any) -> dict[str, Any]:
            found = super()._record(row, pair)
            time = truth(*pair)
            return found | {"time_s": found["time_s"] | {"estimate": time, "ci95": [time, time]}}

    monkeypatch.setattr(pair_job, "_Hunt", Hunt)
    monkeypatch.setattr(crew, "_OVERHEAD_S", 0.005)
    monkeypatch.setattr(settings, "memory_available", lambda: 1 << 30)
    lines: list[str] = []

    def work(rank: Any) -> int:
        dog = Watchdog("a rank", 60, rank.abort)
        return pair_job.together(rank, WISHES, Output(lines.append, file=str(file)), None, dog, rounds=rounds)

    return World(ranks).each(work), lines


def test_a_healthy_cluster_has_no_straggler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    codes, lines = hunt(monkeypatch, tmp_path / "r.json", alike, 4)
    assert codes == [0] * 4
    assert lines[-1].startswith("no straggler")
    doc = result.read(tmp_path / "r.json")
    assert result.missing_reasons(doc) == []
    assert len({tuple(m["pair"]) for m in doc["measurements"]}) == 6
    assert all(m["ranks"] == 2 and m["status"] == "ok" for m in doc["measurements"])
    assert not doc["interrupted"]


@pytest.mark.parametrize(("truth", "named"), [(slow_node, "SLOW node: "), (slow_link, "SLOW link: ")])
def test_the_slow_one_is_named_and_the_exit_code_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, truth: Callable[[str, str], float], named: str
) -> None:
    codes, lines = hunt(monkeypatch, tmp_path / "r.json", truth)
    assert codes == [1] * 6
    (said,) = (line for line in lines if line.startswith("SLOW"))
    assert said.startswith(named)


def test_suspects_are_timed_again_with_healthy_partners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    codes, lines = hunt(monkeypatch, tmp_path / "r.json", slow_node, ranks=8, rounds=1)
    assert codes == [1] * 8
    (said,) = (line for line in lines if line.startswith("SLOW"))
    assert said.startswith("SLOW node: ")
    assert "/3," in said
    pairs = [tuple(m["pair"]) for m in result.read(tmp_path / "r.json")["measurements"]]
    assert 4 < len(pairs) <= 4 + 3 * 2 + 3 * 2, "one round of all, three of the two suspects, two confirmations"


def test_one_hiccup_makes_no_straggler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[tuple[str, str], int] = {}

    def hiccup(a: str, b: str) -> float:
        seen[a, b] = seen.get((a, b), 0) + 1
        return alike(a, b) * (9 if {a[-1], b[-1]} == {"0", "2"} and seen[a, b] == 1 else 1)

    codes, lines = hunt(monkeypatch, tmp_path / "r.json", hiccup, ranks=5)
    assert codes == [0] * 5
    assert lines[-1].startswith("no straggler")
    assert sorted(seen.values()) == [1] * 9 + [3]


def test_a_pair_that_is_timed_again_keeps_its_first_row() -> None:
    twice = [{"id": "x"}, {"id": "y"}, {"id": "x"}]
    assert [one["id"] for one in pair_job.numbered(twice)] == ["x", "y", "x#2"]


def test_ranks_of_one_host_are_told_apart_by_their_number() -> None:
    peers = [settings.Peer(host, "1", "1", "", None) for host in ("a", "b", "b")]
    assert pair_job.node_names(peers) == ["a", "b/1", "b/2"]


def test_too_few_ranks_and_too_many_wishes_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    codes, _ = hunt(monkeypatch, tmp_path / "r.json", alike, 2)
    assert "shows against 4" in str(codes[0])
    with pytest.raises(UsageError, match="one collective"):
        pair_job.pair_settings(Settings(("sendrecv", "all_reduce"), Sweep(8, 8)))
    with pytest.raises(UsageError, match="one size"):
        pair_job.pair_settings(Settings(("sendrecv",), Sweep(8, 16)))


def test_the_command_says_what_does_not_go_with_pairs() -> None:
    said = CliRunner().invoke(command, ["--pairs", "--format", "nccl-tests"])
    assert said.exit_code != 0
    assert "table of its own" in str(said.exception)


# -- the report --------------------------------------------------------------------------------------------------------


def made_up(truth: Callable[[str, str], float], count: int = 6) -> dict[str, Any]:
    names = [f"n{i}" for i in range(count)]
    return document([
        item(SIZE, truth(a, b), id=f"{a}{b}", collective="sendrecv", ranks=2, pair=[a, b])
        for i, a in enumerate(names) for b in names[i + 1 :]
    ])  # fmt: skip


@pytest.mark.parametrize(("truth", "who"), [(slow_node, ("n3", "node")), (slow_link, ("n1--n4", "link"))])
def test_every_format_names_it(truth: Callable[[str, str], float], who: tuple[str, str]) -> None:
    doc = made_up(truth)
    name, what = who
    first = next(iter(collective_tables(doc)))
    assert first.rows[0][:2] == (name, f"SLOW {what}")
    assert "Stragglers" in render_text(doc)
    assert f"| {name} | SLOW {what} |" in to_markdown(doc)
    assert f"SLOW {what}" in to_html(doc)
    rows = list(csv.DictReader(to_csv(doc).splitlines()))
    assert [row["name"] for row in rows if row["record"] == f"slow-{what}"] == [name]
    assert sum(row["record"] == "pair" for row in rows) == 15
    figure = plot.report_figure({**doc, "ceilings": []})
    assert figure.axes[0].get_title(loc="left").startswith("Pairs: ")


def test_saved_logs_of_nccl_tests_do_as_well(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "data" / "imports" / "nccl.txt").read_text()
    names = [f"node{i}.cluster" for i in range(5)]
    files = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            files.append(tmp_path / f"{a}--{b}.log")
            files[-1].write_text(text.replace(" 400.0", " 900.0") if "node2.cluster" in (a, b) else text)
    doc = imports.import_results([str(file) for file in files])
    assert is_pairs(doc)
    assert next(iter(collective_tables(doc))).rows[0][:2] == ("node2.cluster", "SLOW node")


def test_one_pair_or_a_whole_job_is_no_search() -> None:
    assert not is_pairs(document())
    assert not is_pairs(document([item(SIZE, 1e-3, pair=["a", "b"])]))


def test_pairs_without_a_common_size_say_so() -> None:
    doc = made_up(alike)
    doc["measurements"][0]["size_bytes"] = 8
    table = next(iter(collective_tables(doc)))
    assert "not every pair" in table.remarks[0]
