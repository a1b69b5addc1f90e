"""How our GEMMs are launched on a GPU: which instance of csrc/kernels/gemm*.cuh, on how many blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..device import Device
from ..errors import UsageError
from ..spec import ITEMSIZE, Execution, GpuForm, Launch, Operand, Problem, TensorMap
from .gemm_check import check, result_dtype
from .gpu import ceil_div, needs

_CHUNK_BYTES = 16  # the widest access; rows that begin at multiples of it are read so
_MOST_BLOCKS = (1 << 31) - 1  # of a grid's x


def operands() -> tuple[Operand, ...]:
    """C, A and B, row-major."""
    return (
        Operand("c", "out", lambda p: p["m"] * p["n"], lambda p: result_dtype(p.dtype)),
        Operand("a", "in", lambda p: p["m"] * p["k"]),
        Operand("b", "in", lambda p: p["k"] * p["n"]),
    )


def sizes_of(problem: Problem) -> tuple[int, int, int]:
    """m, n and k. Raises UsageError where one is below 1."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    if min(m, n, k) < 1:
        raise UsageError(f"a product on a GPU needs m, n and k of at least 1, not {problem}")
    return m, n, k


def _blocks(m: int, n: int, tile_m: int, tile_n: int) -> int:
    count = ceil_div(m, tile_m) * ceil_div(n, tile_n)
    if count > _MOST_BLOCKS:
        raise UsageError(f"m={m}, n={n} are {count} tiles, more than a grid may have blocks")
    return count


def _aligned(problem: Problem, n: int, k: int) -> bool:
    chunk = _CHUNK_BYTES // problem.itemsize
    return n % chunk == 0 and k % chunk == 0


def _sizes(m: int, n: int, k: int) -> tuple[np.generic, ...]:
    return np.int64(m), np.int64(n), np.int64(k)


# --- gemm.tiled ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tiled:
    """A block's tile m x n x k and a thread's part of it, as in GM_GEMM_TABLE."""

    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int

    @property
    def threads(self) -> int:
        return self.m * self.n // (self.thread_m * self.thread_n)


_TILED: Mapping[str, Mapping[str, _Tiled]] = {
    "float32": {
        "128x128": _Tiled(128, 128, 8, 8, 8), "64x64": _Tiled(64, 64, 8, 8, 8), "32x32": _Tiled(32, 32, 8, 4, 4),
    },
    "float64": {
        "128x64": _Tiled(128, 64, 8, 8, 8), "64x64": _Tiled(64, 64, 8, 8, 4), "32x32": _Tiled(32, 32, 8, 4, 4),
    },
}  # fmt: skip


def _launch_tiled(problem: Problem, execution: Execution, _device: Device) -> Launch:
    m, n, k = sizes_of(problem)
    tile = _TILED[problem.dtype][execution.variant]
    name = {"float32": "float", "float64": "double"}[problem.dtype]
    aligned = str(_aligned(problem, n, k)).lower()
    return Launch(
        symbol=f"gm::gemm_tiled<{name}, {tile.m}, {tile.n}, {tile.k}, {tile.thread_m}, {tile.thread_n}, {aligned}>",
        grid=(_blocks(m, n, tile.m, tile.n), 1, 1),
        block=(tile.threads, 1, 1),
        arguments=("c", "a", "b", *_sizes(m, n, k)),
    )


TILED = GpuForm(
    source="gemm.cuh",
    launch=_launch_tiled,
    dtypes=("float64", "float32"),
    variants=lambda dtype, _device: tuple(_TILED.get(dtype, {"": None})),
    operands=operands(),
    check=check,
    unit="vector",
)

# --- gemm.mma ------------------------------------------------------------------------------------------------------

_NAMES: Mapping[str, str] = {"bfloat16": "gm::bfloat16", "float16": "gm::half", "tf32": "gm::tf32"}


@dataclass(frozen=True, slots=True)
class _Mma:
    """A block's tile, a warp's part of it and the stages of shared memory, as in GM_GEMM_MMA_SHAPES."""

    m: int
    n: int
    warp_m: int
    warp_n: int
    stages: int

    @property
    def threads(self) -> int:
        return 32 * (self.m // self.warp_m) * (self.n // self.warp_n)

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.m + self.n) * 64  # 64 bytes along k


_MMA: Mapping[str, _Mma] = {
    "128x256": _Mma(128, 256, 64, 64, 4), "128x128": _Mma(128, 128, 64, 64, 3), "64x64": _Mma(64, 64, 32, 32, 3),
}  # fmt: skip
# Rows that begin anywhere are loaded element by element, which leaves no registers for the widest tile.
_MMA_UNALIGNED: Mapping[str, _Mma] = {
    "128x256": _Mma(128, 128, 64, 32, 3), "128x128": _Mma(128, 128, 64, 32, 3), "64x64": _Mma(64, 64, 32, 32, 3),
}  # fmt: skip


def _launch_mma(problem: Problem, execution: Execution, _device: Device) -> Launch:
    m, n, k = sizes_of(problem)
    aligned = _aligned(problem, n, k)
    tile = (_MMA if aligned else _MMA_UNALIGNED)[execution.variant]
    shape = f"{tile.m}, {tile.n}, {tile.warp_m}, {tile.warp_n}, {tile.stages}, {str(aligned).lower()}"
    return Launch(
        symbol=f"gm::gemm_mma<{_NAMES[problem.dtype]}, {shape}>",
        grid=(_blocks(m, n, tile.m, tile.n), 1, 1),
        block=(tile.threads, 1, 1),
        arguments=("c", "a", "b", *_sizes(m, n, k)),
        shared_bytes=tile.shared_bytes,
    )


MMA = GpuForm(
    source="gemm_mma.cuh",
    launch=_launch_mma,
    dtypes=tuple(_NAMES),
    why_not=lambda _dtype, device: needs(device, 8, 0),
    variants=lambda _dtype, _device: tuple(_MMA),
    operands=operands(),
    check=check,
    unit="tensor",
)

# --- gemm.wgmma ----------------------------------------------------------------------------------------------------

_WGMMA_ROWS, _WGMMA_DEPTH, _WGMMA_THREADS = 128, 64, 384
_WGMMA_COLUMNS: Mapping[str, int] = {"128x256": 256, "128x128": 128}
_WGMMA_RING_BYTES = 192 << 10


def _launch_wgmma(problem: Problem, execution: Execution, device: Device) -> Launch:
    m, n, k = sizes_of(problem)
    if not _aligned(problem, n, k):
        raise UsageError(f"gemm.wgmma takes n and k that are multiples of 8, as TMA needs them, not n={n}, k={k}")
    if max(m, n, k) >= 1 << 31:
        raise UsageError(f"gemm.wgmma takes m, n and k below 2**31, not {problem}")
    columns = _WGMMA_COLUMNS[execution.variant]
    stage_bytes = (_WGMMA_ROWS + columns) * _WGMMA_DEPTH * problem.itemsize
    stages = _WGMMA_RING_BYTES // stage_bytes
    return Launch(
        symbol=f"gm::gemm_wgmma<{_NAMES[problem.dtype]}, {columns}>",
        grid=(min(_blocks(m, n, _WGMMA_ROWS, columns), device.cores or 1), 1, 1),  # one block an SM, tile after tile
        block=(_WGMMA_THREADS, 1, 1),
        arguments=(
            "c",
            TensorMap("a", (k, m), (_WGMMA_DEPTH, _WGMMA_ROWS)),
            TensorMap("b", (n, k), (64, _WGMMA_DEPTH)),
            *_sizes(m, n, k),
        ),
        shared_bytes=stages * stage_bytes + stages * 16 + 1024,  # two barriers a stage; room to align by hand
    )


WGMMA = GpuForm(
    source="gemm_wgmma.cuh",
    launch=_launch_wgmma,
    dtypes=("bfloat16", "float16"),
    why_not=lambda _dtype, device: needs(device, 9, 0, exact=True),
    target="90a",
    variants=lambda _dtype, _device: tuple(_WGMMA_COLUMNS),
    operands=operands(),
    check=check,
    unit="tensor",
    tensor_maps=True,
)

# --- what they execute ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Executed:
    """Global bytes and FLOP of one launch, tiles' overhang and repeated reads included."""

    loaded_bytes: int
    stored_bytes: int
    flops: int


def executed(kernel: str, problem: Problem, variant: str) -> Executed:
    """What a launch of gemm.tiled or gemm.mma really does: the edge terms of the catalogue's claims.

    Every tile of C reads its rows of A and its columns of B, without their overhang, and multiplies with it. Rounding
    sums to float16 adds up to one FLOP an element of C (types.cuh, narrow_magnitude), which is not counted here.
    """
    m, n, k = sizes_of(problem)
    if kernel == "gemm.tiled":
        tiled = _TILED[problem.dtype][variant]
        height, width, depth = tiled.m, tiled.n, tiled.k
    else:
        mma = (_MMA if _aligned(problem, n, k) else _MMA_UNALIGNED)[variant]
        height, width, depth = mma.m, mma.n, 64 // problem.itemsize
    down, across = ceil_div(m, height), ceil_div(n, width)
    return Executed(
        loaded_bytes=(across * m * k + down * k * n) * problem.itemsize,
        stored_bytes=m * n * ITEMSIZE[result_dtype(problem.dtype)],
        flops=2 * down * height * across * width * ceil_div(k, depth) * depth,
    )
