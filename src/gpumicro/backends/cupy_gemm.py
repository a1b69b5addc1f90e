"""C = A B by cuBLAS through CuPy (cublasGemmEx, its own choice of algorithm): the vendor's GEMM of the CuPy backend."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cupy_cuda import calls
from ..cupy_cuda.calls import OnDevice, told
from ..cupy_cuda.found import cupy, first_line
from ..cupy_cuda.memory import current
from ..cupy_cuda.work import Work, destroy_quietly
from ..device import Device
from ..errors import BackendUnavailable
from ..kernels.gemm_check import TRANSPOSED_B
from ..kernels.gemm_gpu import sizes_of
from ..kernels.gpu import needs
from ..spec import Problem

_PLAIN, _TRANSPOSED, _DEFAULT_ALGORITHM = 0, 1, -1


@dataclass(frozen=True, slots=True)
class _Recipe:
    """cudaDataType_t of operands and result, cublasComputeType_t, type of alpha and beta, least capability."""

    operand: int
    result: int
    compute: int
    scalar: type[np.generic]
    needs: tuple[int, int]


# library_types.h and cublas_api.h: CUDA_R_*, CUBLAS_COMPUTE_*
_RECIPES: Mapping[str, _Recipe] = {
    "float64": _Recipe(1, 1, 70, np.float64, (0, 0)),
    "float32": _Recipe(0, 0, 68, np.float32, (0, 0)),
    "tf32": _Recipe(0, 0, 77, np.float32, (8, 0)),
    "float16": _Recipe(2, 2, 68, np.float32, (7, 0)),
    "bfloat16": _Recipe(14, 14, 68, np.float32, (8, 0)),
    "int8": _Recipe(3, 10, 72, np.int32, (7, 5)),
}


def why_not(dtype: str, device: Device) -> str:
    """ "" where cuBLAS has that product and CuPy finds cuBLAS, else the reason."""
    if dtype not in _RECIPES:
        return f"cublasGemmEx has no {dtype}; cuBLASLt has, and CuPy offers no call of it"
    if device.facts.get("emulated"):
        return "cuBLAS drives real GPUs only, and this one is emulated"
    return needs(device, *_RECIPES[dtype].needs) or _no_cublas()


def _no_cublas() -> str:
    try:
        _ = _cublas().gemmEx
    except Exception as error:  # ImportError or CuPy's own, by version
        return f"CuPy finds no cuBLAS ({first_line(error)}); pip install nvidia-cublas, of CuPy's CUDA version"
    return ""


def _cublas() -> Any:
    return cupy().cuda.cublas


class CupyGemm:
    """The product bound to its operands; `work` enqueues and returns.

    Raises CudaError where cuBLAS refuses it, BackendUnavailable without it.
    """

    def __init__(self, problem: Problem, device: Device, addresses: Mapping[str, int]) -> None:
        self.work = _Gemm(problem, device, addresses)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Which library; JSON-ready."""
        version = self.work.version
        return {
            "recipe": f"cuBLAS {version // 10000}.{version // 100 % 100}.{version % 100}",
            "algorithm": "cuBLAS's own choice",
            "b_transposed": self.work.transposed,
        }


class _Gemm(Work):
    call = "cublasGemmEx"

    def __init__(self, problem: Problem, device: Device, addresses: Mapping[str, int]) -> None:
        super().__init__(device.index)
        m, n, k = sizes_of(problem)
        if max(m, n, k) >= 1 << 31:
            raise BackendUnavailable(f"cublasGemmEx takes sizes below 2^31, not {problem}")
        recipe, self._blas = _RECIPES[problem.dtype], _cublas()
        with OnDevice(device.index), told("cublasCreate"):
            # A handle of its own: CuPy's may be set to TF32.
            self._handle = self._blas.create()
            weakref.finalize(self, destroy_quietly, device.index, [(self._blas.destroy, self._handle)])
            self.version = int(self._blas.getVersion(self._handle))
        scalar = np.dtype(recipe.scalar)
        self._alpha, self._beta = (ctypes.create_string_buffer(scalar.type(v).tobytes()) for v in (1, 0))
        self.transposed = problem.dtype in TRANSPOSED_B
        # cuBLAS thinks in columns: row-major C (m x n) is its C^T (n x m) = B^T A^T.
        self._arguments = (
            self._handle, _TRANSPOSED if self.transposed else _PLAIN, _PLAIN, n, m, k,
            ctypes.addressof(self._alpha), addresses["b"], recipe.operand, k if self.transposed else n,
            addresses["a"], recipe.operand, k,
            ctypes.addressof(self._beta), addresses["c"], recipe.result, n,
            recipe.compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip
        self._shape = f"m={m}, n={n}, k={k}"

    def _run(self, n: int) -> None:
        multiply, arguments = self._blas.gemmEx, self._arguments
        calls.note_launch("cublasGemmEx", self._shape)
        # CuPy hands its current stream to cuBLAS at each call.
        with current(self._stream):
            for _ in range(n):
                multiply(*arguments)
