"""STREAM's maps and folds for GPUs. As csrc/kernels/stream.cuh: tiles of two vectors of 16 bytes a thread and array,
all loads of a tile before its stores, the rest behind the last whole tile by one block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import load_cuda
from .gpu_words import device_function, wide

cuda: Any = load_cuda()

BLOCK = 256  # threads
ACCESS_BYTES = 16
BATCH = 2  # accesses of a thread to an array in a tile
TILE = BLOCK * BATCH  # vectors


def lanes_of(real: Any) -> int:
    """Elements in one access."""
    return ACCESS_BYTES // int(np.dtype(real).itemsize)


def _each(f: Any, lanes: int) -> Callable[..., Any]:
    """f of each lane: of x, y and a scalar."""
    if lanes == 2:
        return lambda x, y, s: (f(x[0], y[0], s), f(x[1], y[1], s))
    return lambda x, y, s: (f(x[0], y[0], s), f(x[1], y[1], s), f(x[2], y[2], s), f(x[3], y[3], s))


def _sums(f: Any, lanes: int) -> Callable[..., Any]:
    """The sum of each lane and f of it."""
    if lanes == 2:
        return lambda sums, x, y: (sums[0] + f(x[0], y[0]), sums[1] + f(x[1], y[1]))
    return lambda sums, x, y: (
        sums[0] + f(x[0], y[0]), sums[1] + f(x[1], y[1]), sums[2] + f(x[2], y[2]), sums[3] + f(x[3], y[3]),
    )  # fmt: skip


def make_map(body: Any, real: Any) -> Callable[..., None]:
    """a[i] = body(b[i], c[i], s): what the body does not use is not loaded, and may be any array."""
    lanes = lanes_of(real)
    load, store = wide(lanes)
    one = device_function(body)
    each = device_function(_each(one, lanes))
    step = BLOCK * lanes

    def kernel(a: Any, b: Any, c: Any, s: Any, n: Any) -> None:
        whole = n // lanes // TILE * TILE
        first = cuda.blockIdx.x * TILE
        while first < whole:
            i = (first + cuda.threadIdx.x) * lanes
            x0, x1 = load(b, i), load(b, i + step)
            y0, y1 = load(c, i), load(c, i + step)
            store(a, i, each(x0, y0, s))
            store(a, i + step, each(x1, y1, s))
            first += cuda.gridDim.x * TILE
        if first == whole:
            i = whole * lanes + cuda.threadIdx.x
            while i < n:
                a[i] = one(b[i], c[i], s)
                i += BLOCK

    return kernel


def _block_sum(real: Any) -> Any:
    """The sum over the block, in every thread."""

    def block_sum(value: Any) -> Any:
        held = cuda.shared.array(BLOCK, real)
        thread = cuda.threadIdx.x
        held[thread] = value
        cuda.syncthreads()
        width = BLOCK // 2
        while width > 0:
            if thread < width:
                held[thread] += held[thread + width]
            cuda.syncthreads()
            width //= 2
        total = held[0]
        cuda.syncthreads()
        return total

    return device_function(block_sum)


def make_fold(body: Any, real: Any) -> Callable[..., None]:
    """sums[0] = sum of body(b[i], c[i]). The block that ends last adds one partial sum a block, in their order; it
    leaves the ticket at zero for the next run. `zero` is of the operands' type."""
    lanes = lanes_of(real)
    load, _ = wide(lanes)
    one = device_function(body)
    more = device_function(_sums(one, lanes))
    block_sum = _block_sum(real)
    step = BLOCK * lanes
    both = lanes == 2

    def kernel(sums: Any, b: Any, c: Any, partials: Any, ticket: Any, zero: Any, n: Any) -> None:
        whole = n // lanes // TILE * TILE
        first = cuda.blockIdx.x * TILE
        lane_sums = (zero, zero) if both else (zero, zero, zero, zero)
        while first < whole:
            i = (first + cuda.threadIdx.x) * lanes
            x0, x1 = load(b, i), load(b, i + step)
            y0, y1 = load(c, i), load(c, i + step)
            lane_sums = more(more(lane_sums, x0, y0), x1, y1)
            first += cuda.gridDim.x * TILE
        mine = zero
        for lane in range(lanes):
            mine += lane_sums[lane]
        if first == whole:
            i = whole * lanes + cuda.threadIdx.x
            while i < n:
                mine += one(b[i], c[i])
                i += BLOCK
        mine = block_sum(mine)
        last = cuda.shared.array(1, np.int32)
        if cuda.threadIdx.x == 0:
            partials[cuda.blockIdx.x] = mine
            cuda.threadfence()  # the partial sum is seen by whoever sees the ticket
            last[0] = 1 if cuda.atomic.add(ticket, 0, 1) == cuda.gridDim.x - 1 else 0
        cuda.syncthreads()
        if last[0] == 0:
            return
        cuda.threadfence()
        rest = zero
        block = cuda.threadIdx.x
        while block < cuda.gridDim.x:
            rest += partials[block]
            block += BLOCK
        rest = block_sum(rest)
        if cuda.threadIdx.x == 0:
            sums[0] = rest
            ticket[0] = 0

    return kernel
