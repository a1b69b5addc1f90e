"""A stand-in for CuPy: the few calls that gpumicro makes, on NumPy's memory and a device clock that only work moves.

Streams are queues that are worked off when they are asked: a closed gate holds its queue, so that what the host does
behind it, and in which order, shows. tests/test_cupy_api.py holds the real CuPy to the same names and arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_cupy_kernels import KERNELS, Call, at
from fake_cupy_runtime import FakeError, Runtime, Step

H100 = {
    "name": b"NVIDIA H100 80GB HBM3", "uuid": bytes(range(1, 17)), "major": 9, "minor": 0, "multiProcessorCount": 132,
    "totalGlobalMem": 85 * 10**9, "l2CacheSize": 1 << 20, "sharedMemPerMultiprocessor": 228 << 10,
    "sharedMemPerBlockOptin": 227 << 10, "sharedMemPerBlock": 48 << 10, "maxThreadsPerMultiProcessor": 2048,
    "asyncEngineCount": 3, "ECCEnabled": 1, "unifiedAddressing": 1, "managedMemory": 1, "integrated": 0, "tccDriver": 0,
}  # fmt: skip
TINY = {**H100, "name": b"GPU (emulated)", "multiProcessorCount": 2, "l2CacheSize": 64 << 10}


class FakeCupy:
    """As the module `cupy`. `wrong`: names of kernels (and "memcpyAsync") that spoil what they write; `hangs`: kernels
    that never end; `fails`: call -> CUDA's code."""

    def __init__(self, *devices: Mapping[str, Any]) -> None:
        self.__version__, self.__spec__ = "14.2.0", None
        self.devices = list(devices or (H100,))
        self.now_s, self.launched, self.asked = 0.0, [], []  # type: ignore[var-annotated]
        self.wrong: set[str] = set()
        self.hangs: set[str] = set()
        self.fails: dict[str, int] = {}
        self.compiled: list[tuple[str, tuple[str, ...]]] = []
        self.free_bytes = 1 << 30
        runtime, driver = Runtime(self), Driver(self)
        self.cuda = SimpleNamespace(
            runtime=runtime, driver=driver, nvrtc=Nvrtc(self), cublas=Cublas(self), Stream=Stream(self)
        )
        self.current = 0  # the stream that CuPy launches on

    def RawModule(self, *, path: str) -> Any:
        symbol = Path(path).read_bytes().decode().removeprefix("code of ")
        return SimpleNamespace(get_function=lambda name: Kernel(self, symbol, name))

    def check(self, call: str) -> None:
        """Fails where the test asked for it."""
        self.asked.append(call)
        if call in self.fails:
            raise FakeError(self.fails[call])


class Kernel:
    """As cupy.RawKernel."""

    num_regs, shared_size_bytes, local_size_bytes, ptx_version, binary_version = 40, 0, 0, 90, 90
    max_threads_per_block, max_dynamic_shared_size_bytes = 1024, 48 << 10

    def __init__(self, cupy: FakeCupy, symbol: str, lowered: str) -> None:
        assert lowered == f"_Z{symbol}"
        pointers = cupy.cuda.driver.functions
        pointers.append(symbol)
        self.kernel = SimpleNamespace(ptr=len(pointers) - 1)


class Stream:
    """CuPy's current stream while a `with` lasts."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy = cupy

    def from_external(self, obj: Any) -> Stream:
        version, self.cupy.current = obj.__cuda_stream__()
        assert version == 0
        return self

    def __enter__(self) -> None:
        assert self.cupy.current

    def __exit__(self, *_: object) -> None:
        self.cupy.current = 0


class Nvrtc:
    """Knows the kernels of fake_cupy_kernels and the gate."""

    version = (13, 5)

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.programs, self.alive = cupy, {}, set()  # type: ignore[var-annotated]

    def getVersion(self) -> tuple[int, int]:
        return self.version

    def getSupportedArchs(self) -> tuple[int, ...]:
        return (75, 80, 90, 100, 120)

    def createProgram(self, src: str, name: str, headers: Any, include_names: Any) -> int:
        assert name.endswith(".cu")
        assert headers == include_names == ()
        number = len(self.programs) + 1
        self.programs[number] = [src, None]
        self.alive.add(number)
        return number

    def addNameExpression(self, prog: int, name: str) -> None:
        self.programs[prog][1] = name

    def compileProgram(self, prog: int, options: tuple[str, ...]) -> None:
        symbol = self.programs[prog][1]
        self.cupy.compiled.append((symbol, options))
        if symbol.removeprefix("gm::").partition("<")[0] not in (*KERNELS, "gate"):
            raise FakeError(6)

    def getProgramLog(self, prog: int) -> str:
        return f"a.cuh(1): error: the stand-in has no {self.programs[prog][1]}\n1 error detected\n"

    def getCUBIN(self, prog: int) -> bytes:
        return f"code of {self.programs[prog][1]}".encode()

    getPTX = getCUBIN

    def getLoweredName(self, prog: int, name: str) -> str:
        assert name == self.programs[prog][1]
        return f"_Z{name}"

    def destroyProgram(self, prog: int) -> None:
        self.alive.remove(prog)


class Driver:
    """Launches: kernels run when their stream comes to them."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.functions = cupy, [""]

    def ctxGetCurrent(self) -> int:
        return 1

    def occupancyMaxActiveBlocksPerMultiprocessor(self, func: int, blockSize: int, dynamicSMemSize: int) -> int:
        assert self.functions[func]
        assert dynamicSMemSize >= 0
        return 2048 // blockSize

    def launchKernel(
        self, f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, params: int,
        extra: int,
    ) -> None:  # fmt: skip
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        assert shared >= 0
        self.cupy.check("launchKernel")
        symbol = self.functions[f]
        self.cupy.launched.append(symbol)
        where = self.cupy.cuda.runtime.streams[stream]
        if symbol == "gm::gate":
            where.put(self._gate(params))
        elif symbol.removeprefix("gm::").partition("<")[0] in self.cupy.hangs:
            where.put(lambda: False)
        else:
            where.put(self._kernel(Call(symbol, params, gx, bx)))

    def _gate(self, params: int) -> Step:
        call = Call("gm::gate", params, 1, 32)  # the driver copies arguments at the launch
        opened, expired = call.value(0), call.value(2)
        ticket, timeout_ns = call.value(1, ctypes.c_uint32), call.value(3, ctypes.c_uint64)
        waited_ns = 0

        def step() -> bool:
            nonlocal waited_ns
            if ctypes.c_uint32.from_address(opened).value >= ticket:
                return True
            waited_ns += 1000  # as seen by one who asks
            if waited_ns < timeout_ns:
                return False
            ctypes.c_uint32.from_address(expired).value = ticket
            return True

        return step

    def _kernel(self, call: Call) -> Step:
        def step() -> bool:
            self.cupy.now_s += KERNELS[call.name](call)
            if call.name in self.cupy.wrong:
                call.array({"read": 1, "dot": 2}.get(call.name, 0), 4, "int8")[:] ^= 0x55
            return True

        return step


class Cublas:
    """One product, in NumPy."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy = cupy
        self.handles = 0

    def create(self) -> int:
        self.handles += 1
        return 7

    def destroy(self, handle: int) -> None:
        assert handle == 7
        self.handles -= 1

    def getVersion(self, _handle: int) -> int:
        return 130100

    def gemmEx(
        self, _handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int,
        B: int, Btype: int, ldb: int, beta: int, C: int, Ctype: int, ldc: int, computeType: int, algo: int,
    ) -> None:  # fmt: skip
        assert (transb, algo) == (0, -1)
        assert Atype == Btype
        kinds = {0: "float32", 1: "float64", 2: "float16", 3: "int8", 10: "int32"}
        scalar = {70: ctypes.c_double, 72: ctypes.c_int32}.get(computeType, ctypes.c_float)
        assert (scalar.from_address(alpha).value, scalar.from_address(beta).value) == (1, 0)
        # In columns, as BLAS has it: a matrix of r rows and leading dimension ld is `at(...).reshape(-1, ld)[:, :r].T`.
        left = at(A, (m if transa else k) * lda, kinds[Atype]).reshape(-1, lda).T
        left = left[:k].T if transa else left[:m]
        right = at(B, n * ldb, kinds[Btype]).reshape(n, ldb).T[:k]

        def step() -> bool:
            product = left.astype(np.float64) @ right.astype(np.float64)
            at(C, n * ldc, kinds[Ctype]).reshape(n, ldc)[:, :m] = product.T
            self.cupy.now_s += 1e-5
            return True

        self.cupy.cuda.runtime.streams[self.cupy.current].put(step)
