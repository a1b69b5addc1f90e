"""The part of tests/fake_cupy.py that stands for `cupy.cuda.runtime`: memory, streams, events, graphs, errors."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

ATTRIBUTES = {
    "cudaDevAttrClockRate": 1_980_000, "cudaDevAttrMemoryClockRate": 2_619_000, "cudaDevAttrGlobalMemoryBusWidth": 5120,
    "cudaDevAttrComputeMode": 0, "cudaDevAttrCooperativeLaunch": 1, "cudaDevAttrMemoryPoolsSupported": 1,
}  # fmt: skip
NAMES = {
    2: ("cudaErrorMemoryAllocation", "out of memory"), 35: ("cudaErrorInsufficientDriver", "the driver is too old"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device"), 700: ("cudaErrorIllegalAddress", "an illegal memory access"),
    704: ("cudaErrorPeerAccessAlreadyEnabled", "on"), 705: ("cudaErrorPeerAccessNotEnabled", "off"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
}  # fmt: skip
NOT_READY = 600
TICK_S, EVENT_S = 32e-9, 1.2e-6  # of the event clock; what a pair with nothing between reads
BYTES_PER_S = 5e10

Step = Callable[[], bool]  # whether it is done


class FakeError(RuntimeError):
    """As CUDARuntimeError and CUDADriverError: a status, and "name: text"."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(": ".join(NAMES.get(status, (f"error{status}", "?"))))


class Stream:
    """A queue of steps; `capturing`: what is enqueued is kept instead."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque()
        self.capturing: list[Step] | None = None

    def put(self, step: Step) -> None:
        if self.capturing is not None:
            self.capturing.append(step)
            return
        self.steps.append(step)
        self.drain()

    def drain(self) -> bool:
        """Work off what can be; whether all is done."""
        while self.steps and self.steps[0]():
            self.steps.popleft()
        return not self.steps


class Runtime:
    """One host thread's CUDA runtime; `cupy` is the FakeCupy that it belongs to."""

    CUDARuntimeError = FakeError
    cudaMemPoolAttrReleaseThreshold = 4

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.device = cupy, 0
        self.memory: dict[int, Any] = {}
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, list[Any]] = {}  # [times recorded but not reached, the device's time]
        self.graphs: dict[int, list[Step]] = {}
        self.pools: set[int] = set()
        self._last = 1000
        self._rng = np.random.default_rng(5)
        for name in ATTRIBUTES:
            setattr(self, name, name)

    def _handle(self) -> int:
        self._last += 1
        return self._last

    # --- devices ---

    def driverGetVersion(self) -> int:
        self.cupy.check("driverGetVersion")
        return 13000

    def runtimeGetVersion(self) -> int:
        return 13000

    def getDeviceCount(self) -> int:
        self.cupy.check("getDeviceCount")
        return len(self.cupy.devices)

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        self.cupy.check("getDeviceProperties")
        return dict(self.cupy.devices[device])

    def deviceGetAttribute(self, attrib: str, _device: int) -> int:
        return ATTRIBUTES[attrib]

    def deviceGetPCIBusId(self, device: int) -> str:
        return f"0000:0{device}:00.0"

    def getDevice(self) -> int:
        return self.device

    def setDevice(self, device: int) -> None:
        self.device = device

    def deviceCanAccessPeer(self, device: int, peerDevice: int) -> int:
        return int(device != peerDevice)

    def deviceEnablePeerAccess(self, _peer: int) -> None:
        self.cupy.check("deviceEnablePeerAccess")

    def deviceDisablePeerAccess(self, _peer: int) -> None:
        self.cupy.check("deviceDisablePeerAccess")

    # --- memory ---

    def malloc(self, size: int) -> int:
        self.cupy.check("malloc")
        raw = np.full(size + 256, 0xA5, np.uint8)  # as CUDA's: 256-byte aligned, with what was there before
        address = int(raw.ctypes.data + -raw.ctypes.data % 256)
        self.memory[address] = raw
        return address

    def mallocManaged(self, size: int, flags: int = 1) -> int:
        assert flags == 1
        return self.malloc(size)

    def hostAlloc(self, size: int, flags: int) -> int:
        assert flags == 3
        return self.malloc(size)

    def free(self, ptr: int) -> None:
        self.cupy.check("free")
        del self.memory[ptr]

    def freeHost(self, ptr: int) -> None:
        self.free(ptr)

    def memGetInfo(self) -> tuple[int, int]:
        return self.cupy.free_bytes, 1 << 30

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        assert kind in (1, 2, 3, 4)
        self.cupy.check("memcpyAsync")

        def step() -> bool:
            ctypes.memmove(dst, src, size)
            if "memcpyAsync" in self.cupy.wrong and kind != 4:  # by direction, as works copy
                ctypes.memset(dst + size - 1, 1 ^ ctypes.c_uint8.from_address(src + size - 1).value, 1)
            self.cupy.now_s += 2e-6 + size / BYTES_PER_S
            return True

        self.streams[stream].put(step)

    def memcpyPeerAsync(self, dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int) -> None:
        assert dstDevice != srcDevice
        self.memcpyAsync(dst, src, size, 4, stream)

    def memsetAsync(self, ptr: int, value: int, size: int, stream: int) -> None:
        def step() -> bool:
            ctypes.memset(ptr, value, size)
            return True

        self.streams[stream].put(step)

    def MemPoolProps(self, allocType: int, handleType: int, locationType: int, devId: int) -> Any:
        return SimpleNamespace(of=(allocType, handleType, locationType, devId))

    def memPoolCreate(self, props: Any) -> int:
        assert props.of[:3] == (1, 0, 1)
        self.pools.add(self._handle())
        return self._last

    def memPoolSetAttribute(self, _pool: int, attr: int, value: int) -> None:
        assert (attr, value) == (4, 2**64 - 1)

    def memPoolDestroy(self, pool: int) -> None:
        self.pools.remove(pool)

    def mallocFromPoolAsync(self, size: int, pool: int, _stream: int) -> int:
        assert pool in self.pools
        return self.malloc(size)

    def freeAsync(self, ptr: int, _stream: int) -> None:
        self.free(ptr)

    # --- streams and events ---

    def streamCreateWithFlags(self, flags: int) -> int:
        assert flags == 1
        self.streams[self._handle()] = Stream()
        return self._last

    def streamDestroy(self, stream: int) -> None:
        del self.streams[stream]

    def streamQuery(self, stream: int) -> int:
        if "streamQuery" in self.cupy.fails:
            return int(self.cupy.fails["streamQuery"])
        return 0 if self.streams[stream].drain() else NOT_READY

    def streamSynchronize(self, stream: int) -> None:
        if self.streams[stream].capturing is not None:
            raise FakeError(900)
        for _ in range(10_000_000):
            if self.streams[stream].drain():
                return
        raise AssertionError("the stream never ends")

    def streamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        assert flags == 0
        self.streams[stream].put(lambda: self.events[event][0] == 0)

    def eventCreateWithFlags(self, flags: int) -> int:
        assert flags in (0, 2)
        self.events[self._handle()] = [0, 0.0]
        return self._last

    def eventDestroy(self, event: int) -> None:
        del self.events[event]

    def eventRecord(self, event: int, stream: int) -> None:
        held = self.events[event]
        held[0] += 1

        def step() -> bool:
            held[0] -= 1
            held[1] = self.cupy.now_s
            return True

        self.streams[stream].put(step)

    def eventQuery(self, event: int) -> int:
        if "eventQuery" in self.cupy.fails:
            return int(self.cupy.fails["eventQuery"])
        for stream in self.streams.values():
            stream.drain()
        return NOT_READY if self.events[event][0] else 0

    def eventSynchronize(self, event: int) -> None:
        assert self.eventQuery(event) == 0

    def eventElapsedTime(self, start: int, end: int) -> float:
        took_s = EVENT_S + self.events[end][1] - self.events[start][1]
        took_s *= 1 + 0.002 * self._rng.normal()
        return float(np.float32(1e3 * TICK_S * np.floor(took_s / TICK_S + self._rng.uniform())))

    # --- graphs ---

    def streamBeginCapture(self, stream: int, mode: int) -> None:
        assert mode == 1
        self.streams[stream].capturing = []

    def streamEndCapture(self, stream: int) -> int:
        self.graphs[self._handle()] = self.streams[stream].capturing or []
        self.streams[stream].capturing = None
        return self._last

    def graphInstantiate(self, graph: int) -> int:
        self.graphs[self._handle()] = self.graphs[graph]
        return self._last

    def graphDestroy(self, graph: int) -> None:
        del self.graphs[graph]

    def graphExecDestroy(self, graphExec: int) -> None:
        del self.graphs[graphExec]

    def graphLaunch(self, graphExec: int, stream: int) -> None:
        for step in self.graphs[graphExec]:
            self.streams[stream].put(step)
