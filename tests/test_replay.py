"""The whole tool on recordings, with no device: tags, faults and what each of them changes, files that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
from recordings import KINDS, synthetic

from gpumicro import recording as files
from gpumicro.__main__ import main
from gpumicro.backends.replay import ReplayBackend
from gpumicro.device import Device
from gpumicro.errors import BackendUnavailable, SchemaError, UsageError
from gpumicro.faults import read_faults
from gpumicro.measure import Policy
from gpumicro.plan import Group, Plan, make_plan
from gpumicro.schema import missing_reasons, validate
from gpumicro.survey import Survey

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A quick run on a recording, with the faults of a TOML text."""

    def play(made: files.Recording, faults: str = "", device: str = "auto") -> dict[str, Any]:
        (tmp_path / "faults.toml").write_text(faults)
        ids = [track["device"]["id"] for track in made["devices"]]
        found = read_faults(tmp_path / "faults.toml", ids)
        survey = Survey(replay=ReplayBackend(made, found), mode="quick", device=device)
        survey.run()
        document = survey.document()
        validate(document)
        return document

    return play


@pytest.fixture(scope="module")
def h200() -> files.Recording:
    return synthetic("h200-sxm-141")


def verdict(document: dict[str, Any], name: str) -> bool:
    return next(bool(v["passed"]) for v in document["verdicts"] if v["name"] == name)


def dram(document: dict[str, Any]) -> float:
    roofs = (c for c in document["ceilings"] if c["level"] == "dram" and c["scope"] == "roof")
    return float(next(roofs)["achieved"])


def measured(document: dict[str, Any], status: str = "ok") -> list[dict[str, Any]]:
    return [m for m in document["measurements"] if m["status"] == status]


def dropped(document: dict[str, Any], made: files.Recording) -> list[dict[str, Any]]:
    """What was skipped beside the kernels that this architecture has not."""
    refused = {reason for track in made["devices"] for reason in track["refused"].values()}
    return [m for m in measured(document, "skipped") if m["reason"] not in refused]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_device_runs_through_and_is_tagged(kind: str, run: Run) -> None:
    made = synthetic(kind)
    document = run(made)
    assert document["replayed"] is True
    assert document["synthetic"] is True
    assert document["devices"][0]["facts"]["replayed"] is True
    assert document["environment"] == {"driver": "synthetic"}
    assert any("nothing was measured" in note for note in document["notes"])
    assert document["spec"]["id"] == kind
    assert not measured(document, "failed")
    assert not dropped(document, made)
    assert len(measured(document)) > 10
    memory = document["spec"]["memory_bandwidth_bytes_per_s"]
    assert dram(document) == pytest.approx(recordings.SHARE * memory, rel=0.05)
    assert document["conditions"][0]["flags"] == []
    assert all(v["passed"] for v in document["verdicts"])
    assert missing_reasons([document[key] for key in ("conditions", "measurements", "devices")]) == []


def test_the_same_recording_gives_the_same_result(run: Run, h200: files.Recording) -> None:
    first, again = run(h200), run(h200)
    assert first["measurements"] == again["measurements"]


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_throttle_slows_what_comes_after_it_and_is_flagged_there_alone(run: Run, h200: files.Recording) -> None:
    half_s = run(h200)["conditions"][0]["duration_s"] / 2
    document = run(h200, f'[[throttle]]\nfrom_s = {half_s}\nfactor = 1.5\nreasons = ["hardware thermal"]')
    flagged = ["throttled" in m["timing"]["flags"] for m in measured(document)]
    assert not flagged[0]
    assert flagged[-1]
    assert "throttled" in document["conditions"][0]["flags"]
    assert document["conditions"][0]["reasons"]["hardware thermal"] > 0.3
    assert document["conditions"][0]["limited_fraction"]["hardware thermal"] > 0.3
    assert not verdict(document, "repeat")  # the roofs came out slower when they were measured again


def test_a_throttle_by_the_power_cap_is_another_flag(run: Run, h200: files.Recording) -> None:
    document = run(h200, '[[throttle]]\nfactor = 1.2\nreasons = ["power cap"]')
    assert document["conditions"][0]["flags"] == ["power-capped", "clock-low"]


def test_a_slow_device_is_slow_and_nobody_says_why(run: Run, h200: files.Recording) -> None:
    healthy, slow = run(h200), run(h200, "[[slow]]\nfactor = 1.25")
    assert dram(slow) == pytest.approx(dram(healthy) / 1.25, rel=0.02)
    assert slow["conditions"][0]["flags"] == []


def test_nvml_without_an_answer_leaves_nulls_with_reasons(run: Run, h200: files.Recording) -> None:
    document = run(h200, '[[nvml]]\nmissing = "all"\nwhy = "Not Supported"')
    conditions = document["conditions"][0]
    assert conditions["clock_hz"] is None
    assert "Not Supported" in conditions["clock_hz_why"]
    assert conditions["power_w"]["median"] is None
    assert conditions["other_processes"] is None
    assert conditions["gpu"]["driver"] is None
    assert conditions["flags"] == []
    assert dram(document) > 0
    assert missing_reasons([document[key] for key in ("conditions", "measurements", "devices")]) == []
    some = run(h200, '[[nvml]]\nmissing = ["power_w"]')["conditions"][0]
    assert some["power_w"]["median"] is None
    assert some["clock_hz"] is not None


def test_a_dead_device_fails_once_and_the_rest_is_skipped(run: Run) -> None:
    made = synthetic("a100-sxm4-80", "h100-sxm5-80")
    document = run(made, '[[dead]]\ndevice = "cuda:0"\nat_measurement = 3')
    first = [m for m in document["measurements"] if m["device"] == "cuda:0"]
    failed = [m for m in first if m["status"] == "failed"]
    assert len(failed) == 1
    assert "cudaErrorIllegalAddress (700)" in failed[0]["error"]
    after = [m for m in dropped(document, made) if m["device"] == "cuda:0"]
    assert not [m for m in first if m["status"] == "ok"]  # those that were ready in its group go no further either
    assert after
    assert all(m["reason"] == f"the CUDA context is lost after {failed[0]['kernel']}" for m in after)
    other = [m for m in document["measurements"] if m["device"] == "cuda:1"]
    assert len([m for m in other if m["status"] == "ok"]) > 10
    assert not [m for m in other if m["status"] == "failed"]
    assert not verdict(document, "outputs")


def test_a_context_that_dies_later_keeps_what_was_measured(run: Run, h200: files.Recording) -> None:
    count = len(measured(run(h200)))
    document = run(h200, f"[[dead]]\nat_measurement = {count}")
    assert len(measured(document)) > 10
    assert len(measured(document, "failed")) == 1


def test_an_error_that_leaves_the_context_costs_one_measurement(run: Run, h200: files.Recording) -> None:
    healthy, document = run(h200), run(h200, "[[dead]]\nat_measurement = 3\nlost = false")
    assert len(measured(document, "failed")) == 1
    assert not dropped(document, h200)
    assert len(measured(document)) in (len(measured(healthy)) - 1, len(measured(healthy)) - 2)  # its repeat, perhaps


def test_seven_of_eight_gpus(run: Run) -> None:
    made = synthetic(*["h200-sxm-141"] * 8)
    document = run(made, '[[missing]]\ndevice = "cuda:3"\nwhy = "GPU has fallen off the bus"')
    assert len(document["devices"]) == 7
    assert not verdict(document, "devices")
    text = next(v["text"] for v in document["verdicts"] if v["name"] == "devices")
    assert text == "cuda:3 is missing: GPU has fallen off the bus"
    with pytest.raises(BackendUnavailable, match="fallen off the bus"):
        run(made, '[[missing]]\ndevice = "cuda:3"\nwhy = "GPU has fallen off the bus"', device="cuda:3")


def test_events_that_disagree_with_the_wall_clock_are_flagged(run: Run, h200: files.Recording) -> None:
    healthy, document = run(h200), run(h200, "[[events]]\nfactor = 1.3")
    long = [m for m in measured(document) if m["time_s"]["estimate"] > 100e-6]
    assert long
    assert all("event-wall" in m["timing"]["flags"] for m in long)
    assert not any("event-wall" in m["timing"]["flags"] for m in measured(healthy))
    assert dram(document) == pytest.approx(dram(healthy) / 1.3, rel=0.03)


def test_another_process_is_flagged_in_every_measurement(run: Run, h200: files.Recording) -> None:
    document = run(h200, "[[others]]\npids = [4711]")
    assert document["conditions"][0]["other_processes"] == [4711]
    assert all("other-process" in m["timing"]["flags"] for m in measured(document))


def test_faults_of_one_device_leave_the_other_alone(run: Run) -> None:
    made = synthetic("h100-sxm5-80", "h100-sxm5-80")
    document = run(made, '[[slow]]\ndevice = "cuda:1"\nfactor = 2.0')
    roofs = [c["achieved"] for c in document["ceilings"] if c["level"] == "dram" and c["scope"] == "roof"]
    assert roofs[0] == pytest.approx(2 * roofs[1], rel=0.05)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[throtle]]", "did you mean throttle"),
        ("[[throttle]]\nfactor = 0", "factor must be"),
        ("[[throttle]]\nfactor = 2\nfrom_s = -1", "from_s"),
        ('[[throttle]]\nfactor = 2\nreasons = ["thermla"]', "unknown reason 'thermla'"),
        ('[[slow]]\nfactor = 2\ndevice = "cuda:7"', "has no 'cuda:7'"),
        ("[[slow]]\nfacto = 2", "unknown key"),
        ("[[dead]]\nat_measurement = 1.5", "whole number"),
        ('[[dead]]\nlost = "yes"', "true or false"),
        ("[[missing]]", "device must be given"),
        ('[[nvml]]\nmissing = ["powr"]', "unknown value 'powr'"),
        ("[[others]]\npids = [true]", "process ids"),
        ("slow = 3", "array of tables"),
        ("[[slow]", "not TOML"),
    ],
)
def test_a_faults_file_that_makes_no_sense_is_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(text)
    with pytest.raises(SchemaError, match=says) as error:
        read_faults(file, ["cuda:0"])
    assert "faults.toml" in str(error.value)


# -- what is and is not in a recording --------------------------------------------------------------------------------


def test_a_kernel_that_was_not_recorded_is_skipped(run: Run, h200: files.Recording) -> None:
    made = json.loads(json.dumps(h200))
    gone = next(iter(made["devices"][0]["measurements"]))
    del made["devices"][0]["measurements"][gone]
    assert [m["reason"] for m in dropped(run(made), made)] == ["not in the recording"]


def test_what_was_refused_or_failed_then_is_so_again(run: Run, h200: files.Recording) -> None:
    made = json.loads(json.dumps(h200))
    entries = made["devices"][0]["measurements"]
    failed, skipped = list(entries)[:2]
    entries[failed] = {"status": "failed", "why": "wrong output at index 7"}
    entries[skipped] = {"status": "skipped", "why": "no memory"}
    made["devices"][0]["refused"]["stream.triad float64"] = "not on this device"
    document = run(made)
    assert [m["error"] for m in measured(document, "failed")] == ["wrong output at index 7"]
    assert {"no memory", "not on this device"} <= {m["reason"] for m in measured(document, "skipped")}


def test_a_device_that_was_not_recorded_is_wrong_use(h200: files.Recording) -> None:
    with pytest.raises(UsageError, match="no device 'cuda:5'"):
        Survey(replay=ReplayBackend(h200), device="cuda:5")


def test_spans_are_scaled_to_the_runs_that_are_asked_for(h200: files.Recording) -> None:
    made = json.loads(json.dumps(h200))
    device = made["devices"][0]
    device["timers"]["event"] |= {"overhead_s": [1e-6], "tick_s": 0.0, "lsb_s": 0.0}
    key = next(key for key in device["measurements"] if key.startswith("stream.triad"))
    device["measurements"][key]["takes"] = [{"flags": [], "counts": [2, 2, 2], "spans_s": [9e-6, 5e-6, 3e-6]}]
    backend = ReplayBackend(made)
    gpu = backend.devices()[0]
    plan = make_plan(gpu, backend, mode="quick")
    item = next(i for g in plan.groups for i in g.items if i.spec.name == "stream.triad")
    with backend.prepare(item.spec, item.problem, item.execution, gpu) as prepared:
        timer = prepared.timer  # type: ignore[attr-defined]
        spans = timer.sample(prepared.work, [2, 4, 1, 2, 2, 2])
    # in order, then the second half again: the first ones are cold
    assert spans == pytest.approx([9e-6, 9e-6, 2e-6, 5e-6, 3e-6, 5e-6])
    with pytest.raises(UsageError, match="recorded"):
        prepared.work()


# -- a real run, recorded and played back ------------------------------------------------------------------------------


def small_plan(device: Device, backend: Any, **_: Any) -> Plan:
    """Two CPU kernels at small sizes, a few milliseconds each."""
    whole = make_plan(device, backend, mode="quick", dtypes=("float64",))
    group = next(group for group in whole.groups if "l1 bandwidth" in group.title)
    policy = Policy(target=0.2, max_time_s=0.02, max_warmup_s=0.02)
    return Plan([Group(group.title, group.items[:2], policy, 0.1)])


def test_a_cpu_run_is_recorded_and_played_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumicro.survey.make_plan", small_plan)
    monkeypatch.chdir(tmp_path)
    assert main(["roofline", "--device", "cpu", "--record", "rec.json", "-o", "a.json"]) == 0
    assert main(["roofline", "--replay", "rec.json", "-o", "b.json"]) == 0
    seen, played = (json.loads(Path(name).read_text()) for name in ("a.json", "b.json"))
    assert "replayed" not in seen
    assert played["replayed"] is True
    assert played["synthetic"] is False
    for was, now in zip(measured(seen), measured(played), strict=True):
        assert now["kernel"] == was["kernel"]
        assert now["timing"]["timer"] == was["timing"]["timer"]
        assert now["timing"]["loop"] == was["timing"]["loop"]
        assert np.median(now["timing"]["raw_s"]) == pytest.approx(np.median(was["timing"]["raw_s"]), rel=0.5)
    assert played["environment"]["host"] == seen["environment"]["host"]
    assert played["conditions"][0]["clock_hz"] == seen["conditions"][0]["clock_hz"]
    recorded = files.read("rec.json")
    takes = [entry["takes"] for entry in recorded["devices"][0]["measurements"].values()]
    assert [len(t) for t in takes].count(2) >= 1  # the roof was measured again at the end
