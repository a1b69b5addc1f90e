"""Works of a GPU, on fakes: which stream they are launched on and timed on, and what tells that they are of a GPU."""

from __future__ import annotations

import ctypes
import functools
import sys
import time
from types import SimpleNamespace
from typing import Any

import fake_frameworks as fakes
import pytest
from fake_frameworks import MEASURING, FakeGpu

from gpumicro import compare, time_kernel
from gpumicro.device_timers import EventTimer
from gpumicro.errors import BackendUnavailable, UsageError
from gpumicro.works import as_timed, gpu
from gpumicro.works.stream import Stream, device_of, handle_of

QUICK: dict[str, Any] = {"max_samples": 8, "max_time_s": 60.0, "warmup": 2, "batch": 1}


@pytest.fixture(autouse=True)
def no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if none were loaded, whatever other tests did."""
    for name in fakes.FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu()
    fakes.install(monkeypatch, made)
    return made


# --- streams ----------------------------------------------------------------------------------------------------


class WithProtocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0x1234


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (0x1234, 0x1234), (0, 0), (Stream(0x1234), 0x1234), (WithProtocol(), 0x1234),
        (SimpleNamespace(cuda_stream=0x1234), 0x1234), (SimpleNamespace(ptr=0x1234), 0x1234),
        (SimpleNamespace(handle=ctypes.c_void_p(0x1234)), 0x1234), (SimpleNamespace(handle=ctypes.c_void_p()), 0),
    ],
)  # fmt: skip
def test_a_stream_of_anybody_gives_its_handle(stream: Any, handle: int) -> None:
    assert handle_of(stream) == handle


@pytest.mark.parametrize("stream", ["default", True, -1, 1.5, WithProtocol])
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    with pytest.raises(UsageError, match="stream is"):
        time_kernel(lambda s: s, stream=stream)


def test_our_stream_is_taken_by_anybody() -> None:
    ours = Stream(0x1234)
    assert ours.__cuda_stream__() == (0, 0x1234)
    assert (ours.ptr, ours.cuda_stream, int(ours)) == (0x1234, 0x1234, 0x1234)


def test_a_stream_tells_its_device() -> None:
    assert device_of(5) is None
    assert device_of(SimpleNamespace(device_id=-1)) is None
    assert device_of(SimpleNamespace(device_id=1)) == 1
    assert device_of(SimpleNamespace(device=SimpleNamespace(device_id=2))) == 2
    assert device_of(SimpleNamespace(device_index=3, device=SimpleNamespace(index=0))) == 3


def test_without_a_gpu_work_of_one_is_refused_by_reason() -> None:
    for work, options in ((lambda stream: stream, {}), (lambda s: s, {"stream": 5}), (int, {"timer": "event"})):
        with pytest.raises(BackendUnavailable, match=r"is work of a GPU.*: .*(CUDA|driver)"):
            time_kernel(work, **options)


# --- work of a device -------------------------------------------------------------------------------------------


def test_a_parameter_named_stream_gets_the_measuring_stream(device: FakeGpu) -> None:
    found = time_kernel(lambda x, stream: device.launch(50e-6 + x, stream), 0.0)
    assert (found.timer, found.estimand) == ("event", "isolated")
    assert found.estimate_s == pytest.approx(50e-6, rel=0.01)
    assert set(device.launched) == {MEASURING}


def test_a_given_stream_is_the_one_that_is_timed(device: FakeGpu) -> None:
    found = time_kernel(lambda s: device.launch(50e-6, s), stream=WithProtocol())
    assert found.estimate_s == pytest.approx(50e-6, rel=0.01)
    assert set(device.launched) == {0x1234}


def test_a_stream_that_may_be_left_out_is_given_on_a_device_only(device: FakeGpu) -> None:
    seen: set[Any] = set()

    def work(_: Any, stream: Any = None) -> None:
        seen.add(stream)

    assert time_kernel(work, 1, **QUICK).timer != "event"
    assert seen == {None}
    seen.clear()
    assert time_kernel(work, 1, stream=5, **QUICK).timer == "event"
    assert seen == {5}
    del device


def test_torch_launches_on_the_measuring_stream(device: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fakes.fake_torch(device))
    x = fakes.Tensor()
    for work, args in ((lambda _: device.launch(50e-6), (x,)), (lambda: (x, device.launch(50e-6)), ())):
        device.launched.clear()
        found = time_kernel(work, *args)
        assert (found.timer, found.flags) == ("event", ())
        assert found.estimate_s == pytest.approx(50e-6, rel=0.01)
        assert set(device.launched) == {MEASURING}


def test_a_result_on_the_device_tells_where_the_work_ran(device: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fakes.fake_torch(device))

    class Maker:
        def __call__(self) -> Any:
            device.launch(50e-6)
            return {"y": [fakes.Tensor()]}

    assert time_kernel(Maker()).estimate_s == pytest.approx(50e-6, rel=0.01)


def test_a_device_left_busy_tells_it_too(device: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fakes.fake_torch(device))
    launch = functools.partial(device.launch, 200e-6)  # nothing in it is an array of the device
    assert as_timed(launch).facts["device"] == "cuda:0"
    assert time_kernel(launch).estimate_s == pytest.approx(200e-6, rel=0.01)
    assert as_timed(int).facts["device"] == "cpu"


def test_work_on_another_stream_is_flagged(device: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fakes.fake_torch(device))
    found = time_kernel(lambda: (device.launch(1e-3, 5), device.launch(50e-6)), timer="event")
    assert "side-stream" in found.flags


def test_a_host_timer_of_device_work_waits_for_the_device(device: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fakes.fake_torch(device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    waits = 0

    def synchronize(_: int) -> None:
        nonlocal waits
        waits += 1

    torch.cuda.synchronize = synchronize
    found = time_kernel(lambda _: device.launch(1e-6), fakes.Tensor(), timer="wall", **QUICK)
    assert (found.timer, found.estimand) == ("wall", "host")
    assert waits >= len(device.launched) - 1 >= 8


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_another_accelerator_is_timed_by_the_host_and_waited_for(
    device: FakeGpu, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    torch: Any = fakes.fake_torch(device)
    waits = []
    setattr(torch, kind, SimpleNamespace(synchronize=waits.append))
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = time_kernel(lambda x: x, fakes.Tensor(kind, 1), **QUICK)
    assert found.estimand == "host"
    assert set(waits) == {1}
    assert len(waits) >= 8
    for asked in ({"timer": "event"}, {"stream": 5}):
        with pytest.raises(UsageError, match=f"runs on torch's {kind}, which queues on no CUDA stream of ours"):
            time_kernel(lambda x, s: (x, s), fakes.Tensor(kind, 1), **asked)


def test_without_events_device_work_is_timed_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fakes.fake_torch(FakeGpu()))
    assert time_kernel(lambda x: x, fakes.Tensor(), **QUICK).estimand == "host"
    with pytest.raises(BackendUnavailable):
        time_kernel(lambda x: x, fakes.Tensor(), timer="event")


def test_without_the_native_module_cupys_clock_is_taken_where_cupy_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    device, made = FakeGpu(), []

    def clock(index: int, *, stream: int | None = None) -> Any:
        made.append((index, stream))
        return fakes.GpuClock(device, MEASURING if stream is None else stream)

    monkeypatch.setitem(sys.modules, "gpumicro.cupy_clock", SimpleNamespace(CupyClock=clock))
    monkeypatch.setattr(gpu, "events_on", gpu.events_on.__wrapped__)  # nothing is kept for other tests
    with pytest.raises(BackendUnavailable):
        time_kernel(lambda stream: device.launch(50e-6, stream))
    monkeypatch.setitem(sys.modules, "cupy", fakes.fake_cupy(device))
    assert as_timed(lambda stream: device.launch(50e-6, stream), stream=9).timer.name == "event"
    assert made == [(0, 9)]
    assert set(device.launched) >= {9}


def test_cupys_raw_kernel_is_launched_on_the_measuring_stream(device: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fakes.fake_cupy(device))
    kernel = fakes.RawKernel(device, 50e-6)
    found = time_kernel(kernel, (1,), (32,), (fakes.CupyArray(),))
    assert found.estimate_s == pytest.approx(50e-6, rel=0.01)
    assert set(device.launched) == {MEASURING}
    assert kernel.calls[-1][:2] == ((1,), (32,))


def test_numbas_kernel_is_launched_on_the_stream_that_is_timed(
    device: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba.cuda", fakes.fake_numba_cuda(device))
    kernel = fakes.CUDADispatcher(device, 50e-6)
    assert time_kernel(kernel.configure(1, 32), 1, 2).estimate_s == pytest.approx(50e-6, rel=0.01)
    assert set(device.launched) == {MEASURING}
    device.launched.clear()
    time_kernel(functools.partial(kernel.configure(1, 32), 1), 2)
    assert set(device.launched) == {MEASURING}
    device.launched.clear()
    time_kernel(kernel.configure(1, 32, SimpleNamespace(handle=99)), 1, 2)
    assert set(device.launched) == {99}
    with pytest.raises(UsageError, match=r"has no grid; time py_func\[blocks, threads\]"):
        time_kernel(kernel, 1, 2)
    with pytest.raises(UsageError, match="needs n"):
        time_kernel(kernel.configure(1, 32), 1)


def test_kernels_without_a_launch_are_refused_with_the_cure() -> None:
    class JITFunction:
        __module__ = "triton.runtime.jit"

        def run(self) -> None: ...

    class Kernel:
        __module__ = "cuda.core._module"

    with pytest.raises(UsageError, match=r"time lambda: kernel\[grid\]"):
        time_kernel(JITFunction())
    with pytest.raises(UsageError, match="time lambda stream: launch"):
        time_kernel(Kernel())


def test_a_timer_of_the_callers_brings_its_stream(device: FakeGpu) -> None:
    clock: Any = fakes.GpuClock(device, 99)
    timer = EventTimer(0, clock=clock)
    time_kernel(lambda stream: device.launch(50e-6, stream), timer=timer)
    assert set(device.launched) == {99}
    with pytest.raises(UsageError, match="give one of both"):
        time_kernel(lambda stream: stream, timer=timer, stream=5)


# --- compare ----------------------------------------------------------------------------------------------------


def test_compare_takes_the_same_works(device: FakeGpu) -> None:
    found = compare(
        lambda stream: device.launch(50e-6, stream), lambda stream: device.launch(60e-6, stream), margin=0.05, blocks=30
    )
    assert (found.verdict, found.a.timer, found.b.timer) == ("slower", "event", "event")
    with pytest.raises(UsageError, match=r"which measure different things; time both by the host"):
        compare(lambda stream: device.launch(50e-6, stream), lambda: None)
    assert compare(lambda: None, functools.partial(time.sleep, 0), blocks=6, max_time_s=0.05).blocks == 6
