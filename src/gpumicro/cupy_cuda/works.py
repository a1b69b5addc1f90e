"""Works that are no kernel of ours: allocations, waits; with copies and graphs under the names of `_cuda.timing`."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BackendUnavailable
from . import calls
from .calls import OnDevice, told
from .copies import PeerAccess, copy, copy_both, copy_peer
from .found import runtime
from .graphs import Graphs
from .launch import Launch
from .memory import synchronize
from .work import NO_TIMING, Work, destroy_quietly, destroy_with

__all__ = [
    "Graphs", "PeerAccess", "Pool", "copy", "copy_both", "copy_peer", "event_trip", "malloc_free", "prefetch",
    "rotation", "spin", "synced", "touch",
]  # fmt: skip

_TOUCH_BLOCK, _MOST_TOUCH_BLOCKS = 128, 1024


# --- memory -------------------------------------------------------------------------------------------------------


class _MallocFree(Work):
    call = "cudaMalloc"

    def __init__(self, device: int, size_bytes: int) -> None:
        super().__init__(device)
        self._size_bytes = size_bytes

    def _run(self, n: int) -> None:
        take, give = runtime().malloc, runtime().free
        for _ in range(n):
            give(take(self._size_bytes))


def malloc_free(device: int, size_bytes: int) -> Work:
    """cudaMalloc and cudaFree."""
    return _MallocFree(device, size_bytes)


class Pool:
    """A memory pool that gives nothing back; ValueError where the device or the driver has none.

    `work`: cudaMallocFromPoolAsync and cudaFreeAsync.
    """

    def __init__(self, device: int, size_bytes: int) -> None:
        self.work = _PoolPair(device, size_bytes)


class _PoolPair(Work):
    call = "cudaMallocFromPoolAsync"

    def __init__(self, device: int, size_bytes: int) -> None:
        super().__init__(device)
        cuda = runtime()
        self._size_bytes = size_bytes
        with OnDevice(device), told("cudaMemPoolCreate"):
            if not hasattr(cuda, "memPoolCreate"):
                raise ValueError("this CuPy makes no memory pools of CUDA's")
            if not cuda.deviceGetAttribute(cuda.cudaDevAttrMemoryPoolsSupported, device):
                raise ValueError("this device or driver has no memory pools")
            self._pool = cuda.memPoolCreate(cuda.MemPoolProps(1, 0, 1, device))  # pinned, no handles, on the device
            weakref.finalize(self, _destroy_pool, cuda, device, self._pool)
            cuda.memPoolSetAttribute(self._pool, cuda.cudaMemPoolAttrReleaseThreshold, (1 << 64) - 1)

    def _run(self, n: int) -> None:
        take, give = runtime().mallocFromPoolAsync, runtime().freeAsync
        for _ in range(n):
            give(take(self._size_bytes, self._pool, self._stream), self._stream)


class _Touch(Work):
    call = "cudaStreamSynchronize"

    def __init__(self, device: int, address: int, size_bytes: int, page_bytes: int, keep: Any) -> None:
        super().__init__(device, keep)
        pages, stride = -(-size_bytes // page_bytes), page_bytes // 4
        grid = min(max(-(-pages // _TOUCH_BLOCK), 1), _MOST_TOUCH_BLOCKS)
        arguments = [np.uint64(address).tobytes(), np.int64(pages).tobytes(), np.int64(stride).tobytes()]
        self._kernel = Launch("gm::touch", (grid, 1, 1), (_TOUCH_BLOCK, 1, 1), 0, arguments, device).work
        whole = np.ctypeslib.as_array((ctypes.c_uint32 * (size_bytes // 4)).from_address(address))
        self._words = whole[::stride]

    def _run(self, n: int) -> None:
        for _ in range(n):
            self._kernel._run(1)
            runtime().streamSynchronize(self._stream)
            self._words += 1


def prefetch(device: int, address: int, size_bytes: int, keep: Any) -> Work:
    """Always BackendUnavailable."""
    del device, address, size_bytes, keep
    raise BackendUnavailable("CuPy for CUDA 13 prefetches managed memory to devices only, not back to the host")


def touch(device: int, address: int, size_bytes: int, page_bytes: int, keep: Any) -> Work:
    """Managed memory: a word of each page is added to by the device, then by the host."""
    return _Touch(device, address, size_bytes, page_bytes, keep)


# --- waits --------------------------------------------------------------------------------------------------------


class _Synced(Work):
    call = "cudaStreamSynchronize"

    def __init__(self, device: int, inner: Any, each: bool) -> None:
        super().__init__(device, inner)
        self._each = each

    def _run(self, n: int) -> None:
        if calls.is_hung(self.device):
            synchronize(self.device)  # raises unless it is done by now
        wait, stream, inner = runtime().streamSynchronize, self._stream, self._keep
        for runs in [1] * n if self._each else [n]:
            if inner is not None:
                inner._run(runs)
            wait(stream)


def synced(device: int, work: Any, each: bool = True) -> Work:
    """The work and a wait for it: after each run, or once after all. work None: the wait alone."""
    return _Synced(device, work, each)


class _EventTrip(Work):
    call = "cudaEventSynchronize"

    def __init__(self, device: int) -> None:
        super().__init__(device)
        with OnDevice(device), told("cudaEventCreateWithFlags"):
            self._event = runtime().eventCreateWithFlags(NO_TIMING)
        destroy_with(self, device, [], [self._event])

    def _run(self, n: int) -> None:
        record, wait = runtime().eventRecord, runtime().eventSynchronize
        for _ in range(n):
            record(self._event, self._stream)
            wait(self._event)


def event_trip(device: int) -> Work:
    """An event is recorded and waited for."""
    return _EventTrip(device)


class _Spin(Work):
    call = "cuLaunchKernel"

    def __init__(self, device: int, step: int, of_cycles: bool, stream: int | None) -> None:
        super().__init__(device, stream=stream)
        self._step = step
        symbol = "gm::spin_cycles" if of_cycles else "gm::spin_ns"
        self._kernel = Launch(symbol, (1, 1, 1), (32, 1, 1), 0, [bytes(8)], device, stream=stream).work

    def _run(self, n: int) -> None:
        self._kernel.set_argument(0, np.uint64(self._step * n).tobytes())
        self._kernel._run(1)


def spin(device: int, step: int, of_cycles: bool = False, stream: int | None = None) -> Work:
    """n runs are one kernel that spins n steps long: of nanoseconds, or of cycles."""
    return _Spin(device, step, of_cycles, stream)


class _Rotation(Work):
    call = "cuLaunchKernel"

    def __init__(self, works: Sequence[Any], keep: Any) -> None:
        super().__init__(works[0].device, keep)
        self._works, self._next = list(works), 0

    def _run(self, n: int) -> None:
        for _ in range(n):
            self._works[self._next]._run(1)
            self._next = (self._next + 1) % len(self._works)


def rotation(works: Sequence[Any], keep: Any) -> Work:
    """Several works of one device in turn, one a run."""
    return _Rotation(works, keep)


def _destroy_pool(cuda: Any, device: int, pool: int) -> None:
    destroy_quietly(device, [(cuda.memPoolDestroy, pool)])
