from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

from .._core.timing import Work
from . import gemm as gemm
from . import nccl as nccl
from . import timing as timing

class _Build(TypedDict):
    compiler: str
    host_compiler: str
    architectures: list[str]
    cudart: Literal["static", "shared"]
    flags: str

class _Probe(TypedDict):
    count: int
    code: int
    error: str
    text: str
    driver: int
    runtime: int

class _Facts(TypedDict):
    name: str
    uuid: str
    pci_bus_id: str
    compute_capability: str
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    max_threads_per_sm: int
    clock_hz: float | None
    memory_clock_hz: float | None
    memory_bus_bits: int | None
    ecc: bool
    unified_addressing: bool
    managed: bool
    integrated: bool
    copy_engines: int
    compute_mode: int | None
    cooperative_launch: int | None
    tcc: bool
    mig: bool
    emulated: bool

class _Attributes(TypedDict):
    registers: int
    shared_bytes: int
    local_bytes: int
    ptx_version: int
    binary_version: int
    max_threads: int

build: _Build  # how this module was made

def probe() -> _Probe:
    """Devices that this process may use, and what the first call said; versions as CUDA's integers, 0 for none."""

def device_facts(index: int) -> _Facts:
    """What the runtime says of a device. Raises CudaError."""

def free_memory(device: int) -> tuple[int, int]:
    """Bytes free and in all, of the device's memory; makes the context. Raises CudaError."""

def stream(device: int) -> int:
    """The handle of the stream that everything of ours runs on."""

def synchronize(device: int, *, limit_s: float = 120.0) -> None:
    """Wait for the measuring stream. Raises CudaError where its work failed or does not end within the limit."""

def synchronize_device(device: int) -> None:
    """Wait for all work of the device, other libraries' streams too. Raises CudaError."""

def symbols() -> list[str]:
    """The kernels compiled in, by name expression."""

def attributes(symbol: str, device: int) -> _Attributes:
    """What the compiler made of a kernel; versions as 90 for 9.0. Raises CudaError, ValueError for no such kernel."""

def occupancy(symbol: str, device: int, block_threads: int, shared_bytes: int) -> int:
    """Blocks that one SM holds at a time."""

def tensor_map(
    address: int,
    dtype: str,
    sizes: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle_bytes: int,
) -> bytes:
    """A TMA descriptor, 128 bytes; sizes and box in elements, fastest dimension first, one stride fewer.

    Raises ValueError for what a descriptor cannot say, RuntimeError where the driver has no TMA, CudaError where it
    refuses.
    """

class Buffer:
    """Memory: "device", "pinned" (page-locked in the host), "managed" or "host". Closing it twice is no error."""

    def __init__(self, device: int, size_bytes: int, kind: str = "device") -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def upload(self, array: npt.NDArray[np.generic], offset_bytes: int = 0) -> None: ...
    def download(self, offset_bytes: int = 0, size_bytes: int | None = None) -> npt.NDArray[np.uint8]:
        """So many bytes from there on, None for all that follow. Raises ValueError where they are not all in it."""

    def fill(self, byte: int) -> None: ...
    def close(self) -> None: ...

class Launch:
    """A kernel with its shape and arguments. `keep` lives as long: the buffers that the arguments point into.

    Raises ValueError where the arguments are not the kernel's, CudaError where the device cannot run it.
    """

    def __init__(
        self,
        kernel: str | ModuleKernel,  # a name of `symbols`, or a module's
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[bytes],
        device: int,
        keep: object,
    ) -> None: ...
    @property
    def work(self) -> Work:
        """Enqueues on the measuring stream and returns; a device timer waits."""

    @property
    def symbol(self) -> str: ...
    @property
    def shape(self) -> str: ...
    def run(self, n: int = 1, *, limit_s: float = 120.0) -> None:
        """Launch n times and wait. Raises CudaError."""

class Module:
    """A cubin, a fat binary or PTX (with its NUL), loaded on a device. It stays loaded while a kernel of it lives.

    Raises CudaError, with the assembler's words, where the device cannot run it; RuntimeError where the driver
    (CUDA 12.0) or the CUDA of this build (12.8) is too old.
    """

    def __init__(self, image: bytes, device: int) -> None: ...
    def kernel(self, name: str, shown: str = "") -> ModuleKernel:
        """By its name in the image (mangled); messages call it `shown`. Raises CudaError where there is none."""

class ModuleKernel:
    """A kernel of a module, which a Launch takes in place of a symbol."""

    @property
    def name(self) -> str: ...
    def attributes(self, device: int) -> _Attributes: ...
    def occupancy(self, device: int, block_threads: int, shared_bytes: int) -> int: ...
