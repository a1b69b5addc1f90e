"""Memory of a device or the host, the stream that everything of ours runs on, and waiting for it with a limit."""

from __future__ import annotations

import ctypes
import time
import weakref
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import CudaError, OutOfMemory
from . import calls
from .calls import OnDevice, told
from .found import cupy, runtime

Kind = Literal["device", "pinned", "managed", "host"]
PAGE_BYTES = 4096
WAIT_S = 120.0  # a kernel cannot be stopped from outside: after this the device is as good as lost to this process
BUSY_S, NAP_S = 1e-3, 50e-6  # most work is done within the first: no sleep, no delay
_PORTABLE_MAPPED = 0x01 | 0x02  # cudaHostAllocPortable | cudaHostAllocMapped
_NON_BLOCKING = 0x01  # cudaStreamNonBlocking: it does not wait for the default stream
_ANY_WAY = 4  # cudaMemcpyDefault

_streams: weakref.WeakKeyDictionary[Any, dict[int, int]] = weakref.WeakKeyDictionary()  # by CuPy's runtime, device


def measuring_stream(device: int) -> int:
    """Handle of the device's stream; made when first asked for and never destroyed."""
    mine = _streams.setdefault(runtime(), {})
    if device not in mine:
        with OnDevice(device), told("cudaStreamCreateWithFlags"):
            mine[device] = runtime().streamCreateWithFlags(_NON_BLOCKING)
    return mine[device]


class _Handle:
    """A stream by its handle, as other libraries take it."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream


def current(stream: int) -> Any:
    """A context in which CuPy launches on the stream of this handle. The stream's device must be the current one."""
    cuda = cupy().cuda
    if hasattr(cuda.Stream, "from_external"):  # since CuPy 14, which warns of the other
        return cuda.Stream.from_external(_Handle(stream))
    return cuda.ExternalStream(stream)


def wait_for(device: int, query: Any, handle: int, call: str, limit_s: float = WAIT_S) -> None:
    """Until `query(handle)` gives 0, asked again and again since the calls that wait know no limit.

    Raises what the query found, and CudaError (cudaErrorLaunchTimeout, lost) after `limit_s`; Ctrl-C passes. Whoever
    leaves early leaves the device at work: it counts as hung until it is seen to be done.
    """
    since = time.perf_counter()
    if calls.is_hung(device):
        limit_s = 0.0  # asked once more, not waited for
    try:
        while (code := query(handle)) == calls.NOT_READY:
            waited_s = time.perf_counter() - since
            if waited_s < BUSY_S and limit_s > 0:
                continue
            if waited_s > limit_s or limit_s == 0.0:
                raise hangs(call, limit_s)
            time.sleep(NAP_S)
    except (CudaError, KeyboardInterrupt):
        calls.set_hung(device, True)
        raise
    if code != 0:
        raise calls.failed_query(code, call)
    calls.set_hung(device, False)


def hangs(call: str, limit_s: float) -> CudaError:
    """The error of a kernel that does not end."""
    text = f"the kernel hangs: it did not end within {limit_s:g} s" if limit_s else "an earlier kernel still hangs"
    return calls.failed(call, calls.LAUNCH_TIMEOUT, "cudaErrorLaunchTimeout", text, lost=True)


def synchronize(device: int, limit_s: float = WAIT_S) -> None:
    """Wait for the device's measuring stream."""
    wait_for(device, runtime().streamQuery, measuring_stream(device), "cudaStreamQuery", limit_s)


class Buffer:
    """`size_bytes` bytes at `address`, of one kind: on a device, managed, or the host's, page-locked or not.

    Raises OutOfMemory or CudaError. Uploads, downloads and fills are in order with the measuring stream and done when
    they return.
    """

    def __init__(self, device: int, size_bytes: int, kind: Kind = "device") -> None:
        if kind not in get_args(Kind):
            raise ValueError(f"unknown kind of memory {kind!r}: {', '.join(get_args(Kind))}")
        self.device, self.size_bytes, self.kind = device, size_bytes, kind
        self.address = 0
        self._host: npt.NDArray[np.uint8] | None = None
        if size_bytes == 0:
            return
        if kind == "host":
            self._host = _aligned(size_bytes)
            self.address = self._host.ctypes.data
            return
        with OnDevice(device), told(_CALLS[kind]):
            self.address = _take(kind, size_bytes)
        self._release = weakref.finalize(self, _give_back, runtime(), kind, device, self.address)

    def upload(self, array: npt.NDArray[Any], offset_bytes: int = 0) -> None:
        """Write the array's bytes from `offset_bytes` on. ValueError where they do not fit."""
        source = np.ascontiguousarray(array)
        if offset_bytes < 0 or offset_bytes + source.nbytes > self.size_bytes:
            raise ValueError(f"{source.nbytes} bytes at {offset_bytes} do not fit into a buffer of {self.size_bytes}")
        self._copy(self.address + offset_bytes, source.ctypes.data, source.nbytes)

    def download(self) -> npt.NDArray[np.uint8]:
        """A copy of all bytes."""
        to = np.empty(self.size_bytes, np.uint8)
        self._copy(to.ctypes.data, self.address, self.size_bytes)
        return to

    def fill(self, byte: int) -> None:
        """Set every byte."""
        if self._host is not None:
            self._host[:] = byte
        elif self.size_bytes:
            with OnDevice(self.device):
                with told("cudaMemsetAsync"):
                    runtime().memsetAsync(self.address, byte, self.size_bytes, measuring_stream(self.device))
                synchronize(self.device)

    def close(self) -> None:
        """Free it."""
        if self._host is not None:
            self._host = None
        elif self.address:
            self._release()
        self.address = self.size_bytes = 0

    def _copy(self, to: int, source: int, size_bytes: int) -> None:
        if size_bytes == 0:
            return
        if self._host is not None:
            ctypes.memmove(to, source, size_bytes)
            return
        with OnDevice(self.device):
            with told("cudaMemcpyAsync"):
                runtime().memcpyAsync(to, source, size_bytes, _ANY_WAY, measuring_stream(self.device))
            synchronize(self.device)


_CALLS = {"device": "cudaMalloc", "pinned": "cudaHostAlloc", "managed": "cudaMallocManaged"}


def _take(kind: str, size_bytes: int) -> int:
    if kind == "pinned":
        return int(runtime().hostAlloc(size_bytes, _PORTABLE_MAPPED))
    return int(runtime().malloc(size_bytes) if kind == "device" else runtime().mallocManaged(size_bytes))


def _give_back(cuda: Any, kind: str, device: int, address: int) -> None:
    """An address belongs to its device, whichever is current. On a lost context nothing is left to free."""
    try:
        if calls.is_hung(device) and cuda.streamQuery(_streams[cuda][device]) != 0:
            return  # freeing waits for the device
        (cuda.freeHost if kind == "pinned" else cuda.free)(address)
    except RuntimeError:
        return


def _aligned(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Pageable memory from a page's begin on."""
    try:
        raw = np.empty(size_bytes + PAGE_BYTES, np.uint8)
    except MemoryError as error:
        raise OutOfMemory(f"the operating system gave no {size_bytes / 2**20:.0f} MiB of memory") from error
    begin = -raw.ctypes.data % PAGE_BYTES
    return raw[begin : begin + size_bytes]


def free_memory(device: int) -> tuple[int, int]:
    """(free, all) bytes of a device's memory."""
    with OnDevice(device), told("cudaMemGetInfo"):
        free, total = runtime().memGetInfo()
    return int(free), int(total)
