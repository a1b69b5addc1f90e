"""A GPU of virtual time with streams, and the few attributes of PyTorch, CuPy and Numba that lead work to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpumicro.device_timers import EventTimer
from gpumicro.works import gpu, stream

FRAMEWORKS = ("torch", "jax", "cupy", "numba.cuda")  # modules that are looked up
MEASURING = 77  # handle of the measuring stream here


class FakeGpu:
    """Each stream is busy until some moment; the host waits for one or for all."""

    def __init__(self) -> None:
        self.t = 0.0
        self.until: dict[int, float] = {}
        self.current = [0]  # the frameworks' stream, innermost last
        self.launched: list[int] = []  # stream of each launch

    def launch(self, seconds: float, on: int | None = None) -> None:
        where = self.current[-1] if on is None else int(on)
        self.launched.append(where)
        self.until[where] = max(self.t, self.until.get(where, 0.0)) + seconds

    def wait(self, where: int) -> None:
        self.t = max(self.t, self.until.get(where, 0.0))

    def synchronize(self, *_: Any) -> None:
        self.t = max([self.t, *self.until.values()])

    def now(self) -> float:
        return self.t

    @contextmanager
    def made_current(self, handle: int) -> Iterator[None]:
        self.current.append(int(handle))
        try:
            yield
        finally:
            self.current.pop()


class GpuClock:
    """What `_cuda.timing.EventClock` is, on a FakeGpu: work is called, and what it queued on the stream is timed."""

    gate_timeout_s, phase_s = 1.0, 0.0

    def __init__(self, device: FakeGpu, handle: int) -> None:
        self.gpu, self.stream = device, handle
        self.walls_s = np.zeros(0)
        self.rng = np.random.default_rng(0)

    def now(self) -> float:
        return self.gpu.t

    def gate_holds(self) -> bool:
        return True

    def spin(self, step: int) -> Any:
        return lambda: self.gpu.launch(step * 0.7e-9, self.stream)

    def sample(self, work: Any, counts: Any, gated: bool = True, queue_limit: int = 500) -> Any:
        del gated, queue_limit
        spans = [self.span(work, count) for count in np.asarray(counts).tolist()]
        self.walls_s = np.array(spans) + 8e-6
        return np.array(spans)

    def span(self, work: Any, count: int) -> float:
        self.gpu.wait(self.stream)
        began_s = self.gpu.t
        self.gpu.launch(1e-6 * self.rng.uniform(0.9, 1.1), self.stream)
        for _ in range(count):
            work()
        self.gpu.wait(self.stream)
        return self.gpu.t - began_s


class Tensor:
    """Of the fake PyTorch."""

    def __init__(self, kind: str = "cuda", index: int | None = 0) -> None:
        self.device = SimpleNamespace(type=kind, index=index)
        self._version = 0


def fake_torch(device: FakeGpu) -> ModuleType:
    torch = ModuleType("torch")
    made: Any = torch
    made.Tensor, made.version = Tensor, SimpleNamespace(hip=None)
    made.nn = SimpleNamespace(Module=type("Module", (), {}))
    made.cuda = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, current_device=lambda: 0,
        synchronize=device.synchronize, stream=device.made_current,
        ExternalStream=lambda stream_ptr, device: int(stream_ptr),  # noqa: ARG005
    )  # fmt: skip
    made.mps = SimpleNamespace(synchronize=device.synchronize)
    return torch


class CupyArray:
    device = SimpleNamespace(id=1)


class RawKernel:
    """Launched by its call, on CuPy's current stream."""

    def __init__(self, device: FakeGpu, seconds: float) -> None:
        self.gpu, self.seconds, self.calls = device, seconds, []  # type: ignore[var-annotated]

    def __call__(self, grid: Any, block: Any, args: Any) -> None:
        self.calls.append((grid, block, args))
        self.gpu.launch(self.seconds)


RawKernel.__module__ = "cupy._core.raw"


def fake_cupy(device: FakeGpu) -> ModuleType:
    cupy = ModuleType("cupy")
    made: Any = cupy
    made.ndarray = CupyArray

    def from_external(other: Any) -> Any:
        return device.made_current(other.__cuda_stream__()[1])

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

        def synchronize(self) -> None:
            device.synchronize()

    made.cuda = SimpleNamespace(
        is_available=lambda: True, Device=Device, Stream=SimpleNamespace(from_external=from_external),
        runtime=SimpleNamespace(getDevice=lambda: 0),
    )  # fmt: skip
    return cupy


class CUDADispatcher:
    """Numba's kernel: launched by its configuration, on the stream in there."""

    def __init__(self, device: FakeGpu, seconds: float) -> None:
        self.gpu, self.seconds = device, seconds

    def py_func(self, x: Any, n: Any) -> None: ...

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> Any:
        return LaunchConfiguration(self, griddim, blockdim, stream, sharedmem)

    def __call__(self, *_: Any) -> None:
        raise ValueError("launch configuration was not specified")


class LaunchConfiguration:
    def __init__(self, dispatcher: Any, griddim: Any, blockdim: Any, stream: Any, sharedmem: int) -> None:
        self.dispatcher, self.griddim, self.blockdim = dispatcher, griddim, blockdim
        self.stream, self.sharedmem = stream, sharedmem

    def __call__(self, *args: Any) -> None:
        assert len(args) == 2
        self.dispatcher.gpu.launch(self.dispatcher.seconds, getattr(self.stream, "handle", self.stream))


CUDADispatcher.__module__ = LaunchConfiguration.__module__ = "numba.cuda.dispatcher"


def fake_numba_cuda(device: FakeGpu) -> ModuleType:
    cuda = ModuleType("numba.cuda")
    made: Any = cuda
    made.external_stream = lambda ptr: SimpleNamespace(handle=ptr)
    made.synchronize = device.synchronize
    return cuda


def install(monkeypatch: pytest.MonkeyPatch, device: FakeGpu) -> None:
    """Event timers of that GPU in place of native ones, its time for the host's, and no framework but fakes."""
    timers: dict[int, EventTimer] = {}

    def events_on(index: int, handle: int | None) -> EventTimer:
        where = MEASURING if handle is None else handle
        if where not in timers:
            clock: Any = GpuClock(device, where)
            timers[where] = EventTimer(index, clock=clock, current=stream.current)
        return timers[where]

    monkeypatch.setattr(gpu, "events_on", events_on)
    monkeypatch.setattr(gpu, "perf_counter", device.now)
