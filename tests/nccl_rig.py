"""Jobs on GPUs by a stand-in for NCCL: a machine with a driver and NCCL, and one process or several on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_nccl import Clique, FakeNcclCuda, FakeTimer
from fake_ranks import FakeRanks, World

from gpumicro import cuda_native, gpu_pairs, libraries
from gpumicro.backends.base import Availability
from gpumicro.collectives import job, nccl_side, session
from gpumicro.collectives.nccl_side import NcclSide
from gpumicro.collectives.operations import collective
from gpumicro.collectives.ranks import Case
from gpumicro.collectives.settings import Settings
from gpumicro.collectives.sizes import Sweep
from gpumicro.kernels import formats


def machine(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """A machine with a driver and NCCL; `here.cuda` is the module that this thread's process loads."""
    own = threading.local()
    own.able = Availability(True)
    able = type("Cuda", (), {"availability": lambda _: getattr(own, "able", Availability(True))})()
    monkeypatch.setattr(nccl_side, "get", lambda _: able)
    monkeypatch.setattr(cuda_native, "load", lambda: own.cuda)
    monkeypatch.setattr(libraries, "find", lambda name: libraries.Library(name, "/lib/libnccl.so.2"))
    monkeypatch.setattr(gpu_pairs, "topology", lambda uuids: {"gpus": [{"uuid": one} for one in uuids], "pairs": []})
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
