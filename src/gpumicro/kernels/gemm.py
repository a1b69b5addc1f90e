"""C = A B, all row-major: our own GEMMs and the vendor's (the BLAS under NumPy, cuBLASLt on a GPU).

On a GPU C has the operands' type, but float32 for tf32, int32 for int8 and bfloat16 for fp8; sums are at least float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..spec import ITEMSIZE, GpuForm, KernelSpec, Problem
from . import gemm_gpu
from .gemm_check import result_dtype
from .gemm_vendor import VENDOR


def _reference(_: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # no matmul: the reference must not be the BLAS that is measured
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    product: npt.NDArray[Any] = np.einsum("ik,kj->ij", a.astype(wide), b.astype(wide), optimize=False)
    return product


def growth(k: int, dtype: str) -> float:
    """gamma_(k+1): the error of an inner product of length k is at most this times the product of the magnitudes."""
    roundoff = float(np.finfo(dtype).eps) / 2 * (k + 1)
    return roundoff / (1 - roundoff)


def _bytes(problem: Problem) -> int:
    m, n, k = problem["m"], problem["n"], problem["k"]
    return m * n * ITEMSIZE[result_dtype(problem.dtype)] + (m * k + k * n) * problem.itemsize


def _spec(name: str, summary: str, gpu: GpuForm, *, on_cpu: bool = True) -> KernelSpec:
    return KernelSpec(
        name=f"gemm.{name}",
        summary=summary,
        dtypes=("float64", "float32") if on_cpu else gpu.dtypes,
        sizes=("m", "n", "k"),
        operands=gemm_gpu.operands(),
        bytes_moved=_bytes,
        traffic="compulsory",
        flops=lambda p: 2 * p["m"] * p["n"] * p["k"],
        reference=_reference,
        unit="FLOP/s",
        on_cpu=on_cpu,
        gpu=gpu,
    )


def cube(size: int, dtype: str = "float64") -> Problem:
    """m = n = k = size."""
    return Problem.of(dtype, m=size, n=size, k=size)


SPECS = (
    _spec("tiled", "C = A B, our packed and tiled one", gemm_gpu.TILED),
    _spec("vendor", "C = A B, the BLAS under NumPy; cuBLASLt on a GPU", VENDOR),
    _spec("mma", "C = A B on tensor cores by mma.sync, cp.async and ldmatrix", gemm_gpu.MMA, on_cpu=False),
    _spec("wgmma", "C = A B on Hopper's tensor cores by wgmma and TMA", gemm_gpu.WGMMA, on_cpu=False),
)
