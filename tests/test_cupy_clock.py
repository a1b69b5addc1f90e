"""The clock through CuPy: gates, eviction, spans, hangs and graphs, on the stand-in for CuPy."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cupy import TINY, FakeCupy
from fake_cupy_runtime import EVENT_S, TICK_S
from test_cupy_backend import install

from gpumicro.cupy_clock import CupyClock, HostTimer
from gpumicro.cupy_cuda import works
from gpumicro.cupy_cuda.launch import Launch, LaunchWork
from gpumicro.cupy_cuda.work import run_work
from gpumicro.device_timers import EventTimer, GraphTimer
from gpumicro.errors import BackendUnavailable, CudaError, UsageError
from gpumicro.measure import Policy, measure

SPIN_S = 20e-6


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    for name in ("CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)
    return install(monkeypatch, FakeCupy(), tmp_path)


def spin_of(seconds: float) -> LaunchWork:
    """A kernel that takes so long on the stand-in."""
    length = np.uint64(round(1e9 * seconds))
    return Launch("gm::spin_ns", (1, 1, 1), (32, 1, 1), 0, [length.tobytes()], 0).work


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.usefixtures("cupy")
def test_a_span_is_what_the_device_took_for_all_its_runs(gated: bool) -> None:
    clock = CupyClock(0)
    spans = clock.sample(spin_of(SPIN_S), np.array([1, 5, 0]), gated)
    assert spans == pytest.approx(EVENT_S + SPIN_S * np.array([1, 5, 0]), rel=0.01, abs=2 * TICK_S)
    assert np.all(clock.walls_s > 0)
    assert clock.sample(None, np.array([3]), gated)[0] == pytest.approx(EVENT_S, abs=3 * TICK_S)
    assert clock.now() <= clock.now()


def test_a_gate_stands_between_what_warms_the_device_and_the_span(cupy: FakeCupy) -> None:
    clock, work = CupyClock(0), spin_of(SPIN_S)
    cupy.launched.clear()
    clock.sample(work, np.array([2]))
    assert cupy.launched == ["gm::filler", "gm::gate", "gm::spin_ns", "gm::spin_ns"]
    cupy.launched.clear()
    cold = clock.with_cache("cold")
    assert cold.with_cache("cold") is cold
    cold.sample(work, np.array([1]))
    assert cupy.launched == ["gm::evict", "gm::gate", "gm::spin_ns"]
    cupy.launched.clear()
    clock.sample(work, np.array([1]), gated=False)
    assert cupy.launched == ["gm::filler", "gm::spin_ns"]


def test_the_eviction_reads_twice_the_l2(cupy: FakeCupy) -> None:
    before = dict(cupy.cuda.runtime.memory)
    clock = CupyClock(0, "cold")
    sizes = [len(raw) for address, raw in cupy.cuda.runtime.memory.items() if address not in before]
    assert any(2 * 1024**2 <= size <= 2 * 1024**2 + 256 for size in sizes)
    assert clock.cache == "cold"


@pytest.mark.usefixtures("cupy")
def test_nothing_of_the_work_is_begun_before_the_gate_opens() -> None:
    """The events lie behind the gate, so that the host's time between them is not in the span."""
    clock, seen = CupyClock(0), []

    def work() -> None:
        run_work(spin_of(SPIN_S), 1)
        seen.append(clock._gate._opened.value < clock._gate._ticket)

    clock.sample(work, np.array([3]))
    assert seen == [True] * 3
    seen.clear()
    assert np.isfinite(clock.sample(work, np.array([5]), True, 2)).all()  # opened after two, lest the queue fill up
    assert seen == [True, True, False, False, False]


@pytest.mark.usefixtures("cupy")
def test_the_gate_opens_where_the_work_throws() -> None:
    clock = CupyClock(0)

    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        clock.sample(broken, np.array([1]))
    assert clock.sample(spin_of(SPIN_S), np.array([1]))[0] == pytest.approx(EVENT_S + SPIN_S, rel=0.01, abs=2 * TICK_S)


def test_a_gate_that_lets_go_makes_the_span_no_number(cupy: FakeCupy) -> None:
    clock = CupyClock(0, gate_timeout_s=1e-3)
    stream = clock.stream

    def waits() -> None:
        spin_of(SPIN_S).enqueue(1)
        cupy.cuda.runtime.streamSynchronize(stream)

    assert np.isnan(clock.sample(waits, np.array([1]))).all()
    timer = EventTimer(0, clock=clock)
    assert timer.sample(waits, [1, 1]) == pytest.approx([EVENT_S + SPIN_S] * 2, rel=0.01, abs=2 * TICK_S)
    assert timer.take_flags() == {"sync"}


@pytest.mark.usefixtures("cupy")
def test_a_host_that_waits_for_each_launch_has_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = CupyClock(0)
    assert clock.gate_holds()
    enqueue = LaunchWork.enqueue

    def blocking(self: LaunchWork, n: int) -> None:
        enqueue(self, n)
        works.runtime().streamSynchronize(clock.stream)

    monkeypatch.setattr(LaunchWork, "enqueue", blocking)
    assert not clock.gate_holds()
    assert not EventTimer(0, clock=clock).gates


def test_a_kernel_that_hangs_ends_the_measurement_and_the_next_is_told(cupy: FakeCupy) -> None:
    timer = EventTimer(0, clock=CupyClock(0, watchdog_s=0.02))
    work = spin_of(SPIN_S)
    cupy.hangs = {"spin_ns"}
    with pytest.raises(CudaError, match=r"hangs: it did not end within 0\.02 s.*gm::spin_ns") as caught:
        timer.sample(work, [1])
    assert caught.value.lost
    assert timer.take_flags() == {"hung"}
    with pytest.raises(CudaError, match="an earlier kernel still hangs"):
        timer.sample(work, [1])


def test_the_device_s_errors_come_through(cupy: FakeCupy) -> None:
    clock = CupyClock(0)
    cupy.fails = {"eventQuery": 700}
    with pytest.raises(CudaError, match="cudaEventQuery failed with cudaErrorIllegalAddress"):
        clock.sample(spin_of(SPIN_S), np.array([1]))
    cupy.fails = {}
    with pytest.raises(BackendUnavailable, match="no CUDA device 3"):
        CupyClock(3)


@pytest.mark.usefixtures("cupy")
def test_a_timer_on_this_clock_measures_as_on_the_native_one() -> None:
    timer = EventTimer(0, clock=CupyClock(0))
    assert timer.tick().lsb_s == pytest.approx(TICK_S, rel=0.01)
    assert timer.stream == CupyClock(0).stream
    m = measure(spin_of(SPIN_S), Policy(max_time_s=0.3, max_warmup_s=0.05), timer)
    assert (m.estimand, m.timer, m.loop, m.cache) == ("isolated", "event", "python", "hot")
    assert m.estimate_s == pytest.approx(SPIN_S, rel=0.01)
    cold = measure(spin_of(SPIN_S), Policy(max_time_s=0.3, max_warmup_s=0.05, cache="cold"), timer)
    assert (cold.cache, cold.batch) == ("cold", 1)
    assert cold.estimate_s == pytest.approx(SPIN_S, rel=0.01)


@pytest.mark.usefixtures("cupy")
def test_the_slope_of_graphs_is_found_through_cupy_too() -> None:
    timer = GraphTimer(0, events=EventTimer(0, clock=CupyClock(0)))
    work = spin_of(SPIN_S)
    spans = timer.sample(work, [1, 4])
    assert spans == pytest.approx([EVENT_S + SPIN_S, EVENT_S + 4 * SPIN_S], rel=0.01, abs=2 * TICK_S)
    with pytest.raises(ValueError, match="no graph of 3 runs"):
        timer._graphs[work][1].enqueue(3)


def test_graphs_go_with_their_work(cupy: FakeCupy) -> None:
    timer = GraphTimer(0, events=EventTimer(0, clock=CupyClock(0)))
    work = spin_of(SPIN_S)
    timer.sample(work, [2])
    assert cupy.cuda.runtime.graphs
    del work
    gc.collect()
    assert not cupy.cuda.runtime.graphs


def test_work_that_waits_cannot_be_captured_and_the_stream_is_left_as_it_was(cupy: FakeCupy) -> None:
    timer = GraphTimer(0, events=EventTimer(0, clock=CupyClock(0)))

    def waits() -> None:
        works.runtime().streamSynchronize(timer.events.stream)

    with pytest.raises(UsageError, match="cannot be captured"):
        timer.sample(waits, [1])
    assert all(stream.capturing is None for stream in cupy.cuda.runtime.streams.values())


def test_what_launches_on_cupy_s_current_stream_lands_on_the_clock_s(cupy: FakeCupy) -> None:
    own = cupy.cuda.runtime.streamCreateWithFlags(1)
    clock, seen = CupyClock(0, stream=own), []
    clock.sample(lambda: seen.append(cupy.current), np.array([2]))
    assert seen == [own, own]
    assert clock.stream == own
    assert clock.with_cache("cold").stream == own
    timer = EventTimer(0, clock=clock)
    assert timer.tick().lsb_s == pytest.approx(TICK_S, rel=0.01)


def test_an_emulated_device_is_neither_warmed_nor_kept_busy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, FakeCupy(TINY), tmp_path)
    clock, work = CupyClock(0), spin_of(SPIN_S)
    fake.launched.clear()
    clock.sample(work, np.array([1]))
    assert fake.launched == ["gm::gate", "gm::spin_ns"]


@pytest.mark.parametrize("make", [lambda: works.synced(0, None), lambda: works.event_trip(0)])
@pytest.mark.usefixtures("cupy")
def test_the_host_s_timer_times_runs_of_one_call(make: Callable[[], Any]) -> None:
    timer = HostTimer()
    assert np.all(timer.sample(make(), [1, 3, 2]) > 0)
    assert np.all(timer.sample(lambda: None, [1, 3]) > 0)
    assert len(timer.overhead(7)) == 7
    assert timer.tick().seconds >= 0


def test_events_go_with_their_clock(cupy: FakeCupy) -> None:
    clock = CupyClock(0)
    held = len(cupy.cuda.runtime.events)
    del clock
    gc.collect()
    assert len(cupy.cuda.runtime.events) == held - 2
