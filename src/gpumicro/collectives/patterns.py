"""What the ranks send and what must arrive: chosen so that no operator overflows or rounds, hence compared exactly.

Each rank's data repeat a row of `PERIOD` numbers that is its own. The period is a prime: data that arrive in the wrong
place differ, since the pieces in which collectives move data are no multiples of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .operations import Collective, Counts

Array = npt.NDArray[Any]
PERIOD = 8191
_MOST_VALUES = 64  # different values in a sum


def check_exact(op: str, dtype: str, ranks: int) -> None:
    """UsageError where no data would keep the reduction exact and still tell the ranks apart."""
    if op == "sum" and dtype == "int8" and ranks > 127:
        raise UsageError(f"a sum of int8 over {ranks} ranks overflows whatever is sent; take int32")


def row(rank: int, op: str, dtype: str, ranks: int) -> Array:
    """PERIOD numbers that this rank sends again and again."""
    return _whole(rank, op, ranks).astype(dtype)


def reduced(op: str, dtype: str, ranks: int) -> Array:
    """PERIOD numbers: what the operator makes of all ranks' rows. Exact, as the rows are small whole numbers."""
    found = _whole(0, op, ranks)
    combine = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    for rank in range(1, ranks):
        found = combine(found, _whole(rank, op, ranks))
    return found.astype(dtype)


def _whole(rank: int, op: str, ranks: int) -> npt.NDArray[np.int64]:
    bits = _hash(rank)
    if op == "sum":  # from 0; the greatest sum fits into an int8
        return _below(bits, max(2, min(_MOST_VALUES, 127 // ranks + 1)))
    if op == "prod":  # one rank gives a 3, the others a sign
        own = np.arange(PERIOD) % ranks == rank
        return _integers((2 * _below(bits, 2) - 1) * np.where(own, 3, 1))
    return _integers(_below(bits, 128) - 64)


def _below(bits: npt.NDArray[np.uint64], limit: int) -> npt.NDArray[np.int64]:
    """Numbers from 0 to below the limit."""
    return _integers(bits % np.uint64(limit))


def _integers(values: Array) -> npt.NDArray[np.int64]:
    return values.astype(np.int64)


def _hash(rank: int) -> npt.NDArray[np.uint64]:
    """Well mixed bits of (rank, place): the finaliser of SplitMix64."""
    x = np.arange(1, PERIOD + 1, dtype=np.uint64) + np.uint64(rank) * np.uint64(PERIOD)
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the received data: `count` numbers of a row that repeats, from `phase` on."""

    count: int
    row: Array
    phase: int = 0

    def wrong(self, data: Array) -> int:
        """How many of `data[:count]` are not what they must be. NaN is wrong."""
        turned = np.roll(self.row, -(self.phase % PERIOD))
        whole = self.count // PERIOD * PERIOD
        bad = sum(
            int(np.count_nonzero(block != turned))
            for start in range(0, whole, 128 * PERIOD)
            for block in (data[start : min(start + 128 * PERIOD, whole)].reshape(-1, PERIOD),)
        )
        return bad + int(np.count_nonzero(data[whole : self.count] != turned[: self.count - whole]))


def fill(data: Array, values: Array) -> None:
    """Repeat a row over an array, in place."""
    whole = len(data) // PERIOD * PERIOD
    data[:whole].reshape(-1, PERIOD)[:] = values
    data[whole:] = values[: len(data) - whole]


def expected(kind: Collective, counts: Counts, op: str, dtype: str, rank: int, ranks: int, root: int) -> list[Piece]:
    """The pieces that must lie, one after the other, in this rank's result; none where it receives nothing."""

    def of(sender: int) -> Array:
        return row(sender, op, dtype, ranks)

    share, name = counts.share, kind.name
    if kind.rooted and name not in ("broadcast", "scatter") and rank != root:
        return []
    if name in ("all_reduce", "reduce"):
        return [Piece(share, reduced(op, dtype, ranks))]
    if name == "reduce_scatter":
        return [Piece(share, reduced(op, dtype, ranks), rank * share)]
    if name == "broadcast":
        return [Piece(share, of(root))]
    if name == "scatter":
        return [Piece(share, of(root), rank * share)]
    if name == "sendrecv":
        return [Piece(share, of((rank - 1) % ranks))]
    if name in ("all_gather", "gather"):
        return [Piece(share, of(sender)) for sender in range(ranks)]
    if name == "alltoall":
        return [Piece(share, of(sender), rank * share) for sender in range(ranks)]
    return []
