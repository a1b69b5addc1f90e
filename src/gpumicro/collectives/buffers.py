"""The data of one case on one rank: laid out, filled, poisoned and checked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .patterns import Array, expected, fill, row
from .ranks import Case, Ranks

POISON = -128  # no pattern sends it, no reduction makes it


class Buffers:
    """Two arrays of the largest case, used from their start by every case: pages are touched once."""

    def __init__(self, dtype: str, elements: int) -> None:
        self.send: Array = np.full(elements, POISON, dtype=dtype)
        self.receive: Array = np.full(elements, POISON, dtype=dtype)


class Loaded:
    """One case on this rank, with the buffers that it runs on."""

    def __init__(self, ranks: Ranks, case: Case, buffers: Buffers) -> None:
        self.case, self.rank, self.size = case, ranks.rank, ranks.size
        self.send, self.receive = buffers.send, buffers.receive
        self.at_root = self.rank == case.root
        self.pieces = expected(case.kind, case.counts, case.op, case.dtype, self.rank, self.size, case.root)
        self.run: Callable[[], object] = ranks.bind(case, self.send, self.receive)

    def fill(self) -> None:
        """The data to send, and poison wherever a result must come."""
        values, counts = row(self.rank, self.case.op, self.case.dtype, self.size), self.case.counts
        self.receive[: counts.shown] = POISON
        if self.case.in_place:
            start = self.rank * counts.share if self._gathers_here() else 0
            if not self.case.kind.rooted or self.at_root or self.case.kind.name in ("reduce", "gather"):
                fill(self.receive[start : start + counts.send], values)
        else:
            fill(self.send[: counts.send], values)

    def _gathers_here(self) -> bool:
        """Whether the rank's own share lies at its place among those of all."""
        return self.case.kind.name == "all_gather" or (self.case.kind.name == "gather" and self.at_root)

    def wrong(self) -> int:
        """Elements of the result that are not what they must be, on this rank."""
        kept = self.case.in_place and self.case.kind.name == "scatter" and self.at_root
        start = self.rank * self.case.counts.share if kept else 0
        found = 0
        for piece in self.pieces:
            found += piece.wrong(self.receive[start : start + piece.count])
            start += piece.count
        return found
