"""Jobs of several processes on GPUs by a stand-in for NCCL, what goes wrong in them, and what is not here."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fake_nccl import Clique, FakeNcclCuda
from fake_ranks import Ended, World
from nccl_rig import each, machine, processes, run, wishes

from gpumicro import libraries, result
from gpumicro.backends.base import Availability
from gpumicro.collectives import job
from gpumicro.collectives.nccl_side import pick
from gpumicro.errors import BackendUnavailable, UsageError


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    return machine(monkeypatch)


# -- several processes -----------------------------------------------------------------------------------------------


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
