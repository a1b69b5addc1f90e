"""The script for a real GPU, as far as it runs without one: no device is said clearly, no part takes others down."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import recordings
from recordings import Permissive

from gpumicro import cuda_native
from gpumicro.device import Device
from gpumicro.errors import CudaError, VerificationError
from gpumicro.spec import Check

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("on_gpu")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("on_gpu_parts")


def gpu() -> Device:
    return recordings.gpu("h200-sxm-141")


@pytest.mark.skipif(not cuda_native.missing(), reason="this build has CUDA")
def test_without_cuda_it_says_how_to_build_and_ends_with_3() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "on_gpu.py")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert "No device: gpumicro was built without CUDA" in done.stderr
    assert "GPUMICRO_CUDA=ON" in done.stderr
    assert done.stdout == ""


class NoDevices(Permissive):
    def __init__(self, *devices: Device) -> None:
        self.found = devices

    def availability(self) -> Any:
        from gpumicro.backends.base import Availability

        return Availability(bool(self.found), "no driver is loaded", "Load the nvidia module")

    def devices(self) -> tuple[Device, ...]:
        return self.found


def test_no_driver_and_another_device_are_sentences(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_native, "missing", lambda: "")
    monkeypatch.setattr(script, "get", lambda _: NoDevices())
    assert script.no_device("cuda:0") == "no driver is loaded. Load the nvidia module."
    monkeypatch.setattr(script, "get", lambda _: NoDevices(gpu()))
    assert script.no_device("cuda:7") == "There is no cuda:7 here, only cuda:0."
    assert script.no_device("cuda:0") == gpu()


def part_that(text: str, folder: Path) -> Path:
    """A stand-in for on_gpu_parts.py."""
    file = folder / "part.py"
    file.write_text("import os, sys, time\nout = sys.argv[sys.argv.index('-o') + 1]\n" + text)
    return file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("os.abort()", "ended with code"),
        ("sys.exit('no such symbol')", "no such symbol"),
        ("time.sleep(60)", "was ended after"),
        ("os.fork(); time.sleep(60)", "was ended after"),  # and what it started
        ("open(out, 'w').write('{')", "ended with code 0"),
    ],
)
def test_a_part_that_breaks_is_a_row_with_its_reason(
    text: str, says: str, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "PARTS_FILE", part_that(text, tmp_path))
    found = script.run_part("info", "cuda:0", 2.0, 1.0)
    assert found["status"] == "failed"
    assert says in found["why"]


def test_no_part_begins_without_time(script: Any) -> None:
    began_s = time.monotonic()
    found = script.run_parts("cuda:0", ["info", "verify"], 1.0)
    assert time.monotonic() - began_s < 60
    assert [part["status"] for part in found.values()] == ["skipped", "skipped"]


def test_one_table_and_one_file_whatever_fails(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ceiling = {"id": "cuda:0/dram", "scope": "roof", "level": "dram", "dtype": None, "unit": "B/s", "achieved": 4.4e12,
               "spec": 4.8e12, "recipe": "stream.triad", "flags": []}  # fmt: skip
    made: dict[str, Any] = {
        "roofline": {"status": "ok", "rows": [], "document": {"ceilings": [ceiling], "measurements": []}},
        "stream": {"status": "ok", "rows": [
            {"name": "BabelStream-style Triad", "value": 4.3e12, "unit": "B/s", "beside": "dram", "status": "ok"},
            {"name": "BabelStream-style Dot", "value": None, "unit": "", "note": "failed: x", "status": "failed"},
        ]},
        "verify": {"status": "failed", "why": "was ended after 90 s", "rows": []},
        "matmul": {"status": "ok", "rows": [
            {"name": "torch matmul", "value": None, "note": "skipped", "status": "skipped"},
        ]},
    }  # fmt: skip
    monkeypatch.setattr(script, "no_device", lambda _: gpu())
    monkeypatch.setattr(script, "run_parts", lambda *_: made)
    monkeypatch.setattr(cuda_native, "load", lambda: type("Cuda", (), {"build": {"compiler": "nvcc"}}))
    out = tmp_path / "results" / "r.json"
    assert script.main(["-o", str(out)]) == 1
    shown = capsys.readouterr().out
    dram = next(line for line in shown.splitlines() if "cuda:0/dram" in line)
    assert "4.40 TB/s" in dram
    assert "91.7%" in dram
    assert "BabelStream-style Triad 4.30 TB/s" in dram
    assert "part verify" in shown
    assert "was ended after 90 s" in shown
    written = json.loads(out.read_text())
    assert written["schema"] == "gpumicro-on-gpu/1"
    assert written["emulated"] is False
    assert written["parts"].keys() == made.keys()
    assert [p.name for p in out.parent.iterdir()] == ["r.json"]  # no temporary file is left


def test_results_are_named_by_host_gpu_and_date(script: Any) -> None:
    path = script.output_path(gpu())
    assert path.parent == BENCH / "results"
    assert "-NVIDIA-H200-2" in path.name


# -- parts ------------------------------------------------------------------------------------------------------------


class Scripted(Permissive):
    """Prepares nothing: counts the checks, and raises where it is told to."""

    def __init__(self, errors: dict[str, Exception] | None = None) -> None:
        self.errors = errors or {}
        self.problems: list[tuple[str, Any]] = []

    def prepare(self, spec: Any, problem: Any, *_: Any) -> Any:
        self.spec = spec
        self.problems.append((spec.name, problem))
        return self

    def verify(self) -> Check:
        if self.spec.name in self.errors:
            raise self.errors[self.spec.name]
        return Check(True, 0.0, 1.0, "none", 1)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


def place(parts: Any, backend: Any) -> Any:
    return parts.Place(gpu(), backend, 60.0)


def test_every_kernel_is_checked_at_odd_sizes(parts: Any) -> None:
    from gpumicro.kernels import CATALOGUE

    backend = Scripted()
    rows = parts.verify(place(parts, backend))
    names = {spec.name for spec in CATALOGUE if spec.gpu is not None}
    assert {row["name"] for row in rows} == {f"verify {name}" for name in names}
    triads = {dict(problem.sizes)["n"] for name, problem in backend.problems if name == "stream.triad"}
    assert {1, 31, 33, 1_000_003} <= triads


def test_a_wrong_kernel_is_a_row_and_a_lost_context_the_end(parts: Any) -> None:
    wrong = VerificationError("stream.copy", 7, 1.0, 2.0, 0.1)
    rows = parts.verify(place(parts, Scripted({"stream.copy": wrong})), ("stream",))
    bad = [row for row in rows if row["status"] == "failed"]
    assert bad
    assert all("wrong output at index 7" in row["note"] for row in bad)
    assert any(row["name"] == "verify stream.triad" and row["status"] == "ok" for row in rows)
    lost = CudaError("cudaStreamSynchronize", 700, "cudaErrorIllegalAddress", "x", "gm::copy", "1x1", True)
    rows = parts.verify(place(parts, Scripted({"stream.copy": lost})), ("stream",))
    assert rows[-1]["status"] == "failed"
    assert not any(row["name"] == "verify stream.triad" for row in rows)


def test_peers_that_are_not_installed_are_skipped_with_a_reason(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)
    rows = parts.matmul(place(parts, Scripted()))
    assert [(row["status"], row["note"]) for row in rows] == [("skipped", "skipped: it is not installed")] * 2


def test_a_sanitizer_that_is_not_there_is_skipped(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (row,) = parts.sanitizer(place(parts, Scripted()))
    assert row["status"] == "skipped"


def test_a_part_that_raises_writes_why(parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("at the clock")

    monkeypatch.setitem(parts.PARTS, "info", broken)
    monkeypatch.setattr(parts, "get", lambda _: NoDevices(gpu()))
    out = tmp_path / "part.json"
    assert parts.main(["info", "-o", str(out)]) == 1
    assert json.loads(out.read_text()) == {"status": "failed", "why": "ZeroDivisionError: at the clock", "rows": []}
    assert parts.main(["info", "--device", "cuda:9", "-o", str(out)]) == 1
    assert "no cuda:9" in out.read_text()


@pytest.fixture
def collectives(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("on_gpu_collectives")


def place_with(gpus: int) -> Any:
    return importlib.import_module("on_gpu_place").Place(gpu(), NoDevices(*[gpu()] * gpus), 45.0)


def row_of(**more: Any) -> dict[str, Any]:
    rate = {"estimate": 4e11}
    return {"collective": "all_reduce", "size_bytes": 1 << 30, "time_s": {"estimate": 1e-5}, "transport": "auto",
            "busbw_bytes_per_s": rate, "algbw_bytes_per_s": rate, "wrong": 0, "algorithm": "NVLS", **more}  # fmt: skip


def test_nccl_on_one_and_on_several_gpus(collectives: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, transports in ((1, False), (8, True)):
        commands = collectives.commands(place_with(gpus), gpus)
        assert any("p2p,shm,socket" in arguments for _, arguments in commands) is transports
    rows = [row_of(), row_of(size_bytes=8, time_s={"estimate": 8e-6}, busbw_bytes_per_s=None, wrong=3)]
    monkeypatch.setattr(collectives, "run", lambda *_: (1, "elements were wrong", {"measurements": rows}))
    found = collectives.all_reduce(place_with(1))["rows"]
    assert found[1]["name"] == "NCCL, 1 GPU: least time"
    assert (found[1]["value"], found[2]["value"], found[2]["unit"]) == (8e-6, 4e11, "B/s")
    assert "NVLS" in found[2]["note"]
    assert "3 elements were wrong" in found[3]["note"]
    assert found[0]["status"] == found[3]["status"] == "failed"


def test_without_nccl_the_part_is_skipped_with_its_reason(collectives: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "run", lambda *_: (3, "NCCL is not here", None))
    found = collectives.all_reduce(place_with(8))["rows"]
    assert [(row["status"], row["note"]) for row in found] == [("skipped", "skipped: NCCL is not here")]
