"""The host code of collectives on ranks that are threads: every collective, planted errors, the file, the tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_ranks import Ended, FakeRanks, World

from gpumicro import imports, result
from gpumicro.collectives import job, session, settings
from gpumicro.collectives.crew import HostCrew
from gpumicro.collectives.operations import COLLECTIVES, DTYPES, OPS, collective
from gpumicro.collectives.ranks import Case
from gpumicro.collectives.sizes import Sweep
from gpumicro.errors import UsageError

QUICK = {"iters": 6, "max_time_s": 0.02}


def wishes(*names: str, **more: Any) -> settings.Settings:
    return settings.Settings(names, **{"sweep": Sweep(4096, 4096), **QUICK, **more})


def run(world: World, wished: settings.Settings, file: Path | None = None, **more: Any) -> tuple[list[Any], list[str]]:
    """(what each rank ends with, the lines of the table)."""
    lines: list[str] = []
    output = job.Output(lines.append, more.pop("format", "table"), None if file is None else str(file))
    return world.each(lambda ranks: job.run(ranks, wished, output, **more)), lines


def wrong_of(world: World, case: Case) -> Any:
    def work(ranks: FakeRanks) -> Any:
        one = session.Session(ranks, [case], HostCrew(ranks, [case]))
        if ranks.rank:
            return one.follow()
        one.command(session.LOAD, 0)
        found = one.command(session.CHECK), one.command(session.AGAIN)
        one.command(session.END)
        return found

    return world.each(work)[0]


def case_of(name: str, ranks: int, **more: Any) -> Case:
    kind = collective(name)
    facts = {"dtype": "float32", "op": "sum", "root": ranks - 1, "in_place": kind.places[0], **more}
    return Case(kind, kind.counts(40_000, 4, ranks), **facts)


MOVING = [(name, place) for name, kind in COLLECTIVES.items() if name != "barrier" for place in kind.places]


@pytest.mark.parametrize(("name", "in_place"), MOVING)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_collective_passes_its_check(name: str, in_place: bool, ranks: int) -> None:
    assert wrong_of(World(ranks), case_of(name, ranks, in_place=in_place)) == (0, 0)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_passes_in_every_dtype(op: str, dtype: str) -> None:
    assert wrong_of(World(2), case_of("reduce_scatter", 2, op=op, dtype=dtype)) == (0, 0)


@pytest.mark.parametrize(("name", "in_place"), MOVING)
def test_a_planted_error_is_found(name: str, in_place: bool) -> None:
    def spoil(case: Case, rank: int, received: Any) -> None:
        if rank == case.root:
            start = rank * case.counts.share if name == "scatter" and in_place else 0
            received[start + case.counts.share - 1] += 1

    assert wrong_of(World(2, spoil), case_of(name, 2, in_place=in_place))[0] == 1


@pytest.mark.parametrize(("name", "in_place"), MOVING)
def test_a_result_that_never_comes_is_found(name: str, in_place: bool) -> None:
    class Deaf(FakeRanks):
        def bind(self, *_: Any) -> Any:
            return lambda: None

    world, case = World(3), case_of(name, 3, in_place=in_place, root=0)

    def work(ranks: FakeRanks) -> Any:
        deaf = Deaf(world, ranks.rank)
        one = session.Session(deaf, [case], HostCrew(deaf, [case]))
        if ranks.rank:
            return one.follow()
        one.command(session.LOAD, 0)
        found = one.command(session.CHECK)
        one.command(session.END)
        return found

    assert world.each(work)[0] >= case.counts.share / 2


def test_the_slowest_rank_is_the_sample() -> None:
    class Slow(FakeRanks):
        """Its clock runs on by 1 ms a reading, rank 1's by 3 ms and from 7 ms later."""

        now = 0

        def clock_ns(self) -> int:
            self.now += 1_000_000 * (3 if self.rank else 1)
            return self.now + 7_000_000 * self.rank

    world = World(2)

    def work(ranks: FakeRanks) -> Any:
        slow, cases = Slow(world, ranks.rank), [case_of("all_reduce", 2)]
        one = session.Session(slow, cases, HostCrew(slow, cases))
        if ranks.rank:
            return one.follow()
        one.command(session.LOAD, 0)
        found = one.command(session.SAMPLE, 1)
        average = one.command(session.AVERAGE, 4)
        one.command(session.END)
        return found.longest, found.mean, found.skew, average

    spans, means, skews, average = world.each(work)[0]
    assert spans == pytest.approx([3e-3])
    assert means == pytest.approx([2e-3])
    assert skews == pytest.approx([9e-3])
    assert average == pytest.approx(2e-3 / 4)


def test_the_file_has_every_key(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    codes, lines = run(World(2), wishes("all_reduce", "broadcast", "barrier"), file)
    assert codes == [0, 0]
    doc = result.read(file)
    assert result.missing_reasons(doc) == []
    assert not doc["interrupted"]
    first = doc["measurements"][0]
    assert first["id"] == "mpi.all_reduce[size_bytes=4096,dtype=float32,op=sum]@ranks:2/mpi/variant=out-of-place"
    assert (first["collective"], first["ranks"], first["op"], first["in_place"]) == ("all_reduce", 2, "sum", False)
    assert first["wrong"] == 0
    assert first["check"]["passed"]
    assert first["timing"]["n"] == 6
    assert first["busbw_bytes_per_s"] == first["algbw_bytes_per_s"]
    assert first["algbw_bytes_per_s"]["estimate"] == pytest.approx(4096 / first["time_s"]["estimate"])
    assert 0 < first["time_mean_rank_s"] <= max(first["timing"]["raw_s"])
    barrier = doc["measurements"][-1]
    assert barrier["algbw_bytes_per_s"] is None
    assert barrier["algbw_bytes_per_s_why"]
    assert all(len(line) <= 80 for line in lines[2:] if "#" in line or line.startswith(" "))


def test_one_rank_has_no_busbw_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    assert run(World(1), wishes("all_reduce"), file)[0] == [0]
    record = result.read(file)["measurements"][0]
    assert record["busbw_bytes_per_s"] is None
    assert "one rank" in record["busbw_bytes_per_s_why"]
    assert record["algbw_bytes_per_s"]["estimate"] > 0


def test_a_wrong_element_fails_the_run_and_its_row(tmp_path: Path) -> None:
    def spoil(case: Case, rank: int, received: Any) -> None:
        if case.in_place and rank == 1:
            received[5] = 99

    file = tmp_path / "r.json"
    codes, lines = run(World(2, spoil), wishes("all_reduce"), file)
    assert codes[0] == 1
    assert [m["status"] for m in result.read(file)["measurements"]] == ["ok", "failed"]
    assert [line.split()[-1] for line in lines if "KiB" in line] == ["0", "1"]


def test_nccl_tests_format_is_read_back_by_the_importer(tmp_path: Path) -> None:
    names = [name for name in COLLECTIVES if name != "barrier"]
    file = tmp_path / "r.json"
    codes, lines = run(World(2), wishes(*names, sweep=Sweep(1024, 4096)), file, format="nccl-tests")
    assert codes == [0, 0]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    doc = imports.import_results([str(tmp_path / "log.txt")])
    ours = {(m["collective"], m["size_bytes"], m["in_place"]): m for m in result.read(file)["measurements"]}
    theirs = {(m["collective"], m["size_bytes"], m["in_place"]): m for m in doc["measurements"]}
    assert set(theirs) == set(ours)
    for key, record in theirs.items():
        assert record["time_s"]["estimate"] == pytest.approx(ours[key]["nccl_tests_average_s"], abs=6e-9)
        assert (record["ranks"], record["wrong"], record["dtype"]) == (2, 0, "float32")
        assert record["op"] == ours[key]["op"]


def test_a_log_of_one_rank_is_read_back(tmp_path: Path) -> None:
    lines = run(World(1), wishes("all_reduce"), format="nccl-tests")[1]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    record = imports.import_results([str(tmp_path / "log.txt")])["measurements"][0]
    assert record["busbw_bytes_per_s"] is None
    assert "one rank" in record["busbw_bytes_per_s_why"]


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_another_number_of_ranks_is_said_by_rank_0_alone() -> None:
    codes, lines = run(World(2), wishes("all_reduce"), expect=3)
    assert isinstance(codes[0], UsageError)
    assert "3 ranks were expected and 2 came" in str(codes[0])
    assert codes[1] == 2
    assert lines == []


def test_ranks_of_different_minds_all_end() -> None:
    def work(ranks: FakeRanks) -> Any:
        wished = wishes("all_reduce", dtype="float64" if ranks.rank == 1 else "float32")
        return job.run(ranks, wished, job.Output(lambda _: None))

    codes = World(3).each(work)
    assert isinstance(codes[0], UsageError)
    assert "rank 1 on" in str(codes[0])
    assert "dtype: float64, not float32" in str(codes[0])
    assert codes[1:] == [2, 2]


def test_a_rank_that_raises_ends_all_and_names_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(case: Case, rank: int, _: Any) -> None:
        if rank == 1 and case.in_place:
            raise MemoryError("no more")

    file = tmp_path / "r.json"
    world = World(2, fail)
    codes, lines = run(world, wishes("all_reduce"), file)
    assert 1 in world.aborted
    assert all(isinstance(code, Ended) for code in codes)
    assert "rank 1 of 2 on " in capsys.readouterr().err
    assert any("4 KiB" in line for line in lines)
    doc = json.loads(file.read_text())
    assert doc["interrupted"]
    assert [m["variant"] for m in doc["measurements"]] == ["out-of-place"]


def test_ctrl_c_keeps_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "GRACE_S", 0.0)

    def stop(case: Case, *_: Any) -> None:
        if case.in_place:
            raise KeyboardInterrupt

    file = tmp_path / "r.json"
    world = World(2, stop)
    run(world, wishes("all_reduce"), file)
    assert world.aborted[0] == 130
    doc = result.read(file)
    assert doc["interrupted"]
    assert len(doc["measurements"]) == 1
