"""Ranks on GPUs by a stand-in for NCCL: data, planted errors, times, records, and what goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_nccl import Clique, FakeNcclCuda, FakeTimer
from fake_ranks import Ended, FakeRanks, World

from gpumicro import cuda_native, imports, libraries, result
from gpumicro.backends.base import Availability
from gpumicro.collectives import job, nccl_side, session
from gpumicro.collectives.nccl_forms import FORMS
from gpumicro.collectives.nccl_side import NcclSide, pick
from gpumicro.collectives.operations import BARRIER, LIBRARIES, collective
from gpumicro.collectives.ranks import Case
from gpumicro.collectives.settings import Settings
from gpumicro.collectives.sizes import Sweep
from gpumicro.errors import BackendUnavailable, UsageError
from gpumicro.kernels import formats

NCCL = LIBRARIES["nccl"]
LOG = Path(__file__).parent / "data" / "nccl_logs" / "one_node.log"
MOVING = [(name, place) for name, form in FORMS.items() if name != BARRIER for place in form.places]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """A machine with a driver and NCCL; `here.cuda` is the module that this thread's process loads."""
    own = threading.local()
    own.able = Availability(True)
    able = type("Cuda", (), {"availability": lambda _: getattr(own, "able", Availability(True))})()
    monkeypatch.setattr(nccl_side, "get", lambda _: able)
    monkeypatch.setattr(cuda_native, "load", lambda: own.cuda)
    monkeypatch.setattr(libraries, "find", lambda name: libraries.Library(name, "/lib/libnccl.so.2"))
    return own


def carry(control: Any, make: Callable[[], bytes]) -> bytes:
    """Rank 0's bytes."""
    made = make() if control.rank == 0 else b""
    return control.exchange(made)[0]  # type: ignore[no-any-return]


def side_of(control: Any, environment: dict[str, str] | None = None, **more: Any) -> NcclSide:
    given = {"NCCL_DEBUG": "WARN"} if environment is None else environment  # a user's log is left alone
    return NcclSide(control, carry, environment=given, timer=lambda _: FakeTimer(), **more)


def wishes(*names: str, **more: Any) -> Settings:
    given = {"sweep": Sweep(4096, 4096), "iters": 6, "max_time_s": 0.02, "library": "nccl", **more}
    return Settings(names, **given)


def alone() -> FakeRanks:
    return FakeRanks(World(1), 0)


def run(
    here: Any, cuda: FakeNcclCuda, wished: Settings, file: Path | None = None, **more: Any
) -> tuple[int, list[str]]:
    """One process with all devices: (exit code, the lines of the table)."""
    here.cuda = cuda
    lines: list[str] = []
    output = job.Output(lines.append, more.pop("format", "table"), None if file is None else str(file))
    return job.run_on(side_of(alone(), cuda.environment or None), wished, output, **more), lines


def working(here: Any, cuda: FakeNcclCuda, case: Case, **more: Any) -> session.Session:
    """A session with its case loaded."""
    here.cuda, control = cuda, alone()
    side, wished = side_of(control), wishes(case.kind.name, dtype=case.dtype, op=case.op, **more)
    side.know([side.introduce(wished)])
    one = session.Session(control, [case], side.crew([case], lambda _: None))
    one.command(session.LOAD, 0)
    return one


def case_of(name: str, ranks: int, **more: Any) -> Case:
    kind = collective(name)
    facts: dict[str, Any] = {"dtype": "float32", "op": "sum", "root": ranks - 1, "in_place": False, **more}
    return Case(kind, kind.counts(40_000, formats.stored(facts["dtype"]).itemsize, ranks), **facts)


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


# -- several processes -----------------------------------------------------------------------------------------------


def each(here: Any, world: World, cudas: list[FakeNcclCuda], wished: Callable[[int], Settings], **more: Any) -> Any:
    """What each process ends with, and the lines of rank 0."""
    lines: list[str] = []
    output = job.Output(lines.append, "table", more.pop("file", None))

    def work(ranks: FakeRanks) -> Any:
        here.cuda = cudas[ranks.rank]
        if ranks.rank in more.get("unable", ()):
            here.able = Availability(False, "the NVIDIA driver finds no GPU", "Look for one")
        side = side_of(ranks, local_rank=ranks.rank)
        return job.run_on(side, wished(ranks.rank), output, expect=more.get("expect"), timeout_s=20)

    return world.each(work), lines


def processes(count: int, **more: Any) -> tuple[World, list[FakeNcclCuda]]:
    clique = Clique(count)
    return World(count), [FakeNcclCuda(count, clique, **more) for _ in range(count)]


def test_a_process_a_device_meets_by_nccls_id(here: Any, tmp_path: Path) -> None:
    world, cudas = processes(3)
    file = str(tmp_path / "r.json")
    codes, _ = each(here, world, cudas, lambda _: wishes("all_reduce", "gather"), file=file, expect=3)
    assert codes == [0, 0, 0]
    made = [cuda.communicators[0] for cuda in cudas]
    assert [(one.id, one.ranks, one.devices) for one in made] == [(b"x" * 128, [i], [i]) for i in range(3)]
    assert {m["wrong"] for m in result.read(file)["measurements"]} == {0}


def test_a_rank_without_a_gpu_is_named_and_all_end(here: Any) -> None:
    world, cudas = processes(2)
    codes, lines = each(here, world, cudas, lambda _: wishes("all_reduce"), unable=(1,))
    assert isinstance(codes[0], BackendUnavailable)
    assert "rank 1 on " in str(codes[0])
    assert "the NVIDIA driver finds no GPU. Look for one" in str(codes[0])
    assert (codes[1], lines) == (3, [])


def test_ranks_of_different_minds_or_versions_all_end(here: Any) -> None:
    world, cudas = processes(2)
    codes, _ = each(here, world, cudas, lambda rank: wishes("all_reduce", dtype=("float32", "float16")[rank]))
    assert "dtype: float16, not float32" in str(codes[0])
    world, cudas = processes(2)
    cudas[1].version = "2.19.3"
    codes, _ = each(here, world, cudas, lambda _: wishes("all_reduce"))
    assert "the version of NCCL: 2.19.3, not 2.28.3" in str(codes[0])
    assert codes[1] == 2


def test_two_ranks_on_one_gpu_are_refused(here: Any) -> None:
    world = World(2)
    clique = Clique(2)
    codes, _ = each(here, world, [FakeNcclCuda(1, clique), FakeNcclCuda(1, clique)], lambda _: wishes("all_reduce"))
    assert isinstance(codes[0], UsageError)
    assert "ranks 0 and 1" in str(codes[0])
    assert "one rank per GPU" in str(codes[0])


def test_a_rank_that_raises_aborts_nccl_and_keeps_the_rows(
    here: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "GRACE_S", 0.0)
    world, cudas = processes(2)

    def fail(operation: Any, rank: int, _: Any) -> None:
        if rank == 1 and operation.send == operation.receive:
            raise MemoryError("no more")

    cudas[0].clique.plant = fail
    file = str(tmp_path / "r.json")
    codes, _ = each(here, world, cudas, lambda _: wishes("all_reduce"), file=file)
    assert all(isinstance(code, (Ended, threading.BrokenBarrierError)) for code in codes)
    assert cudas[1].communicators[0].aborted
    assert "rank 1 of 2 on " in capsys.readouterr().err
    doc = result.read(file)
    assert doc["interrupted"]
    assert [m["variant"] for m in doc["measurements"]] == ["out-of-place"]


# -- what is not here ------------------------------------------------------------------------------------------------


def test_no_gpu_and_no_nccl_say_the_cure(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find", lambda name: libraries.Library(name, "", "no libnccl.so.2; pip install it"))
    with pytest.raises(BackendUnavailable, match="NCCL is not here: no libnccl"):
        run(here, FakeNcclCuda(2), wishes("all_reduce"))
    here.able = Availability(False, "there is no driver", "Install one")
    with pytest.raises(BackendUnavailable, match=r"there is no driver\. Install one"):
        run(here, FakeNcclCuda(2), wishes("all_reduce"))


def test_a_version_without_the_dtype_says_so(here: Any) -> None:
    with pytest.raises(UsageError, match=r"NCCL 2\.19\.3 has no float8_e5m2: it came"):
        run(here, FakeNcclCuda(2, version="2.19.3"), wishes("all_reduce", dtype="float8_e5m2"))


def test_the_number_of_gpus_is_held_against_what_was_expected(here: Any) -> None:
    with pytest.raises(UsageError, match="8 ranks were expected and 2 came"):
        run(here, FakeNcclCuda(2), wishes("all_reduce"), expect=8)


@pytest.mark.parametrize(
    ("chosen", "visible", "local", "devices"),
    [
        (None, 4, None, [0, 1, 2, 3]), ((1, 3), 4, None, [1, 3]), (None, 4, 2, [2]), ((1, 3), 4, 1, [3]),
        (None, 1, 5, [0]),  # srun gave each task its own device
    ],
)  # fmt: skip
def test_devices_of_a_process(chosen: Any, visible: int, local: int | None, devices: list[int]) -> None:
    assert pick(chosen, visible, local) == devices


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no cuda:4 here: 4 devices"):
        pick((0, 4), 4, None)
    with pytest.raises(BackendUnavailable, match="rank 4 of its host, counted from 0, and 4 GPUs"):
        pick(None, 4, 4)
