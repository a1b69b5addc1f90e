from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumicro import Comparison, FakeTimer, FakeWork, compare
from gpumicro.errors import UsageError


def pair(ratio: float, seed: int = 0, clock: dict[str, Any] | None = None, **options: Any) -> Comparison:
    spread = options.pop("spread", 0.02)
    a, b = FakeWork(2e-4, spread=spread), FakeWork(2e-4 * ratio, spread=spread)
    return compare(a, b, timer=FakeTimer(seed=seed, **(clock or {})), seed=seed, **options)


@pytest.mark.parametrize(
    "clock", [{"sag": 0.015, "sag_time_s": 0.02}, {"sag": 0.015, "sag_time_s": 0.2}, {"walk": 0.05}]
)
def test_equal_works_are_seldom_called_different_under_a_changing_clock(clock: dict[str, float]) -> None:
    runs = [pair(1.0, seed, clock, blocks=60, warmup=0) for seed in range(200)]
    false_alarms = sum(not run.ci95[0] <= 1 <= run.ci95[1] for run in runs)
    assert false_alarms <= 16


def test_equal_works_are_seldom_called_different_when_the_blocks_are_chosen_by_the_rule() -> None:
    verdicts = Counter(pair(1.0, seed, {"sag": 0.015, "sag_time_s": 0.1}).verdict for seed in range(60))
    assert verdicts["faster"] + verdicts["slower"] <= 4
    assert verdicts["equivalent"] >= 50


def test_one_percent_is_found_at_two_percent_noise_and_100_blocks() -> None:
    verdicts = Counter(pair(1.01, seed, blocks=100).verdict for seed in range(200))
    assert verdicts["slower"] >= 180
    assert verdicts["faster"] == 0
    verdicts = Counter(pair(0.99, 1000 + seed, blocks=100).verdict for seed in range(100))
    assert verdicts["faster"] >= 90


def test_the_least_visible_effect_is_found_in_80_of_100() -> None:
    mde = float(np.median([pair(1.0, seed, blocks=100).mde for seed in range(20)]))
    found = sum(pair(1 + mde, seed, blocks=100).ci95[0] > 1 for seed in range(100))
    assert 72 <= found <= 93


def test_need_follows_the_square_of_the_effect() -> None:
    run = pair(1.0, blocks=100)
    assert run.need(run.mde) == 100
    assert run.need(run.mde / 2) == 400
    assert run.need() == run.need(run.margin)


def test_a_block_is_abba_or_baab_with_one_count() -> None:
    calls: list[tuple[float, int]] = []

    class Watched(FakeTimer):
        def sample(self, work: Any, counts: Any) -> Any:
            calls.extend((work.true_s, int(count)) for count in counts)
            return super().sample(work, counts)

    compare(FakeWork(1e-6), FakeWork(2e-6), timer=Watched(), blocks=40, margin=0.1)
    blocks = [calls[-160:][i : i + 4] for i in range(0, 160, 4)]
    orders = Counter("".join("A" if true_s == 1e-6 else "B" for true_s, _ in block) for block in blocks)
    assert set(orders) == {"ABBA", "BAAB"}
    assert all(len({count for _, count in block}) == 1 for block in blocks)


def test_the_rule_stops_when_the_margin_is_resolved_or_time_is_up() -> None:
    assert pair(1.0, spread=0.002).stop_reason == "resolved"
    late = pair(1.0, spread=0.3, max_time_s=0.1)
    assert late.stop_reason == "max-time"
    assert late.verdict == "inconclusive"
    assert late.mde > late.margin
    assert "would resolve" in str(late)


def test_a_record_is_json_with_both_arms_in_it() -> None:
    run = pair(1.05, blocks=30)
    record = json.loads(json.dumps(run.to_json(), allow_nan=False))
    assert record["verdict"] == "slower"
    assert len(record["differences"]) == 30
    assert len(record["a"]["timing"]["raw_s"]) == 60
    assert str(run).startswith("slower: b takes 1.0")


def test_what_the_clock_cannot_resolve_is_inconclusive() -> None:
    clock = {"tick_s": 1e-6, "overhead_s": 5e-6, "overhead_sd_s": 1e-6}
    run = compare(FakeWork(1e-9), FakeWork(2e-9), timer=FakeTimer(**clock), blocks=40, batch=1)
    assert run.verdict == "inconclusive"
    assert "below-resolution" in run.flags


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    ratio=st.floats(0.5, 2.0),
    spread=st.sampled_from([0.0, 0.01]),
    tick_s=st.sampled_from([0.0, 1e-6]),
    seed=st.integers(0, 2**32),
)
def test_no_zero_width_and_the_same_seed_gives_the_same(ratio: float, spread: float, tick_s: float, seed: int) -> None:
    one, two = (pair(ratio, seed, {"tick_s": tick_s}, spread=spread, blocks=20) for _ in range(2))
    assert one.ci95[0] < one.ratio < one.ci95[1]
    assert one.to_json() == two.to_json()


@pytest.mark.parametrize("options", [{"margin": 0.0}, {"margin": 1.0}, {"blocks": 5}, {"target": -1.0}])
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        pair(1.0, **options)


def test_works_of_very_unlike_speed_keep_to_the_budget() -> None:
    timer = FakeTimer(tick_s=10e-9, overhead_s=20e-9)
    for a, b in ((0.2, 30e-9), (30e-9, 0.2)):
        began_s = timer.now()
        found = compare(FakeWork(a), FakeWork(b), timer=timer, max_time_s=2.0, max_warmup_s=1.0)
        assert timer.now() - began_s < 30.0
        assert found.ratio == pytest.approx(b / a, rel=0.01)
        assert found.verdict == ("slower" if b > a else "faster")
