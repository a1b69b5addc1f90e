"""What the judging commands read out of result documents, and that each figure says where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import result_files
import sweep_files

from gpumicro import result
from gpumicro.cluster.figures import figures_of, link_figure, read_figures, spec_figures
from gpumicro.errors import UsageError

CPU = Path(__file__).parent / "data" / "roofline-cpu.json"


def gemm(dtype: str, true_s: float, **more: Any) -> dict[str, Any]:
    return result_files.entry(512, true_s, name="gemm.vendor", dtype=dtype) | more


def test_the_figures_of_a_roofline_name_their_measurement_and_their_interval() -> None:
    found = read_figures(str(CPU))
    (device,) = found.devices
    doc = result.read(CPU)
    roof = next(c for c in doc["ceilings"] if c["kind"] == "memory" and c["level"] == "dram" and c["scope"] == "roof")
    assert device.dram is not None
    assert (device.dram.estimate, device.dram.ci95) == (roof["achieved"], tuple(roof["ci95"]))
    assert (device.dram.origin, device.dram.unit) == ("measured", "B/s")
    assert roof["measurement"] in device.dram.source
    assert set(device.gemm) == {"float64", "float32"}
    assert set(device.peak) >= {"float64", "float32"}
    assert device.peak["int8"].unit == "OP/s"
    assert device.memory_bytes is not None
    assert device.memory_bytes.estimate == 1 << 33
    assert device.power_w is None
    assert found.failed_verdicts == ("outputs: stream.copy gave a wrong output",)


def test_a_ceiling_that_could_not_be_told_from_overhead_is_no_figure() -> None:
    doc = dict(result.read(CPU))
    doc["ceilings"] = [c | {"achieved": None} if c["level"] == "dram" else c for c in doc["ceilings"]]
    (device,) = figures_of(doc, "r.json").devices
    assert device.dram is None
    assert device.peak


def test_the_fastest_gemm_of_a_dtype_counts_whether_or_not_it_came_first() -> None:
    slow, fast = gemm("float32", 2e-3), gemm("float32", 1e-3)
    for records in ((slow, fast), (fast, slow)):
        (device,) = figures_of(result_files.file(*records), "r.json").devices
        assert device.gemm["float32"].estimate == fast["flop_per_s"]["estimate"]
        assert device.gemm["float32"].source == f"r.json: {fast['id']}"


def test_a_failed_gemm_and_a_repeat_are_no_figures() -> None:
    failed = gemm("float64", 1e-6, status="failed", error="wrong")
    again = gemm("float64", 1e-6, repeat_of="x")
    good = gemm("float64", 1e-3)
    (device,) = figures_of(result_files.file(failed, again, good), "r.json").devices
    assert device.gemm["float64"].estimate == good["flop_per_s"]["estimate"]


@pytest.mark.parametrize("tag", ["emulated", "synthetic", "replayed"])
def test_what_no_device_did_is_never_called_measured(tag: str) -> None:
    doc = result_files.file(gemm("float32", 1e-3), **{tag: True})
    found = figures_of(doc, "r.json")
    assert found.unreal == tag
    assert found.devices[0].gemm["float32"].origin == tag
    assert found.devices[0].memory_bytes is not None
    assert found.devices[0].memory_bytes.origin == tag


def test_a_gpus_power_under_load_is_the_watchs_median() -> None:
    seen = {"device": "cuda:0", "power_w": {"median": 512.0, "min": 90.0, "max": 700.0}, "energy_j": 4e3}
    doc = result_files.file(device=result_files.gpu(), conditions=[seen])
    (device,) = figures_of(doc, "r.json").devices
    assert device.power_w is not None
    assert device.power_w.estimate == 512.0
    assert device.energy_j is not None
    assert device.energy_j.estimate == 4e3
    assert device.clock_hz is None


def test_a_sweep_of_all_reduce_gives_latency_and_time_a_byte_of_the_model() -> None:
    items = [sweep_files.item(size, sweep_files.line(size), hosts=2) for size in sweep_files.SIZES]
    (found,) = figures_of(sweep_files.document(items), "a.json").all_reduce
    assert (found.ranks, found.hosts, found.origin) == (8, 2, "imported")
    assert found.alpha_s is not None
    assert found.alpha_s.estimate == pytest.approx(sweep_files.ALPHA_S, rel=1e-3)
    assert found.beta_s_per_byte is not None
    assert found.beta_s_per_byte.estimate == pytest.approx(sweep_files.BETA_S_PER_BYTE, rel=1e-3)
    assert found.alpha_s.origin == "model"
    assert found.busbw is not None
    assert found.busbw.estimate == pytest.approx(100e9 * 1.75, rel=0.01)


def test_two_regimes_give_the_small_sizes_latency_and_the_large_sizes_rate() -> None:
    (found,) = figures_of(sweep_files.document(), "a.json").all_reduce
    assert len(found.fitted.regimes) == 2
    assert found.alpha_s is not None
    assert found.alpha_s.estimate == pytest.approx(6e-6, rel=0.01)
    assert found.beta_s_per_byte is not None
    assert found.beta_s_per_byte.estimate == pytest.approx(1e-11, rel=0.01)


def test_too_short_a_sweep_has_no_latency_but_says_why() -> None:
    items = [sweep_files.item(size, 1e-5) for size in (8, 16)]
    (found,) = figures_of(sweep_files.document(items), "a.json").all_reduce
    assert found.alpha_s is None
    assert "a line needs" in found.fitted.why


def test_a_data_sheet_is_tagged_so_that_it_cannot_pass_for_a_measurement() -> None:
    sheet = spec_figures("h100-sxm5-80")
    figures = [*sheet.gemm.values(), *sheet.peak.values(), *sheet.bandwidth.values(), sheet.power_w, sheet.memory_bytes]
    assert all(figure is not None and figure.origin == "spec" for figure in figures)
    assert sheet.gemm["bfloat16"].estimate == pytest.approx(989e12, rel=0.01)
    assert sheet.dram is not None
    assert sheet.dram.estimate == pytest.approx(3.35e12, rel=0.01)
    with pytest.raises(UsageError, match="unknown spec"):
        spec_figures("h1000")
    assert link_figure("ib-ndr").estimate == 50e9
    assert link_figure("ib-ndr").origin == "spec"


def test_a_figure_writes_a_reason_where_it_has_no_interval() -> None:
    doc = result_files.file(extra=spec_figures("h100-sxm5-80").power_w.to_json())  # type: ignore[union-attr]
    assert result.missing_reasons(doc) == []
