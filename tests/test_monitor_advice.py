"""The monitor's verdicts: each rule where it fires, where it does not, with its figures in the reason."""

from __future__ import annotations

import pytest

from gpumicro.cluster import metrics
from gpumicro.cluster.advice import Advice, Thresholds, gpu_advice, host_advice
from gpumicro.cluster.series import Series
from gpumicro.errors import UsageError


def series(which: tuple[metrics.Metric, ...], *samples: dict[str, float]) -> Series:
    made = Series(which)
    for k, values in enumerate(samples):
        made.add(float(k), 1.0, values)
    return made


def gpu(use: float, memory: float = 0.1, host: dict[str, float] | None = None, limits: Thresholds | None = None,
        flags: tuple[str, ...] = (), held: dict[str, float] | None = None) -> dict[str, str]:  # fmt: skip
    values = {"utilization": use, "memory_busy": memory}
    found = gpu_advice(
        "gpu 0", series(metrics.GPU, values, values), series(metrics.HOST, host or {}), flags, held or {},
        limits or Thresholds(),
    )  # fmt: skip
    return {one.verdict: one.reason for one in found}


def host(with_gpus: bool = False, throttled: int | None = 0, **values: float) -> list[Advice]:
    return host_advice(series(metrics.HOST, values), with_gpus, throttled, Thresholds())


def test_a_gpu_that_nothing_uses_is_idle_and_not_told_to_shrink() -> None:
    assert list(gpu(0.01)) == ["idle"]


@pytest.mark.parametrize(("use", "verdict"), [(0.29, "shrink"), (0.31, "keep"), (0.69, "keep"), (0.71, "grow")])
def test_under_30_percent_shrinks_and_over_70_grows(use: float, verdict: str) -> None:
    found = gpu(use)
    assert list(found) == [verdict]
    assert f"{use:.0%}" in found[verdict]


def test_bursts_speak_against_shrinking() -> None:
    kept = series(metrics.GPU, *[{"utilization": 0.1}] * 17, *[{"utilization": 1.0}] * 3)
    found = gpu_advice("gpu 0", kept, series(metrics.HOST), (), {}, Thresholds())
    assert [one.verdict for one in found] == ["keep"]
    assert "bursts" in found[0].reason


def test_thresholds_move_the_verdicts() -> None:
    assert "grow" in gpu(0.6, limits=Thresholds.of(["grow=50%"]))
    assert "keep" in gpu(0.2, limits=Thresholds.of(["shrink=0.1"]))


@pytest.mark.parametrize(("short", "words"), [
    ({"cpu_iowait": 0.3}, "waited for I/O 30%"),
    ({"disk_utilization": 0.95}, "busiest disk was busy 95%"),
    ({"cpu_utilization": 0.9}, "CPUs were busy 90%"),
    ({"cpu_utilization": 0.1, "cpu_busiest": 0.99}, "one CPU was busy 99%"),
])  # fmt: skip
def test_a_gpu_that_waits_for_the_host_is_input_bound(short: dict[str, float], words: str) -> None:
    assert words in gpu(0.5, host=short)["input-bound"]
    assert "input-bound" not in gpu(0.95, host=short)  # it gets what it needs
    assert "input-bound" not in gpu(0.5, host={"cpu_utilization": 0.2, "cpu_iowait": 0.01})


def test_memory_bound_is_the_share_of_the_time_that_it_works() -> None:
    assert "memory-bound" in gpu(0.5, memory=0.4)
    assert "memory-bound" not in gpu(0.9, memory=0.4)
    assert "memory-bound" not in gpu(0.01, memory=0.01)  # idle says it all


def test_throttling_is_told_with_its_reason_and_share() -> None:
    found = gpu(0.9, flags=("throttled",), held={"hardware thermal": 0.25, "power cap": 0.5})
    assert "hardware thermal 25.0%" in found["throttled"]
    assert "50%" in found["power-capped"]
    assert "counters" in gpu(0.9, flags=("throttled",))["throttled"]
    assert not {"throttled", "power-capped"} & set(gpu(0.9, held={"power cap": 0.05, "idle": 1.0}))


def test_a_driver_that_tells_no_utilization_gets_no_verdict_on_it() -> None:
    assert gpu_advice("gpu 0", series(metrics.GPU, {}), series(metrics.HOST), (), {}, Thresholds()) == []


def test_the_hosts_verdicts() -> None:
    assert [(one.subject, one.verdict) for one in host(cpu_utilization=0.01, memory_utilization=0.8)] == [
        ("CPU", "idle"), ("memory", "grow"),
    ]  # fmt: skip
    assert any(one.verdict == "input-bound" for one in host(cpu_utilization=0.3, cpu_iowait=0.2))
    assert not any(one.verdict == "input-bound" for one in host(True, cpu_utilization=0.3, cpu_iowait=0.2))
    assert "slowed for heat 7 times" in host(throttled=7)[0].reason
    assert host(cpu_steal=0.2) == [Advice("CPU", "contended", "the hypervisor gave 20.0% of its time to others")]


@pytest.mark.parametrize(("text", "words"), [
    ("shrink", "NAME=FRACTION"), ("shrnk=0.2", "did you mean shrink"), ("grow=much", "is not a number"),
    ("grow=70", "must be 0 to 1"), ("grow=nan", "must be 0 to 1"), ("shrink=0.9", "must be below grow"),
])  # fmt: skip
def test_a_wrong_threshold_is_named(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Thresholds.of([text])
