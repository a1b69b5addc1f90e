"""C = A B, all row-major: our own tiled GEMM and the vendor's (the BLAS under NumPy)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..spec import KernelSpec, Operand, Problem


def _reference(_: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # no matmul: the reference must not be the BLAS that is measured
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    product: npt.NDArray[Any] = np.einsum("ik,kj->ij", a.astype(wide), b.astype(wide), optimize=False)
    return product


def growth(k: int, dtype: str) -> float:
    """gamma_(k+1): the error of an inner product of length k is at most this times the product of the magnitudes."""
    roundoff = float(np.finfo(dtype).eps) / 2 * (k + 1)
    return roundoff / (1 - roundoff)


def _spec(name: str, summary: str) -> KernelSpec:
    return KernelSpec(
        name=f"gemm.{name}",
        summary=summary,
        dtypes=("float64", "float32"),
        sizes=("m", "n", "k"),
        operands=(
            Operand("c", "out", lambda p: p["m"] * p["n"]),
            Operand("a", "in", lambda p: p["m"] * p["k"]),
            Operand("b", "in", lambda p: p["k"] * p["n"]),
        ),
        bytes_moved=lambda p: (p["m"] * p["n"] + p["m"] * p["k"] + p["k"] * p["n"]) * p.itemsize,
        traffic="compulsory",
        flops=lambda p: 2 * p["m"] * p["n"] * p["k"],
        reference=_reference,
        unit="FLOP/s",
    )


def cube(size: int, dtype: str = "float64") -> Problem:
    """m = n = k = size."""
    return Problem.of(dtype, m=size, n=size, k=size)


SPECS = (
    _spec("tiled", "C = A B, our packed and tiled one"),
    _spec("vendor", "C = A B, the BLAS under NumPy"),
)
