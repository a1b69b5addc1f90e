"""What a run on a GPU measures: footprints by level, kernels by capability, the minute's budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpumicro.backends.base import Availability
from gpumicro.device import Cache, Device
from gpumicro.plan import MIB, make_plan


class AnyGpu:
    """A backend that runs whatever the device's facts allow."""

    name = "cuda"

    def __init__(self, *others: Device) -> None:
        self.others = others

    def devices(self) -> tuple[Device, ...]:
        return self.others

    def supports(self, spec: Any, dtype: str, device: Device) -> Availability:
        why = spec.gpu.why_not(dtype, device) if dtype in spec.gpu.dtypes else f"no {dtype}"
        return Availability(not why, why)


def gpu(capability: str = "9.0", sms: int = 132, l2: int = 50 * MIB, memory: int = 141 << 30, **facts: Any) -> Device:
    caches = (Cache("l1", 256 * 1024, 128, (), sms), Cache("l2", l2, 128, (), 1))
    facts = {
        "compute_capability": capability, "sm_count": sms, "memory_bytes": memory, "max_threads_per_sm": 2048,
        "shared_bytes_per_sm": 228 * 1024, "shared_bytes_per_block": 227 * 1024, "managed": True, **facts,
    }  # fmt: skip
    return Device("cuda:0", "cuda", "test", sms, (), caches, memory, facts=facts)


def plan(device: Device, **options: Any) -> Any:
    return make_plan(device, AnyGpu(), **options)  # type: ignore[arg-type]


def items(device: Device, **options: Any) -> list[Any]:
    return [item for group in plan(device, **options).groups for item in group.items]


def test_every_level_of_memory_gets_bandwidth() -> None:
    levels = {item.level for item in items(gpu()) if item.spec.family in ("stream", "cache")}
    assert levels == {"shared", "l1", "l2", "dram"}


def test_a_dram_array_is_at_least_four_times_l2() -> None:
    arrays = [i.problem["n"] * i.problem.itemsize for i in items(gpu(l2=126 * MIB)) if i.spec.family == "stream"]
    assert min(arrays) >= 4 * 126 * MIB


def test_both_grids_of_a_stream_kernel_are_tried() -> None:
    for name in ("stream.triad", "stream.dot"):
        tried = {item.execution.variant for item in items(gpu()) if item.spec.name == name}
        assert {"persistent", "wide"} <= {variant.partition("-")[0] for variant in tried}


def test_the_units_of_a_generation_are_measured_and_the_others_are_named_with_their_reason() -> None:
    run = {item.spec.name for item in items(gpu("9.0"))}
    assert {"peak.fma", "peak.mma", "peak.wgmma"} <= run
    assert "peak.tcgen05" not in run
    skipped = plan(gpu("9.0")).skipped
    assert any(item.spec.name == "peak.tcgen05" and "10.0" in reason for item, reason in skipped)
    assert "peak.wgmma" not in {item.spec.name for item in items(gpu("8.0"))}


def test_every_dtype_has_its_peak_and_its_gemms() -> None:
    measured = items(gpu())
    peaks = {item.problem.dtype for item in measured if item.spec.family == "peak"}
    assert peaks >= {"float64", "float32", "float16", "bfloat16", "tf32", "int8", "float8_e4m3fn"}
    asked = [*measured, *(item for item, _ in plan(gpu()).skipped)]  # without cuBLASLt the vendor's are skipped
    gemms = {(item.spec.name, item.problem.dtype) for item in asked if item.spec.family == "gemm"}
    assert gemms >= {
        ("gemm.tiled", "float64"), ("gemm.tiled", "float32"), ("gemm.mma", "bfloat16"), ("gemm.wgmma", "bfloat16"),
        ("gemm.vendor", "float32"), ("gemm.vendor", "bfloat16"),
    }  # fmt: skip


def test_dtype_narrows_peaks_and_gemms() -> None:
    chosen = items(gpu(), dtypes=("bfloat16",))
    assert {item.problem.dtype for item in chosen if item.spec.family in ("peak", "gemm")} == {"bfloat16"}


def test_the_default_run_is_planned_within_its_minute_and_the_quick_one_within_twenty_seconds() -> None:
    assert plan(gpu()).seconds <= 60
    assert plan(gpu(), mode="quick").seconds <= 20


def test_an_emulated_device_gets_tiny_problems() -> None:
    tiny = gpu(sms=2, l2=64 * 1024, memory=256 * MIB, emulated=True)
    for item in items(tiny, mode="quick"):
        assert item.spec.bytes_moved(item.problem) <= 4 * MIB, item.id
        if not item.spec.gpu.target:  # what no emulator runs
            assert item.spec.flops(item.problem) <= 1 << 26, item.id


def test_ids_are_unique() -> None:
    ids = [item.id for item in items(gpu())]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("mode", ["quick", "default", "thorough"])
def test_a_small_device_gets_arrays_that_fit(mode: str) -> None:
    small = gpu("7.5", sms=14, l2=MIB, memory=2 << 30, shared_bytes_per_block=64 * 1024)
    for item in items(small, mode=mode):
        if item.spec.family == "stream":
            assert 3 * item.problem["n"] * item.problem.itemsize <= 2 << 30


def test_peers_are_copied_to_in_each_way_from_this_device() -> None:
    here, there = gpu(), replace(gpu(), id="cuda:1")
    planned = make_plan(here, AnyGpu(here, there))  # type: ignore[arg-type]
    copies = [item for group in planned.groups for item in group.items if item.spec.name == "copy.peer"]
    sizes = dict.fromkeys(item.problem["n"] for item in copies)
    assert len(sizes) == 3
    for n in sizes:
        of_size = [item for item in copies if item.problem["n"] == n]
        assert [(item.problem["to"], item.execution.variant) for item in of_size] == [(1, "access"), (1, "staged")]


@pytest.mark.parametrize("kernel", ["copy.h2d", "copy.d2d", "alloc.pool"])
def test_copies_and_allocations_are_swept_over_sizes(kernel: str) -> None:
    def sizes(mode: str) -> set[int]:
        return {item.problem["n"] for item in items(gpu(), mode=mode) if item.spec.name == kernel}

    assert sizes("quick") == set()
    assert len(sizes("default")) == 3
    assert {4 * 1024, 256 * MIB} <= sizes("thorough")


def test_footprints_are_swept_from_l1_to_beyond_l2() -> None:
    walked = [128 * i.problem["n"] for i in items(gpu()) if i.spec.name == "latency.gpu_chase" and i.level is None]
    assert min(walked) <= 16 * 1024
    assert max(walked) > 2 * 50 * MIB
    assert not [i for i in items(gpu(), mode="quick") if i.spec.name == "latency.gpu_chase" and i.level is None]


def test_a_quick_run_takes_the_likeliest_variant_that_the_backend_has() -> None:
    class OneGemm(AnyGpu):
        def variants(self, spec: Any, dtype: str, device: Device) -> tuple[str, ...]:
            return ("64x64",) if spec.name == "gemm.tiled" else spec.gpu.variants(dtype, device)

    def tiles(backend: AnyGpu) -> set[str]:
        planned = make_plan(gpu(), backend, mode="quick", dtypes=["float32"])  # type: ignore[arg-type]
        all_items = [item for group in planned.groups for item in group.items]
        return {item.execution.variant for item in all_items if item.spec.name == "gemm.tiled"}

    assert tiles(OneGemm()) == {"64x64"} != tiles(AnyGpu())
