"""Works that are no kernel of ours: copies, allocations, waits, replays. The names are those of `_cuda.timing`."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import BackendUnavailable
from . import calls
from .calls import OnDevice, told
from .found import runtime
from .launch import Launch
from .memory import current, synchronize
from .work import Work, run_work

_KINDS = {"h2d": 1, "d2h": 2, "d2d": 3}  # cudaMemcpyKind
_NO_TIMING = 0x02  # cudaEventDisableTiming
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal
_ENABLED, _NOT_ENABLED = 704, 705  # cudaErrorPeerAccessAlreadyEnabled, cudaErrorPeerAccessNotEnabled
_TOUCH_BLOCK, _MOST_TOUCH_BLOCKS = 128, 1024


# --- copies -------------------------------------------------------------------------------------------------------


class _Copy(Work):
    call = "cudaMemcpyAsync"

    def __init__(self, device: int, to: int, source: int, size_bytes: int, kind: int, keep: Any) -> None:
        super().__init__(device, keep)
        self._copy = (to, source, size_bytes, kind, self._stream)

    def _run(self, n: int) -> None:
        enqueue, copy = runtime().memcpyAsync, self._copy
        for _ in range(n):
            enqueue(*copy)


def copy(device: int, to: int, source: int, size_bytes: int, direction: str, keep: Any) -> Work:
    """A copy; direction "h2d", "d2h" or "d2d"."""
    return _Copy(device, to, source, size_bytes, _KINDS[direction], keep)


class _CopyBoth(Work):
    """Both ways at once: the one to the host on a second stream, joined before the work counts as done."""

    call = "cudaMemcpyAsync"

    def __init__(
        self, device: int, to_device: tuple[int, int], to_host: tuple[int, int], size_bytes: int, keep: Any
    ) -> None:
        super().__init__(device, keep)
        with OnDevice(device), told("cudaStreamCreateWithFlags"):
            self._beside = runtime().streamCreateWithFlags(1)
            self._fork, self._join = (runtime().eventCreateWithFlags(_NO_TIMING) for _ in range(2))
        self._in = (*to_device, size_bytes, _KINDS["h2d"], self._stream)
        self._out = (*to_host, size_bytes, _KINDS["d2h"], self._beside)
        destroy_with(self, device, [self._beside], [self._fork, self._join])

    def _run(self, n: int) -> None:
        cuda = runtime()
        cuda.eventRecord(self._fork, self._stream)
        cuda.streamWaitEvent(self._beside, self._fork, 0)
        for _ in range(n):
            cuda.memcpyAsync(*self._in)
            cuda.memcpyAsync(*self._out)
        cuda.eventRecord(self._join, self._beside)
        cuda.streamWaitEvent(self._stream, self._join, 0)


def copy_both(device: int, to_device: tuple[int, int], to_host: tuple[int, int], size_bytes: int, keep: Any) -> Work:
    """Copies both ways at once; each pair is (to, source)."""
    return _CopyBoth(device, to_device, to_host, size_bytes, keep)


class _CopyPeer(Work):
    call = "cudaMemcpyPeerAsync"

    def __init__(self, device: int, to_device: int, to: int, source: int, size_bytes: int, keep: Any) -> None:
        super().__init__(device, keep)
        self._copy = (to, to_device, source, device, size_bytes, self._stream)

    def _run(self, n: int) -> None:
        enqueue, copy = runtime().memcpyPeerAsync, self._copy
        for _ in range(n):
            enqueue(*copy)


def copy_peer(from_device: int, to_device: int, to: int, source: int, size_bytes: int, keep: Any) -> Work:
    """A copy to another device."""
    return _CopyPeer(from_device, to_device, to, source, size_bytes, keep)


class PeerAccess:
    """Two devices' access to each other's memory, on or off until this object goes."""

    def __init__(self, a: int, b: int, wanted: bool) -> None:
        changed = [(device, peer) for device, peer in ((a, b), (b, a)) if _set_access(device, peer, wanted)]
        weakref.finalize(self, _put_back, changed, not wanted)

    @staticmethod
    def possible(a: int, b: int) -> bool:
        """Whether both can reach the other's memory."""
        with told("cudaDeviceCanAccessPeer"):
            return bool(runtime().deviceCanAccessPeer(a, b) and runtime().deviceCanAccessPeer(b, a))


def _set_access(device: int, peer: int, wanted: bool) -> bool:
    """Whether that changed anything."""
    cuda = runtime()
    change, as_it_was = (
        (cuda.deviceEnablePeerAccess, _ENABLED) if wanted else (cuda.deviceDisablePeerAccess, _NOT_ENABLED)
    )
    try:
        with OnDevice(device):
            change(peer)
    except RuntimeError as error:
        if getattr(error, "status", None) != as_it_was:
            raise calls.translated(error, "cudaDeviceEnablePeerAccess") from error
        return False
    return True


def _put_back(changed: Sequence[tuple[int, int]], wanted: bool) -> None:
    for device, peer in changed:
        try:
            _set_access(device, peer, wanted)
        except Exception:  # the device is lost: nothing is left to put back
            return


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
            self._event = runtime().eventCreateWithFlags(_NO_TIMING)
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


# --- graphs -------------------------------------------------------------------------------------------------------


class Graphs:
    """A work captured several times over: graphs of n runs, so that n runs cost the host one call.

    The work must enqueue on the measuring stream and wait for nothing. keep: whether it stays alive by this.
    `work`: n runs are one replay of the graph of n.
    """

    def __init__(self, device: int, work: Any, keep: bool = True, stream: int | None = None) -> None:
        self._captured = _reference(work)
        self._kept = work if keep else None
        self._graphs: dict[int, int] = {}
        self.work = _GraphOf(device, self._graphs, stream)
        weakref.finalize(self.work, _destroy_graphs, runtime(), device, self._graphs)

    def capture(self, runs: int) -> None:
        """Capture so many runs, unless that was done. CudaError or ValueError where the work cannot be captured."""
        if runs in self._graphs:
            return
        cuda, device, stream = runtime(), self.work.device, self.work._stream
        with OnDevice(device):
            with told("cudaStreamBeginCapture"):
                cuda.streamBeginCapture(stream, _THREAD_LOCAL)
            try:
                with current(stream):
                    run_work(self._captured(), runs)
            except NotImplementedError as error:  # CuPy's own, of what it does not capture: cuBLAS
                raise ValueError(str(error)) from error
            finally:  # whatever happens, the capture ends
                with told("cudaStreamEndCapture"):
                    graph = cuda.streamEndCapture(stream)
            with told("cudaGraphInstantiate"):
                self._graphs[runs] = cuda.graphInstantiate(graph)
                cuda.graphDestroy(graph)

    def nodes(self, runs: int) -> int:
        """Nodes of the graph of so many runs; CuPy cannot count them: one for each run is believed."""
        return runs

    def replay(self, runs: int) -> Work:
        """n runs are n replays of the graph of so many runs."""
        self.capture(runs)
        return _Replay(self, runs)


class _GraphOf(Work):
    call = "cudaGraphLaunch"

    def __init__(self, device: int, graphs: dict[int, int], stream: int | None) -> None:
        super().__init__(device, stream=stream)
        self._graphs = graphs

    def _run(self, n: int) -> None:
        if n not in self._graphs:
            raise ValueError(f"no graph of {n} runs was captured")
        runtime().graphLaunch(self._graphs[n], self._stream)


def _reference(work: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(work)
    except TypeError:  # there is no weak reference to it
        return lambda: work


class _Replay(Work):
    call = "cudaGraphLaunch"

    def __init__(self, graphs: Graphs, runs: int) -> None:
        super().__init__(graphs.work.device, graphs, graphs.work._stream)
        self._graph = graphs._graphs[runs]

    def _run(self, n: int) -> None:
        launch = runtime().graphLaunch
        for _ in range(n):
            launch(self._graph, self._stream)


# --- letting go ---------------------------------------------------------------------------------------------------


def destroy_with(owner: object, device: int, streams: Sequence[int], events: Sequence[int]) -> None:
    """Destroy these when their owner goes."""
    weakref.finalize(owner, _destroy, runtime(), device, streams, events)


def _destroy(cuda: Any, device: int, streams: Sequence[int], events: Sequence[int]) -> None:
    _quietly(device, [(cuda.streamDestroy, s) for s in streams] + [(cuda.eventDestroy, e) for e in events])


def _destroy_pool(cuda: Any, device: int, pool: int) -> None:
    _quietly(device, [(cuda.memPoolDestroy, pool)])


def _destroy_graphs(cuda: Any, device: int, graphs: dict[int, int]) -> None:
    _quietly(device, [(cuda.graphExecDestroy, graph) for graph in graphs.values()])


def _quietly(device: int, steps: Sequence[tuple[Any, int]]) -> None:
    """On a lost context nothing can be destroyed, and what a hung kernel uses is not to be waited for."""
    if calls.is_hung(device):
        return
    for destroy, handle in steps:
        try:
            destroy(handle)
        except RuntimeError:
            return
