"""How the Numba backend's kernels are launched on a GPU: grid, block and scalars. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..device import Device
from ..kernels.gpu import ceil_div
from ..kernels.latency import PAST_L1
from ..kernels.stream import FOLD_WAVES, MOST_PARTIALS, SCALAR
from ..numba_kernels import bodies
from ..spec import Execution, KernelSpec, Launch, Problem

BLOCKS_PER_SM = 8  # of 256 threads: all that an SM holds where registers allow


@dataclass(frozen=True, slots=True)
class Shape:
    """One launch; `scalars` are the kernel's last arguments."""

    grid: tuple[int, int]
    block: tuple[int, int]
    scalars: tuple[Any, ...]
    recipe: str


def own_variants(spec: KernelSpec, dtype: str, device: Device) -> tuple[str, ...]:
    """Of the variants that the record lists those which Numba's kernel is."""
    assert spec.gpu is not None
    known = spec.gpu.variants(dtype, device)
    if spec.family == "gemm":
        return ("64x64",)
    return tuple(variant for variant in known if variant != PAST_L1)


def shape_of(spec: KernelSpec, problem: Problem, execution: Execution, device: Device, native: Launch) -> Shape:
    """The launch of a kernel; `native` is the one of csrc/kernels for the same problem."""
    if spec.family == "stream":
        return _stream(spec, problem, execution, device)
    if spec.family == "gemm":
        from ..numba_kernels.gpu_compute import SIDE, TILE

        m, n, k = problem["m"], problem["n"], problem["k"]
        grid, block = (ceil_div(n, TILE), ceil_div(m, TILE)), (SIDE * SIDE, 1)
        return Shape(grid, block, (m, n, k), "tiles of 64 x 64 x 16 in shared memory, 4 x 4 a thread, scalar loads")
    if spec.family == "peak":
        return Shape((native.grid[0], 1), (native.block[0], 1), (problem["steps"],), "FMA only, chains in registers")
    warm, hops = (int(one) for one in native.arguments[-2:] if isinstance(one, np.integer))
    return Shape((1, 1), (1, 1), (warm, hops), "one pointer a line, one random cycle")


def _stream(spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Shape:
    from ..numba_kernels.gpu_stream import BLOCK, TILE, lanes_of

    n, real = problem["n"], np.dtype(problem.dtype).type
    tiles = max(1, n // lanes_of(real) // TILE)
    resident = BLOCKS_PER_SM * (device.cores or 1)
    short, wide = spec.name.partition(".")[2], execution.variant == "wide"
    recipe = "two accesses of 16 bytes an array and thread"
    if short in bodies.FOLDS:
        most = min(resident * (FOLD_WAVES if wide else 1), MOST_PARTIALS)
        return Shape((min(tiles, most), 1), (BLOCK, 1), (real(0), n), recipe)
    return Shape((tiles if wide else min(tiles, resident), 1), (BLOCK, 1), (real(SCALAR), n), recipe)
