"""`gpumicro monitor` on a scripted machine: schedule, figures, verdicts. No time is asserted that a real clock gave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_host import FakeClock, FakePsutil
from fake_nvml import GOOD, UUID, FakeNvml, NVMLError

from gpumicro.cluster import gpu_state, metrics, series
from gpumicro.cluster.advice import Thresholds
from gpumicro.cluster.gpu_state import find_gpus
from gpumicro.cluster.host_state import HostReader
from gpumicro.cluster.monitoring import MonitorRun, MonitorSettings, Sample
from gpumicro.cluster.series import Energy, Series
from gpumicro.cluster.ticks import Ticks
from gpumicro.errors import UsageError
from gpumicro.result import dumps, missing_reasons, parse

NO_NVML = FakeNvml({"nvmlInit": NVMLError("Driver Not Loaded")})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with one disk, whose partition and RAID count the same bytes, and no RAPL."""
    (tmp_path / "sys/block/sda/device").mkdir(parents=True)
    (tmp_path / "sys/block/md0").mkdir()
    return tmp_path


def watch(
    root: Path, duration_s: float = 5.0, library: Any = NO_NVML, thresholds: Thresholds | None = None, **machine: Any
) -> tuple[MonitorRun, list[Sample]]:
    clock, seen = FakeClock(), []  # type: ignore[var-annotated]
    psutil = FakePsutil(clock, **machine)
    settings = MonitorSettings(1.0, duration_s, thresholds=thresholds or Thresholds())
    run = MonitorRun(settings, host=HostReader(psutil, root), library=library, clock=clock, sinks=[seen.append])
    run.run()
    return run, seen


def rapl(root: Path, read: Callable[[], int] | None = None) -> None:
    folder = root / "sys/class/powercap/intel-rapl:0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("package-0\n")
    (folder / "max_energy_range_uj").write_text("262143328850\n")
    if read is not None:
        (folder / "energy_uj").write_text(str(read()))


# -- the schedule ------------------------------------------------------------------------------------------------------


def test_samples_stay_on_the_schedule_however_long_each_takes(root: Path) -> None:
    _, seen = watch(root, slow=lambda _: 0.3)
    assert [round(sample.t_s - 0.0, 9) for sample in seen] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert {sample.missed for sample in seen} == {0}


def test_moments_that_passed_are_counted_and_not_made_up_for(root: Path) -> None:
    _, seen = watch(root, 6.0, slow=lambda t: 2.5 if 101.5 < t < 102.5 else 0.0)
    assert [round(sample.t_s, 9) for sample in seen] == [1.0, 2.0, 5.0, 6.0]
    assert seen[-1].missed == 2


def test_ticks_do_not_add_up_rounding() -> None:
    ticks, now = Ticks(0.1, 0.1), 0.1
    for k in range(1, 1001):
        now = ticks.next_after(now)
        assert now == 0.1 + k * 0.1
    assert ticks.missed == 0


def test_its_own_cost_is_told(root: Path) -> None:
    run, _ = watch(root, slow=lambda _: 0.25)
    cost = run.result().document["monitor"]["cost"]
    assert cost["sample_s"] == pytest.approx(0.25)
    assert cost["cpu_fraction"] == pytest.approx(0.01, rel=0.1)


# -- the host's figures ------------------------------------------------------------------------------------------------


def test_the_hosts_values_are_rates_between_samples(root: Path) -> None:
    _, seen = watch(root, iowait=0.1, steal=0.05)
    host = seen[-1].host
    assert host["cpu_utilization"] == pytest.approx(0.4)
    assert host["cpu_busiest"] == pytest.approx(0.4)
    assert host["cpu_iowait"] == pytest.approx(0.1)
    assert host["cpu_steal"] == pytest.approx(0.05)
    assert host["memory_used_bytes"] == pytest.approx(32e9)
    assert host["disk_read_bytes_per_s"] == pytest.approx(1e6)  # once, not for partition and RAID again
    assert host["disk_utilization"] == pytest.approx(0.2)
    assert host["net_received_bytes_per_s"] == pytest.approx(2e6)  # without the loopback
    assert host["cpu_power_w"] is None


def test_a_counter_that_is_reset_leaves_one_sample_unknown(root: Path) -> None:
    _, seen = watch(root, received=lambda t: 2e6 * (t if t < 102.5 else t - 102.5))
    rates = [sample.host["net_received_bytes_per_s"] for sample in seen]
    assert rates[2] is None
    assert [rates[k] for k in (0, 1, 3, 4)] == pytest.approx([2e6] * 4)


@pytest.mark.parametrize(("now", "before", "modulus", "growth"), [
    (7, 5, None, 2), (5, 5, None, 0), (3, 5, None, None), (3, 250, 256, 9), (3, 100, 256, None),
])  # fmt: skip
def test_counters_wrap_or_are_reset(now: float, before: float, modulus: float | None, growth: float | None) -> None:
    assert metrics.grown(now, before, modulus) == growth


def test_cpu_energy_is_summed_by_rapl_over_its_wrap(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rapl(root, lambda: 0)
    from gpumicro.cluster import host_state

    joules = iter([262_143.0, 262_143.0, 100.0, 200.0, 300.0, 400.0, 500.0])  # the first is the look at the begin
    real = host_state.read_number

    def number(path: Path) -> int | None:
        return int(next(joules) * 1e6) if path.name == "energy_uj" else real(path)

    monkeypatch.setattr(host_state, "read_number", number)
    run, seen = watch(root)
    assert seen[1].host["cpu_power_w"] == pytest.approx(100.0)
    energy = run.result().document["monitor"]["host"]["energy_j"]
    assert energy == pytest.approx(500 + 262_143.32885 - 262_143.0)


def test_rapl_that_only_root_may_read_is_said(root: Path) -> None:
    rapl(root)
    run, _ = watch(root)
    host = run.result().document["monitor"]["host"]
    assert host["energy_j"] is None
    assert "root alone" in host["energy_j_why"]


# -- without and with GPUs ---------------------------------------------------------------------------------------------


def test_without_nvml_the_host_goes_on_and_that_is_said(root: Path) -> None:
    run, seen = watch(root)
    doc = run.result().document
    assert len(seen) == 5
    assert doc["monitor"]["gpus"] == []
    assert "Driver Not Loaded" in doc["monitor"]["gpus_why"]
    assert any("Driver Not Loaded" in note for note in doc["notes"])
    assert missing_reasons(doc) == []
    parse(dumps(doc).encode(), "m.json")


def test_a_gpus_values_energy_and_facts(root: Path) -> None:
    energy = iter(range(1_000_000, 9_000_000, 600_000))  # mJ: 600 J from one reading to the next
    library = FakeNvml({
        **GOOD, "nvmlDeviceGetTotalEnergyConsumption": lambda: next(energy),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=40 * 2**30, total=80 * 2**30),
        "nvmlDeviceGetPcieThroughput": lambda way: (2_000_000, 3_000_000)[way],
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    })  # fmt: skip
    run, seen = watch(root, library=library)
    values = seen[-1].gpus[0]
    assert values["utilization"] == 0.97
    assert values["memory_busy"] == 0.40
    assert values["memory_utilization"] == 0.5
    assert values["sm_hz"] == 1.755e9
    assert (values["pcie_sent_bytes_per_s"], values["pcie_received_bytes_per_s"]) == (2e9, 3e9)
    assert values["nvlink_sent_bytes_per_s"] is None
    assert seen[-1].reasons == (("power cap",),)
    doc = run.result().document
    gpu = doc["monitor"]["gpus"][0]
    # it moves at each reading: the begin, the policies' counters, five samples
    assert gpu["energy_from"] == "the energy counter"
    assert gpu["energy_j"] == pytest.approx(6 * 600)
    assert gpu["held_back"] == {"power cap": 1.0}
    assert "Not Supported" in gpu["metrics"]["nvlink_sent_bytes_per_s_why"]
    assert missing_reasons(doc) == []
    parse(dumps(doc).encode(), "m.json")


def test_nvlink_and_pcie_are_counted_where_there_are_counters(root: Path) -> None:
    reads, asked = iter(range(1000)), []

    class Counting(FakeNvml):
        """Every field grows by 1e6 at each reading of any field."""

        def nvmlDeviceGetFieldValues(self, handle: str, ids: list[Any]) -> list[Any]:
            del handle
            asked.append(ids[0])
            value = SimpleNamespace(ullVal=next(reads) * 10**6)
            return [SimpleNamespace(nvmlReturn=0, value=value, valueType=3)]

    library = Counting()
    _, seen = watch(root, library=library)
    assert (138, 0xFFFFFFFF) in asked  # the sum over all links
    assert {197, 198} <= {key for key in asked if isinstance(key, int)}
    values = seen[0].gpus[0]
    steps = values["pcie_sent_bytes_per_s"] / 1e6  # type: ignore[operator]
    assert values["nvlink_sent_bytes_per_s"] == pytest.approx(steps * 1e6 * 1024)  # KiB against bytes
    assert "nvmlDeviceGetPcieThroughput" not in library.calls  # 20 ms a call: not where there is a counter


def test_energy_without_a_counter_is_the_integral_of_power(root: Path) -> None:
    script = {key: value for key, value in GOOD.items() if key != "nvmlDeviceGetTotalEnergyConsumption"}
    run, _ = watch(root, library=FakeNvml(script))
    gpu = run.result().document["monitor"]["gpus"][0]
    assert gpu["energy_j"] == pytest.approx(5 * 512.345)
    assert "power readings" in gpu["energy_from"]


def test_energy_says_what_it_is_made_of() -> None:
    energy = Energy()
    assert energy.to_json("no driver")["energy_j_why"] == "no driver"
    energy.add(1.0, 100.0, 90.0)
    energy.add(1.0, None, 95.0)  # the driver was loaded anew
    energy.add(2.0, None, None)
    assert energy.joules == 195.0
    assert "the energy counter and power readings" in energy.origin
    assert "2 s are not in it" in energy.origin


def test_a_gpu_that_falls_off_the_bus_ends_nothing(root: Path) -> None:
    answers = iter([1755] * 6)

    def clock_info(_: int) -> int:
        for value in answers:
            return value
        raise NVMLError("GPU is lost")

    run, seen = watch(root, library=FakeNvml({**GOOD, "nvmlDeviceGetClockInfo": clock_info}))
    assert seen[0].gpus[0]["sm_hz"] is not None
    assert seen[-1].gpus[0]["sm_hz"] is None
    assert run.result().document["monitor"]["gpus"][0]["metrics"]["sm_hz"]["n"] < 5


def test_a_driver_that_hangs_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_state, "HANG_S", 1.0)
    end, asked = threading.Event(), []

    def temperature(_: int) -> int:
        asked.append(1)
        if len(asked) > 2:
            end.wait(60)
        return 50

    run, seen = watch(root, library=FakeNvml({**GOOD, "nvmlDeviceGetTemperature": temperature}))
    end.set()
    assert seen[0].gpus[0]["temperature_c"] == 50
    assert len(seen) == 5
    assert seen[-1].gpus[0]["temperature_c"] is None
    assert seen[-1].host["cpu_utilization"] is not None
    assert "did not answer" in run.gpus[0].reader.why["temperature_c"]


def test_gpus_are_chosen_by_index_or_uuid_and_a_wrong_one_is_named() -> None:
    library = FakeNvml(uuids=("GPU-a", UUID))
    readers, why = find_gpus((), library)
    assert ([reader.index for reader in readers], why) == ([0, 1], "")
    assert [reader.uuid for reader in find_gpus(("1",), library)[0]] == [UUID]
    assert [reader.index for reader in find_gpus((UUID,), library)[0]] == [1]
    with pytest.raises(UsageError, match="unknown GPU '7'"):
        find_gpus(("7",), library)
    with pytest.raises(UsageError, match="no GPU can be asked"):
        find_gpus(("0",), NO_NVML)


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_a_long_watch_is_thinned_and_its_average_stays_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_SAMPLES", 64)
    kept = Series(metrics.HOST)
    for k in range(1000):
        kept.add(float(k), 1.0, {"cpu_utilization": k / 1000, "cpu_iowait": None})
    assert len(kept.times_s) < 64
    found = kept.spread("cpu_utilization")
    assert found is not None
    assert found.average == pytest.approx(0.4995)
    assert found.n == 1000
    assert found.p50 == pytest.approx(0.5, abs=0.05)
    assert kept.spread("cpu_iowait") is None
    assert list(kept.columns()) == ["t_s", "cpu_utilization"]


def test_the_average_is_over_time_and_not_over_samples() -> None:
    kept = Series(metrics.HOST)
    kept.add(1.0, 1.0, {"cpu_utilization": 1.0})
    kept.add(1.01, 0.01, {"cpu_utilization": 0.0})
    found = kept.spread("cpu_utilization")
    assert found is not None
    assert found.average == pytest.approx(1 / 1.01)
