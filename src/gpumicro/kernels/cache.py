"""Bandwidth of the memory next to an SM: blocks that read n elements `reps` times (csrc/kernels/cache.cuh)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..errors import VerificationError
from ..spec import Check, Execution, GpuForm, KernelSpec, Launch, Operand, Problem
from .gpu import ceil_div

BLOCK = 256  # threads, kCacheBlock
WARPS = BLOCK // 32
TILE_BYTES = BLOCK * 4 * 16  # kCacheTile: what a block has under way
DTYPES = ("float32", "float64")
LEVELS = {"cache.private": "l1", "cache.common": "l2", "cache.shared": "shared"}
_REGION_ALIGNMENT = 128  # bytes, between the regions of two blocks
SM_BYTES = 64 << 20  # that each SM reads from its L1 or shared memory
_LEAST_SHARED_BYTES = 48 * 1024  # that every block may have without asking

_Array = npt.NDArray[np.generic]


def level_of(spec: KernelSpec, variant: str = "") -> str:  # noqa: ARG001
    """The memory level that a kernel of this family is made for: "l1", "l2" or "shared"."""
    return LEVELS[spec.name]


def gpu_sizes(level: str, dtype: str, device: Device) -> dict[str, int]:
    """blocks, n and reps that stay within the level; a third of a MiB is read if emulated, else as follows.

    L1 and shared memory: two blocks an SM with a tile each, 32 KiB together, which every SM since sm_70 holds; 64 MiB
    an SM, half a million cycles at 128 bytes a cycle, of which the start of a launch and the filling are a percent. L2:
    a third of a GiB or more, from a quarter of it, since the halves of a split L2 may each keep a copy.
    """
    itemsize = 8 if dtype == "float64" else 4
    emulated = bool(device.facts.get("emulated"))
    blocks = (2 if level != "l2" else 4) * (device.cores or 1)
    size = TILE_BYTES
    if level == "l2":
        cache = device.cache("l2")
        quarter = (cache.size_bytes if cache else 4 << 20) // 4
        size = TILE_BYTES if emulated else max(TILE_BYTES, quarter // TILE_BYTES * TILE_BYTES)
    wanted = (1 << 30) // 3 if level == "l2" else SM_BYTES * (device.cores or 1)
    if emulated:
        wanted = (1 << 20) // 3
    return {"blocks": blocks, "n": size // itemsize, "reps": max(2, wanted // (blocks * size))}


def _stride(problem: Problem) -> int:
    """Bytes from one block's region to the next."""
    return ceil_div(problem["n"] * problem.itemsize, _REGION_ALIGNMENT) * _REGION_ALIGNMENT


def _bytes_read(problem: Problem) -> int:
    return problem["blocks"] * problem["n"] * problem["reps"] * problem.itemsize


def extra_bytes(problem: Problem, launch: Launch) -> dict[str, int]:
    """Bytes that a launch moves beside `bytes_moved`, exactly, by memory space: one stored word a warp, and shared
    memory's filling."""
    sums = 4 * WARPS * problem["blocks"]
    filled = problem["blocks"] * problem["n"] * problem.itemsize if launch.symbol == "gm::cache_shared" else 0
    return {"global": sums + filled, "shared": filled}


def _launch(symbol: str) -> GpuForm:
    def launch(problem: Problem, execution: Execution, device: Device) -> Launch:  # noqa: ARG001
        size = problem["n"] * problem.itemsize
        stride = (np.int64(_stride(problem)),) if symbol == "gm::cache_private" else ()
        return Launch(
            symbol=symbol,
            grid=(problem["blocks"], 1, 1),
            block=(BLOCK, 1, 1),
            arguments=("data", "sums", np.int64(size), *stride, np.int64(problem["reps"])),
            shared_bytes=size if symbol == "gm::cache_shared" else 0,
        )

    return GpuForm(source="cache.cuh", launch=launch, dtypes=DTYPES, check=_check)


def _check(spec: KernelSpec, problem: Problem, arrays: Mapping[str, _Array]) -> Check:
    """Each block's sum of 32-bit words, modulo 2^32 and exact."""
    words = np.ascontiguousarray(arrays["data"]).view(np.uint32)
    size = problem["n"] * problem.itemsize // 4
    stride = _stride(problem) // 4 if spec.name == "cache.private" else 0
    sums = np.ascontiguousarray(arrays["sums"]).view(np.uint32).reshape(problem["blocks"], WARPS)
    with np.errstate(over="ignore"):
        got = sums.sum(axis=1, dtype=np.uint32)
    for block in range(problem["blocks"]):
        region = words[block * stride : block * stride + size]
        if block == 0 or stride:
            expected = int(region.sum(dtype=np.uint64)) * problem["reps"] % 2**32
        if int(got[block]) != expected:
            raise VerificationError(spec.name, block, expected, int(got[block]), 0.0)
    return Check(True, 0.0, 0.0, "integers modulo 2^32", problem["blocks"])


def _spec(name: str, summary: str, regions: bool) -> KernelSpec:
    def data(problem: Problem) -> int:
        return problem["blocks"] * _stride(problem) // problem.itemsize if regions else problem["n"]

    return KernelSpec(
        name=f"cache.{name}",
        summary=summary,
        dtypes=DTYPES,
        sizes=("blocks", "n", "reps"),
        operands=(
            Operand("data", "in", data),
            Operand("sums", "out", lambda p: p["blocks"] * WARPS * 4 // p.itemsize),
        ),
        bytes_moved=_bytes_read,
        traffic="exact",
        flops=lambda _: 0,
        on_cpu=False,
        gpu=_launch(f"gm::cache_{name}"),
    )


SPECS = (
    _spec("private", "each block reads its own n elements reps times, through L1", True),
    _spec("common", "all blocks read the same n elements reps times, past L1", False),
    _spec("shared", "each block reads n elements of shared memory reps times", False),
)
