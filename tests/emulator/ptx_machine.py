"""PTX text run by the test double, without nvcc: a fat binary made here, registered and launched through ctypes."""

from __future__ import annotations

import ctypes
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
HEADER = ".version 9.0\n.target sm_90\n.address_size 64\n"
MAGIC_OF_WRAPPER, MAGIC = 0x466243B1, 0xBA55ED50
ARCHITECTURE = 90
TO_DEVICE, FROM_DEVICE = 1, 2


class EmulatedError(Exception):
    """A call that returned an error; `code` is the runtime's."""

    def __init__(self, call: str, code: int, message: str) -> None:
        super().__init__(f"{call}: {code} {message}")
        self.code = code


class Dim3(ctypes.Structure):
    """dim3."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def fat_binary(ptx: str) -> bytes:
    """A fat binary with one uncompressed PTX entry."""
    text = ptx.encode() + b"\0"
    text += bytes(-len(text) % 8)
    entry = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(text), 0, 0, 0, 9, ARCHITECTURE, 0, 0, 0x11, 0, 0)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(entry) + len(text)) + entry + text


class Machine:
    """The double, loaded into this process."""

    def __init__(self, library: Path) -> None:
        self.cuda = ctypes.CDLL(str(library))
        self._kept: list[Any] = []
        self._names: dict[str, ctypes.Array[ctypes.c_char]] = {}
        for name in ("ptxemu_counts_json", "ptxemu_last_message", "cudaGetErrorName", "cudaGetErrorString"):
            getattr(self.cuda, name).restype = ctypes.c_char_p
        getattr(self.cuda, "__cudaRegisterFatBinary").restype = ctypes.c_void_p

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the runtime. Raises EmulatedError for what it returns but success."""
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise EmulatedError(name, code, self.message())

    def message(self) -> str:
        """The last line that the double logged."""
        return str(self.cuda.ptxemu_last_message().decode())

    def load(self, ptx: str) -> None:
        """Register the kernels of a module; the header may be left out."""
        text = ptx if ".version" in ptx else HEADER + ptx
        data = ctypes.create_string_buffer(fat_binary(text))
        wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", MAGIC_OF_WRAPPER, 1, ctypes.addressof(data), 0))
        handle = ctypes.c_void_p(getattr(self.cuda, "__cudaRegisterFatBinary")(wrapper))
        self._kept += [data, wrapper]
        for name in re.findall(r"\.entry\s+(\w+)", text):
            stub = self._names[name] = ctypes.create_string_buffer(name.encode())
            self._kept.append(stub)
            register = getattr(self.cuda, "__cudaRegisterFunction")
            register(handle, stub, stub, stub, -1, None, None, None, None, None)

    def stub(self, kernel: str) -> Any:
        """What stands for the kernel in calls."""
        return self._names[kernel]

    def enqueue(self, kernel: str, grid: Any, block: Any, *arguments: Any, shared: int = 0, stream: Any = None) -> None:
        """A launch; arguments are NumPy scalars or integers (addresses)."""
        values = [np.uint64(a) if isinstance(a, int) else a for a in arguments]
        kept = [ctypes.create_string_buffer(v.tobytes(), v.nbytes) for v in values]
        pointers = (ctypes.c_void_p * max(len(kept), 1))(*[ctypes.addressof(k) for k in kept])
        shape = [
            Dim3(*((*extent, 1, 1)[:3] if isinstance(extent, tuple) else (extent, 1, 1))) for extent in (grid, block)
        ]
        launch = self.cuda.cudaLaunchKernel
        launch.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.call("cudaLaunchKernel", ctypes.addressof(self.stub(kernel)), *shape, pointers, shared, stream)

    def run(self, kernel: str, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        """Launch and wait."""
        self.enqueue(kernel, grid, block, *arguments, shared=shared)
        self.call("cudaDeviceSynchronize")

    def allocate(self, size_bytes: int, call: str = "cudaMalloc", *more: Any) -> int:
        """Device memory, or what `call` allocates; its address."""
        pointer = ctypes.c_void_p()
        self.call(call, ctypes.byref(pointer), ctypes.c_size_t(size_bytes), *more)
        return pointer.value or 0

    def free(self, address: int, call: str = "cudaFree") -> None:
        self.call(call, ctypes.c_void_p(address))

    def upload(self, array: Array) -> int:
        """Device memory that holds a copy; its address."""
        array = np.ascontiguousarray(array)
        address = self.allocate(max(array.nbytes, 1))
        self.call(
            "cudaMemcpy", ctypes.c_void_p(address), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes),
            TO_DEVICE,
        )  # fmt: skip
        return address

    def download(self, address: int, like: Array) -> Array:
        """A copy of device memory, as `like` is."""
        out = np.empty_like(like)
        self.call(
            "cudaMemcpy", ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(address), ctypes.c_size_t(out.nbytes),
            FROM_DEVICE,
        )  # fmt: skip
        return out

    def counts(self) -> dict[str, Any]:
        """What was executed since the last reset, by kernel."""
        counts: dict[str, Any] = json.loads(self.cuda.ptxemu_counts_json())
        return counts

    def reset(self) -> None:
        """As new: no counts, no injected failures, no error."""
        self.cuda.ptxemu_fail(b"")
        self.call("cudaDeviceReset")
        self.cuda.cudaGetLastError()
        self.cuda.ptxemu_counts_reset()
