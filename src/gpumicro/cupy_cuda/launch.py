"""Kernels on a device: compiled when first asked for, launched as `_cuda.Launch` does it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import UsageError
from . import calls, compiler
from .calls import OnDevice, told
from .found import cupy, driver, runtime
from .memory import synchronize
from .work import Work

USUAL_SHARED_BYTES = 48 << 10  # that every block may have without asking
Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel on one device."""

    kernel: Any  # cupy.RawKernel, which keeps its module
    function: int  # CUfunction
    image: compiler.Image


_loaded: WeakKeyDictionary[Any, dict[tuple[int, str], Loaded]] = WeakKeyDictionary()  # by CuPy


def load(symbol: str, device: int) -> Loaded:
    """The kernel on that device. BackendUnavailable where it cannot be compiled, CudaError where not be loaded."""
    mine, key = _loaded.setdefault(cupy(), {}), (device, symbol)
    if key not in mine:
        with OnDevice(device):
            with told("cudaGetDeviceProperties"):
                found = runtime().getDeviceProperties(device)
            image = compiler.compile_symbol(symbol, (found["major"], found["minor"]))
            with told("cuModuleLoad"):
                kernel = compiler.load_image(image)
                mine[key] = Loaded(kernel, kernel.kernel.ptr, image)
    return mine[key]


def attributes(symbol: str, device: int) -> dict[str, int]:
    """What the compiler made of a kernel, under the keys of `_cuda.attributes`."""
    with OnDevice(device), told("cuFuncGetAttribute"):
        kernel = load(symbol, device).kernel
        return {
            "registers": kernel.num_regs,
            "shared_bytes": kernel.shared_size_bytes,
            "local_bytes": kernel.local_size_bytes,
            "ptx_version": kernel.ptx_version,
            "binary_version": kernel.binary_version,
            "max_threads": kernel.max_threads_per_block,
        }


def occupancy(symbol: str, device: int, block_threads: int, shared_bytes: int) -> int:
    """Blocks of that shape that an SM holds at once."""
    with OnDevice(device), told("cuOccupancyMaxActiveBlocksPerMultiprocessor"):
        found = load(symbol, device)
        _allow_shared(found.kernel, shared_bytes)
        return int(driver().occupancyMaxActiveBlocksPerMultiprocessor(found.function, block_threads, shared_bytes))


def _allow_shared(kernel: Any, shared_bytes: int) -> None:
    if shared_bytes > USUAL_SHARED_BYTES and kernel.max_dynamic_shared_size_bytes < shared_bytes:
        kernel.max_dynamic_shared_size_bytes = shared_bytes


class Launch:
    """One launch, its arguments as their bytes (little-endian), made ready once: a run is one call of the driver.

    `work` is what a timer runs: it enqueues on the measuring stream, or on `stream`. keep: objects whose memory it
    uses. Raises BackendUnavailable, CudaError, UsageError for a symbol that no file has.
    """

    def __init__(
        self, symbol: str, grid: Extent, block: Extent, shared_bytes: int, arguments: Sequence[bytes], device: int,
        keep: Any = None, stream: int | None = None,
    ) -> None:  # fmt: skip
        if any(len(argument) == 0 for argument in arguments):
            raise UsageError(f"{symbol}: an argument of no bytes")
        shape = "grid {}x{}x{}, block {}x{}x{}".format(*grid, *block)
        shape += f", {shared_bytes} bytes of dynamic shared memory"
        calls.note_launch(symbol, shape)
        self._loaded = load(symbol, device)
        with OnDevice(device), told("cuFuncSetAttribute"):
            _allow_shared(self._loaded.kernel, shared_bytes)
        call = (self._loaded.function, *grid, *block, shared_bytes)
        self.work = LaunchWork(device, (keep, self._loaded), stream, (symbol, shape), call, arguments)

    @property
    def facts(self) -> dict[str, Any]:
        """How it was compiled: seconds (0 from the cache), options, for what."""
        image = self._loaded.image
        flags = [option for option in image.options if not option.startswith("-I")]
        return {"compile_s": image.seconds, "flags": " ".join(flags), "compiled_for": image.architecture}

    def run(self, n: int = 1) -> None:
        """Launch n times and wait. Raises CudaError."""
        self.work.enqueue(n)
        synchronize(self.work.device)


class LaunchWork(Work):
    """Launches a kernel; see `Launch`."""

    call = "cuLaunchKernel"

    def __init__(
        self, device: int, keep: Any, stream: int | None, names: tuple[str, str], call: tuple[int, ...],
        arguments: Sequence[bytes],
    ) -> None:  # fmt: skip
        super().__init__(device, keep, stream)
        self._names, self._call = names, call
        self._storage = [ctypes.create_string_buffer(argument, len(argument)) for argument in arguments]
        self._pointers = (ctypes.c_void_p * max(len(arguments), 1))(*map(ctypes.addressof, self._storage))

    def _run(self, n: int) -> None:
        launch, call = driver().launchKernel, self._call
        stream, parameters = self._stream, ctypes.addressof(self._pointers)
        calls.note_launch(*self._names)
        for _ in range(n):
            launch(*call, stream, parameters, 0)

    def set_argument(self, place: int, value: bytes) -> None:
        """Other bytes of the same length from the next launch on."""
        ctypes.memmove(self._storage[place], value, len(self._storage[place]))
