"""C = A B by cuBLASLt: every algorithm that its heuristic offers is tried, and the fastest is kept and named."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from .. import cuda_native, libraries
from ..device import Device
from ..errors import BackendUnavailable, CudaError, UsageError
from ..spec import Execution, GpuForm, Launch, Problem
from .gemm_check import check
from .gemm_gpu import operands, sizes_of
from .gpu import needs

# What NVIDIA recommends for Hopper and newer ("cuBLAS", cublasSetWorkspace); fewer bytes leave out split-k.
WORKSPACE_BYTES = 32 << 20
TRIAL_ROUNDS = 3  # of all algorithms in turn, so that a clock that moves meets all alike; the fastest round counts

# The least compute capability with tensor cores of that type; cuBLASLt has fp64 and fp32 everywhere.
_NEEDS: Mapping[str, tuple[int, int]] = {
    "float64": (0, 0), "float32": (0, 0), "tf32": (8, 0), "float16": (7, 0), "bfloat16": (8, 0), "int8": (7, 5),
    "float8_e4m3fn": (8, 9),
}  # fmt: skip


class VendorGemm:
    """The product bound to its operands. Raises CudaError where cuBLAS refuses it, BackendUnavailable without it."""

    def __init__(self, problem: Problem, device: Device, addresses: Mapping[str, int]) -> None:
        m, n, k = sizes_of(problem)
        library = libraries.find("cublasLt")
        if not library:
            raise BackendUnavailable(library.reason)
        cuda = cuda_native.load()
        self._lt = _open(cuda, library.path)
        self._device = device.index
        self._matmul = cuda.gemm.LtMatmul(
            self._lt, m, n, k, problem.dtype, addresses["a"], addresses["b"], addresses["c"], self._device,
            WORKSPACE_BYTES,
        )  # fmt: skip
        self._trials_s = self._try_all(cuda)
        self._matmul.choose(int(np.argmin(self._trials_s)))

    def _try_all(self, cuda: Any) -> list[float]:
        """Seconds of each algorithm; infinite for one that fails. Raises CudaError where all fail or CUDA is lost."""
        clock = cuda.timing.EventClock(self._device)
        best = [float("inf")] * self._matmul.count
        failure: CudaError | None = None
        once = np.ones(1, np.int64)
        for round_ in range(1 + TRIAL_ROUNDS):  # the first loads the kernels, which a gate would deadlock with
            for i in range(self._matmul.count):
                self._matmul.choose(i)
                try:
                    span_s = float(clock.sample(self._matmul.work, once, gated=round_ > 0)[0])
                except CudaError as error:
                    if error.lost:
                        raise
                    failure = error
                    continue
                if round_ > 0 and span_s < best[i]:  # NaN, where a gate timed out, is not
                    best[i] = span_s
        if failure is not None and not np.isfinite(best).any():
            raise failure
        return best

    @property
    def work(self) -> Any:
        """A `_core.timing.Work` that enqueues and returns."""
        return self._matmul.work

    @property
    def facts(self) -> Mapping[str, Any]:
        """Which library and algorithm, out of how many; JSON-ready."""
        chosen = self._matmul.chosen
        major, minor, patch = version_of(self._lt.version)
        return {
            "recipe": f"cuBLASLt {major}.{minor}.{patch}",
            "library": self._lt.path,
            "algorithm": self._matmul.algorithms[chosen],
            "algorithm_rank": chosen,  # 0: the heuristic's own first choice
            "algorithms_tried": self._matmul.count,
            "trials_s": [s if np.isfinite(s) else None for s in self._trials_s],
            "b_transposed": self._matmul.transposed_b,
            "workspace_bytes": WORKSPACE_BYTES,
        }


def version_of(number: int) -> tuple[int, int, int]:
    """What cublasLtGetVersion means: 131000 is 13.10.0, and 120805 is 12.8.5."""
    return number // 10000, number // 100 % 100, number % 100


@lru_cache(maxsize=4)
def _open(cuda: Any, path: str) -> Any:
    """Raises BackendUnavailable for a file that is no cuBLASLt or too old a one: no reason to end a run."""
    try:
        return cuda.gemm.Lt(path)
    except RuntimeError as error:
        raise BackendUnavailable(f"cuBLASLt cannot be used: {error}") from error


def _why_not(dtype: str, device: Device) -> str:
    if device.facts.get("emulated"):
        return "cuBLASLt drives real GPUs only, and this one is emulated"
    return needs(device, *_NEEDS.get(dtype, (0, 0))) or libraries.find("cublasLt").reason


def _no_launch(problem: Problem, _execution: Execution, _device: Device) -> Launch:
    raise UsageError(f"gemm.vendor is cuBLASLt's on a GPU, not a kernel of ours to launch ({problem})")


VENDOR = GpuForm(
    source="",
    launch=_no_launch,
    dtypes=tuple(_NEEDS),
    why_not=_why_not,
    operands=operands(),
    bind=lambda problem, _execution, device, addresses: VendorGemm(problem, device, addresses),
    check=check,
)
