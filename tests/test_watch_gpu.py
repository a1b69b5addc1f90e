"""The flags of a GPU's run, from readings and counters; and the conditions that a result gets."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fake_nvml import GOOD, UUID, FakeNvml, field, processes

from gpumicro.device import Device
from gpumicro.nvml import Gpu
from gpumicro.result import dumps
from gpumicro.schema import missing_reasons
from gpumicro.telemetry import Counters, NvmlTelemetry, Reading
from gpumicro.watch import CpuWatch, watch_for
from gpumicro.watch_gpu import GpuWatch, loaded, reason_share, state_flags

POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, BRAKE, IDLE = 0x4, 0x8, 0x20, 0x40, 0x80, 0x1


def readings(*reasons: int | None, sm_hz: float | None = 1.9e9, step_s: float = 0.02) -> list[Reading]:
    return [Reading(i * step_s, sm_hz=sm_hz, reasons=bits) for i, bits in enumerate(reasons)]


def spent(seconds: float, **limited_s: float) -> Counters:
    return Counters(seconds, None, {name.replace("_", " "): value for name, value in limited_s.items()})


NOTHING = spent(2.0)


@pytest.mark.parametrize("bit", [SW_THERMAL, HW_THERMAL, BRAKE])
def test_heat_and_brakes_are_throttling_from_two_readings_on(bit: int) -> None:
    assert state_flags(readings(*[0] * 98, bit, bit), NOTHING, 0.0) == ("throttled",)
    assert state_flags(readings(*[0] * 99, bit), NOTHING, 0.0) == ()


def test_a_hardware_slowdown_at_the_start_is_a_change_of_the_p_state() -> None:
    early = readings(*[HW_SLOWDOWN] * 4, *[0] * 96)
    late = readings(*[0] * 96, *[HW_SLOWDOWN] * 4)
    assert state_flags(early, NOTHING, 0.0) == ()
    assert state_flags(late, NOTHING, 0.0) == ("throttled",)
    hot = readings(*[HW_SLOWDOWN | HW_THERMAL] * 4, *[0] * 96)
    assert state_flags(hot, NOTHING, 0.0) == ("throttled",)


def test_counters_see_what_the_poll_misses_and_a_touch_is_nothing() -> None:
    quiet = readings(*[0] * 100)
    assert state_flags(quiet, spent(2.0, hardware_thermal=0.1), 0.0) == ("throttled",)
    assert state_flags(quiet, spent(2.0, hardware_thermal=0.01), 0.0) == ()
    assert state_flags(quiet, spent(2.0, sync_boost=1.9), 0.0) == ()  # is no throttling of this GPU
    assert state_flags(quiet, spent(0.0, thermal=1.0), 0.0) == ()  # no time passed


def test_the_power_cap_is_named_apart_and_only_where_it_holds_for_long() -> None:
    assert state_flags(readings(*[0] * 95, *[POWER_CAP] * 5), NOTHING, 0.0) == ()
    assert state_flags(readings(*[0] * 50, *[POWER_CAP] * 50), NOTHING, 0.0) == ("power-capped",)
    assert state_flags(readings(0), spent(2.0, power=1.0), 0.0) == ("power-capped",)


def test_a_low_clock_is_judged_under_load_only() -> None:
    idle = readings(*[IDLE] * 50, sm_hz=0.3e9)
    busy = readings(*[0] * 50, sm_hz=1.9e9)
    assert state_flags([*idle, *busy], NOTHING, 0.0, 1.98e9) == ()
    assert state_flags(readings(*[0] * 50, sm_hz=1.5e9), NOTHING, 0.0, 1.98e9) == ("clock-low",)
    assert state_flags(readings(*[0] * 50, sm_hz=1.5e9), NOTHING, 0.0, None) == ()
    assert state_flags(readings(*[0] * 50, sm_hz=None), NOTHING, 0.0, 1.98e9) == ()


def test_load_is_told_by_reasons_then_by_utilization_then_taken_for_granted() -> None:
    assert loaded(readings(IDLE, 0, IDLE)) == readings(IDLE, 0, IDLE)[1:2]
    assert loaded(readings(IDLE, IDLE)) == []
    used = [Reading(0.0, utilization=0.0), Reading(0.1, utilization=0.9)]
    assert loaded(used) == used[1:]
    assert len(loaded([Reading(0.0), Reading(0.1)])) == 2


def test_nothing_told_is_no_flag() -> None:
    assert state_flags(readings(None, None, sm_hz=None), Counters(2.0), 0.0, 1.98e9) == ()
    assert reason_share([], POWER_CAP) == 0.0


# -- the watch --------------------------------------------------------------------------------------------------------


def watched(library: FakeNvml, **options: Any) -> GpuWatch:
    watch = GpuWatch(NvmlTelemetry(Gpu(UUID, library), period_s=1e-4), **options)
    with watch:
        while len(watch.telemetry.series(0.0)) < 8 and watch.telemetry.gpu.usable:  # type: ignore[attr-defined]
            pass
    return watch


def test_conditions_carry_medians_ranges_and_reasons() -> None:
    out = watched(FakeNvml()).to_json("cuda:0")
    assert out["clock_hz"] == 1.755e9
    assert out["sm_clock_hz"] == {"median": 1.755e9, "min": 1.755e9, "max": 1.755e9}
    assert out["power_w"]["median"] == 512.345
    assert out["temperature_c"]["max"] == 61.0
    assert out["other_processes"] == []
    assert out["flags"] == ["clock-low"]  # 1755 MHz of the 1980 that NVML promises
    assert out["gpu"]["power_limit_w"] == 700.0
    assert missing_reasons(out) == []
    dumps(out)


def test_the_clock_that_is_promised_may_come_from_the_spec() -> None:
    assert watched(FakeNvml(), expected_hz=1.755e9).flags == ()


@pytest.mark.parametrize("script", [{}, {"nvmlDeviceGetClockInfo": 1500}], ids=["WSL", "clock only"])
def test_what_is_not_supported_is_null_with_a_reason(script: dict[str, Any]) -> None:
    out = watched(FakeNvml(script)).to_json("cuda:0")
    assert out["power_w"]["median"] is None
    assert "Not Supported" in out["power_w"]["median_why"]
    assert out["reasons"] is None
    assert out["limited_fraction"] is None
    assert out["other_processes"] is None
    assert out["flags"] == []
    assert missing_reasons(out) == []


def test_without_nvml_a_run_goes_on_and_says_why_it_knows_nothing() -> None:
    watch = GpuWatch(NvmlTelemetry(Gpu(UUID, FakeNvml({"nvmlInit": OSError("libnvidia-ml.so.1: cannot open")}))))
    with watch:
        mark = watch.mark()
    assert watch.flags_since(mark) == ()
    out = watch.to_json("cuda:0")
    assert out["clock_hz"] is None
    assert "libnvidia-ml" in out["clock_hz_why"]
    assert missing_reasons(out) == []


def test_another_process_is_flagged_even_if_it_left() -> None:
    library = FakeNvml({**GOOD, "nvmlDeviceGetComputeRunningProcesses": processes(os.getpid(), 4711)})
    watch = GpuWatch(NvmlTelemetry(Gpu(UUID, library)))
    with watch:
        library.script["nvmlDeviceGetComputeRunningProcesses"] = processes(os.getpid())
    assert "other-process" in watch.flags
    assert watch.to_json("cuda:0")["other_processes"] == [4711]


@pytest.mark.parametrize("script", [{"nvmlDeviceGetMigMode": [1, 1]}, {"nvmlDeviceIsMigDeviceHandle": 1}])
def test_slices_share_their_power(script: dict[str, Any]) -> None:
    assert "shared-power" in watched(FakeNvml({**GOOD, **script})).flags


def test_a_measurement_gets_the_flags_of_its_own_time_only() -> None:
    now = {"power": 0.0}
    library = FakeNvml(
        {**GOOD, "nvmlDeviceGetFieldValues": lambda number: field(now["power"] if number == 74 else 0.0)}
    )
    watch = GpuWatch(NvmlTelemetry(Gpu(UUID, library)), expected_hz=1.755e9)
    with watch:
        first = watch.mark()
        assert watch.flags_since(first) == ()
        now["power"] = 1e6
        assert watch.flags_since(first) == ("power-capped",)
        assert watch.flags_since(watch.mark()) == ()
        watch.extra_flags.append("shared-device")
        assert watch.flags_since(watch.mark()) == ("shared-device",)


def test_each_kind_of_device_has_its_watch() -> None:
    def device(kind: str) -> Device:
        return Device("x", kind, "x", 1, (), (), None)

    assert isinstance(watch_for(device("cpu")), CpuWatch)
    assert isinstance(watch_for(device("cuda")), GpuWatch)
