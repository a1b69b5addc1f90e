"""What the peak kernels of a GPU must leave behind, in closed form, for every thread.

The kernels (csrc/kernels/peak*.cuh) take operands from 1,024 words of seeds, word (thread + 32 i) % 1024 for the i-th
(chains: pair (thread + 32 i) % 512), so results repeat every 1,024 threads (512; wgmma and tcgen05: every 32 blocks)
and only that many are computed here. Sums that the hardware makes exactly must be met exactly; others carry a bound,
stated beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..spec import Check
from . import formats

WORDS = 1024  # kSeedWords
UNROLL = 16  # kUnroll: steps of a chain in a trip
CHAINS = {"float64": 8}  # of a thread; 16 words where not named
TILE_UNROLL = 128  # kWgmmaUnroll, kTcgen05Unroll
TILE_PARTS = 2

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Known:
    """The sums of the first threads, and how far a result may lie from each."""

    sums: _Array
    bound: _Array


@dataclass(frozen=True)
class Fragment:
    """What mma.sync takes at once for a dtype: csrc/kernels/ptx_mma.cuh has the layout."""

    k: int
    left: int = 4  # registers of a
    right: int = 2
    accumulators: int = 8  # of a warp, kSums
    unroll: int = 16  # products into each of them in a trip, kUnroll
    cancels: bool = False  # every product is taken back by the next, one remains
    # Relative error of one accumulation, at most. Tensor cores add in 24 bits or more and cut off: Fasi, Higham,
    # Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7, 2021.
    roundoff: float = 2.0**-22


FRAGMENTS = {
    "float16": Fragment(16),
    "bfloat16": Fragment(16),
    "tf32": Fragment(8),
    "float8_e4m3fn": Fragment(32, unroll=32, cancels=True, roundoff=0.0),
    "int8": Fragment(32, roundoff=0.0),
    "float64": Fragment(16, left=8, right=4, accumulators=4, unroll=24, roundoff=2.0**-52),
}
HALF_SUMS = Fragment(16, cancels=True, roundoff=0.0)  # float16 products summed in float16


def elements_per_word(dtype: str) -> int:
    """Elements of a word of seeds: 32 bits, 64 for float64."""
    return max(1, 4 // formats.stored(dtype).itemsize)


def _values(seeds: _Array, dtype: str) -> _Array:
    """One row a word: float64 of its elements, int64 for integers."""
    plain = seeds.astype(np.int64) if dtype in ("int8", "int32") else formats.decode(seeds, dtype)
    return plain.reshape(WORDS, elements_per_word(dtype))


def _take(values: _Array, i: int) -> _Array:
    """The i-th word of each of the first threads."""
    return np.roll(values, -32 * i, axis=0)


def fma_chains(seeds: _Array, dtype: str, steps: int) -> Known:
    """x = a x + b and x = -a x + b in turn, from peak.cuh: two of them are x = -a^2 x + (1 - a) b.

    Bound of a float chain: a step adds at most a roundoff of |x| <= |x(0)| + |b| / (1 - |a|), and |a| of it lives on.
    """
    pairs, count = _values(seeds, dtype).reshape(WORDS // 2, 2, -1), CHAINS.get(dtype, 16)
    if dtype == "int32":
        return _integer_chains(pairs[..., 0].astype(np.uint32), count, steps)
    wide = np.longdouble if dtype == "float64" else np.float64
    pairs = pairs.astype(wide)
    narrow = formats.encode(np.clip(pairs[:, 0] * 0.25, -0.875, 0.875), dtype)
    a = formats.decode(narrow, dtype).astype(wide)
    total, size, error = (np.zeros(a.shape, wide) for _ in range(3))
    smallest = 2.0**-24 if dtype == "float16" else 0.0  # where halves stop getting finer
    for chain in range(count):
        taken = _take(pairs, 1 + chain)
        start, b = taken[:, 0], taken[:, 1]
        rest = b * (1 - a) / (1 + a * a)
        x = rest + (-a * a) ** (steps * UNROLL // 2) * (start - rest)
        largest = np.abs(start) + np.abs(b) / (1 - np.abs(a))
        total, size = total + x, size + np.abs(x)
        error += (formats.roundoff(dtype) * largest + smallest) / (1 - np.abs(a))
    adds = formats.roundoff("float64" if dtype == "float64" else "float32") * count * a.shape[1]
    return Known(total.sum(1), 2 * (error + adds * size).sum(1))


def _integer_chains(pairs: _Array, count: int, steps: int) -> Known:
    """Modulo 2^32, so exact: the map of two steps, applied by repeated squaring."""
    a = pairs[:, 0] | (pairs[:, 0] != 0).astype(np.uint32)
    total = np.zeros(len(pairs), np.uint32)
    for chain in range(count):
        taken = _take(pairs, 1 + chain)
        x, b = taken[:, 0], taken[:, 1]
        factor, term = np.uint32(0) - a * a, b - a * b
        left = steps * UNROLL // 2
        while left:
            if left % 2:
                x = factor * x + term
            factor, term, left = factor * factor, factor * term + term, left // 2
        total += x
    return Known(total.view(np.int32), np.zeros(len(pairs)))


def dot_sums(seeds: _Array, dtype: str, steps: int) -> Known:
    """Sums of a . b of four bytes, modulo 2^32: exact."""
    values = _values(seeds, dtype)
    b = _take(values, 0) + _take(values, 1)
    dots = sum((_take(values, 2 + chain) * b).sum(1) for chain in range(16))
    return Known(_wrapped(steps * UNROLL // 2 * np.asarray(dots)), np.zeros(WORDS))


def mma_sums(seeds: _Array, dtype: str, steps: int, fragment: Fragment | None = None) -> Known:
    """The accumulators of peak_mma.cuh.

    Bound where sums round: every accumulation may lose `roundoff` of what the magnitudes have summed up to by the end.
    """
    part = fragment or FRAGMENTS[dtype]
    lanes = _values(seeds, dtype).reshape(WORDS // 32, 8, 4, -1)  # warp, g, t, element
    per_word = lanes.shape[-1]

    def word(i: int) -> _Array:
        return np.roll(lanes, -i, axis=0)

    def matrix(first: int, registers: int, rows: int) -> _Array:
        made = np.zeros((lanes.shape[0], rows, part.k), lanes.dtype)
        blocks = rows // 8
        for i in range(registers):
            row, k = i % blocks * 8, i // blocks * 4 * per_word
            made[:, row : row + 8, k : k + 4 * per_word] = word(first + i).reshape(-1, 8, 4 * per_word)
        return made

    a = [matrix(j * part.left, part.left, 16) for j in range(2)]
    b = [matrix(2 * part.left + c * part.right, part.right, 8) for c in range(part.accumulators)]

    def threads(use: Callable[[_Array], _Array]) -> _Array:
        total = np.zeros((lanes.shape[0], 16, 8), lanes.dtype)
        for c in range(part.accumulators):
            for u in range(1 if part.cancels else part.unroll):
                source = b[c % (part.accumulators // 2)] if part.cancels else b[(c + u) % part.accumulators]
                total += np.einsum("wik,wjk->wij", use(a[u % 2]), use(source))
        sums: _Array = total.reshape(-1, 2, 8, 4, 2).sum((1, 4)).reshape(-1)
        return sums * (1 if part.cancels else steps)

    return _known(threads(lambda x: x), threads(np.abs), dtype, part, steps * part.unroll, part.accumulators * 4)


def _known(sums: _Array, magnitudes: _Array, dtype: str, part: Fragment, products: int, addends: int) -> Known:
    if dtype == "int8":
        return Known(_wrapped(sums), np.zeros(len(sums)))
    if part.cancels:
        return Known(sums, np.zeros(len(sums)))
    adds = formats.roundoff("float64" if dtype == "float64" else "float32") * addends
    return Known(sums, (products * part.roundoff + adds) * magnitudes)


def _wrapped(sums: _Array) -> _Array:
    return sums.astype(np.int64).astype(np.uint32).view(np.int32)


def _tiles(seeds: _Array, dtype: str, operand: int, rows: int) -> list[_Array]:
    """The parts of an operand tile, one (32 blocks, rows, k) array each: peak_wgmma.cuh's tile_word and its layout."""
    values = _values(seeds, dtype)
    i = np.arange(rows * 16)
    word = i + 37 * (i // WORDS) + 512 * operand + 32 * np.arange(32)[:, None]
    raw = values[word % WORDS].reshape(32, rows // 8, 4, 8, -1)  # block, group of 8 rows, 16 bytes of k, row, element
    flat = raw.transpose(0, 1, 3, 2, 4).reshape(32, rows, -1)
    return np.split(flat, TILE_PARTS, axis=2)


def _products(seeds: _Array, dtype: str, rows: int, use: Callable[[_Array], _Array]) -> list[_Array]:
    left, right = _tiles(seeds, dtype, 0, rows), _tiles(seeds, dtype, 1, 256)
    return [
        use(a).astype(np.float64) @ use(b).astype(np.float64).transpose(0, 2, 1)
        for a, b in zip(left, right, strict=True)
    ]


def wgmma_sums(seeds: _Array, dtype: str, steps: int) -> Known:
    """The accumulators of peak_wgmma.cuh: 32 blocks of two warpgroups that do the same."""
    part = FRAGMENTS[dtype]

    def threads(use: Callable[[_Array], _Array]) -> _Array:
        first, second = _products(seeds, dtype, 64, use)
        d = first if part.cancels else steps * TILE_UNROLL // 2 * (first + second)
        warpgroup = d.reshape(32, 4, 2, 8, 32, 4, 2).sum((2, 4, 6)).reshape(32, 1, 128)
        return np.repeat(warpgroup, 2, axis=1).reshape(-1)

    return _known(threads(lambda x: x), threads(np.abs), dtype, part, steps * TILE_UNROLL, 128)


def tcgen05_sums(seeds: _Array, dtype: str, steps: int) -> Known:
    """The two results of peak_tcgen05.cuh: 32 blocks of 128 threads with a row each."""
    part = FRAGMENTS[dtype]

    def threads(use: Callable[[_Array], _Array]) -> _Array:
        first, second = _products(seeds, dtype, 128, use)
        grown = 0.0 if part.cancels else steps * TILE_UNROLL // 2 * (first + second)
        return np.asarray((2 * first + grown).sum(2)).reshape(-1)

    return _known(threads(lambda x: x), threads(np.abs), dtype, part, steps * TILE_UNROLL // 2 + 1, 512)


def judge(kernel: str, out: _Array, known: Known) -> Check:
    """Hold every thread's sum to what is known. Raises VerificationError for the worst beyond its bound."""
    repeated = np.arange(out.size) % known.sums.size
    expected, bound = known.sums[repeated], known.bound[repeated]
    wrong = np.abs(out.astype(expected.dtype) - expected) if out.dtype.kind == "f" else (out != expected).astype(float)
    excess = np.where(np.isnan(wrong), np.inf, wrong) - bound
    worst = int(np.argmax(excess)) if out.size else 0
    if out.size and excess[worst] > 0:
        raise VerificationError(kernel, worst, float(expected[worst]), float(out[worst]), float(bound[worst]))
    return Check(True, float(wrong.max(initial=0)), float(bound.max(initial=0)), "closed form in float64", out.size)
