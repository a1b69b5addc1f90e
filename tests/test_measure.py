from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumicro import FakeTimer, FakeWork, time_kernel
from gpumicro.errors import SchemaError, UsageError
from gpumicro.measure import Measurement, Policy, measure, measure_together


def fake(work: FakeWork, seed: int = 0, clock: dict[str, Any] | None = None, **policy: Any) -> Measurement:
    return time_kernel(work, timer=FakeTimer(seed=seed, **(clock or {})), seed=seed, **policy)


class Spy(FakeTimer):
    """Keeps every span it gave out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.given: list[float] = []

    def sample(self, work: Any, counts: Any) -> Any:
        spans = super().sample(work, counts)
        self.given.extend(spans.tolist())
        return spans


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    true_s=st.floats(1e-7, 1e-3),
    spread=st.sampled_from([0.0, 0.01, 0.1]),
    law=st.sampled_from(["normal", "lognormal", "exponential", "two-modes"]),
    tick_s=st.sampled_from([0.0, 32e-9, 1024e-9]),
    batch=st.sampled_from([None, 1, 4]),
    seed=st.integers(0, 2**32),
)
def test_whatever_the_work(true_s: float, spread: float, law: str, tick_s: float, batch: int | None, seed: int) -> None:
    """No zero width, nothing deleted, the same seed gives the same, the record survives JSON."""

    def once() -> tuple[Spy, Measurement]:
        timer = Spy(tick_s=tick_s, overhead_s=1e-6, overhead_sd_s=5e-8, seed=seed)
        work = FakeWork(true_s, law=law, spread=spread)
        return timer, time_kernel(work, timer=timer, seed=seed, batch=batch, max_samples=400)

    timer, m = once()
    assert m.ci95_s[0] < m.estimate_s < m.ci95_s[1]
    assert m.raw_s.tolist() == timer.given[-m.n :]
    assert len(m.counts) == m.n <= 400
    record = m.to_json()
    assert record == once()[1].to_json()
    text = json.dumps(record, allow_nan=False)
    assert Measurement.from_json(json.loads(text)).to_json() == record


def test_the_estimate_can_be_recomputed_from_the_raw_spans() -> None:
    m = fake(FakeWork(1e-5), clock={"overhead_s": 1e-6, "tick_s": 32e-9})
    assert m.kind == "median"
    assert np.median(m.samples_s) == pytest.approx(m.estimate_s, rel=1e-12)
    assert m.min_s == m.samples_s.min()


def test_a_constant_work_says_why_it_has_no_autocorrelation() -> None:
    m = fake(FakeWork(1e-5, spread=0.0), batch=1)
    time_s = m.to_json()["time_s"]
    assert time_s["autocorrelation"] is None
    assert "vary" in time_s["autocorrelation_why"]


@pytest.mark.parametrize(("true_s", "batch"), [(2e-6, 128), (40e-6, 8), (1e-3, 1)])
def test_the_batch_is_the_smallest_power_of_two_that_fills_200_ticks(true_s: float, batch: int) -> None:
    m = fake(FakeWork(true_s), clock={"tick_s": 1024e-9})
    assert m.batch == batch
    assert m.counts.min() >= batch
    assert m.counts.max() <= batch + batch // 5
    assert (len(set(m.counts.tolist())) > 1) == (batch >= 5)


def test_a_batch_of_one_on_a_coarse_tick_takes_the_clipped_mean() -> None:
    clock = {"tick_s": 1024e-9, "overhead_s": 1.3e-6, "overhead_sd_s": 1e-7}
    m = fake(FakeWork(6.3e-6), clock=clock, batch=1)
    assert (m.kind, m.batch, m.counts.max()) == ("clipped-mean", 1, 1)
    # The median of the same spans sticks to the grid.
    assert abs(m.estimate_s / 6.3e-6 - 1) < 0.012
    assert abs((np.median(m.raw_s) - m.overhead_s) / 6.3e-6 - 1) > 0.05


def test_the_baseline_grows_where_it_is_what_widens_the_interval() -> None:
    clock = {"tick_s": 1024e-9, "overhead_s": 1.3e-6, "overhead_sd_s": 1e-7}
    m = fake(FakeWork(2e-6), clock=clock, batch=1)
    baseline = (m.overhead_ci95_s[1] - m.overhead_ci95_s[0]) / 2
    assert m.stop_reason == "target-met"
    assert baseline < 0.01 * 2e-6


def test_stop_reasons() -> None:
    assert fake(FakeWork(1e-4)).stop_reason == "target-met"
    noisy = FakeWork(1e-4, spread=0.5)
    capped = fake(noisy, max_samples=200)
    assert (capped.stop_reason, capped.n) == ("max-samples", 200)
    assert "target-missed" in capped.flags
    late = fake(noisy, max_time_s=0.05)
    assert late.stop_reason == "max-time"
    assert late.raw_s.sum() < 0.06
    assert "target-missed" in late.flags


def test_looks_come_at_n0_and_then_1_3_times_as_late() -> None:
    schedule = [100]
    while schedule[-1] < 20_000:
        schedule.append(-(-13 * schedule[-1] // 10))
    for seed in range(20):
        assert fake(FakeWork(1e-4, spread=0.08), seed=seed).n in schedule


def test_slow_work_in_a_small_budget_still_has_an_honest_interval() -> None:
    m = fake(FakeWork(0.02, spread=0.03), max_time_s=0.3, max_warmup_s=0.1)
    assert 14 <= m.n <= 17
    assert m.confidence >= 0.95
    slower = fake(FakeWork(1.0), max_time_s=0.3, max_warmup_s=0.1)
    assert slower.n == 6  # fewer have no 95% interval
    assert slower.confidence >= 0.95
    fewer = fake(FakeWork(1.0), max_time_s=0.3, max_warmup_s=0.1, min_samples=3)
    assert fewer.n == 3
    assert fewer.confidence == pytest.approx(0.75)
    assert "target-missed" in fewer.flags


def test_warm_up_goes_on_until_the_work_is_steady() -> None:
    # Half as fast again at first; the time constant is 50 ms.
    m = fake(FakeWork(1e-4, spread=0.005), clock={"sag": -1 / 3, "sag_time_s": 0.05})
    assert m.warmup[0] > 1.2 * m.warmup[-1]
    assert m.estimate_s == pytest.approx(1e-4 * 2 / 3, rel=0.015)
    assert "not-steady" not in m.flags


def test_warm_up_that_does_not_end_is_said() -> None:
    m = fake(FakeWork(1e-4, spread=0.005), clock={"sag": -0.9, "sag_time_s": 0.5}, max_warmup_s=0.3)
    assert "not-steady" in m.flags
    assert "drift" in m.flags


def test_warm_up_by_count_and_by_time() -> None:
    assert fake(FakeWork(1e-4), warmup=0).warmup == ()
    assert len(fake(FakeWork(1e-4), warmup=1000).warmup) == pytest.approx(10, abs=1)  # windows of about 10 ms
    timed = fake(FakeWork(1e-4), warmup=0.05)
    assert 0.04 < sum(timed.warmup) * 100 < 0.07


def test_flags_on_noise_that_deserves_them() -> None:
    assert "correlated" in fake(FakeWork(1e-4, spread=0.05, rho=0.8)).flags
    two = fake(FakeWork(1e-4, law="two-modes", spread=0.003, second_factor=1.06))
    assert "bimodal" in two.flags
    assert two.modes[1][0] / two.modes[0][0] == pytest.approx(1.06, rel=0.003)
    assert two.modes[1][1] == pytest.approx(0.3, abs=0.1)
    quiet = fake(FakeWork(1e-4))
    assert quiet.flags == ()
    assert quiet.modes == ()


def test_throttling_is_flagged_by_its_share_of_the_run() -> None:
    class Throttled(FakeTimer):
        share = 0.0

        def throttled_s(self) -> float:
            return self.share * self.now()

    timer = Throttled()
    assert "throttled" not in time_kernel(FakeWork(1e-4), timer=timer).flags
    timer.share = 0.05
    assert "throttled" in time_kernel(FakeWork(1e-4), timer=timer).flags


def test_what_is_no_longer_than_an_empty_region_is_below_resolution() -> None:
    clock = {"tick_s": 1e-6, "overhead_s": 5e-6, "overhead_sd_s": 1e-6}
    m = fake(FakeWork(1e-9), clock=clock, batch=1, max_samples=300)
    assert "below-resolution" in m.flags
    json.dumps(m.to_json(), allow_nan=False)


def test_spikes_are_kept_and_counted() -> None:
    m = fake(FakeWork(1e-4, spike_probability=0.03))
    assert m.outliers[1] >= 1
    assert m.raw_s.max() > 2.5e-4


def test_together_each_has_its_own_stop_and_all_are_interleaved() -> None:
    order: list[float] = []

    class Watched(FakeTimer):
        def sample(self, work: Any, counts: Any) -> Any:
            order.append(work.true_s)
            return super().sample(work, counts)

    works = [FakeWork(1e-4, spread=0.01), FakeWork(2e-4, spread=0.08)]
    quiet, noisy = measure_together(works, Policy(), Watched())
    assert quiet.n < noisy.n
    assert quiet.estimate_s == pytest.approx(1e-4, rel=0.01)
    assert noisy.estimate_s == pytest.approx(2e-4, rel=0.02)
    last_quiet = len(order) - order[::-1].index(1e-4)
    assert order[:last_quiet].count(2e-4) > 5


def test_a_python_callable_is_timed_and_its_exception_comes_through() -> None:
    m = time_kernel(lambda: time.sleep(0.001), max_time_s=0.05, max_warmup_s=0.01)
    assert m.loop == "python"
    assert m.estimate_s > 0.001

    def fails() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        time_kernel(fails)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target", 0.0), ("target", float("nan")), ("confidence", 1.0), ("min_samples", 1), ("batch", 0),
        ("warmup", "long"), ("warmup", -1), ("cache", "warm"), ("estimand", "kernel"), ("throttle", "raise"),
        ("max_time_s", float("inf")), ("max_warmup_s", float("nan")), ("warmup", float("nan")), ("batch", 2.5),
        ("min_samples", 7.5), ("max_samples", 2.5),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_had_is_refused(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=field):
        Policy(**{field: value})  # type: ignore[arg-type]


def test_a_mangled_record_is_refused_by_name() -> None:
    record = measure(FakeWork(1e-4), Policy(max_samples=30), FakeTimer()).to_json()
    del record["timing"]["raw_s"]
    with pytest.raises(SchemaError, match="raw_s"):
        Measurement.from_json(record)


def test_policy_is_a_value() -> None:
    assert replace(Policy(), target=0.02) == Policy(target=0.02)
