"""`gpumicro roofline --device cuda:0 --quick` from end to end on the double: planned, measured, judged, reported.

No figure is looked at: an emulated device has no speed. That every report says so is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from emulator.conftest import Completed, Emulated

CHECK_FAILED = 1  # the figures of an emulated device do not repeat


class Survey(NamedTuple):
    """A finished run: what it printed, its result, its page."""

    done: Completed
    document: Mapping[str, Any]
    page: str


def survey(emulated: Emulated, folder: Path, **environment: str) -> Survey:
    result, page = folder / "result.json", folder / "page.html"
    done = emulated.cli(
        "roofline", "--device", "cuda:0", "--quick", "-o", str(result), "--html", str(page), env=environment
    )
    assert done.returncode in (0, CHECK_FAILED), done.stderr[-4000:]
    return Survey(done, json.loads(result.read_text()), page.read_text())


@pytest.fixture(scope="module")
def finished(emulated: Emulated, tmp_path_factory: pytest.TempPathFactory) -> Survey:
    return survey(emulated, tmp_path_factory.mktemp("roofline"))


def test_the_result_and_every_report_are_marked_as_emulated(
    finished: Survey, emulated: Emulated, tmp_path: Path
) -> None:
    assert finished.document["emulated"] is True
    assert all(device["facts"]["emulated"] is True for device in finished.document["devices"])
    first = "\n".join(finished.done.stdout.splitlines()[:12])
    assert "EMULATED" in first
    assert "EMULATED" in finished.page.partition("<svg")[0]
    again = tmp_path / "result.json"
    again.write_text(json.dumps(finished.document))
    shown = emulated.cli("report", str(again))
    assert shown.returncode == 0
    assert "EMULATED" in "\n".join(shown.stdout.splitlines()[:12])


def test_every_kernel_ran_or_says_why_not(finished: Survey) -> None:
    by_status: dict[str, list[Mapping[str, Any]]] = {}
    for measured in finished.document["measurements"]:
        by_status.setdefault(measured["status"], []).append(measured)
    assert set(by_status) == {"ok", "skipped"}, by_status.keys()
    assert {one["kernel"] for one in by_status["skipped"]} <= {
        "peak.wgmma",
        "peak.tcgen05",
        "peak.mma",
        "gemm.vendor",
        "gemm.wgmma",
    }
    families = {one["family"] for one in by_status["ok"]}
    assert {"stream", "peak", "gemm", "latency", "cache"} <= families
    assert all(one["check"]["passed"] for one in by_status["ok"] if one.get("check"))


def test_outputs_were_checked_and_ceilings_found(finished: Survey) -> None:
    verdicts = {one["name"]: one for one in finished.document["verdicts"]}
    assert verdicts["outputs"]["passed"] is True
    assert finished.document["ceilings"]
    assert finished.document["interrupted"] is False


def test_a_run_whose_context_dies_keeps_what_it_has(emulated: Emulated, tmp_path: Path) -> None:
    """The kernel that failed is a failed measurement; those after it are skipped with the reason."""
    found = survey(emulated, tmp_path, PTXEMU_FAIL="cudaLaunchKernel:3000:719").document
    statuses = [one["status"] for one in found["measurements"]]
    assert statuses.count("failed") == 1
    failed = next(one for one in found["measurements"] if one["status"] == "failed")
    assert "cudaErrorLaunchFailure (719)" in failed["error"]
    assert found["emulated"] is True


def test_a_run_goes_on_after_a_failure_that_passes(emulated: Emulated, tmp_path: Path) -> None:
    found = survey(emulated, tmp_path, PTXEMU_FAIL="cudaLaunchKernel:3000:1").document
    statuses = [one["status"] for one in found["measurements"]]
    assert statuses.count("failed") == 1
    assert statuses.count("ok") > 30


def test_two_devices_are_measured_one_after_the_other(emulated: Emulated, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = emulated.cli(
        "roofline", "--device", "all", "--quick", "--dtype", "float32", "-o", str(result),
        env={"PTXEMU_DEVICES": "2", "GPUMICRO_BACKEND": "cuda"},
    )  # fmt: skip
    assert done.returncode in (0, CHECK_FAILED), done.stderr[-4000:]
    measured = {one["device"] for one in json.loads(result.read_text())["measurements"] if one["status"] == "ok"}
    assert {"cuda:0", "cuda:1"} <= measured
