"""The roofline model on hand-made records: every figure here can be checked with pencil and paper."""

from __future__ import annotations

from typing import Any

import pytest
from machines import FakeSheet, figure, gemm, machine_records, record

from gpumicro import model, verdicts
from gpumicro.errors import UsageError


@pytest.fixture
def machine() -> list[dict[str, Any]]:
    return machine_records()


def test_the_best_kernel_is_the_ceiling_and_the_others_stay_beside_it(machine: list[dict[str, Any]]) -> None:
    dram = next(c for c in model.memory_ceilings(machine) if c["level"] == "dram" and c["scope"] == "roof")
    assert dram["achieved"] == 20e9
    assert dram["recipe"] == "stream.triad nontemporal (float64)"
    assert [a["achieved"] for a in dram["alternatives"]] == [18e9, 15e9]


def test_one_thread_is_shown_but_is_no_roof(machine: list[dict[str, Any]]) -> None:
    shown = [(c["kind"], c["threads"]) for c in model.ceilings(machine) if c["scope"] == "shown"]
    assert ("memory", 1) in shown
    assert all(c["threads"] == 2 for c in model.roofs(model.ceilings(machine), "arithmetic"))


def test_the_roof_is_the_fma_recipe_and_the_faster_mix_is_shown(machine: list[dict[str, Any]]) -> None:
    peaks = [c for c in model.arithmetic_ceilings(machine) if c["threads"] == 2]
    assert [(c["scope"], c["achieved"]) for c in peaks] == [("roof", 100e9), ("shown", 150e9)]
    assert len({c["id"] for c in model.ceilings(machine)}) == len(model.ceilings(machine))


def test_ridge_points_are_peak_over_bandwidth(machine: list[dict[str, Any]]) -> None:
    ridges = {r["memory"]: r["intensity_flop_per_byte"] for r in model.ridge_points(model.ceilings(machine))}
    assert ridges == pytest.approx({"l2": 1.0, "dram": 5.0})


@pytest.mark.parametrize(
    ("intensity", "level", "expected", "bound_by"),
    [
        (1.0, "dram", 20e9, "dram"),
        (5.0, "dram", 100e9, "float64"),
        (50.0, "dram", 100e9, "float64"),
        (0.5, "l2", 50e9, "l2"),
        (None, "dram", 100e9, "float64"),
    ],
)
def test_attainable_is_the_lower_of_slope_and_flat(
    machine: list[dict[str, Any]], intensity: float | None, level: str, expected: float, bound_by: str
) -> None:
    bound = model.attainable(model.ceilings(machine), intensity, level=level)
    assert bound.attainable.estimate == pytest.approx(expected)
    assert bound.bound_by == bound_by


def test_an_unmeasured_level_or_dtype_is_a_usage_error_that_names_what_is_there(machine: list[dict[str, Any]]) -> None:
    ceilings = model.ceilings(machine)
    with pytest.raises(UsageError, match=r"'l9'.*l2, dram"):
        model.attainable(ceilings, 1.0, level="l9")
    with pytest.raises(UsageError, match=r"'int8'.*float64"):
        model.attainable(ceilings, 1.0, dtype="int8")


def test_a_point_above_its_ceiling_by_more_than_both_intervals_is_flagged_with_causes(
    machine: list[dict[str, Any]],
) -> None:
    ceilings = model.ceilings([*machine[:6], machine[7]])  # without the faster recipe
    (fine,) = (p for p in model.points(ceilings, [gemm(101e9)]) if p["kind"] == "gemm")
    (above,) = (p for p in model.points(ceilings, [gemm(104e9)]) if p["kind"] == "gemm")
    assert fine["flags"] == []
    assert above["flags"] == ["above-ceiling"]
    assert "cache" in " ".join(above["causes"])


def test_a_faster_recipe_covers_a_point_above_the_fma_roof(machine: list[dict[str, Any]]) -> None:
    (point,) = model.points(model.ceilings(machine), [gemm(120e9)])
    assert point["flags"] == []
    assert point["fraction_of_attainable"] == pytest.approx(1.2)


def test_kernels_without_flop_make_no_point(machine: list[dict[str, Any]]) -> None:
    names = [p["name"] for p in model.points(model.ceilings(machine), machine)]
    assert not any("read" in name for name in names)
    assert any("triad" in name for name in names)


@pytest.mark.parametrize(("clock_hz", "blamed"), [(3.5e9, "the spec is wrong"), (2.0e9, "the measurement or")])
def test_a_ceiling_above_its_spec_says_which_of_the_two_is_wrong(
    machine: list[dict[str, Any]], clock_hz: float, blamed: str
) -> None:
    ceilings = model.ceilings(machine)
    model.attach_spec(ceilings, FakeSheet(90e9), clock_hz)
    roof = model.roofs(ceilings, "arithmetic")[0]
    assert roof["fraction_of_spec"] == pytest.approx(100 / 90)
    assert "above-spec" in roof["flags"]
    assert roof["causes"][0].startswith(blamed)
    assert not next(v for v in verdicts.verdicts(ceilings, [], machine) if v["name"] == "physical bounds")["passed"]


def test_one_thread_is_set_against_its_share_of_the_spec(machine: list[dict[str, Any]]) -> None:
    ceilings = model.ceilings(machine)
    model.attach_spec(ceilings, FakeSheet(90e9), 3e9)
    one = next(c for c in ceilings if c["threads"] == 1 and c["kind"] == "arithmetic")
    assert one["spec"] == 45e9


def test_a_ceiling_that_moved_by_the_end_of_the_run_is_unstable(machine: list[dict[str, Any]]) -> None:
    first = machine[5]
    again = {**first, "id": first["id"] + "#repeat", "repeat_of": first["id"], "flop_per_s": figure(80e9)}
    ceilings = model.ceilings([*machine, again])
    roof = model.roofs(ceilings, "arithmetic")[0]
    assert roof["achieved"] == 100e9  # the repeat is evidence, not a second chance
    assert roof["repeat"]["ratio"] == pytest.approx(0.8)
    assert roof["flags"] == ["unstable"]


def test_a_failed_measurement_fails_the_first_verdict(machine: list[dict[str, Any]]) -> None:
    bad = {**gemm(1e9), "status": "failed", "error": "wrong output at index 3"}
    first = verdicts.verdicts([], [], [*machine, bad])[0]
    assert not first["passed"]
    assert "index 3" in first["text"]


def test_a_level_that_gave_no_rate_has_no_ceiling(machine: list[dict[str, Any]]) -> None:
    for one in machine:
        if one["level"] == "l2":
            one["bandwidth_bytes_per_s"] = {"estimate": 1e11, "ci95": None, "ci95_why": "reaches zero"}
    assert {c["level"] for c in model.memory_ceilings(machine)} == {"dram"}


def test_an_unknown_level_comes_last(machine: list[dict[str, Any]]) -> None:
    machine[0]["level"] = "l4"
    assert [c["level"] for c in model.roofs(model.memory_ceilings(machine), "memory")] == ["dram", "l4"]


def test_a_wide_interval_is_no_excuse_to_be_above_the_spec(machine: list[dict[str, Any]]) -> None:
    machine[5]["flop_per_s"] = figure(100e9, width=0.3)
    ceilings = model.ceilings(machine)
    model.attach_spec(ceilings, FakeSheet(90e9), 3.2e9)
    assert "above-spec" in model.roofs(ceilings, "arithmetic")[0]["flags"]
    ceilings = model.ceilings(machine)
    model.attach_spec(ceilings, FakeSheet(99.5e9), 3.2e9)
    assert "above-spec" not in model.roofs(ceilings, "arithmetic")[0]["flags"]


def test_no_verdict_on_what_was_not_looked_at(machine: list[dict[str, Any]]) -> None:
    assert verdicts.verdicts([], [], []) == []
    ceilings = model.ceilings(machine)
    names = [v["name"] for v in verdicts.verdicts(ceilings, model.points(ceilings, machine), machine, [0.0])]
    assert names == ["quiet machine", "outputs", "roof"]  # no spec is known, nothing was measured again


def test_a_shared_cache_that_neighbours_evict_is_told_by_two_chases() -> None:
    def chase(n: int, seconds: float) -> dict[str, Any]:
        return record("latency.chase", level="l3", problem={"n": n}, latency_s={"estimate": seconds})

    assert verdicts.notes([chase(32768, 22e-9), chase(65536, 25e-9)]) == []
    (note,) = verdicts.notes([chase(65536, 160e-9), chase(32768, 22e-9)])
    assert "160 ns over 65536 lines and 22.0 ns over 32768" in note


def test_tensor_cores_make_the_roof_and_plain_units_are_shown_beside_it() -> None:
    records = [
        record("peak.fma", dtype="float16", rate=100e12, device="cuda:0", threads=1),
        record("peak.mma", dtype="float16", rate=600e12, device="cuda:0", threads=1),
        record("peak.wgmma", dtype="float16", rate=900e12, device="cuda:0", threads=1),
    ]
    roof, plain = model.arithmetic_ceilings(records)
    assert (roof["kernel"], roof["scope"]) == ("peak.wgmma", "roof")
    assert [other["recipe"] for other in roof["alternatives"]] == ["peak.mma"]
    assert (plain["kernel"], plain["scope"]) == ("peak.fma", "shown")
    assert roof["id"] != plain["id"]


def test_a_gpus_spec_is_that_of_the_unit_that_computed() -> None:
    from gpumicro.device import Device
    from gpumicro.peaks.sheet import sheet_for

    device = Device("cuda:0", "cuda", "NVIDIA H200", 132, (), (), 141 << 30)
    sheet = sheet_for(device, "h200-sxm-141")
    records = [
        record("peak.fma", dtype="float64", rate=30e12, device="cuda:0", threads=1),
        record("peak.mma", dtype="float64", rate=60e12, device="cuda:0", threads=1),
        record("cache.read", family="cache", level="l2", rate=5e12, device="cuda:0", threads=1,
               bandwidth_bytes_per_s=figure(5e12)),
    ]  # fmt: skip
    found = model.ceilings(records)
    model.attach_spec(found, sheet, None)
    assert {c["kernel"]: c["spec"] for c in found} == {"cache.read": None, "peak.mma": 67e12, "peak.fma": 34e12}
    assert sheet.arithmetic("bfloat16", "tensor").per_cycle == pytest.approx(989.5e12 / 1.83e9)
    assert sheet.arithmetic("float64", "tensor").per_cycle == pytest.approx(67e12 / 1.98e9)


def test_knees_of_a_latency_sweep_are_named_by_the_caches() -> None:
    from gpumicro.device import Cache, Device

    device = Device(
        "cuda:0", "cuda", "test", 4, (), (Cache("l1", 1 << 18, 128, (), 4), Cache("l2", 1 << 22, 128, (), 1)), 1 << 32
    )
    sizes = [1 << power for power in range(12, 26)]

    def hop_s(size: int) -> float:
        return 20e-9 if size <= 1 << 17 else 130e-9 if size <= 1 << 21 else 400e-9

    walked = [
        record("latency.gpu_chase", device="cuda:0", threads=1, dtype="int64", problem={"n": size // 128, "hops": 8192},
               latency_s=figure(hop_s(size)))
        for size in sizes
    ]  # fmt: skip
    lines = verdicts.notes(walked, [device])
    assert all(line.startswith("cuda:0: latency rises") for line in lines)
    assert len(lines) == 2
    assert "L1 ends there, 256 KiB by the device's facts" in lines[0]
    assert "L2 ends there, 4 MiB" in lines[1]
