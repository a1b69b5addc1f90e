"""What the ranks send and what must arrive: chosen so that no operator overflows or rounds, hence compared exactly.

Each rank's data repeat a row of `PERIOD` numbers that is its own. The period is a prime: data that arrive in the wrong
place differ, since the pieces in which collectives move data are no multiples of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels import formats
from .operations import Collective, Counts

Array = npt.NDArray[Any]
PERIOD = 8191
_MOST_VALUES = 64  # different values of a rank
# 2**digits: up to there a type has every whole number
_MOST_WHOLE = {"int8": 127, "float16": 1 << 11, "bfloat16": 1 << 8, "float8_e4m3fn": 1 << 4, "float8_e5m2": 1 << 3}
# the exponent of its smallest number
_SMALLEST = {
    "float64": -1074,
    "float32": -149,
    "float16": -24,
    "bfloat16": -133,
    "float8_e4m3fn": -9,
    "float8_e5m2": -16,
}


def row(rank: int, op: str, dtype: str, ranks: int) -> Array:
    """PERIOD numbers that this rank sends again and again, as the dtype is stored."""
    return _stored(_whole(rank, op, dtype, ranks), dtype)


def reduced(op: str, dtype: str, ranks: int) -> Array:
    """PERIOD numbers, as stored: what the operator makes of all ranks' rows. Exact, as those are small whole numbers;
    an average is the exact one, rounded once."""
    found = _whole(0, op, dtype, ranks)
    combine = {"prod": np.multiply, "min": np.minimum, "max": np.maximum}.get(op, np.add)
    for rank in range(1, ranks):
        found = combine(found, _whole(rank, op, dtype, ranks))
    if op == "avg":
        return _stored(found // ranks if dtype.startswith("int") else found / ranks, dtype)
    return _stored(found, dtype)


def slack(op: str, dtype: str, ranks: int) -> float:
    """How far a correct average may lie from the exact one; 0 for every other operator, and wherever 1/ranks is exact.

    NCCL multiplies each rank's number by the rounded 1/ranks and then adds: 2 roundings, ranks - 1 of the sums, and one
    of the exact average, each at most half a unit of the largest sum.
    """
    if op != "avg" or dtype.startswith("int"):
        return 0.0
    power = ranks.bit_length() - 1
    if ranks == 1 << power and -power >= _SMALLEST[dtype]:
        return 0.0
    largest = _most_whole(dtype) / ranks
    return (ranks + 2) * (formats.roundoff(dtype) * largest + 2.0 ** _SMALLEST[dtype])


def poison(dtype: str) -> int:
    """A byte for where a result must come: repeated it is a number that no pattern sends and no reduction makes."""
    return 0x80 if dtype.startswith("int") else 0xFE


def _stored(values: npt.NDArray[Any], dtype: str) -> Array:
    return formats.encode(values.astype(np.float64), dtype)


def _most_whole(dtype: str) -> int:
    return _MOST_WHOLE.get(dtype, 1 << 24)


def _whole(rank: int, op: str, dtype: str, ranks: int) -> npt.NDArray[np.int64]:
    bits, most = _hash(rank), _most_whole(dtype)
    if op in ("sum", "avg"):  # from 0; no sum of any ranks is above `most`, so none rounds or overflows in any order
        turns = -(-ranks // most)  # where there are more ranks than that, they give something in turns
        active = -(-ranks // turns)
        values = _below(bits, min(_MOST_VALUES, most // active + 1))
        return np.where(np.arange(PERIOD) % turns == rank % turns, values, 0)
    if op == "prod":  # one rank gives a 3, the others a sign
        own = np.arange(PERIOD) % ranks == rank
        return _integers((2 * _below(bits, 2) - 1) * np.where(own, 3, 1))
    reach = min(_MOST_VALUES, most)
    return _integers(_below(bits, 2 * reach) - reach)


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
    """A stretch of the received data: `count` numbers of a row that repeats, from `phase` on, within `slack`."""

    count: int
    row: Array
    phase: int = 0
    dtype: str = "float32"
    slack: float = 0.0

    def wrong(self, data: Array, start: int = 0) -> int:
        """How many of `data`, which begin at the piece's element `start`, are not what they must be. NaN is wrong."""
        turned = np.roll(self.row, -((self.phase + start) % PERIOD))
        count = min(len(data), self.count - start)
        whole = count // PERIOD * PERIOD
        bad = sum(
            self._differing(block, turned)
            for first in range(0, whole, 128 * PERIOD)
            for block in (data[first : min(first + 128 * PERIOD, whole)].reshape(-1, PERIOD),)
        )
        return bad + self._differing(data[whole:count], turned[: count - whole])

    def _differing(self, data: Array, values: Array) -> int:
        if self.slack == 0.0:
            return int(np.count_nonzero(data != values))
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(formats.decode(data, self.dtype) - formats.decode(values, self.dtype))
        return int(np.count_nonzero(~(off <= self.slack)))


def fill(data: Array, values: Array) -> None:
    """Repeat a row over an array, in place."""
    whole = len(data) // PERIOD * PERIOD
    data[:whole].reshape(-1, PERIOD)[:] = values
    data[whole:] = values[: len(data) - whole]


def expected(kind: Collective, counts: Counts, op: str, dtype: str, rank: int, ranks: int, root: int) -> list[Piece]:
    """The pieces that must lie, one after the other, in this rank's result; none where it receives nothing."""

    def of(sender: int, phase: int = 0) -> Piece:
        return Piece(share, row(sender, op, dtype, ranks), phase, dtype)

    def result(phase: int = 0) -> Piece:
        return Piece(share, reduced(op, dtype, ranks), phase, dtype, slack(op, dtype, ranks))

    share, name = counts.share, kind.name
    if kind.rooted and name not in ("broadcast", "scatter") and rank != root:
        return []
    if name in ("all_reduce", "reduce"):
        return [result()]
    if name == "reduce_scatter":
        return [result(rank * share)]
    if name == "broadcast":
        return [of(root)]
    if name == "scatter":
        return [of(root, rank * share)]
    if name == "sendrecv":
        return [of((rank - 1) % ranks)]
    if name in ("all_gather", "gather"):
        return [of(sender) for sender in range(ranks)]
    if name == "alltoall":
        return [of(sender, rank * share) for sender in range(ranks)]
    return []
