"""`gpumicro roofline --backend cupy` from end to end on the stand-in for CuPy: planned, measured, judged, reported.

No figure is looked at: the stand-in's time is made up. That it is marked as emulated is.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_cupy import H100, TINY, FakeCupy
from test_cupy_backend import install, prepared

from gpumicro import backends, result
from gpumicro.backends.cupy_backend import CupyBackend
from gpumicro.cli.info import command as info
from gpumicro.cli.list import command as list_
from gpumicro.cli.roofline import command as roofline
from gpumicro.plan import gpu

QUICK = replace(gpu.CARE["quick"], target=0.5, memory_s=0.02, peak_s=0.02, gemm_s=0.02, stream=("stream.triad",))


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> CupyBackend:
    fresh = CupyBackend(Path("/nonexistent"), {})
    monkeypatch.setitem(backends._loaded, "cupy", fresh)
    monkeypatch.delenv("GPUMICRO_BACKEND", raising=False)
    return fresh


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend) -> FakeCupy:  # noqa: ARG001
    monkeypatch.setitem(gpu.CARE, "quick", QUICK)
    return install(monkeypatch, FakeCupy(TINY), tmp_path / "cache")


def run(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    file = folder / "r.json"
    arguments = ["--device", "cuda:0", "--backend", "cupy", "--quick", "--dtype", "float64", "-o", str(file), *more]
    code = roofline.main(arguments, prog_name="gpumicro roofline", standalone_mode=False)
    return int(code), result.read(file)


@pytest.mark.usefixtures("tiny")
def test_a_run_is_planned_measured_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(tmp_path, "--html", str(tmp_path / "r.html"), "--record", str(tmp_path / "run.json"))
    shown = capsys.readouterr().out
    assert code == 0
    assert "EMULATED" in shown
    assert document["emulated"] is True
    good = {m["kernel"]: m for m in document["measurements"] if m["status"] == "ok"}
    assert {"stream.triad", "peak.fma", "gemm.tiled", "latency.gpu_chase", "launch.graph", "launch.event"} <= set(good)
    triad = good["stream.triad"]
    assert "@cuda:0/cupy/" in triad["id"]
    assert triad["timing"]["loop"] == "python"
    assert (triad["timing"]["timer"], good["launch.stream"]["timing"]["timer"]) == ("event", backends_host_timer())
    assert triad["facts"]["compiled_for"] == "sm_90"
    why = {m["kernel"]: m["reason"] for m in document["measurements"] if m["status"] == "skipped"}
    assert "NVRTC cannot compile" in why["peak.mma"]
    assert "cuBLAS drives real GPUs only" in why["gemm.vendor"]
    assert all(m["status"] != "failed" for m in document["measurements"])
    assert document["environment"]["cupy"]["build"]["compiler"].startswith("NVRTC 13.5 through CuPy")
    assert "cuda" not in document["environment"]
    assert json.loads((tmp_path / "run.json").read_text())["devices"][0]["backend"] == "cupy"


def backends_host_timer() -> str:
    from gpumicro.timers import default_timer

    return default_timer().name


def test_a_kernel_that_is_wrong_fails_and_the_rest_goes_on(tiny: FakeCupy, tmp_path: Path) -> None:
    tiny.wrong = {"triad"}
    code, document = run(tmp_path)
    assert code == 1
    status = {(m["kernel"], m["status"]) for m in document["measurements"]}
    assert ("stream.triad", "failed") in status
    assert ("peak.fma", "ok") in status


def test_a_lost_context_ends_the_device_s_run_with_its_culprit(tiny: FakeCupy, tmp_path: Path) -> None:
    launch = tiny.cuda.driver.launchKernel

    def breaks(f: int, *call: int) -> None:
        launch(f, *call)
        if tiny.launched[-1].startswith("gm::triad"):
            tiny.fails = {"streamQuery": 700, "eventQuery": 700, "launchKernel": 700, "malloc": 700}

    tiny.cuda.driver.launchKernel = breaks  # type: ignore[method-assign]
    code, document = run(tmp_path)
    assert code == 1
    failed = [m for m in document["measurements"] if m["status"] == "failed"]
    assert {m["kernel"] for m in failed} == {"stream.triad"}
    assert "lost its CUDA context" in failed[0]["error"]
    after = [m["reason"] for m in document["measurements"] if m["status"] == "skipped" and m["kernel"] == "gemm.tiled"]
    assert after == ["the CUDA context is lost after stream.triad"]


@pytest.mark.usefixtures("tiny")
def test_info_and_list_name_the_backend_and_its_device_once(capsys: pytest.CaptureFixture[str]) -> None:
    info.main([], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "Backend cupy can run (kernels compiled by NVRTC 13.5 through CuPy 14.2.0)." in " ".join(shown.split())
    assert shown.count("Device cuda:0: GPU (emulated)") == 1
    list_.main([], standalone_mode=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cupy", "yes"] in rows
    assert ["cuda:0", "cupy", "GPU", "(emulated)"] in rows


def test_a_second_device_is_used_and_the_caller_s_is_put_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: CupyBackend
) -> None:
    fake = install(monkeypatch, FakeCupy(H100, H100), tmp_path)
    runtime, seen = fake.cuda.runtime, []
    malloc = runtime.malloc
    monkeypatch.setattr(runtime, "malloc", lambda size: (seen.append(runtime.device), malloc(size))[1])
    with backends.prepare("stream.triad", device="cuda:1", backend="cupy", n=100) as kernel:
        assert kernel.verify().passed
        assert kernel.timer.sample(kernel.work, [2])[0] > 0
    assert set(seen) == {1}
    assert runtime.device == 0
    assert prepared(backend, "stream.copy", n=8).device.id == "cuda:0"
