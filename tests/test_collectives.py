"""Collectives without ranks: sizes, rounding, factors, patterns, launchers."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_ranks import FakeRanks, World
from hypothesis import given
from hypothesis import strategies as st

from gpumicro.collectives import launch, patterns, settings, watchdog
from gpumicro.collectives.operations import (
    COLLECTIVES,
    DTYPES,
    LIBRARIES,
    OPS,
    collective,
    element,
    reduction,
)  # fmt: skip
from gpumicro.collectives.sizes import Sweep, parse_size
from gpumicro.errors import BackendUnavailable, UsageError
from gpumicro.kernels import formats

# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), ("1K", 1024), ("64M", 64 << 20), ("1.5g", 3 << 29), ("4KiB", 4096), ("8G", 8 << 30)]
)
def test_k_m_and_g_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.3", "8MB", "1X", "1e3", "9999999T"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"not a|powers"):
        parse_size(text)


def test_a_sweep_ends_at_its_end() -> None:
    assert Sweep(8, 128).sizes() == (8, 16, 32, 64, 128)
    assert Sweep(8, 100).sizes() == (8, 16, 32, 64)
    assert Sweep(8, 40, step=16).sizes() == (8, 24, 40)
    assert Sweep(5, 5).sizes() == (5,)


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 20), st.floats(1.001, 64))
def test_a_sweep_grows_within_its_bounds(begin: int, more: int, factor: float) -> None:
    sizes = Sweep(begin, begin + more, factor).sizes() if factor > 1.01 else Sweep(begin, begin + more).sizes()
    assert sizes[0] == begin
    assert all(a < b <= begin + more for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize("wrong", [(8, 4), (8, 16, 1.0), (8, 16, float("nan")), (1, 1 << 40, 2.0, 1), (1, 9, 2.0, 0)])
def test_a_sweep_that_makes_no_sense_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(UsageError):
        Sweep(*wrong)


# -- operations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_factor_of_all_reduce(ranks: int, factor: float) -> None:
    assert collective("all_reduce").factor(ranks) == factor


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "alltoall", "scatter", "gather"])
def test_factor_where_the_data_are_divided(name: str) -> None:
    assert [collective(name).factor(n) for n in (2, 4, 8)] == [0.5, 0.75, 0.875]


@pytest.mark.parametrize("name", ["broadcast", "reduce", "sendrecv"])
def test_factor_of_one(name: str) -> None:
    assert collective(name).factor(8) == 1.0


def test_one_rank_has_no_bus() -> None:
    assert all(kind.factor(1) is None for kind in COLLECTIVES.values())


def test_a_size_is_rounded_as_nccl_tests_does() -> None:
    counts = collective("all_gather").counts(1000, 4, 3)  # 250 elements: 83 each, 80 in whole 16 bytes
    assert (counts.send, counts.receive, counts.shown) == (80, 240, 240)
    counts = collective("reduce_scatter").counts(1 << 20, 8, 2)
    assert (counts.send, counts.receive, counts.shown) == (1 << 17, 1 << 16, 1 << 17)
    assert collective("alltoall").counts(8, 4, 2).shown == 0
    assert collective("all_reduce").counts(1001, 4, 3).shown == 250


@given(st.sampled_from(sorted(COLLECTIVES)), st.integers(1, 1 << 24), st.sampled_from(DTYPES), st.integers(1, 64))
def test_a_rounded_size_is_a_fixed_point(name: str, size: int, dtype: str, ranks: int) -> None:
    kind, itemsize = COLLECTIVES[name], np.dtype(dtype).itemsize
    first = kind.counts(size, itemsize, ranks)
    assert first.shown * itemsize <= size
    assert kind.counts(first.shown * itemsize, itemsize, ranks) == first


def test_names_are_found_and_others_refused() -> None:
    assert collective("AllReduce").name == collective("all-reduce").name == "all_reduce"
    assert collective("all_to_all").name == "alltoall"
    assert element("double") == "float64"
    with pytest.raises(UsageError, match="did you mean all_reduce"):
        collective("all_reduc")
    with pytest.raises(UsageError, match="MPI has no average"):
        reduction("avg")
    with pytest.raises(UsageError, match="MPI has no bfloat16"):
        element("bfloat16")


# -- patterns --------------------------------------------------------------------------------------------------------


NCCL = LIBRARIES["nccl"]
COMBINE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "avg": np.add}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", NCCL.dtypes)
@pytest.mark.parametrize("ranks", [1, 2, 3, 40])
def test_reductions_are_exact_in_every_dtype_and_order(op: str, dtype: str, ranks: int) -> None:
    rows = [formats.decode(patterns.row(rank, op, dtype, ranks), dtype) for rank in range(ranks)]
    exact = COMBINE[op].reduce([one.astype(np.int64) for one in rows])
    assert (formats.decode(patterns.reduced(op, dtype, ranks), dtype) == exact).all()
    found = rows[-1]
    for one in rows[-2::-1]:  # rounded to the type after each step, the other way round
        found = formats.decode(formats.encode(COMBINE[op](found, one), dtype), dtype)
    assert (found == exact).all()


def test_no_number_of_ranks_overflows_a_sum_of_int8() -> None:
    rows = [patterns.row(rank, "sum", "int8", 300) for rank in range(300)]
    assert (np.add.reduce(rows, dtype=np.int64) == patterns.reduced("sum", "int8", 300)).all()
    assert all(np.count_nonzero(row) > 100 for row in rows)


@pytest.mark.parametrize("dtype", NCCL.dtypes)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 24])
def test_an_average_is_within_its_slack_and_exact_where_it_can_be(dtype: str, ranks: int) -> None:
    rows = [formats.decode(patterns.row(rank, "avg", dtype, ranks), dtype) for rank in range(ranks)]
    if dtype.startswith("int"):
        got = formats.encode(np.add.reduce(rows) // ranks, dtype)
    else:
        part = formats.decode(formats.encode(np.array([1 / ranks]), dtype), dtype)[0]
        scaled = [formats.decode(formats.encode(one * part, dtype), dtype) for one in rows]
        total = scaled[0]
        for one in scaled[1:]:
            total = formats.decode(formats.encode(total + one, dtype), dtype)
        got = formats.encode(total, dtype)
    slack = patterns.slack("avg", dtype, ranks)
    assert (slack == 0) == (dtype.startswith("int") or ranks in (1, 2, 8))
    piece = patterns.Piece(len(got), patterns.reduced("avg", dtype, ranks), 0, dtype, slack)
    poisoned = np.full(got.nbytes, patterns.poison(dtype), np.uint8).view(got.dtype)
    assert piece.wrong(got) == 0
    assert piece.wrong(poisoned) == len(got)


@pytest.mark.parametrize("dtype", NCCL.dtypes)
@pytest.mark.parametrize("op", NCCL.ops)
def test_a_rank_left_out_shows(op: str, dtype: str) -> None:
    rows = [formats.decode(patterns.row(rank, op, dtype, 4), dtype) for rank in range(4)]
    exact = COMBINE[op].reduce(rows)
    assert np.count_nonzero(COMBINE[op].reduce(rows[1:]) != exact) > 100


def test_ranks_and_places_differ() -> None:
    first, second = (patterns.row(rank, "sum", "int32", 2) for rank in (0, 1))
    assert np.count_nonzero(first != second) > 0.9 * patterns.PERIOD
    for shift in (1, 4, 1024, 4096):
        assert np.count_nonzero(first != np.roll(first, shift)) > 0.9 * patterns.PERIOD


@pytest.mark.parametrize("count", [1, 100, patterns.PERIOD, 3 * patterns.PERIOD + 5, 300 * patterns.PERIOD])
@pytest.mark.parametrize("phase", [0, 17, 5 * patterns.PERIOD - 1])
def test_every_element_of_a_piece_is_checked(count: int, phase: int) -> None:
    row = patterns.row(0, "sum", "float32", 2)
    data = np.empty(phase + count, dtype=np.float32)
    patterns.fill(data, row)
    piece, data = patterns.Piece(count, row, phase), data[phase:]
    assert piece.wrong(data) == 0
    for place in {0, count // 2, count - 1}:
        kept = data[place]
        data[place] = np.nan
        assert piece.wrong(data) == 1
        data[place] = kept


# -- what is run -----------------------------------------------------------------------------------------------------


def wishes(*names: str, **more: object) -> settings.Settings:
    return settings.Settings(names, **{"sweep": Sweep(8, 1024), **more})  # type: ignore[arg-type]


def test_sizes_that_round_to_nothing_or_do_not_fit_are_said() -> None:
    cases, remarks = settings.cases(wishes("all_gather"), FakeRanks(World(4), 0), most=512)
    assert [case.size_bytes for case in cases if not case.in_place] == [64, 128, 256, 512]
    assert remarks == [
        "all_gather: sizes up to 32 B round to nothing and are left out",
        "all_gather: sizes from 1 KiB are left out: 512 B is the most that the memory of every rank allows",
    ]
    with pytest.raises(UsageError, match="nothing is left"):
        settings.cases(wishes("all_gather"), FakeRanks(World(1000), 0), None)


def test_sizes_that_round_to_one_are_one_row() -> None:
    wished = wishes("alltoall", sweep=Sweep(64, 100, step=4), places=(False,))
    cases, _ = settings.cases(wished, FakeRanks(World(2), 0), None)
    assert [case.size_bytes for case in cases] == [64, 96]


def test_mpi_broadcasts_in_place_only() -> None:
    cases, _ = settings.cases(wishes("broadcast"), FakeRanks(World(2), 0), None)
    assert all(case.in_place for case in cases)
    with pytest.raises(UsageError, match="broadcast out of place is left out: MPI_Bcast has no such form"):
        settings.cases(wishes("broadcast", places=(False,)), FakeRanks(World(2), 0), None)


def peer(**more: object) -> settings.Peer:
    return settings.Peer(**{"host": "a", "version": "1", "numpy": "2", "settings": "{}", "memory_bytes": 800, **more})  # type: ignore[arg-type]


def test_a_rank_that_differs_is_named() -> None:
    settings.check_alike([peer(), peer(host="b")])
    with pytest.raises(UsageError, match="rank 1 on b differs from rank 0 on a in the version of gpumicro: 3, not 1"):
        settings.check_alike([peer(), peer(host="b", version="3")])
    with pytest.raises(UsageError, match="dtype: int8, not float32"):
        settings.check_alike([peer(settings='{"dtype": "float32"}'), peer(settings='{"dtype": "int8"}')])


def test_memory_is_shared_by_the_ranks_of_a_host() -> None:
    assert settings.most_bytes([peer(), peer(), peer(host="b", memory_bytes=500)]) == 80
    assert settings.most_bytes([peer(memory_bytes=None)]) is None


# -- launchers -------------------------------------------------------------------------------------------------------


def test_mpirun_beside_the_interpreter_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(BackendUnavailable, match="mpich"):
        launch.find_mpirun(tmp_path)
    for folder, name in (("path", "mpirun"), (".", "mpiexec")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("#!/bin/sh\n")
        (tmp_path / folder / name).chmod(0o755)
        assert launch.find_mpirun(tmp_path) == str(tmp_path / folder / name)


def test_open_mpi_gets_its_flags() -> None:
    tail = ["-n", "4", sys.executable, "-m", "gpumicro", "collectives"]
    assert launch.command("mpirun", 4, ["collectives"], open_mpi=False, as_root=True) == ["mpirun", *tail]
    assert launch.command("mpirun", 4, ["collectives"], open_mpi=True, as_root=True) == [
        "mpirun", "--oversubscribe", "--allow-run-as-root", *tail,
    ]  # fmt: skip


# -- the watchdog ----------------------------------------------------------------------------------------------------


def test_a_rank_that_does_not_move_on_is_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "SPEAK_S", 0.0)
    codes: list[int] = []
    dog = watchdog.Watchdog("rank 1 of 2 on host", 0.0, codes.append, nap_s=0.001)
    dog.beat("all_reduce of 8 B")
    dog.run()
    assert codes == [1]
    assert "rank 1 of 2 on host: nothing moved" in capsys.readouterr().err


def test_a_rank_that_is_done_is_left_alone() -> None:
    codes: list[int] = []
    dog = watchdog.Watchdog("rank", 0.0, codes.append, nap_s=0.001)
    dog.stop()
    dog.run()
    assert codes == []
