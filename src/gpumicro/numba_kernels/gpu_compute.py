"""For GPUs: the FMA peak, a GEMM by tiles in shared memory, and a pointer chase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernels.latency import HOPS, POSITION
from ..kernels.peak_check import CHAINS, UNROLL, WORDS
from . import load_cuda
from .gpu_words import load_word

cuda: Any = load_cuda()

TILE = 64  # rows and columns of C that a block makes
TILE_K = 16
SIDE = 16  # a block is SIDE x SIDE threads, each makes PART x PART elements, SIDE apart
PART = TILE // SIDE
WIDTH = TILE + 1  # of a row of A in shared memory: it is written by columns, and one more leaves them in other banks


def make_peak(real: Any) -> Callable[..., None]:
    """The chains of csrc/kernels/peak.cuh, from the same seeds.

    `fma` by name: of b - a x the compiler makes a product and a difference, and leaves it to others to fuse them.
    """
    chains, turns, pairs = CHAINS.get(real.__name__, 16), UNROLL // 2, WORDS // 2

    def kernel(seeds: Any, out: Any, steps: Any) -> None:
        x = cuda.local.array(chains, real)
        b = cuda.local.array(chains, real)
        thread = cuda.grid(1)
        a = min(max(seeds[2 * (thread % pairs)] * real(0.25), real(-0.875)), real(0.875))
        for chain in range(chains):
            pair = (thread + 32 * (1 + chain)) % pairs
            x[chain] = seeds[2 * pair]
            b[chain] = seeds[2 * pair + 1]
        minus_a = -a
        for _ in range(steps):
            for _ in range(turns):
                for chain in range(chains):
                    x[chain] = cuda.fma(a, x[chain], b[chain])
                for chain in range(chains):
                    x[chain] = cuda.fma(minus_a, x[chain], b[chain])
        total = x[0]
        for chain in range(1, chains):
            total += x[chain]
        out[thread] = total

    return kernel


def make_gemm(real: Any) -> Callable[..., None]:
    """C = A B, row-major and flat; a block makes TILE x TILE of C from TILE_K columns of A and rows of B at a time."""
    threads = SIDE * SIDE

    def kernel(c: Any, a: Any, b: Any, m: Any, n: Any, k: Any) -> None:
        of_a = cuda.shared.array((TILE_K, WIDTH), real)
        of_b = cuda.shared.array((TILE_K, TILE), real)
        sums = cuda.local.array((PART, PART), real)
        left = cuda.local.array(PART, real)
        thread, column, row = cuda.threadIdx.x, cuda.threadIdx.x % SIDE, cuda.threadIdx.x // SIDE
        row0, column0 = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
        for i in range(PART):
            for j in range(PART):
                sums[i, j] = 0
        for k0 in range(0, k, TILE_K):
            for at in range(thread, TILE * TILE_K, threads):
                i, p = row0 + at // TILE_K, k0 + at % TILE_K
                of_a[at % TILE_K, at // TILE_K] = a[i * k + p] if i < m and p < k else real(0)
                p, j = k0 + at // TILE, column0 + at % TILE
                of_b[at // TILE, at % TILE] = b[p * n + j] if p < k and j < n else real(0)
            cuda.syncthreads()
            for p in range(TILE_K):
                for i in range(PART):
                    left[i] = of_a[p, row + i * SIDE]
                for j in range(PART):
                    right = of_b[p, column + j * SIDE]
                    for i in range(PART):
                        sums[i, j] += left[i] * right
            cuda.syncthreads()
        for i in range(PART):
            for j in range(PART):
                to_row, to_column = row0 + row + i * SIDE, column0 + column + j * SIDE
                if to_row < m and to_column < n:
                    c[to_row * n + to_column] = sums[i, j]

    return kernel


def make_chase() -> Callable[..., None]:
    """One thread walks `warm` hops, to bring the lines into L1, then `hops`; it goes on where the last run ended."""
    word = load_word()

    def kernel(lines: Any, state: Any, warm: Any, hops: Any) -> None:
        p = state[POSITION]
        for _ in range(warm + hops):
            p = word(lines, p)
        state[POSITION] = p
        state[HOPS] += warm + hops

    return kernel
