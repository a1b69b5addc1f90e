"""The gap from spec to plain kernel: attributed as far as it was measured, and no further."""

from __future__ import annotations

from typing import Any

import pytest
from machines import FakeSheet, gemm, machine_records, record

from gpumicro import explain, model


def ladder(ladders: list[dict[str, Any]], quantity: str) -> dict[str, Any]:
    return next(one for one in ladders if one["quantity"] == quantity)


@pytest.fixture
def machine() -> list[dict[str, Any]]:
    return machine_records()


@pytest.fixture
def gemms() -> list[dict[str, Any]]:
    return [gemm(90e9, "gemm.vendor"), gemm(81e9)]


def explained(records: list[dict[str, Any]], spec: float | None, **conditions: Any) -> list[dict[str, Any]]:
    ceilings = model.ceilings(records)
    sheet = FakeSheet(spec)
    model.attach_spec(ceilings, sheet, conditions.get("clock_hz"))
    return explain.explain(ceilings, records, explain.Conditions(sheet=sheet, **conditions))


def test_steps_go_from_spec_to_plain_kernel(machine: list[dict[str, Any]], gemms: list[dict[str, Any]]) -> None:
    conditions = {"clock_hz": 3.2e9}
    one = ladder(explained([*machine, *gemms], 128e9, **conditions), "float64 arithmetic")
    assert [step["name"] for step in one["steps"]] == ["spec", "clock", "ceiling", "library", "kernel"]
    clock = next(c for c in one["causes"] if c["cause"] == "clock below spec")
    assert clock["fraction"] == pytest.approx(0.2)
    assert "3.20 GHz measured" in clock["evidence"]


def test_what_nothing_measured_explains_is_said_to_be_unattributed(
    machine: list[dict[str, Any]], gemms: list[dict[str, Any]]
) -> None:
    one = ladder(explained([*machine, *gemms], None), "float64 arithmetic")
    assert one["steps"][0]["value"] is None
    assert "clock hidden" in one["steps"][0]["value_why"]
    rest = next(u for u in one["unattributed"] if u["between"] == ["library", "kernel"])
    assert rest["fraction"] == pytest.approx(0.1)


def test_causes_never_explain_more_than_was_lost(machine: list[dict[str, Any]], gemms: list[dict[str, Any]]) -> None:
    conditions = {"clock_hz": 3.3e9, "steal_fraction": 0.5}
    for one in explained([*machine, *gemms], None, **conditions):
        steps = {step["name"]: step["value"] for step in one["steps"]}
        for cause in one["causes"]:
            upper, lower = cause["between"]
            assert cause["fraction"] <= 1 - steps[lower] / steps[upper] + 1e-12


def test_plain_stores_lose_what_write_allocate_moves_and_the_rest_is_open(machine: list[dict[str, Any]]) -> None:
    one = ladder(explained(machine, None), "dram bandwidth")
    cause = next(c for c in one["causes"] if c["cause"] == "write-allocate")
    assert cause["fraction"] == pytest.approx(0.25)
    assert [step["name"] for step in one["steps"]] == ["spec", "ceiling", "plain stores", "one thread"]


def test_a_lower_step_that_is_faster_is_called_wrong(
    machine: list[dict[str, Any]], gemms: list[dict[str, Any]]
) -> None:
    gemms[1]["flop_per_s"]["estimate"] = 120e9
    one = ladder(explained([*machine, *gemms], None), "float64 arithmetic")
    assert any("kernel is above library" in u["note"] for u in one["unattributed"])


def test_one_thread_is_set_against_many_that_store_alike(machine: list[dict[str, Any]]) -> None:
    machine.append(record("stream.triad", level="dram", rate=16e9, variant="nontemporal", threads=1))
    one = ladder(explained(machine, None), "dram bandwidth")
    values = {step["name"]: step["value"] for step in one["steps"]}
    assert values["plain stores"] == 15e9
    assert values["one thread"] == 12e9  # not the 16 of stores that bypass the caches
    assert one["unattributed"] == []


def test_lost_time_goes_to_whoever_had_it_and_heat_is_named(
    machine: list[dict[str, Any]], gemms: list[dict[str, Any]]
) -> None:
    conditions = {"clock_hz": 4e9, "steal_fraction": 0.05, "others_fraction": 0.5, "throttled": 3}
    one = ladder(explained([*machine, *gemms], None, **conditions), "float64 arithmetic")
    causes = {c["cause"]: c["fraction"] for c in one["causes"] if c["between"] == ["clock", "ceiling"]}
    lost = 1 - 100 / 128
    assert causes == pytest.approx({
        "time taken by the hypervisor": 0.05, "time taken by other processes": lost - 0.05,
    })  # fmt: skip


def test_a_launch_that_takes_long_binds_the_library(machine: list[dict[str, Any]], gemms: list[dict[str, Any]]) -> None:
    empty = {**gemms[0], "kernel": "launch.empty", "family": "launch", "time_s": {"estimate": 1e-3}, "id": "launch"}
    one = ladder(explained([*machine, *gemms, empty], None), "float64 arithmetic")
    causes = {c["cause"]: c["fraction"] for c in one["causes"]}
    assert causes["launch-bound"] == pytest.approx(1e-3 / gemms[0]["time_s"]["estimate"])
