"""Device timers' rules on a fake event clock: gates that time out, work that waits, hangs, slopes. No GPU, no time."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_device import DeviceWork, FakeEventClock, FakeGraphs

from gpumicro import FakeTimer, FakeWork, compare, slopes, time_kernel
from gpumicro.device_clock import QUEUE_LIMIT, WHOLE, profiler
from gpumicro.device_timers import LAUNCH_TIMEOUT, RETAKES, EventTimer, GraphTimer
from gpumicro.errors import CudaError, UsageError
from gpumicro.measure import Measurement, Policy, measure, measure_each, measure_together


def event_timer(cache: Any = "hot", **clock: Any) -> tuple[EventTimer, FakeEventClock]:
    fake = FakeEventClock(**clock)
    return EventTimer(0, cache, clock=fake, spin=DeviceWork(40e-9, spread=0.0)), fake


def graph_timer(**clock: Any) -> tuple[GraphTimer, FakeEventClock]:
    events, fake = event_timer(**clock)
    return GraphTimer(0, events=events, capture=FakeGraphs), fake


@pytest.fixture(autouse=True)
def no_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)


# --- the clock --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tick_ns", [32, 500, 1024])
def test_the_tick_is_found_and_the_gates_delay_spans_it(tick_ns: int) -> None:
    timer, clock = event_timer(tick_s=tick_ns * 1e-9)
    tick = timer.tick()
    assert (tick.lsb_s, tick.seconds) == pytest.approx((tick_ns * 1e-9, tick_ns * 1e-9), rel=1e-5)
    assert clock.phase_s >= tick.seconds
    asked = clock.spans
    assert timer.tick() is tick
    assert clock.spans == asked


@pytest.mark.parametrize("true_s", [6.3e-6, 40e-6, 1e-3])
def test_cold_spans_are_single_runs_and_reach_the_truth(true_s: float) -> None:
    timer, clock = event_timer("cold")
    work = DeviceWork(true_s)
    m = measure(work, Policy(), timer)
    assert (m.estimand, m.timer, m.cache, m.batch) == ("isolated", "event", "cold", 1)
    assert m.counts.max() == 1
    assert m.kind == ("clipped-mean" if true_s < 200e-6 else "median")
    assert m.ci95_s[0] <= true_s <= m.ci95_s[1] or abs(m.estimate_s / true_s - 1) < 0.01
    assert m.flags == ()
    assert {limit for _, _, _, limit in clock.asked} == {QUEUE_LIMIT}


def test_hot_spans_are_batched_against_the_tick() -> None:
    timer, _ = event_timer()
    m = measure(DeviceWork(6.3e-6), Policy(), timer)
    assert m.batch * 6.3e-6 >= 200 * 1024e-9
    assert m.estimate_s == pytest.approx(6.3e-6, rel=0.01)
    assert m.cache == "hot"


def test_the_policy_asks_for_cold_and_gets_it_where_the_timer_can() -> None:
    timer, _ = event_timer()
    assert time_kernel(DeviceWork(50e-6), timer=timer, cache="cold").cache == "cold"
    assert timer.with_cache("hot") is timer
    assert timer.with_cache("cold") is timer.with_cache("cold")
    with pytest.raises(UsageError, match="evicts nothing"):
        time_kernel(FakeWork(1e-5), timer=FakeTimer(), cache="cold")
    with pytest.raises(UsageError, match=r"batch is 8, and a span of EventTimer\(0, 'cold'\) has 1 at most"):
        time_kernel(DeviceWork(50e-6), timer=timer, cache="cold", batch=8)
    with pytest.raises(UsageError, match="hot' or 'cold'"):
        EventTimer(0, "warm", clock=FakeEventClock())  # type: ignore[arg-type]


def test_an_estimand_that_the_timer_has_not_is_refused() -> None:
    timer, _ = event_timer()
    assert time_kernel(DeviceWork(1e-4), timer=timer, estimand="isolated").estimand == "isolated"
    with pytest.raises(UsageError, match="timer 'event' measures 'isolated'"):
        time_kernel(DeviceWork(1e-4), timer=timer, estimand="period")
    with pytest.raises(UsageError, match="timer 'fake' measures 'host'"):
        time_kernel(FakeWork(1e-4), timer=FakeTimer(), estimand="isolated")


def test_fake_work_and_a_device_do_not_go_together() -> None:
    with pytest.raises(UsageError, match="FakeTimer"):
        event_timer()[0].sample(FakeWork(1e-6), [1])


# --- the gate ---------------------------------------------------------------------------------------------------


def test_new_work_runs_once_before_it_meets_a_gate_and_only_once() -> None:
    timer, clock = event_timer()
    work = DeviceWork(1e-5)
    timer.sample(work, [3, 3])
    assert [(runs, gated) for _, runs, gated, _ in clock.asked[:4]] == [(3, False), (3, True), (3, True), (3, True)]
    before = clock.spans
    timer.sample(work, [5])
    assert clock.spans == before + 1


def test_what_is_known_of_a_work_dies_with_it() -> None:
    timer, clock = event_timer()
    work = DeviceWork(1e-5, syncs=True)
    timer.sample(work, [1])
    clock.asked.clear()
    del work
    gc.collect()
    assert len(timer._gated) == 0


def test_a_span_whose_gate_timed_out_is_taken_again_and_said() -> None:
    timer, clock = event_timer(tick_s=0.0)
    work = DeviceWork(1e-5, spread=0.0)
    timer.sample(work, [1])
    timer.take_flags()
    clock.timeouts = [clock.gated_spans + 2]
    spans = timer.sample(work, np.ones(5))
    assert not np.isnan(spans).any()
    assert spans == pytest.approx(np.full(5, 1e-5 + clock.empty_s), rel=0.05)
    assert timer.take_flags() == {"gate-timeout"}
    assert timer.take_flags() == set()
    # Perhaps the queue was full: fewer launches wait behind the gate from now on.
    timer.sample(work, [1])
    assert clock.asked[-1][3] == QUEUE_LIMIT // 4


def test_a_gate_that_never_opens_costs_some_retakes_and_no_hang() -> None:
    timer, clock = event_timer()
    work = DeviceWork(1e-5)
    timer.sample(work, [1])
    clock.always_expired, before = True, clock.spans
    assert not np.isnan(timer.sample(work, [1, 1])).any()
    assert clock.spans - before == 2 * (RETAKES + 2)
    assert [gated for _, _, gated, _ in clock.asked[-2:]] == [False, False]
    assert "gate-timeout" in timer.take_flags()


def test_work_that_waits_for_the_device_is_timed_without_a_gate() -> None:
    timer, clock = event_timer(launch_s=3e-6)
    m = measure(DeviceWork(1e-4, syncs=True), Policy(), timer)
    assert "sync" in m.flags
    assert "gate-timeout" not in m.flags
    gated = [gated for work, _, gated, _ in clock.asked if isinstance(work, DeviceWork) and work.syncs]
    assert gated.count(True) == 1
    assert clock.gate_timeout_s == 1.0  # the probe's shorter one is put back


@pytest.mark.parametrize("why", ["CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING", ""])
def test_no_gate_where_launches_wait_for_their_kernels(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why:
        monkeypatch.setenv(why, "1")
    timer, clock = event_timer(holds=bool(why))
    timer.sample(DeviceWork(1e-5), [1, 1])
    assert timer.take_flags() == {"ungated"}
    assert not any(gated for _, _, gated, _ in clock.asked)


def test_a_profiler_is_known_by_its_variables() -> None:
    assert profiler({"NSYS_PROFILING_SESSION_ID": "1"}) == "NSYS_PROFILING_SESSION_ID"
    assert profiler({"CUDA_LAUNCH_BLOCKING": "0", "PATH": "/bin", "NSYS_X": ""}) == ""


def test_events_and_wall_that_disagree_are_flagged() -> None:
    timer, _ = event_timer()
    assert "event-wall" not in measure(DeviceWork(1e-4), Policy(), timer).flags
    escaped = measure(DeviceWork(1e-4, escapes_s=5e-5), Policy(), timer)
    assert "event-wall" in escaped.flags
    assert "event-wall" not in measure(DeviceWork(1e-4), Policy(), timer).flags


# --- a device that hangs ----------------------------------------------------------------------------------------


def test_a_hang_is_an_error_and_the_others_go_on() -> None:
    timer, _ = event_timer()
    works = [DeviceWork(1e-4), DeviceWork(1e-4, hangs_at=0), DeviceWork(2e-4)]
    good, bad, other = measure_each(works, Policy(), timer)
    assert isinstance(good, Measurement)
    assert isinstance(other, Measurement)
    assert isinstance(bad, CudaError)
    assert bad.code == LAUNCH_TIMEOUT
    assert good.estimate_s == pytest.approx(1e-4, rel=0.02)
    with pytest.raises(CudaError, match="hangs"):
        measure_together(works, Policy(), timer)


def test_what_was_seen_before_a_hang_is_kept_and_flagged() -> None:
    timer, clock = event_timer()
    work = DeviceWork(1e-4, spread=0.2)
    baseline = 2048 + 256 + 2
    work.hangs_at = baseline + 400
    (found,) = measure_each([work], Policy(max_warmup_s=0.001), timer)
    assert isinstance(found, Measurement)
    assert found.stop_reason == "hung"
    assert "hung" in found.flags
    assert 6 <= found.n < 400
    assert clock.spans == work.hangs_at + 1


# --- slopes -----------------------------------------------------------------------------------------------------


def test_theil_sen_is_the_median_of_slopes() -> None:
    x = np.array([1.0, 2.0, 4.0, 8.0])
    assert slopes.theil_sen(x, 3 * x + 7) == pytest.approx((3.0, 7.0))
    y = 3 * x + 7
    y[1] = 1e6  # one wild point of four
    assert slopes.theil_sen(x, y)[0] == pytest.approx(3.0, rel=1.0)
    with pytest.raises(ValueError, match="two different lengths"):
        slopes.theil_sen(np.ones(3), x[:3])


@pytest.mark.parametrize("coarse", [False, True])
def test_the_line_through_rungs_finds_slope_and_fixed_cost(coarse: bool) -> None:
    rng = np.random.default_rng(1)
    counts = np.tile([64, 128, 256], 60)
    spans = 15e-6 + 0.58e-6 * counts * (1 + 0.01 * rng.normal(size=180))
    line = slopes.through_rungs(counts, spans, 32e-9, coarse)
    assert line.slope_s == pytest.approx(0.58e-6, rel=0.01)
    assert abs(line.intercept_s - 15e-6) <= line.intercept_half_s
    assert not line.nonlinear
    bent = slopes.through_rungs(counts, spans * (1 + 0.1 * np.log2(counts / 64)), 32e-9, coarse)
    assert bent.nonlinear


@pytest.mark.parametrize("true_s", [2e-6, 30e-6, 5e-3])
def test_a_graph_timer_gives_the_period_without_the_replays_cost(true_s: float) -> None:
    timer, _ = graph_timer(replay_s=15e-6)
    m = measure(DeviceWork(true_s), Policy(), timer)
    assert (m.estimand, m.timer) == ("period", "graph")
    assert set(m.counts.tolist()) == {m.batch, 2 * m.batch, 4 * m.batch}
    assert m.estimate_s == pytest.approx(true_s, rel=0.015)
    assert np.median(m.samples_s) == pytest.approx(m.estimate_s, rel=1e-3)
    assert "nonlinear" not in m.flags
    if true_s < 1e-3:
        assert m.overhead_s == pytest.approx(16.7e-6, rel=0.4)


def test_the_period_is_covered_by_its_interval() -> None:
    missed = 0
    timer, _ = graph_timer(replay_s=15e-6)
    for seed in range(60):
        m = measure(DeviceWork(10e-6, spread=0.02), Policy(seed=seed, max_warmup_s=0.01), timer)
        missed += not m.ci95_s[0] <= 10e-6 <= m.ci95_s[1]
    assert missed <= 7  # of 60 at 5%: 3 expected, more than 7 have a chance of 1%


def test_runs_that_get_dearer_in_a_longer_chain_are_flagged() -> None:
    timer, _ = graph_timer()
    assert "nonlinear" in measure(DeviceWork(1e-4, bend=0.1, spread=0.003), Policy(), timer).flags


def test_a_graph_is_one_launch_behind_the_gate_and_captured_once_a_length() -> None:
    timer, clock = graph_timer()
    work = DeviceWork(1e-6)
    timer.sample(work, [512, 1024, 2048])
    assert {limit for _, runs, gated, limit in clock.asked if gated and runs > 1} == {WHOLE}
    graphs, _ = timer._captured(work)
    assert graphs.captured == {512, 1024, 2048}


def test_graphs_go_with_their_work() -> None:
    timer, _ = graph_timer()
    work = DeviceWork(1e-6)
    timer.sample(work, [2])
    assert len(timer._graphs) == 1
    del work
    timer.events._clock.asked.clear()  # type: ignore[attr-defined]
    gc.collect()
    assert len(timer._graphs) == 0


def test_work_that_cannot_be_captured_is_refused_in_words() -> None:
    timer, _ = graph_timer()
    with pytest.raises(UsageError, match=r"cannot be captured.*use the event timer"):
        timer.sample(DeviceWork(1e-6, syncs=True), [2])


def test_slopes_are_not_compared_in_pairs() -> None:
    timer, _ = graph_timer()
    with pytest.raises(UsageError, match="slopes, which cannot be paired"):
        compare(DeviceWork(1e-4), DeviceWork(1e-4), timer=timer)


# --- each work by its own clock ---------------------------------------------------------------------------------


def test_each_work_is_read_by_its_own_clock() -> None:
    class Prepared:
        def __init__(self, work: Any, timer: Any) -> None:
            self.work, self.timer = work, timer

    event, graph = event_timer()[0], graph_timer()[0]
    works = [
        Prepared(DeviceWork(1e-4), event), Prepared(DeviceWork(1e-4), graph), Prepared(FakeWork(1e-4), FakeTimer()),
    ]  # fmt: skip
    found = measure_together(works, Policy())
    assert [m.timer for m in found] == ["event", "graph", "fake"]
    assert [m.estimand for m in found] == ["isolated", "period", "host"]
    for m in found:
        assert m.estimate_s == pytest.approx(1e-4, rel=0.02)
        assert Measurement.from_json(m.to_json()).to_json() == m.to_json()


def test_a_pair_on_the_event_clock_is_told_apart() -> None:
    timer, _ = event_timer()
    assert compare(DeviceWork(1e-4), DeviceWork(1.05e-4), timer=timer, blocks=60).verdict == "slower"


def test_a_prepared_kernel_is_not_said_to_rotate_when_it_does_not() -> None:
    timer = event_timer()[0]
    work = DeviceWork(1e-4)
    assert measure(work, Policy(cache="rotate"), timer).cache == "rotate"  # the caller's word
    prepared = SimpleNamespace(work=work, spec=SimpleNamespace(name="stream.copy"), facts={})
    with pytest.raises(UsageError, match=r"stream\.copy uses one set"):
        measure(prepared, Policy(cache="rotate"), timer)
    prepared.cache = "rotate"
    assert measure(prepared, Policy(cache="rotate"), timer).cache == "rotate"


def test_a_work_that_rotates_says_so() -> None:
    work = DeviceWork(1e-4)
    work.cache = "rotate"  # type: ignore[attr-defined]
    assert measure(work, Policy(), event_timer()[0]).cache == "rotate"
