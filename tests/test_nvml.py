"""NVML's answers and silences, from a scripted library: a value or a reason, never an exception."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import GOOD, UUID, FakeNvml, NVMLError, field, processes

from gpumicro import nvml
from gpumicro.nvml import FACTS, Gpu
from gpumicro.telemetry import Counters, NvmlTelemetry, Reading


def test_facts_are_in_si_units() -> None:
    facts = Gpu(UUID, FakeNvml()).facts()
    assert facts["driver"] == "580.95.05"
    assert facts["name"] == "NVIDIA H200"
    assert facts["power_limit_max_w"] == 700.0
    assert facts["clock_max_hz"] == 1.98e9
    assert facts["ecc"] is True
    assert facts["mig"] is False
    assert facts["compute_mode"] == "default"
    assert (facts["pcie_generation"], facts["pcie_width"]) == (5, 16)
    assert facts["locked_clocks"] is None
    assert facts["locked_clocks_why"]


@pytest.mark.parametrize("call", sorted({fact.call for fact in FACTS}))
def test_each_fact_that_is_not_supported_is_null_with_its_reason(call: str) -> None:
    script = {name: value for name, value in GOOD.items() if name != call}
    facts = Gpu(UUID, FakeNvml(script)).facts()
    silent = [fact.key for fact in FACTS if fact.call == call]
    for key in silent:
        assert facts[key] is None
        assert "Not Supported" in facts[f"{key}_why"]
    others = [fact.key for fact in FACTS if fact.call != call]
    assert all(facts[key] is not None for key in others)


def test_the_gpu_is_found_by_its_uuid_and_never_by_index() -> None:
    library = FakeNvml(uuids=("GPU-another", UUID))
    assert Gpu(UUID, library).usable
    assert not any("ByIndex" in call for call in library.calls)
    missing = Gpu("GPU-third", library)
    assert not missing.usable
    assert "Not Found" in missing.why
    assert missing.ask("nvmlDeviceGetPowerUsage").why == missing.why


def test_a_mig_slice_is_found_under_its_own_name_and_asks_its_parent() -> None:
    script = {
        "nvmlDeviceIsMigDeviceHandle": 1,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda: "parent of the slice",
        "nvmlDeviceGetClockInfo": 1200,
    }
    library = FakeNvml(script, uuids=(UUID.replace("GPU-", "MIG-"),))
    gpu = Gpu(UUID, library)
    assert gpu.usable
    assert gpu.mig_slice
    telemetry = NvmlTelemetry(gpu)
    reading = telemetry.reading()
    assert reading.sm_hz == 1.2e9
    assert reading.power_w is None
    assert "Not Supported" in telemetry.why["power_w"]
    assert gpu.facts()["mig_slice"] is True


@pytest.mark.parametrize(
    ("library", "says"),
    [
        (FakeNvml({"nvmlInit": NVMLError("Driver Not Loaded")}), "Driver Not Loaded"),
        (FakeNvml({"nvmlInit": OSError("cannot open shared object file")}), "shared object"),
        (FakeNvml({"nvmlInit": NVMLError("RM has detected an NVML/RM version mismatch.")}), "mismatch"),
    ],
)
def test_a_library_that_does_not_start_gives_reasons_everywhere(library: FakeNvml, says: str) -> None:
    gpu = Gpu(UUID, library)
    facts = gpu.facts()
    assert says in facts["driver_why"]
    assert all(facts[fact.key] is None and says in facts[f"{fact.key}_why"] for fact in FACTS)
    telemetry = NvmlTelemetry(gpu)
    telemetry.start()
    telemetry.stop()
    assert telemetry.others() is None
    assert telemetry.counters().limited_s == {}
    assert says in telemetry.why["limited_s"]


def test_without_the_module_the_reason_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_MODULE", "no_such_module_of_nvml")
    gpu = Gpu(UUID)
    assert not gpu.usable
    assert "nvidia-ml-py" in gpu.why


def test_a_device_without_uuid_is_not_guessed() -> None:
    assert "UUID" in Gpu(None, FakeNvml()).why


def test_an_answer_of_another_form_is_a_reason() -> None:
    facts = Gpu(
        UUID, FakeNvml({**GOOD, "nvmlDeviceGetEccMode": None, "nvmlDeviceGetPowerManagementLimit": "N/A"})
    ).facts()
    assert "cannot be read" in facts["ecc_why"]
    assert "cannot be read" in facts["power_limit_w_why"]


def test_the_older_name_of_the_reasons_is_asked_too() -> None:
    script = {name: value for name, value in GOOD.items() if "EventReasons" not in name}
    gpu = Gpu(UUID, FakeNvml({**script, "nvmlDeviceGetCurrentClocksThrottleReasons": 0x44}))
    assert gpu.reasons().value == 0x44
    assert "Not Supported" in Gpu(UUID, FakeNvml(script)).reasons().why


def test_other_processes_are_those_that_are_not_us() -> None:
    script = {**GOOD, "nvmlDeviceGetComputeRunningProcesses": processes(os.getpid(), 4711)}
    assert Gpu(UUID, FakeNvml(script)).processes().value == [4711]


def test_in_a_container_one_unknown_process_is_taken_for_us(monkeypatch: pytest.MonkeyPatch) -> None:
    script = {**GOOD, "nvmlDeviceGetComputeRunningProcesses": processes(4711)}
    monkeypatch.setattr(nvml, "_foreign_pids", lambda: True)
    assert Gpu(UUID, FakeNvml(script)).processes().value == []
    script["nvmlDeviceGetGraphicsRunningProcesses"] = processes(4712)
    assert Gpu(UUID, FakeNvml(script)).processes().value == [4712]
    monkeypatch.setattr(nvml, "_foreign_pids", lambda: False)
    assert Gpu(UUID, FakeNvml(script)).processes().value == [4711, 4712]


def test_a_pid_namespace_is_told_by_its_number(tmp_path: Path) -> None:
    link = tmp_path / "pid"
    link.symlink_to("pid:[4026531836]")
    assert not nvml._foreign_pids(link)
    link.unlink()
    link.symlink_to("pid:[4026532999]")
    assert nvml._foreign_pids(link)
    assert not nvml._foreign_pids(tmp_path / "none")


def test_wsl_is_told_by_the_kernels_name(tmp_path: Path) -> None:
    release = tmp_path / "osrelease"
    release.write_text("5.15.167.4-microsoft-standard-WSL2\n")
    assert nvml._in_wsl(release)
    assert not nvml._in_wsl(tmp_path / "none")


# -- telemetry --------------------------------------------------------------------------------------------------------


def test_readings_are_taken_on_a_side_thread_and_end_with_the_run() -> None:
    library = FakeNvml()
    telemetry = NvmlTelemetry(Gpu(UUID, library), period_s=1e-4)
    begin = telemetry.now()
    telemetry.start()
    while len(telemetry.series(begin)) < 5:
        pass
    telemetry.stop()
    readings = telemetry.series(begin)
    assert "gpumicro-nvml" in library.threads
    assert readings[0] == Reading(readings[0].t_s, 1.755e9, 3.201e9, 512.345, 61.0, 0.97, 0)
    times = [reading.t_s for reading in readings]
    assert times == sorted(times)
    assert len(telemetry.series(begin)) == len(readings)  # nothing is read any more
    assert telemetry.series(telemetry.now()) == []


def test_a_long_run_keeps_a_bounded_number_of_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumicro.telemetry.MOST_READINGS", 16)
    library = FakeNvml()
    telemetry = NvmlTelemetry(Gpu(UUID, library), period_s=1e-5)
    begin = telemetry.now()
    telemetry.start()
    while library.calls.count("nvmlDeviceGetPowerUsage") < 60:
        pass
    telemetry.stop()
    assert len(telemetry.series(begin)) <= 17


def test_a_driver_that_goes_away_in_the_middle_leaves_nulls() -> None:
    library = FakeNvml()
    telemetry = NvmlTelemetry(Gpu(UUID, library))
    telemetry.start()
    library.script = {"nvmlDeviceGetPowerUsage": NVMLError("GPU is lost")}
    telemetry.stop()
    assert telemetry.reading().power_w is None
    assert "GPU is lost" in telemetry.why["power_w"]


def test_a_driver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumicro.telemetry.JOIN_S", 0.05)
    begun, free = threading.Event(), threading.Event()

    def hang() -> int:
        if threading.current_thread().name == "gpumicro-nvml":
            begun.set()
            free.wait(60)
        return 1000

    telemetry = NvmlTelemetry(Gpu(UUID, FakeNvml({**GOOD, "nvmlDeviceGetPowerUsage": hang})), period_s=1e-4)
    telemetry.start()
    assert begun.wait(60)
    telemetry.stop()
    assert "did not answer" in telemetry.gpu.why
    assert telemetry.counters().energy_j is None  # and nothing hangs for want of another answer
    free.set()


def test_counters_come_from_fields_and_else_from_violation_status() -> None:
    seconds = {74: 1.5, 75: 0.25, 270: 2.0}
    library = FakeNvml({
        **GOOD,
        "nvmlDeviceGetFieldValues": lambda number: field(seconds[number]) if number in seconds else field(0, error=3),
        "nvmlDeviceGetViolationStatus": lambda policy: {3: _violation(7_000_000_000)}[policy],
    })  # fmt: skip
    found = NvmlTelemetry(Gpu(UUID, library)).counters()
    assert found.limited_s == {"power": 1.5, "thermal": 0.25, "hardware thermal": 2.0, "board limit": 7.0}
    assert found.energy_j == 1000.0


def _violation(ns: int) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(referenceTime=1, violationTime=ns)


def test_counters_since_another_reading() -> None:
    before = Counters(10.0, 100.0, {"power": 1.0, "thermal": 2.0})
    grown = Counters(12.0, 150.0, {"power": 1.5, "thermal": 0.0, "board limit": 9.0}).since(before)
    assert grown == Counters(2.0, 50.0, {"power": 0.5, "thermal": 0.0})
    assert Counters(12.0, 1.0).since(before).energy_j is None  # the driver was loaded anew
