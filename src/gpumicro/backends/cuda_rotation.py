"""A kernel on several disjoint sets of its operands in turn: cold data without the cost of evicting anything.

With k sets of together three times L2 a set has left the cache when it comes round again, and spans may be batched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core import timing as core
from ..errors import OutOfMemory, VerificationError
from ..spec import Check
from .cuda_operands import OperandBuffer, operands_of
from .cuda_prepared import POISON, CudaPrepared, bind

OVER_L2 = 3  # sets together over the cache: what is used least recently is gone after one, of most caches after two
MOST = 4096  # sets; a kernel of so few bytes is timed otherwise


def sets_needed(set_bytes: int, l2_bytes: int) -> int:
    """How many disjoint sets of that many bytes leave nothing of one in L2 when it comes round, at least 2."""
    return max(2, min(MOST, -(-OVER_L2 * l2_bytes // max(set_bytes, 1))))


class Rotation:
    """What `prepared` does, on `sets` disjoint sets of operands in turn. It keeps `prepared` open; close it here.

    Raises OutOfMemory where the sets do not fit.
    """

    cache = "rotate"

    def __init__(self, prepared: CudaPrepared, sets: int | None = None) -> None:
        self._first = prepared
        self.spec, self.problem, self.execution = prepared.spec, prepared.problem, prepared.execution
        self.device, self.backend, self.timer = prepared.device, prepared.backend, prepared.timer
        found = prepared.device.cache("l2")
        self.set_bytes = sum(one.buffer.size_bytes for one in prepared._operands.values())
        self.sets = sets or sets_needed(self.set_bytes, found.size_bytes if found else 0)
        self._cuda = prepared._engine.cuda
        self._check_room()
        self._operands = [prepared._operands, *(self._copy(prepared._operands) for _ in range(self.sets - 1))]
        self._bound = [self._bind(held) for held in self._operands]
        self._work: Any = self._cuda.timing.rotation([one.work for one in self._bound], tuple(self._bound))

    def _check_room(self) -> None:
        free, _ = self._cuda.free_memory(self._first._index)
        needed = (self.sets - 1) * self.set_bytes
        if needed > 0.95 * free:
            raise OutOfMemory(
                f"{self.spec.name}: {self.sets} sets need {needed / 2**20:.0f} MiB, {free / 2**20:.0f} MiB are free"
            )

    def _copy(self, held: Mapping[str, OperandBuffer]) -> dict[str, OperandBuffer]:
        index, made = self._first._index, {}
        for name, one in held.items():
            size = one.buffer.size_bytes
            fresh = self._cuda.Buffer(index, size)
            if size:
                work = self._cuda.timing.copy(index, fresh.address, one.buffer.address, size, "d2d", (fresh, one))
                core.WallClock().sample(work, np.ones(1, np.int64))
            made[name] = OperandBuffer(fresh, one.dtype, one.count)
        self._cuda.synchronize(index)
        return made

    def _bind(self, held: dict[str, OperandBuffer]) -> Any:
        first = self._first
        if first._form.bind:
            addresses = {name: one.buffer.address for name, one in held.items()}
            return first._form.bind(self.problem, self.execution, self.device, addresses)
        assert first._launch is not None
        return bind(first._launch, held, first._index, self._cuda)

    @property
    def work(self) -> Any:
        """One run is one launch on the next set."""
        return self._work

    @property
    def facts(self) -> Mapping[str, Any]:
        """The kernel's own, with the number of sets."""
        return {**self._first.facts, "sets": self.sets, "set_bytes": self.set_bytes}

    def verify(self) -> Check:
        """The first set as the kernel is always checked; every other one must hold the same outputs, bit by bit."""
        check = self._first.verify()
        form = self._first._form
        changed = [one for one in operands_of(self.spec, form) if one.role != "in"]
        for held in self._operands[1:]:
            for one in changed:
                if one.role == "out":
                    held[one.name].buffer.fill(POISON)
        core.WallClock().sample(self._work, np.array([self.sets], np.int64))
        self._cuda.synchronize(self._first._index)
        if all(one.role == "out" for one in changed):  # what is changed in place differs by its number of runs
            for held in self._operands[1:]:
                self._compare({one.name: held[one.name] for one in changed})
        return check

    def _compare(self, held: Mapping[str, OperandBuffer]) -> None:
        for name, one in held.items():
            wanted = self._operands[0][name].buffer.download()
            got = one.buffer.download()
            wrong = np.flatnonzero(wanted != got)
            if len(wrong):
                at = int(wrong[0])
                raise VerificationError(f"{self.spec.name} ({name})", at, float(wanted[at]), float(got[at]), 0.0)

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """The first set's."""
        return self._first.outputs()

    def close(self) -> None:
        """Let go of all sets."""
        self._work = None
        self._bound, self._operands = [], []
        self._first.close()
