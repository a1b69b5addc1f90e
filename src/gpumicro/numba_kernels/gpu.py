"""Compiles the kernels for GPUs. `signature` and `source` are all that compiling needs: no GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import BackendUnavailable
from . import bodies, imported, load_cuda, simulated

NAMES = (
    *(f"stream.{name}" for name in (*bodies.MAPS, *bodies.FOLDS)), "peak.fma", "gemm.tiled", "latency.gpu_chase",
)  # fmt: skip
DTYPES = ("float64", "float32")  # of all but the chase


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel: `launch[grid, block, stream](*arguments)`, and the seconds that compiling took."""

    launch: Any
    compile_s: float


def source(name: str, dtype: str) -> Callable[..., None]:
    """The kernel as a Python function."""
    from . import gpu_compute, gpu_stream

    short, real = name.partition(".")[2], getattr(np, dtype)
    if short in bodies.MAPS:
        return gpu_stream.make_map(bodies.MAPS[short], real)
    if short in bodies.FOLDS:
        return gpu_stream.make_fold(bodies.FOLDS[short], real)
    if name == "latency.gpu_chase":
        return gpu_compute.make_chase()
    return gpu_compute.make_peak(real) if name == "peak.fma" else gpu_compute.make_gemm(real)


def signature(name: str, dtype: str) -> Any:
    """Its arguments' types, as numba-cuda names them."""
    types = imported("numba.cuda.types")
    element, number = getattr(types, dtype), types.int64
    array, words = element[::1], number[::1]
    short = name.partition(".")[2]
    if short in bodies.MAPS:
        return types.void(array, array, array, element, number)
    if short in bodies.FOLDS:
        return types.void(array, array, array, array, types.int32[::1], element, number)
    if name == "latency.gpu_chase":
        return types.void(words, words, number, number)
    if name == "peak.fma":
        return types.void(array, array, number)
    return types.void(array, array, array, number, number, number)


@lru_cache(maxsize=64)
def compiled(name: str, dtype: str, device: int) -> Kernel:
    """The kernel of that name for a device, compiled at the first call and kept. BackendUnavailable where it fails."""
    cuda = load_cuda()
    before = time.perf_counter()
    if simulated():
        return Kernel(cuda.jit(source(name, dtype)), time.perf_counter() - before)
    try:
        with cuda.gpus[device]:
            kernel = cuda.jit(signature(name, dtype))(source(name, dtype))
    except Exception as error:  # of Numba, of NVVM, of the linker, of the driver: each has its own
        raise BackendUnavailable(f"numba-cuda does not compile {name} for {dtype}: {error}") from error
    return Kernel(kernel, time.perf_counter() - before)
