"""Whether C is A B: against a product in float64, every element or, for a large problem, some rows and all sums.

Two bounds. An element may be off by gamma_(k+1) of the sums' roundoff times the norms of its row and column, which
holds for any order of summing (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1), plus half a unit of the
result's last place. The whole, in the Frobenius norm, may be off by what roundings that are not all alike add up to.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..spec import Check, KernelSpec, Problem
from . import formats
from .parts import each_part, slices

MOST_PRODUCTS = 1 << 30  # m n k up to which every element is compared: a fraction of a second
SAMPLED_ROWS = 64
_PART = 1 << 17  # elements that a thread decodes at a time
_SIGMAS = 6.0  # of a signed sum of errors

# Roundoff of the sums. Tensor cores cut off what does not fit instead of rounding; those of Hopper keep about 14 bits
# of a sum of fp8 products (arXiv 2412.19437, 3.3.2).
_SUMS: Mapping[str, float] = {
    "float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-23, "float16": 2.0**-23, "bfloat16": 2.0**-23,
    "float8_e4m3fn": 2.0**-13, "int8": 0.0,
}  # fmt: skip
# What a product has other than its operands' type, as csrc/kernels/gemm_store.cuh and csrc/cuda/cublaslt.cpp make it.
RESULTS: Mapping[str, str] = {"tf32": "float32", "int8": "int32", "float8_e4m3fn": "bfloat16"}
# cuBLASLt has these only with both operands' k contiguous: b holds B transposed, n x k.
TRANSPOSED_B = ("int8", "float8_e4m3fn")

_Float = npt.NDArray[np.float64]
_Stored = npt.NDArray[np.generic]


def result_dtype(dtype: str) -> str:
    """The type of C for operands of `dtype`."""
    return RESULTS.get(dtype, dtype)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What one walk over a matrix finds: its product with a column, that of a row with it, and the norms."""

    times: _Float
    under: _Float
    row_norms: _Float
    column_norms: _Float


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix as stored; `transposed`: it lies in memory column by column."""

    raw: _Stored
    dtype: str
    rows: int
    columns: int
    transposed: bool = False

    def _lying(self) -> tuple[_Stored, int]:
        """As it lies in memory, and how many of its rows make a part."""
        shape = (self.columns, self.rows) if self.transposed else (self.rows, self.columns)
        return self.raw.reshape(shape), max(1, _PART // max(1, shape[1]))

    def part(self, rows: npt.NDArray[np.int64]) -> _Float:
        """Some rows in float64."""
        assert not self.transposed  # B alone is, of which no rows are asked
        return formats.decode(self._lying()[0][rows], self.dtype)

    def sums(self, column: _Float, row: _Float) -> _Sums:
        """This matrix times a column, a row times this matrix, and the norms of its rows and columns.

        By einsum, not by BLAS: this runs on threads of its own, which would wait for each other at BLAS's.
        """
        lying, step = self._lying()
        right, left = (row, column) if self.transposed else (column, row)

        def walk(part: slice) -> tuple[_Float, _Float, _Float, _Float]:
            block = formats.decode(lying[part], self.dtype)
            times, under = np.einsum("ij,j->i", block, right), np.einsum("i,ij->j", left[part], block)
            np.square(block, out=block)
            return times, under, block.sum(axis=1), block.sum(axis=0)

        times, under, of_rows, of_columns = zip(*each_part(lying.shape[0], walk, step), strict=True)
        found = (np.concatenate(times), sum(under), np.sqrt(np.concatenate(of_rows)), np.sqrt(sum(of_columns)))
        return _Sums(found[1], found[0], found[3], found[2]) if self.transposed else _Sums(*found)

    def after(self, left: _Float) -> _Float:
        """left times this matrix, by BLAS and its threads."""
        lying, step = self._lying()
        product = np.zeros((left.shape[0], self.columns))
        for part in slices(lying.shape[0], 16 * step):  # enough for a matrix product to be worth its name
            block = formats.decode(lying[part], self.dtype)
            if self.transposed:
                product[:, part] = left @ block.T
            else:
                product += left[:, part] @ block
        return product


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What errors may be, of operands whose rows and columns have these norms."""

    element: float  # times both norms
    whole: float  # relative, of many elements
    result: float  # relative, of the final rounding
    tiny: float  # what underflows


def bounds(dtype: str, k: int) -> _Bounds:
    """For inner products of length k. fp64 is held against fp64, whose own error counts too."""
    result = result_dtype(dtype)
    roundoff = _SUMS[dtype] * (2 if dtype == "float64" else 1)
    share = (k + 1) * roundoff
    gamma = share / (1 - share) if share < 0.5 else 1.0
    tiny = {"float64": 2.0**-1022, "float16": 2.0**-24}.get(result, 2.0**-126)
    last = formats.roundoff(result) if result in ("float16", "bfloat16") else 0.0  # the others are what is summed in
    return _Bounds(gamma, roundoff * (8 * np.sqrt(k) + k / 4) + last, last, 0.0 if dtype == "int8" else tiny)


def check(spec: KernelSpec, problem: Problem, operands: Mapping[str, _Stored]) -> Check:
    """Compare c with the product of a and b. Raises VerificationError."""
    c = _Matrix(operands["c"], result_dtype(problem.dtype), problem["m"], problem["n"])
    known = _known(problem, operands["a"], operands["b"])
    allowed = bounds(problem.dtype, problem["k"])
    if known.sums is None:
        return _compare_rows(spec.name, c, known, allowed, problem["k"], "float64")
    _compare_sums(spec.name, c, known.sums, allowed, problem["k"])
    reference = f"float64 ({len(known.rows)} rows), signed sums of every row and column in float64"
    found = _compare_rows(spec.name, c, known, allowed, problem["k"], reference)
    return Check(found.passed, found.worst, found.bound, reference, c.rows * c.columns)


# --- what is known of a product, from its operands alone ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SignedSums:
    """Of A B: its products with random signs, y right of it and x left of it, and how large its sums are."""

    y: _Float
    x: _Float
    times: _Float  # A (B y)
    under: _Float  # (x A) B
    row_size: _Float
    column_size: _Float


@dataclass(frozen=True, slots=True)
class _Known:
    """Some rows of A B, the norms' product for each element, and the signed sums where these are not all rows."""

    rows: npt.NDArray[np.int64]
    want: _Float
    size: _Float
    sums: _SignedSums | None


_last: tuple[Problem, weakref.ref[_Stored], weakref.ref[_Stored], _Known] | None = None


def _known(problem: Problem, a: _Stored, b: _Stored) -> _Known:
    """What is known of A B. The GEMMs of a group share their operands: it is kept for arrays that can't change."""
    global _last
    last = _last
    if last is not None and last[0] == problem and last[1]() is a and last[2]() is b:
        return last[3]
    found = _find_out(problem, a, b)
    if not (a.flags.writeable or b.flags.writeable):
        _last = (problem, weakref.ref(a), weakref.ref(b), found)
    return found


def _find_out(problem: Problem, raw_a: _Stored, raw_b: _Stored) -> _Known:
    m, n, k, dtype = problem["m"], problem["n"], problem["k"], problem.dtype
    a = _Matrix(raw_a, dtype, m, k)
    b = _Matrix(raw_b, dtype, k, n, dtype in TRANSPOSED_B)
    random = np.random.default_rng(1979)
    y, x = (random.choice(np.array([-1.0, 1.0]), size) for size in (n, m))
    nothing = np.zeros(k)
    of_a, of_b = a.sums(nothing, x), b.sums(y, nothing)
    few = m * n * k > MOST_PRODUCTS
    rows = np.unique(np.linspace(0, m - 1, min(m, SAMPLED_ROWS)).astype(np.int64)) if few else np.arange(m)
    want = b.after(a.part(rows))
    size = np.outer(of_a.row_norms[rows], of_b.column_norms)
    if not few:
        return _Known(rows, want, size, None)
    sums = _SignedSums(
        y, x, a.sums(of_b.times, x).times, b.sums(y, of_a.under).under,
        of_a.row_norms * np.linalg.norm(of_b.row_norms) / np.sqrt(k),
        of_b.column_norms * np.linalg.norm(of_a.column_norms) / np.sqrt(k),
    )  # fmt: skip
    return _Known(rows, want, size, sums)


# --- comparing ------------------------------------------------------------------------------------------------------


def _compare_rows(kernel: str, c: _Matrix, known: _Known, allowed: _Bounds, k: int, reference: str) -> Check:
    """Every element of the known rows, and all of them in the Frobenius norm."""
    got, want, rows = c.part(known.rows), known.want, known.rows
    bound = allowed.element * known.size + allowed.result * np.abs(want) * (1 + allowed.element) + allowed.tiny
    error = np.abs(got - want)
    wrong = ~(error <= bound)  # NaN, which is what was never written, is wrong
    if wrong.any():
        i, j = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        at = int(rows[i]) * c.columns + int(j)
        raise VerificationError(kernel, at, float(want[i, j]), float(got[i, j]), float(bound[i, j]))
    worst = int(np.argmax(error))
    scale = max(float(np.linalg.norm(want)), float(np.linalg.norm(known.size)) / np.sqrt(k))
    most = 2 * allowed.whole * scale + allowed.tiny * np.sqrt(want.size)
    if not np.linalg.norm(error) <= most:
        at = int(rows[worst // c.columns]) * c.columns + worst % c.columns
        raise VerificationError(kernel, at, float(want.flat[worst]), float(got.flat[worst]), float(most))
    return Check(True, float(error.flat[worst]), float(bound.flat[worst]), reference, int(want.size))


def _compare_sums(kernel: str, c: _Matrix, known: _SignedSums, allowed: _Bounds, k: int) -> None:
    """Freivalds: C y = A (B y) and x C = (x A) B for random signs, in every row and column."""
    found = c.sums(known.y, known.x)

    def compare(got: _Float, want: _Float, size: _Float, place: Callable[[int], int]) -> None:
        bound = _SIGMAS * (allowed.whole * size + allowed.tiny * np.sqrt(max(c.rows, c.columns)))
        bound += 2.0**-50 * k * size  # of the sums in float64 themselves
        wrong = ~(np.abs(got - want) <= bound)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise VerificationError(kernel, place(at), float(want[at]), float(got[at]), float(bound[at]))

    compare(found.times, known.times, np.maximum(found.row_norms, known.row_size), lambda row: row * c.columns)
    compare(found.under, known.under, np.maximum(found.column_norms, known.column_size), lambda column: column)
