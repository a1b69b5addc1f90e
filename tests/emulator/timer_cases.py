"""Device timers, graphs, copies and allocations on the emulated runtime: that they work, what they flag; no times.

These cases run inside a process on the test double: test_timers.py starts it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpumicro import cuda_native, device_probe, time_kernel
from gpumicro.backends import get
from gpumicro.backends.base import Prepared
from gpumicro.backends.cuda_rotation import Rotation
from gpumicro.device_timers import EventTimer, GraphTimer
from gpumicro.errors import CudaError, UsageError, VerificationError
from gpumicro.kernels import find
from gpumicro.measure import Policy, measure
from gpumicro.spec import Execution, Problem

ONE = np.ones(1, np.int64)
WAIT_S = 0.2  # of gates and watchdogs here


@pytest.fixture
def cuda() -> Any:
    return cuda_native.load()


@pytest.fixture
def clock(cuda: Any) -> Any:
    return cuda.timing.EventClock(0, filler_s=0.0, gate_timeout_s=5.0, watchdog_s=30.0)


def adder(cuda: Any) -> tuple[Any, Callable[[], int]]:
    """A launch that adds 1 to a word, and what the word holds."""
    word = cuda.Buffer(0, 4)
    word.fill(0)
    arguments = [np.uint64(word.address), np.int64(1), np.int64(1)]
    launch = cuda.Launch("gm::touch", (1, 1, 1), (32, 1, 1), 0, [a.tobytes() for a in arguments], 0, word)
    return launch.work, lambda: int(word.download().view(np.uint32)[0])


def test_every_run_of_every_span_is_made_also_of_those_that_open_the_gate_early(cuda: Any, clock: Any) -> None:
    work, count = adder(cuda)
    spans = clock.sample(work, np.array([1, 3, 0, 20]), True, 4)
    assert spans.shape == clock.walls_s.shape == (4,)
    assert np.isfinite(spans).all()
    assert (spans >= 0).all()
    assert count() == 24


def test_work_that_waits_for_the_device_times_the_gate_out_and_goes_on(cuda: Any) -> None:
    clock = cuda.timing.EventClock(0, filler_s=0.0, gate_timeout_s=WAIT_S)
    assert clock.gate_holds()
    work, count = adder(cuda)
    waits = cuda.timing.synced(0, work)
    assert np.isnan(clock.sample(waits, ONE)).all()
    assert np.isfinite(clock.sample(waits, ONE, False)).all()
    assert np.isfinite(clock.sample(work, ONE)).all()
    assert count() == 3


def test_the_timer_finds_out_that_work_waits(cuda: Any) -> None:
    timer = EventTimer(0)
    work, _ = adder(cuda)
    timer.sample(cuda.timing.synced(0, work), [1, 2])
    assert timer.take_flags() == {"sync"}
    timer.sample(work, [1, 2])
    assert "sync" not in timer.take_flags()


def test_an_exception_of_the_work_opens_the_gate(cuda: Any, clock: Any) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    work, count = adder(cuda)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            clock.sample(fails, ONE)
    cuda.synchronize(0)
    assert np.isfinite(clock.sample(work, ONE)).all()
    assert count() == 1


def wait_for_the_end(cuda: Any, deadline_s: float) -> None:
    """A device that was given up is not waited for again, only asked: ask until it is done."""
    while True:
        try:
            cuda.synchronize(0)
            return
        except CudaError:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)


def test_a_kernel_that_hangs_ends_in_an_error_and_blocks_nobody(cuda: Any) -> None:
    clock = cuda.timing.EventClock(0, filler_s=0.0, watchdog_s=WAIT_S)
    long = cuda.timing.spin(0, 1_500_000_000)  # ns; long after the watchdog, and an end for the test
    work, count = adder(cuda)
    clock.sample(work, ONE)
    with pytest.raises(CudaError, match=r"the kernel hangs.*gm::spin_ns"):
        clock.sample(long, ONE)
    assert cuda.timing.is_hung(0)
    with pytest.raises(CudaError, match="still hangs"):
        clock.sample(work, ONE)
    buffer = cuda.Buffer(0, 64, "pinned")
    began = time.monotonic()
    buffer.close()
    del clock
    assert cuda.timing.is_hung(0)  # nothing above waited for its end
    assert time.monotonic() - began < 60  # a freed buffer that waited for a real hang would never come here
    wait_for_the_end(cuda, began + 60)
    again = cuda.timing.EventClock(0, filler_s=0.0)
    assert np.isfinite(again.sample(work, ONE)).all()
    assert not cuda.timing.is_hung(0)
    assert count() == 2


def test_a_cold_clock_reads_its_buffer_before_each_span(cuda: Any) -> None:
    timer = EventTimer(0, "cold")
    work, count = adder(cuda)
    found = measure(work, Policy(max_samples=8, max_time_s=5.0, warmup=2), timer)
    assert (found.cache, found.estimand, found.batch) == ("cold", "isolated", 1)
    assert count() > 8


def test_graphs_run_what_they_captured(cuda: Any, clock: Any) -> None:
    work, count = adder(cuda)
    graphs = cuda.timing.Graphs(0, work)
    for runs in (3, 6):
        graphs.capture(runs)
        assert graphs.nodes(runs) == runs
    clock.sample(graphs.work, np.array([3, 6, 3]), True, 1 << 60)
    assert count() == 12
    clock.sample(graphs.replay(3), np.array([2]))
    assert count() == 18
    with pytest.raises(ValueError, match="no graph of 4 runs"):
        clock.sample(graphs.work, np.array([4]))


def test_what_cannot_be_captured_leaves_a_usable_stream(cuda: Any, clock: Any) -> None:
    work, count = adder(cuda)
    with pytest.raises(CudaError):
        cuda.timing.Graphs(0, cuda.timing.synced(0, work)).capture(2)
    with pytest.raises(ValueError, match="nothing to capture"):
        cuda.timing.Graphs(0, lambda: None).capture(1)
    clock.sample(work, ONE)
    assert count() == 1


def test_the_graph_timer_measures_a_period(cuda: Any) -> None:
    timer = GraphTimer(0)
    work, _ = adder(cuda)
    found = measure(work, Policy(max_samples=9, batch=2, warmup=2), timer)
    assert found.estimand == "period"
    assert set(found.counts.tolist()) == {2, 4, 8}
    with pytest.raises(UsageError, match="cannot be captured"):
        timer.sample(cuda.timing.synced(0, work), [2])


def test_a_rotation_takes_its_works_in_turn(cuda: Any, clock: Any) -> None:
    parts = [adder(cuda) for _ in range(3)]
    rotation = cuda.timing.rotation([work for work, _ in parts], parts)
    clock.sample(rotation, np.array([4, 3]))
    assert [count() for _, count in parts] == [3, 2, 2]


def test_the_probe_is_made_once_and_is_plain(cuda: Any) -> None:
    device_probe._probes.clear()
    found = device_probe.probe(0)
    assert device_probe.probe(0) is found
    assert found.gated
    assert found.eviction is None
    record = found.to_json()
    assert record["launch"]["n"] > 0
    assert record["eviction_why"]
    assert cuda.device_facts(0)["uuid"] == found.uuid


class Foreign:
    """A stream that is not ours, and sets of a word that are queued on any: what a framework would do."""

    READY, NOT_READY = 0, 600

    def __init__(self, cuda: Any) -> None:
        self.runtime = ctypes.CDLL("libcudart.so.13")
        made = ctypes.c_void_p()
        assert self.runtime.cudaStreamCreateWithFlags(ctypes.byref(made), 1) == 0
        self.handle = int(made.value or 0)
        self.word = cuda.Buffer(0, 4)
        self.word.fill(0)
        self.streams: list[int] = []

    def set(self, stream: int) -> None:
        self.streams.append(stream)
        word, on = ctypes.c_void_p(self.word.address), ctypes.c_void_p(stream)
        assert self.runtime.cudaMemsetAsync(word, 1, ctypes.c_size_t(4), on) == 0

    def state(self, stream: int) -> int:
        return int(self.runtime.cudaStreamQuery(ctypes.c_void_p(stream)))


def test_a_clock_of_a_given_stream_gates_that_one_and_no_other(cuda: Any) -> None:
    foreign = Foreign(cuda)
    clock = cuda.timing.EventClock(0, filler_s=0.0, gate_timeout_s=5.0, stream=foreign.handle)
    assert clock.stream == foreign.handle
    states: list[tuple[int, int]] = []

    def work() -> None:
        foreign.set(foreign.handle)
        states.append((foreign.state(foreign.handle), foreign.state(cuda.stream(0))))

    cuda.synchronize(0)
    assert np.isfinite(clock.sample(work, np.array([1, 2]))).all()
    assert states == [(Foreign.NOT_READY, Foreign.READY)] * 3
    assert foreign.state(foreign.handle) == Foreign.READY
    assert foreign.word.download().view(np.uint32)[0] == 0x01010101


def test_graphs_are_captured_on_a_given_stream(cuda: Any) -> None:
    foreign = Foreign(cuda)
    graphs = cuda.timing.Graphs(0, lambda: foreign.set(foreign.handle), stream=foreign.handle)
    graphs.capture(2)
    assert graphs.nodes(2) == 2
    timer = EventTimer(0, stream=foreign.handle)
    timer.sample(graphs.work, [2, 2], whole=True)
    assert foreign.word.download().view(np.uint32)[0] == 0x01010101


def test_a_callable_gets_the_stream_that_it_is_timed_on(cuda: Any) -> None:
    foreign, rules = Foreign(cuda), {"max_samples": 8, "max_time_s": 5.0, "warmup": 2}
    found = time_kernel(foreign.set, **rules)
    assert (found.timer, found.estimand, found.loop) == ("event", "isolated", "python")
    assert set(foreign.streams) == {cuda.stream(0)}
    foreign.streams.clear()
    found = time_kernel(foreign.set, stream=foreign.handle, **rules)
    assert found.estimand == "isolated"
    assert set(foreign.streams) == {foreign.handle}
    foreign.streams.clear()
    assert time_kernel(foreign.set, stream=foreign.handle, timer="graph", batch=2, **rules).estimand == "period"
    assert set(foreign.streams) == {foreign.handle}
    assert time_kernel(foreign.set, stream=foreign.handle, cache="cold", **rules).cache == "cold"


def test_an_array_on_the_device_makes_a_call_work_of_the_device() -> None:
    class Array:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    found = time_kernel(id, Array(), max_samples=8, max_time_s=1.0, warmup=2, batch=1)
    assert found.timer == "event"


ACTIONS = [
    ("launch.stream", "queued", {}), ("launch.stream", "synced", {}), ("launch.graph", "queued", {"nodes": 5}),
    ("launch.sync", "", {}), ("launch.event", "", {}), ("copy.h2d", "pinned", {"n": 33}),
    ("copy.h2d", "pageable", {"n": 1000}), ("copy.d2h", "pinned", {"n": 1}), ("copy.d2h", "pageable", {"n": 31}),
    ("copy.d2d", "", {"n": 1023}), ("copy.bidirectional", "pinned", {"n": 257}),
    ("copy.managed", "prefetch", {"n": 4097}), ("copy.managed", "touch", {"n": 3 * 4096}),
    ("alloc.malloc", "", {"n": 1 << 16}), ("alloc.pool", "", {"n": 1 << 16}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "variant", "sizes"), ACTIONS, ids=lambda value: str(value))
def test_host_actions_work_and_can_be_measured(name: str, variant: str, sizes: dict[str, int]) -> None:
    backend = get("cuda")
    device = backend.devices()[0]
    spec = find(name)
    able = backend.supports(spec, "int8", device)
    if not able:
        pytest.skip(able.reason)
    prepared: Prepared
    with backend.prepare(spec, Problem.of("int8", **sizes), Execution(1, variant), device) as prepared:
        assert prepared.verify().passed
        found = measure(prepared, Policy(max_samples=6, batch=2, warmup=2, max_time_s=5.0))
        assert found.n == 6
        assert found.timer == ("event" if prepared.facts["timed_by"] == "device events" else found.timer)
        assert prepared.verify().passed


def test_a_kernel_rotates_over_sets_of_its_operands_and_each_is_checked(cuda: Any) -> None:
    backend = get("cuda")
    device, spec = backend.devices()[0], find("stream.copy")
    variant = spec.gpu.variants("float32", device)[0] if spec.gpu else ""
    prepared = backend.prepare(spec, Problem.of("float32", n=1003), Execution(1, variant), device)
    rotation = Rotation(prepared, 3)  # type: ignore[arg-type]
    assert rotation.verify().passed
    assert rotation.facts["sets"] == 3
    assert len({id(held["a"].buffer) for held in rotation._operands}) == 3
    found = measure(rotation, Policy(max_samples=6, batch=3, warmup=2, max_time_s=5.0))
    assert found.cache == "rotate"
    # A set that is not written is found.
    stray = rotation._operands[2]["a"]
    rotation._operands[2]["a"] = type(stray)(cuda.Buffer(0, stray.buffer.size_bytes), stray.dtype, stray.count)
    with pytest.raises(VerificationError, match=r"stream\.copy \(a\)"):
        rotation.verify()
    rotation.close()
