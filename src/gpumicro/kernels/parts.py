"""Large arrays in parts, on several threads: a part stays in a core's cache, and NumPy computes without Python's lock.

What is made and checked for a GPU is hundreds of MiB; whole arrays, one after the other, would take seconds each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

PART = 1 << 16  # elements: half a MiB of float64, a dozen arrays of which fit an L2 or its share of an L3
MOST_THREADS = 8  # what memory can feed

T = TypeVar("T")


def slices(total: int, step: int = PART) -> list[slice]:
    """0 to `total` in slices of `step`, the last one shorter."""
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]


def each_part(total: int, do: Callable[[slice], T], step: int = PART) -> list[T]:
    """What `do` gives for every slice of 0 to `total`, in order. What one raises passes, and no other is begun."""
    parts = slices(total, step)
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)), len(parts))
    if threads < 2:
        return [do(part) for part in parts]
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(do, parts))
    finally:
        pool.shutdown(cancel_futures=True)
