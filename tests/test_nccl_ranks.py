"""Ranks on GPUs by a stand-in for NCCL: data, planted errors, times, records."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_nccl import Clique, FakeNcclCuda
from nccl_rig import case_of, machine, run, wishes, working

from gpumicro import imports, result
from gpumicro.collectives import session
from gpumicro.collectives.nccl_forms import FORMS
from gpumicro.collectives.operations import BARRIER, LIBRARIES
from gpumicro.collectives.sizes import Sweep

NCCL = LIBRARIES["nccl"]
LOG = Path(__file__).parent / "data" / "nccl_logs" / "one_node.log"
MOVING = [(name, place) for name, form in FORMS.items() if name != BARRIER for place in form.places]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    return machine(monkeypatch)


# -- the data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "in_place"), MOVING)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_collective_passes_its_check(here: Any, name: str, in_place: bool, ranks: int) -> None:
    one = working(here, FakeNcclCuda(ranks), case_of(name, ranks, in_place=in_place))
    assert (one.command(session.CHECK), one.command(session.AGAIN)) == (0, 0)


@pytest.mark.parametrize("op", NCCL.ops)
@pytest.mark.parametrize("dtype", NCCL.dtypes)
def test_every_operator_passes_in_every_dtype(here: Any, op: str, dtype: str) -> None:
    one = working(here, FakeNcclCuda(3), case_of("reduce_scatter", 3, op=op, dtype=dtype))
    assert one.command(session.CHECK) == 0


@pytest.mark.parametrize(("name", "in_place"), MOVING)
def test_a_planted_error_is_found(here: Any, name: str, in_place: bool) -> None:
    def spoil(_: Any, rank: int, received: Any) -> None:
        if rank == 1:
            received[len(received) - 1] += 1

    one = working(here, FakeNcclCuda(2, Clique(plant=spoil)), case_of(name, 2, in_place=in_place))
    assert one.command(session.CHECK) == 1


@pytest.mark.parametrize("dtype", NCCL.dtypes)
def test_a_result_that_never_comes_is_found_in_every_dtype(
    here: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeNcclCuda(2)
    one = working(here, cuda, case_of("all_reduce", 2, dtype=dtype))
    monkeypatch.setattr(cuda.nccl.Collective, "run", lambda *_: None)
    assert one.command(session.CHECK) == 2 * case_of("all_reduce", 2, dtype=dtype).counts.share


def test_a_case_longer_than_a_slice_is_filled_and_checked(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpumicro.collectives import nccl_buffers

    monkeypatch.setattr(nccl_buffers, "SLICE_BYTES", 3000)
    for name in ("all_reduce", "alltoall", "all_gather"):
        one = working(here, FakeNcclCuda(2), case_of(name, 2))
        assert one.command(session.CHECK) == 0


# -- the time --------------------------------------------------------------------------------------------------------


def test_a_sample_is_the_longest_rank_and_skew_is_how_long_they_waited(here: Any) -> None:
    clique = Clique()
    clique.spans_s = lambda rank: (2e-5, 5e-5, 3e-5)[rank]
    clique.waits_s = lambda rank: (9e-6, 2e-6, 4e-6)[rank]
    found = working(here, FakeNcclCuda(3, clique), case_of("all_reduce", 3)).command(session.SAMPLE, 2)
    assert found.longest == pytest.approx([5e-5, 5e-5])
    assert found.mean == pytest.approx([1e-4 / 3] * 2)
    assert found.skew == pytest.approx([7e-6] * 2)


def test_a_run_whose_gate_let_go_is_taken_again(here: Any) -> None:
    clique = Clique()
    clique.lost = lambda sample: sample == 1
    timer = session.RankTimer(working(here, FakeNcclCuda(2, clique), case_of("all_reduce", 2)))
    assert timer.sample(None, np.ones(3, dtype=np.int64)) == pytest.approx([2e-5] * 3)
    assert timer.take_flags() == {"gate-timeout"}
    assert clique.samples == [True] * 4
    assert len(timer.skews) == 3


def test_gates_that_never_hold_are_left_out_and_flagged(here: Any) -> None:
    clique = Clique()
    clique.lost = lambda _: True
    timer = session.RankTimer(working(here, FakeNcclCuda(2, clique), case_of("all_reduce", 2)))
    assert timer.sample(None, np.ones(1, dtype=np.int64)) == pytest.approx([2e-5])
    assert timer.take_flags() == {"gate-timeout", "ungated"}
    assert clique.samples == [True] * 4 + [False]


@pytest.mark.parametrize(("graph", "aggregate", "runs"), [(0, 4, 4), (3, 1, 3), (3, 2, 6)])
def test_a_run_of_several_operations_is_timed_by_the_operation(
    here: Any, graph: int, aggregate: int, runs: int
) -> None:
    clique = Clique()
    one = working(here, FakeNcclCuda(2, clique), case_of("all_reduce", 2), graph=graph, aggregate=aggregate)
    clique.enqueued.clear()
    found = one.command(session.SAMPLE, 1)
    assert len(clique.enqueued) == runs
    assert found.longest == pytest.approx([2e-5 / runs], rel=1e-3)
    assert one.command(session.CHECK) == 0


# -- the record ------------------------------------------------------------------------------------------------------


def test_the_file_has_every_key(here: Any, tmp_path: Path) -> None:
    file, environment = tmp_path / "r.json", {"NCCL_ALGO": "Ring"}
    cuda = FakeNcclCuda(2, environment=environment, log=LOG.read_text())
    code, lines = run(here, cuda, wishes("all_reduce", BARRIER, sweep=Sweep(1 << 20, 1 << 20), tuning=True), file)
    assert code == 0
    doc = result.read(file)
    assert result.missing_reasons(doc) == []
    assert (doc["interrupted"], doc["emulated"]) == (False, False)
    first = doc["measurements"][0]
    wanted = "nccl.all_reduce[size_bytes=1048576,dtype=float32,op=sum,transport=auto]@ranks:2/nccl/variant=out-of-place"
    assert first["id"] == wanted
    assert (first["backend"], first["timing"]["estimand"], first["timing"]["loop"]) == ("nccl", "isolated", "native")
    assert first["time_s"]["estimate"] == pytest.approx(2e-5)
    assert first["skew_s"] == pytest.approx(3e-6)
    assert first["busbw_bytes_per_s"]["estimate"] == pytest.approx((1 << 20) / 2e-5)
    assert (first["algorithm"], first["protocol"], first["channels"]) == ("Ring", "LL128", 16)
    assert first["facts"]["library_path"] == "/lib/libnccl.so.2"
    assert first["facts"]["nccl_transports"] == ["P2P/CUMEM"]
    assert [device["uuid"] for device in doc["devices"][1:]] == ["GPU-0", "GPU-1"]
    assert [gpu["uuid"] for gpu in doc["topology"]["gpus"]] == ["GPU-0", "GPU-1"]
    assert all(len(line) <= 80 for line in lines[2:] if "#" in line or line.startswith(" "))
    assert not Path(environment["NCCL_DEBUG_FILE"]).exists()
    assert all(one.closed for one in cuda.communicators)
    assert cuda.buffers == []


def test_what_was_not_asked_of_nccls_log_has_its_reason(here: Any, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    run(here, FakeNcclCuda(2, environment={"NCCL_DEBUG": "WARN"}), wishes("all_reduce", aggregate=4), file)
    record = result.read(file)["measurements"][0]
    assert (record["algorithm"], record["channels"]) == (None, None)
    assert "--algorithms" in record["algorithm_why"]
    assert record["labels"] == {"aggregate": "4"}
    assert "aggregate=4" in record["id"]


def test_one_rank_has_no_busbw_and_says_why(here: Any, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    assert run(here, FakeNcclCuda(1), wishes("all_reduce"), file)[0] == 0
    record = result.read(file)["measurements"][0]
    assert record["busbw_bytes_per_s"] is None
    assert "one rank" in record["busbw_bytes_per_s_why"]


def test_nccl_tests_format_is_read_back_by_the_importer(here: Any, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    wished = wishes("all_reduce", "alltoall", "broadcast", dtype="bfloat16", op="avg")
    code, lines = run(here, FakeNcclCuda(2), wished, file, format="nccl-tests")
    assert code == 0
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    doc = imports.import_results([str(tmp_path / "log.txt")])
    ours = {(m["collective"], m["size_bytes"], m["in_place"]): m for m in result.read(file)["measurements"]}
    theirs = {(m["collective"], m["size_bytes"], m["in_place"]): m for m in doc["measurements"]}
    assert set(theirs) == set(ours)
    assert len(ours) == 5
    for key, record in theirs.items():
        assert record["time_s"]["estimate"] == pytest.approx(ours[key]["nccl_tests_average_s"], abs=6e-9)
        assert (record["ranks"], record["wrong"], record["dtype"]) == (2, 0, "bfloat16")


def test_sizes_that_no_gpu_has_memory_for_are_left_out_and_said(here: Any) -> None:
    code, lines = run(here, FakeNcclCuda(2, free_bytes=3 << 20), wishes("all_reduce", sweep=Sweep(1 << 19, 1 << 22)))
    assert code == 0
    assert [line.split()[:2] for line in lines if " out " in line] == [["512", "KiB"], ["1", "MiB"]]
    assert "all_reduce: sizes from 2 MiB are left out" in lines[-1]
