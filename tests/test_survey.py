"""A survey refuses what makes no sense before it measures anything."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import recordings

from gpumicro import backends, survey
from gpumicro.backends.replay import ReplayBackend
from gpumicro.device import Device
from gpumicro.errors import UsageError
from gpumicro.lock import device_lock
from gpumicro.survey import Survey


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"mode": "fast"}, "unknown mode 'fast'"),
        ({"operands": "ones"}, "unknown operand class 'ones'"),
        ({"sustained_s": -1.0}, "sustained_s"),
        ({"sustained_s": float("nan")}, "sustained_s"),
        ({"sustained_s": float("inf")}, "sustained_s"),
        ({"dtypes": ["float23"]}, "did you mean float"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Survey(device="cpu", **wrong)


# -- a GPU's run ------------------------------------------------------------------------------------------------------


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    """A device that is measured as a real one is, its times those of a synthetic recording."""
    made = recordings.synthetic("h200-sxm-141")
    engine = ReplayBackend(made)
    (replayed,) = engine.devices()
    device = replace(replayed, facts={key: value for key, value in replayed.facts.items() if key != "replayed"})
    monkeypatch.setattr(backends, "resolve", lambda *_: ([(engine, device)], []))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(survey, "device_lock", partial(device_lock, wait_s=0.05))
    return device


def test_a_gpu_is_locked_while_it_is_measured(h200: Device, tmp_path: Path) -> None:
    run = Survey(mode="quick")
    seen = []
    run.run(lambda *_: seen.append((tmp_path / f"gpumicro-{h200.uuid}.lock").read_text().strip()))
    assert set(seen[:-1]) == {str(os.getpid())}
    document = run.document()
    assert "replayed" not in document
    assert document["conditions"][0]["flags"] == []
    assert document["environment"]["driver"] == "580.95.05"  # as NVML told the watch
    assert "driver_why" not in document["environment"]


def test_a_second_run_on_the_device_goes_on_flagged(h200: Device, tmp_path: Path) -> None:
    assert h200.uuid is not None
    run, said = Survey(mode="quick"), []
    with device_lock(h200.uuid, folder=tmp_path, wait_s=0):
        run.run(lambda _done, _total, title: said.append(title))
    assert any(f"waiting for process {os.getpid()}" in title for title in said)
    document = run.document()
    assert document["conditions"][0]["flags"] == ["shared-device"]
    assert all("shared-device" in m["timing"]["flags"] for m in document["measurements"] if m["status"] == "ok")
    assert any("still uses this device" in note for note in document["notes"])


def test_sustained_on_a_gpu_has_its_clock_and_power(h200: Device) -> None:
    run = Survey(mode="quick", sustained_s=0.5)
    run.run()
    document = run.document()
    assert {held["ceiling"].partition("/")[0] for held in document["sustained"]} == {h200.id}
    for held in document["sustained"]:
        assert all(row["clock_hz"] == 1.98e9 and row["power_w"] == 560.0 for row in held["series"])
        assert "power_w_why" not in held
