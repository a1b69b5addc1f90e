"""Where the data of one case lie on one rank, and the host's memory for them: filled, poisoned and checked."""

from __future__ import annotations

import numpy as np

from .patterns import Array, expected, fill, poison, row
from .ranks import Case


class Layout:
    """What one rank sends and what must arrive, in elements; in place all of it lies in the buffer of the result.

    `own_start`, `own_count`: the rank's data; count 0 where it gives none. `result_start`: where the result begins.
    MPI puts a share of an in-place reduce_scatter first, NCCL (`nccl`) at its place among all.
    """

    def __init__(self, case: Case, rank: int, size: int, *, nccl: bool = False) -> None:
        self.case, self.rank, self.size = case, rank, size
        name, at_root, share = case.kind.name, rank == case.root, case.counts.share
        among_all = rank * share if case.in_place else 0
        gathers = name == "all_gather" or (name == "gather" and at_root)
        scatters = (name == "scatter" and at_root) or (name == "reduce_scatter" and nccl)
        silent = case.in_place and case.kind.rooted and not at_root and name not in ("reduce", "gather")
        self.own_start = among_all if gathers else 0
        self.own_count = 0 if silent else case.counts.send
        self.result_start = among_all if scatters else 0
        self.values = row(rank, case.op, case.dtype, size)
        self.pieces = expected(case.kind, case.counts, case.op, case.dtype, rank, size, case.root)


class HostBuffers:
    """Two arrays of the largest case, used from their start by every case: pages are touched once."""

    def __init__(self, dtype: str, elements: int) -> None:
        self.send: Array = np.ones(elements, dtype=dtype)
        self.receive: Array = np.ones(elements, dtype=dtype)

    def fill(self, layout: Layout) -> None:
        """The data to send, and poison wherever a result must come."""
        case, start = layout.case, layout.own_start
        self.receive[: case.counts.shown].view(np.uint8)[:] = poison(case.dtype)
        fill((self.receive if case.in_place else self.send)[start : start + layout.own_count], layout.values)

    def wrong(self, layout: Layout) -> int:
        """Elements of the result that are not what they must be, on this rank."""
        start, found = layout.result_start, 0
        for piece in layout.pieces:
            found += piece.wrong(self.receive[start : start + piece.count])
            start += piece.count
        return found
