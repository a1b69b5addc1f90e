"""Ranks that are threads of this process, for the host code of collectives; an error can be planted."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpumicro.collectives.operations import Collective
from gpumicro.collectives.ranks import Case, Form, Ints

_REDUCE: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
PATIENCE_S = 30.0  # of a thread for the others, so that a failing test ends


class Ended(Exception):
    """What `abort` does here."""


class World:
    """So many ranks. `plant(case, rank, result)` may spoil what a rank has received."""

    def __init__(self, size: int, plant: Callable[[Case, int, Any], None] | None = None) -> None:
        self.size, self.plant = size, plant
        self._barrier = threading.Barrier(size, timeout=PATIENCE_S)
        self._slots: list[Any] = [None] * size
        self._letters: dict[tuple[int, int], queue.Queue[int]] = {}
        self.aborted: list[int] = []

    def share(self, rank: int, value: Any) -> list[Any]:
        """Every rank's value."""
        self._slots[rank] = value
        self._barrier.wait()
        found = list(self._slots)
        self._barrier.wait()
        return found

    def swap(self, rank: int, other: int, word: int) -> int:
        """Between two ranks only."""
        self._letters.setdefault((rank, other), queue.Queue()).put(word)
        return self._letters.setdefault((other, rank), queue.Queue()).get(timeout=PATIENCE_S)

    def break_up(self) -> None:
        self._barrier.abort()

    def each(self, work: Callable[[FakeRanks], Any]) -> list[Any]:
        """What `work` gives on every rank; an exception stands in the place of its result."""
        found: list[Any] = [None] * self.size

        def run(rank: int) -> None:
            try:
                found[rank] = work(FakeRanks(self, rank))
            except BaseException as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
        return found


class FakeRanks:
    """One of them. See `gpumicro.collectives.ranks.Ranks`."""

    library, backend, loop = "threads", "mpi", "python"
    loop_why = "threads"
    before_exit = None

    def __init__(self, world: World, rank: int) -> None:
        self._world, self.rank, self.size = world, rank, world.size

    def clock_ns(self) -> int:
        return time.perf_counter_ns()

    def barrier(self) -> None:
        self._world.share(self.rank, None)

    def tell(self, words: Ints) -> None:
        words[:] = self._world.share(self.rank, words.copy())[0]

    def greatest(self, values: Ints) -> Ints:
        return np.maximum.reduce(self._world.share(self.rank, values))

    def total(self, values: Ints) -> Ints:
        return np.add.reduce(self._world.share(self.rank, values))

    def exchange(self, record: bytes) -> list[bytes]:
        return self._world.share(self.rank, record)

    def swap(self, other: int, word: int) -> int:
        return self._world.swap(self.rank, other, word)

    def form(self, kind: Collective) -> Form:
        return Form(kind.mpi, kind.places)

    def alone(self) -> FakeRanks:
        return FakeRanks(World(1), 0)

    def split(self, group: int) -> FakeRanks:
        groups = self._world.share(self.rank, group)
        mine = [rank for rank, other in enumerate(groups) if other == group]
        world = World(len(mine), self._world.plant) if self.rank == mine[0] else None
        return FakeRanks(self._world.share(self.rank, world)[mine[0]], mine.index(self.rank))

    def free(self) -> None:
        pass

    def abort(self, code: int) -> None:
        self._world.aborted.append(code)
        self._world.break_up()
        raise Ended(code)

    def bind(self, case: Case, send: Any, receive: Any) -> Callable[[], object]:
        return lambda: self._run(case, send, receive)

    def _run(self, case: Case, send: Any, receive: Any) -> None:
        name, share, rank, n = case.kind.name, case.counts.share, self.rank, self.size
        own = receive if case.in_place else send
        gathers = name == "all_gather" or (name == "gather" and rank == case.root)
        if case.in_place and gathers:
            own = receive[rank * share : (rank + 1) * share]
        sent = self._world.share(rank, own[: max(case.counts.send, share)].copy())
        result = self._result(case, sent, rank, share, n)
        if result is None:
            return
        start = rank * share if name == "scatter" and case.in_place and rank == case.root else 0
        # a sum that overflows after many runs in place is no concern of the tests
        with np.errstate(all="ignore"):
            receive[start : start + len(result)] = result
        if self._world.plant is not None:
            self._world.plant(case, rank, receive)

    @staticmethod
    def _result(case: Case, sent: list[Any], rank: int, share: int, n: int) -> Any:
        name, mine = case.kind.name, slice(rank * share, (rank + 1) * share)
        if case.kind.reduces:
            with np.errstate(all="ignore"):
                whole = _REDUCE[case.op].reduce(sent, dtype=sent[0].dtype)
            return whole[mine] if name == "reduce_scatter" else whole if name != "reduce" or rank == case.root else None
        if name == "all_gather" or (name == "gather" and rank == case.root):
            return np.concatenate([one[:share] for one in sent])
        if name == "alltoall":
            return np.concatenate([one[mine] for one in sent])
        return {
            "broadcast": lambda: sent[case.root],
            "sendrecv": lambda: sent[(rank - 1) % n],
            "scatter": lambda: sent[case.root][mine],
        }.get(name, lambda: None)()
