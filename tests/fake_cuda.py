"""A stand-in for gpumicro._cuda in plain Python: memory is NumPy's, and a launch does what the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

H100 = {
    "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-00000000-0000-0000-0000-000000000001", "pci_bus_id": "0000:01:00.0",
    "compute_capability": "9.0", "sm_count": 132, "memory_bytes": 85 * 10**9, "l2_bytes": 50 << 20,
    "shared_bytes_per_sm": 228 << 10, "shared_bytes_per_block": 227 << 10, "max_threads_per_sm": 2048,
    "clock_hz": 1.98e9, "memory_clock_hz": 2.619e9, "memory_bus_bits": 5120, "ecc": True, "unified_addressing": True,
    "managed": True, "integrated": False, "copy_engines": 3, "compute_mode": 0, "cooperative_launch": 1, "tcc": False,
    "mig": False, "emulated": False,
}  # fmt: skip
NO_DRIVER = {
    "count": 0, "code": 35, "error": "cudaErrorInsufficientDriver", "text": "CUDA driver version is insufficient",
    "driver": 0, "runtime": 13000,
}  # fmt: skip

Kernel = Callable[[Sequence[Any]], None]


class Buffer:
    """Memory at a made-up address."""

    def __init__(self, cuda: FakeCuda, size_bytes: int) -> None:
        self.address = cuda.next_address
        self.size_bytes = size_bytes
        self.memory = np.full(size_bytes, 0xA5, np.uint8)  # as CUDA's: what was there before
        self.downloads = 0
        cuda.next_address += size_bytes + 256
        cuda.buffers[self.address] = self

    def upload(self, array: npt.NDArray[Any], offset_bytes: int = 0) -> None:
        raw = np.frombuffer(array.tobytes(), np.uint8)
        self.memory[offset_bytes : offset_bytes + len(raw)] = raw

    def download(self) -> npt.NDArray[np.uint8]:
        self.downloads += 1
        return self.memory.copy()

    def fill(self, byte: int) -> None:
        self.memory[:] = byte

    def close(self) -> None:
        self.memory = np.zeros(0, np.uint8)


class FakeCuda:
    """As the module: `devices` are facts by index; `kernels` say what a symbol does to (arguments as bytes)."""

    def __init__(self, devices: Sequence[Mapping[str, Any]] = (), probe: Mapping[str, Any] | None = None) -> None:
        self.devices = list(devices)
        self.build = {
            "compiler": "nvcc 13.0.88", "host_compiler": "GNU 12.2.0", "architectures": ["90a-real"],
            "cudart": "static", "flags": "-O3",
        }  # fmt: skip
        ready = {"count": len(self.devices), "code": 0, "error": "", "text": "", "driver": 13000, "runtime": 13000}
        self.answer = dict(probe or ready)
        self.kernels: dict[str, Kernel] = {}
        self.buffers: dict[int, Buffer] = {}
        self.made: list[int] = []  # sizes of all buffers, in order
        self.launched: list[str] = []
        self.free_bytes = 1 << 30
        self.next_address = 1 << 20

    def probe(self) -> dict[str, Any]:
        return self.answer

    def device_facts(self, index: int) -> Mapping[str, Any]:
        return self.devices[index]

    def free_memory(self, _device: int) -> tuple[int, int]:
        return self.free_bytes, 1 << 30

    def symbols(self) -> list[str]:
        return list(self.kernels)

    def attributes(self, _symbol: str, _device: int) -> dict[str, int]:
        return {
            "registers": 40, "shared_bytes": 16, "local_bytes": 0, "ptx_version": 90, "binary_version": 90,
            "max_threads": 1024,
        }  # fmt: skip

    def occupancy(self, _symbol: str, _device: int, block_threads: int, _shared_bytes: int) -> int:
        return 2048 // block_threads

    def Buffer(self, _device: int, size_bytes: int, _kind: str = "device") -> Buffer:
        self.made.append(size_bytes)
        return Buffer(self, size_bytes)

    def Launch(
        self, symbol: str, grid: Any, block: Any, shared_bytes: int, arguments: Sequence[bytes], device: int, keep: Any
    ) -> Any:
        del grid, block, shared_bytes, device

        def run(n: int = 1) -> None:
            for _ in range(n):
                self.launched.append(symbol)
                self.kernels.get(symbol, lambda _: None)(arguments)

        return SimpleNamespace(run=run, work=object(), keep=keep)

    def at(self, pointer: bytes, dtype: str) -> npt.NDArray[Any]:
        """The memory that an argument points to, to be written."""
        return self.buffers[int.from_bytes(pointer, "little")].memory.view(dtype)
