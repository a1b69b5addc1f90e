"""What a run measures: footprints, budgets, skips."""

from __future__ import annotations

from typing import Any

import pytest

from gpumicro.backends.base import Availability
from gpumicro.device import Cache, Device
from gpumicro.plan import MIB, make_plan, repeat_group


class FakeBackend:
    """Can run everything but bfloat16."""

    name = "fake"

    def supports(self, spec: Any, dtype: str, device: Device) -> Availability:
        del spec, device
        return Availability(dtype != "bfloat16", "this CPU has no bfloat16 dot product")


def machine(cores: int = 2, memory: int = 24 << 30, l3: int = 32 * MIB, **more: Any) -> Device:
    cpus = tuple(range(cores))
    caches = (
        Cache("l1", 32 * 1024, 64, (0,), cores),
        Cache("l2", 512 * 1024, 64, (0,), cores),
        Cache("l3", l3, 64, cpus, 1),
    )
    return Device("cpu", "cpu", "test", cores, cpus, more.pop("caches", caches), memory, **more)


def items(device: Device, **options: Any) -> list[Any]:
    return [item for group in make_plan(device, FakeBackend(), **options).groups for item in group.items]  # type: ignore[arg-type]


def stream_bytes(item: Any) -> int:
    """All three arrays."""
    return 3 * item.problem["n"] * item.problem.itemsize


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_arrays_fit_their_level_and_no_nearer_one(cores: int) -> None:
    device = machine(cores, memory=1 << 40, l3=256 * MIB)
    for item in items(device):
        if item.spec.family != "stream" or item.level == "dram":
            continue
        cache = device.cache(item.level)
        assert cache is not None
        shared = cache.count if len(cache.shared_by) > 1 else item.execution.threads
        assert stream_bytes(item) <= cache.size_bytes * shared
        nearer = [c for c in device.caches if c.size_bytes < cache.size_bytes]
        for near in nearer:
            assert stream_bytes(item) > near.size_bytes * item.execution.threads


def test_a_dram_array_is_at_least_four_times_the_last_level_cache() -> None:
    sizes = {
        i.problem["n"] * i.problem.itemsize for i in items(machine()) if i.level == "dram" and i.spec.family == "stream"
    }
    assert sizes == {128 * MIB}


def test_too_little_memory_shrinks_the_arrays_and_says_so() -> None:
    plan = make_plan(machine(memory=300 * MIB), FakeBackend())  # type: ignore[arg-type]
    sizes = [stream_bytes(i) for g in plan.groups for i in g.items if i.level == "dram" and i.spec.family == "stream"]
    assert 0 < max(sizes) <= 150 * MIB
    assert "Memory is short" in plan.notes[0]
    flags = {i.flags for g in plan.groups for i in g.items if i.level == "dram" and i.spec.family == "stream"}
    assert flags == {("cache-resident",)}
    assert len(plan.notes) == 1


def test_budgets_of_the_modes_on_two_cores() -> None:
    seconds = {mode: make_plan(machine(), FakeBackend(), mode=mode).seconds for mode in ("quick", "default")}  # type: ignore[arg-type]
    assert seconds["quick"] <= 20
    assert seconds["default"] <= 60


def test_what_cannot_run_is_skipped_with_its_reason() -> None:
    plan = make_plan(machine(), FakeBackend())  # type: ignore[arg-type]
    assert {(item.spec.name, reason) for item, reason in plan.skipped} == {
        ("peak.dot", "this CPU has no bfloat16 dot product")
    }


def test_dtype_narrows_every_room() -> None:
    dtypes = {i.problem.dtype for i in items(machine(), dtypes=("float32",)) if i.spec.name != "latency.chase"}
    assert dtypes - {"int64"} == {"float32"}  # int64: launches have no element type
    peaks = {i.problem.dtype for i in items(machine(), dtypes=("float32",)) if i.spec.family == "peak"}
    assert peaks == {"float32"}


def test_ids_are_unique() -> None:
    ids = [item.id for item in items(machine())]
    assert len(ids) == len(set(ids))


def test_one_core_is_measured_once() -> None:
    threads = {item.execution.threads for item in items(machine(cores=1))}
    assert threads == {1}


def test_without_cache_facts_there_is_still_dram() -> None:
    levels = {item.level for item in items(machine(caches=())) if item.spec.family == "stream"}
    assert levels == {"dram"}


def test_the_roofs_are_measured_again_at_the_end() -> None:
    plan = make_plan(machine(), FakeBackend())  # type: ignore[arg-type]
    chosen = plan.groups[0].items[0]
    group = repeat_group(plan, [{"scope": "roof", "measurement": chosen.id}, {"scope": "shown", "measurement": "x"}])
    assert group is not None
    assert group.repeat
    assert group.items == (chosen,)
    assert repeat_group(plan, []) is None


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_without_a_float_dtype_only_bandwidth_and_the_peak_are_measured(dtype: str) -> None:
    plan = make_plan(machine(), FakeBackend(), dtypes=(dtype,))  # type: ignore[arg-type]
    families = {item.spec.family for group in plan.groups for item in group.items}
    assert families == {"stream", "latency", "launch", *(["peak"] if dtype == "int8" else [])}
    assert any("float64" in note for note in plan.notes)
    assert any("float16: no kernel" in note for note in plan.notes) == (dtype == "float16")
