"""Whether C is A B: against a product in float64, every element or, for a large problem, some rows and all sums.

Two bounds. An element may be off by gamma_(k+1) of the sums' roundoff times the norms of its row and column, which
holds for any order of summing (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1), plus half a unit of the
result's last place. The whole, in the Frobenius norm, may be off by what roundings that are not all alike add up to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import VerificationError
from ..spec import Check, KernelSpec, Problem
from . import formats

MOST_PRODUCTS = 1 << 30  # m n k up to which every element is compared: about a second of a core
SAMPLED_ROWS = 64
_BLOCK = 1 << 22  # elements that are decoded at a time
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
class _Matrix:
    """A matrix as stored; `transposed`: it lies in memory column by column."""

    raw: _Stored
    dtype: str
    rows: int
    columns: int
    transposed: bool = False

    def part(self, rows: Any) -> _Float:
        """Some rows in float64."""
        if self.transposed:
            lying: _Float = formats.decode(self.raw.reshape(self.columns, self.rows)[:, rows], self.dtype).T
            return lying
        return formats.decode(self.raw.reshape(self.rows, self.columns)[rows], self.dtype)

    def blocks(self) -> Iterator[tuple[slice, _Float]]:
        """All rows, a few at a time."""
        step = max(1, _BLOCK // max(1, self.columns))
        for start in range(0, self.rows, step):
            rows = slice(start, min(start + step, self.rows))
            yield rows, self.part(rows)

    def times(self, vector: _Float) -> _Float:
        """This matrix times a column."""
        return np.concatenate([block @ vector for _, block in self.blocks()])

    def under(self, vector: _Float) -> _Float:
        """A row times this matrix."""
        return sum((vector[rows] @ block for rows, block in self.blocks()), np.zeros(self.columns))

    def norms(self) -> tuple[_Float, _Float]:
        """Of each row and of each column."""
        rows, columns = [], np.zeros(self.columns)
        for _, block in self.blocks():
            rows.append(np.linalg.norm(block, axis=1))
            columns += np.einsum("ij,ij->j", block, block)
        return np.concatenate(rows), np.sqrt(columns)


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
    m, n, k, dtype = problem["m"], problem["n"], problem["k"], problem.dtype
    c = _Matrix(operands["c"], result_dtype(dtype), m, n)
    a = _Matrix(operands["a"], dtype, m, k)
    b = _Matrix(operands["b"], dtype, k, n, dtype in TRANSPOSED_B)
    allowed = bounds(dtype, k)
    if m * n * k <= MOST_PRODUCTS:
        return _compare_rows(spec.name, c, a, b, allowed, np.arange(m), "float64")
    _compare_sums(spec.name, c, a, b, allowed)
    rows = np.unique(np.linspace(0, m - 1, min(m, SAMPLED_ROWS)).astype(np.int64))
    reference = f"float64 ({len(rows)} rows), signed sums of every row and column in float64"
    found = _compare_rows(spec.name, c, a, b, allowed, rows, reference)
    return Check(found.passed, found.worst, found.bound, reference, m * n)


def _compare_rows(
    kernel: str, c: _Matrix, a: _Matrix, b: _Matrix, allowed: _Bounds, rows: npt.NDArray[np.int64], reference: str
) -> Check:
    """Every element of these rows, and all of them in the Frobenius norm."""
    got, left, right = c.part(rows), a.part(rows), b.part(slice(0, b.rows))
    want = left @ right
    size = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=0))
    bound = allowed.element * size + allowed.result * np.abs(want) * (1 + allowed.element) + allowed.tiny
    error = np.abs(got - want)
    wrong = ~(error <= bound)  # NaN, which is what was never written, is wrong
    if wrong.any():
        i, j = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        at = int(rows[i]) * c.columns + int(j)
        raise VerificationError(kernel, at, float(want[i, j]), float(got[i, j]), float(bound[i, j]))
    worst = int(np.argmax(error))
    scale = max(float(np.linalg.norm(want)), float(np.linalg.norm(size)) / np.sqrt(a.columns))
    most = 2 * allowed.whole * scale + allowed.tiny * np.sqrt(want.size)
    if not np.linalg.norm(error) <= most:
        at = int(rows[worst // c.columns]) * c.columns + worst % c.columns
        raise VerificationError(kernel, at, float(want.flat[worst]), float(got.flat[worst]), float(most))
    return Check(True, float(error.flat[worst]), float(bound.flat[worst]), reference, int(want.size))


def _compare_sums(kernel: str, c: _Matrix, a: _Matrix, b: _Matrix, allowed: _Bounds) -> None:
    """Freivalds: C y = A (B y) and x C = (x A) B for random signs, in every row and column."""
    random = np.random.default_rng(1979)
    y, x = (random.choice(np.array([-1.0, 1.0]), size) for size in (c.columns, c.rows))
    rows_a, columns_a = a.norms()
    rows_b, columns_b = b.norms()
    rows_c, columns_c = c.norms()
    root = np.sqrt(a.columns)

    def compare(got: _Float, want: _Float, size: _Float, place: Callable[[int], int]) -> None:
        bound = _SIGMAS * (allowed.whole * size + allowed.tiny * np.sqrt(max(c.rows, c.columns)))
        bound += 2.0**-50 * a.columns * size  # of the sums in float64 themselves
        wrong = ~(np.abs(got - want) <= bound)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise VerificationError(kernel, place(at), float(want[at]), float(got[at]), float(bound[at]))

    compare(
        c.times(y), a.times(b.times(y)), np.maximum(rows_c, rows_a * np.linalg.norm(rows_b) / root),
        lambda row: row * c.columns,
    )  # fmt: skip
    compare(
        c.under(x), b.under(a.under(x)), np.maximum(columns_c, columns_b * np.linalg.norm(columns_a) / root),
        lambda column: column,
    )  # fmt: skip
