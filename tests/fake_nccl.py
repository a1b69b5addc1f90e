"""A stand-in for gpumicro._cuda with NCCL, in plain Python: memory is NumPy's, time is what the test says.

The ranks of one process run in its thread; processes are threads that share a Clique.
"""

# ruff: noqa: ARG002  (the arguments are the native ones)
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from fake_cuda import H100

from gpumicro.errors import GpumicroError
from gpumicro.kernels import formats
from gpumicro.timers import Tick

PATIENCE_S = 30.0
Plant = Callable[[Any, int, Any], None]  # (collective, rank, what it received, as stored)


class Failed(GpumicroError):
    """In the place of NcclError."""


class Clique:
    """Where processes meet. spans_s(rank): how long a run takes; waits_s: of each rank in the barrier before it."""

    def __init__(self, processes: int = 1, plant: Plant | None = None) -> None:
        self.plant = plant
        self.spans_s: Callable[[int], float] = lambda rank: 1e-5 * (1 + rank)
        self.waits_s: Callable[[int], float] = lambda rank: 3e-6 * rank
        self.lost: Callable[[int], bool] = lambda _: False  # whether rank 0's gate lets go in this one
        self.aborted = 0
        self.samples: list[bool] = []  # whether gated, of each that rank 0 took
        self.enqueued: list[str] = []  # operations, in rank 0's order
        self._barrier = threading.Barrier(processes, timeout=PATIENCE_S)
        self._slots: dict[int, Any] = {}

    def share(self, values: dict[int, Any]) -> dict[int, Any]:
        """What every rank gave."""
        self._slots.update(values)
        self._barrier.wait()
        found = dict(self._slots)
        self._barrier.wait()
        return found


class Buffer:
    def __init__(self, cuda: FakeNcclCuda, size_bytes: int) -> None:
        self.cuda, self.address, self.size_bytes = cuda, cuda.next_address, size_bytes
        self.memory = np.full(size_bytes, 0xA5, np.uint8)
        cuda.next_address += size_bytes + 4096
        cuda.buffers.append(self)

    def upload(self, array: npt.NDArray[Any], offset_bytes: int = 0) -> None:
        raw = np.frombuffer(array.tobytes(), np.uint8)
        assert offset_bytes + len(raw) <= self.size_bytes
        self.memory[offset_bytes : offset_bytes + len(raw)] = raw

    def download(self) -> npt.NDArray[np.uint8]:
        return self.memory.copy()

    def fill(self, byte: int) -> None:
        self.memory[:] = byte

    def close(self) -> None:
        self.cuda.buffers.remove(self)


class Communicators:
    def __init__(
        self, cuda: FakeNcclCuda, size: int, name: bytes, ranks: Sequence[int], devices: Sequence[int], timeout_s: float
    ) -> None:
        self.cuda, self.size, self.id, self.timeout_s = cuda, size, name, timeout_s
        self.ranks, self.devices, self.aborted, self.closed = list(ranks), list(devices), False, False
        cuda.communicators.append(self)

    def wait(self) -> None:
        """Nothing is ever left to do."""

    def abort(self) -> bool:
        self.aborted = True
        self.cuda.clique.aborted += 1
        return True

    def close(self) -> None:
        self.closed = True


class Collective:
    """As the native one; it runs at once."""

    def __init__(
        self, communicators: Communicators, kind: str, dtype: str, count: int, send: Sequence[int],
        receive: Sequence[int], op: str = "sum", root: int = 0, keep: object = None,
    ) -> None:  # fmt: skip
        self.communicators, self.kind, self.dtype, self.count = communicators, kind, dtype, count
        self.send, self.receive, self.op, self.root, self.keep = list(send), list(receive), op, root, keep
        self.work = self.run
        self.operations = [self]

    def run(self, n: int = 1) -> None:
        cuda, ranks = self.communicators.cuda, self.communicators.ranks
        for _ in range(n):
            self._move(cuda, ranks)

    def _move(self, cuda: FakeNcclCuda, ranks: list[int]) -> None:
        if 0 in ranks:
            cuda.clique.enqueued.append(self.kind)
        if self.kind == "barrier":
            cuda.clique.share({})
            return
        size, itemsize = self.communicators.size, formats.stored(self.dtype).itemsize
        whole = self.kind in ("reduce_scatter", "alltoall", "scatter")
        sent_count = self.count * size if whole else self.count
        sent = cuda.clique.share({
            rank: cuda.at(address, sent_count * itemsize).view(formats.stored(self.dtype)).copy() if address else None
            for rank, address in zip(ranks, self.send, strict=True)
        })  # fmt: skip
        for rank, address in zip(ranks, self.receive, strict=True):
            result = self._result(sent, rank, size)
            if result is None:
                continue
            received = cuda.at(address, len(result) * itemsize).view(formats.stored(self.dtype))
            received[:] = result
            if cuda.clique.plant is not None:
                cuda.clique.plant(self, rank, received)

    def _result(self, sent: dict[int, Any], rank: int, size: int) -> Any:
        mine = slice(rank * self.count, (rank + 1) * self.count)
        if self.kind in ("all_reduce", "reduce_scatter", "reduce"):
            if self.kind == "reduce" and rank != self.root:
                return None
            total = reduce(self.op, self.dtype, [sent[other] for other in range(size)])
            return total[mine] if self.kind == "reduce_scatter" else total
        if self.kind == "all_gather" or (self.kind == "gather" and rank == self.root):
            return np.concatenate([sent[other] for other in range(size)])
        if self.kind == "alltoall":
            return np.concatenate([sent[other][mine] for other in range(size)])
        return {
            "broadcast": lambda: sent[self.root],
            "sendrecv": lambda: sent[(rank - 1) % size],
            "scatter": lambda: sent[self.root][mine],
        }.get(self.kind, lambda: None)()


def reduce(op: str, dtype: str, rows: list[Any]) -> Any:
    """As NCCL does it: rounded to the type after each step; an average of floats scales first."""

    def rounded(values: Any) -> Any:
        with np.errstate(all="ignore"):
            return formats.decode(formats.encode(values, dtype), dtype)

    values = [formats.decode(row, dtype) for row in rows]
    whole = dtype.startswith("int")
    if op == "avg" and not whole:
        values = [rounded(value * rounded(np.array([1 / len(rows)]))) for value in values]
    combine = {"prod": np.multiply, "min": np.minimum, "max": np.maximum}.get(op, np.add)
    total = values[0]
    with np.errstate(all="ignore"):
        for value in values[1:]:
            total = rounded(combine(total, value))
        return formats.encode(total // len(rows) if op == "avg" and whole else total, dtype)


class Group:
    def __init__(self, collectives: Sequence[Collective]) -> None:
        self.operations = list(collectives)
        self.communicators = collectives[0].communicators
        self.work = self.run

    def run(self, n: int = 1) -> None:
        for _ in range(n):
            for one in self.operations:
                one.run()


class Graphs:
    def __init__(self, communicators: Communicators, work: Any) -> None:
        self.work_of = work

    def replay(self, runs: int) -> Any:
        def replayed() -> None:
            for _ in range(runs):
                self.work_of()

        return replayed


class Clock:
    """Spans and waits are the clique's; the work is run once for each span."""

    def __init__(self, communicators: Communicators) -> None:
        self.communicators, self.phase_s = communicators, 0.0
        self.waits_s = np.zeros((0, 0))

    def sample(self, work: Any, counts: npt.NDArray[np.int64], gated: bool = True) -> npt.NDArray[np.float64]:
        clique, ranks = self.communicators.cuda.clique, self.communicators.ranks
        spans = np.array([[clique.spans_s(rank) for rank in ranks] for _ in counts])
        self.waits_s = np.array([[clique.waits_s(rank) for rank in ranks] for _ in counts])
        for i in range(len(counts)):
            work()
            if 0 in ranks:
                if gated and clique.lost(len(clique.samples)):
                    spans[i, ranks.index(0)] = np.nan
                clique.samples.append(gated)
        return spans


class FakeTimer:
    """Of a device: two events with nothing between them are 0."""

    gates = True

    def tick(self) -> Tick:
        return Tick(0.0, 0.0, "chosen")

    def overhead(self, n: int = 256) -> npt.NDArray[np.float64]:
        return np.zeros(n)


class Joining:
    """What `nccl.Communicators` is: made of an id, or of all devices here."""

    def __init__(self, cuda: FakeNcclCuda) -> None:
        self._cuda = cuda

    def __call__(
        self, nccl: Any, size: int, name: bytes, ranks: Sequence[int], devices: Sequence[int], *, timeout_s: float
    ) -> Communicators:
        return Communicators(self._cuda, size, name, ranks, devices, timeout_s)

    def local(self, nccl: Any, devices: Sequence[int], *, timeout_s: float) -> Communicators:
        return Communicators(self._cuda, len(devices), b"", range(len(devices)), devices, timeout_s)


class FakeNcclCuda:
    """The module: so many devices, each with `free_bytes`. `log`: what NCCL writes when it is opened, into the file
    that `environment` names."""

    def __init__(self, devices: int, clique: Clique | None = None, **more: Any) -> None:
        self.clique, self.count = clique or Clique(), devices
        self.free_bytes, self.version = more.get("free_bytes", 1 << 30), more.get("version", "2.28.3")
        self.uuid_base, self.log = more.get("uuid_base", 0), more.get("log", "")
        self.environment: dict[str, str] = more.get("environment", {})
        self.buffers: list[Buffer] = []
        self.communicators: list[Communicators] = []
        self.next_address = 1 << 20
        self.timing = SimpleNamespace(copy=self._copy)
        self.nccl = SimpleNamespace(
            Nccl=self._open, Communicators=Joining(self), Collective=Collective, Group=Group, Graphs=Graphs, Clock=Clock
        )

    def at(self, address: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory behind an address."""
        for one in self.buffers:
            if one.address <= address and address + size_bytes <= one.address + one.size_bytes:
                return one.memory[address - one.address :][:size_bytes]
        raise AssertionError(f"nothing lies at {address:#x}, {size_bytes} bytes")

    def _copy(self, device: int, to: int, source: int, size_bytes: int, direction: str, keep: object) -> Any:
        assert direction == "d2h"
        return lambda: np.copyto(self.at(to, size_bytes), self.at(source, size_bytes))

    def _open(self, path: str) -> Any:
        if file := self.environment.get("NCCL_DEBUG_FILE"):
            Path(file).write_text(self.log, encoding="utf-8")
        return SimpleNamespace(
            path=path, version_text=self.version, unique_id=lambda: b"x" * 128,
            why_not=lambda dtype: "" if self.version >= "2.24" or "float8" not in dtype else "it came with 2.24",
        )  # fmt: skip

    def Buffer(self, device: int, size_bytes: int, kind: str = "device") -> Buffer:
        return Buffer(self, size_bytes)

    def synchronize(self, device: int) -> None:
        """Nothing is ever left to do."""

    def probe(self) -> dict[str, Any]:
        return {"count": self.count}

    def device_facts(self, index: int) -> dict[str, Any]:
        return {**H100, "uuid": f"GPU-{self.uuid_base + index}", "pci_bus_id": f"0000:{index:02x}:00.0"}

    def free_memory(self, device: int) -> tuple[int, int]:
        return self.free_bytes, 80 << 30
