"""Recording files that are refused, each with its place, and what the command line makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import recordings
from recordings import synthetic

from gpumicro import recording as files
from gpumicro.__main__ import main
from gpumicro.backends.replay import ReplayBackend, replay
from gpumicro.errors import SchemaError
from gpumicro.faults import Faults


@pytest.fixture(scope="module")
def h200() -> files.Recording:
    return synthetic("h200-sxm-141")


def changed(made: files.Recording, *path: Any, value: Any) -> files.Recording:
    copy: files.Recording = json.loads(json.dumps(made))
    place: Any = copy
    for key in path[:-1]:
        place = place[key if key != "*" else next(iter(place))]
    place[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("schema",), "gpumicro/1", "it is a result, not a recording"),
        (("devices",), [], "devices"),
        (("devices", 0, "device", "cores"), "many", r"devices\[0\].device.cores"),
        (("devices", 0, "device", "kind"), "tpu", "kind"),
        (("devices", 0, "device", "surprise"), 1, "device"),
        (("devices", 0, "timers", "event", "overhead_s"), [], "overhead_s"),
        (("devices", 0, "timers", "event", "tick_s"), -1, "tick_s"),
        (("devices", 0, "timers"), {}, "there is no timer 'event'"),
        (("devices", 0, "measurements", "*", "takes"), [], "takes"),
        (("devices", 0, "measurements", "*", "takes", 0, "counts"), [1], "equally long"),
        (("devices", 0, "measurements", "*", "takes", 0, "counts", 0), 0, "counts"),
        (("devices", 0, "measurements", "*", "takes", 0, "spans_s", 0), -1e-6, "spans_s"),
        (("devices", 0, "measurements", "*", "takes", 0, "spans_s", 0), float("nan"), "nan"),
        (("devices", 0, "measurements", "*", "takes", 0, "spans_s", 0), 1e400, "inf"),
        (("devices", 0, "watch", "series", "sm_hz"), [1.0], "equally long"),
        (("devices", 0, "watch"), {"kind": "cpu", "figures": {}}, "another kind"),
    ],
)
def test_a_recording_that_is_not_one_is_refused_with_its_place(
    path: tuple[Any, ...], value: Any, says: str, h200: files.Recording, tmp_path: Path
) -> None:
    file = recordings.save(tmp_path / "bad.json", changed(h200, *path, value=value))
    with pytest.raises(SchemaError, match=says) as error:
        replay(file)
    assert "bad.json" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"1" * 5000])
def test_no_recording_at_all(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    with pytest.raises(SchemaError, match=r"bad\.json"):
        files.read(file)


def test_two_devices_of_one_name_and_a_file_too_large(
    h200: files.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = {**h200, "devices": h200["devices"] * 2}
    with pytest.raises(SchemaError, match="twice"):
        files.check(twice, "x")
    file = recordings.save(tmp_path / "large.json", h200)
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    with pytest.raises(SchemaError, match="too many"):
        files.read(file)


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_command_line_plays_a_recording_back(
    h200: files.Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recordings.save(tmp_path / "h200.json", h200)
    assert main(["roofline", "--replay", str(file), "-o", str(tmp_path / "r.json")]) == 0
    shown = capsys.readouterr()
    assert "nothing is measured" in shown.err
    assert json.loads((tmp_path / "r.json").read_text())["settings"]["mode"] == "quick"  # the recording's own


@pytest.mark.parametrize(
    ("faults", "code"),
    [("", 0), ("[[dead]]\nat_measurement = 2", 1), ('[[missing]]\ndevice = "cuda:1"', 1), ("[[slow]]", 2)],
)
def test_exit_codes_of_a_replay(faults: str, code: int, tmp_path: Path) -> None:
    file = recordings.save(tmp_path / "two.json", synthetic("rtx-4090", "rtx-4090"))
    (tmp_path / "faults.toml").write_text(faults)
    assert main(["roofline", "--replay", str(file), "--faults", str(tmp_path / "faults.toml")]) == code


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--faults", "f.toml"], 2, "--replay"),
        (["--replay", "none.json"], 2, "no such file"),
        (["--replay", "good.json", "--record", "r.json"], 2, "--record"),
        (["--replay", "good.json", "--backend", "cpu"], 2, "--backend"),
        (["--replay", "good.json", "-o", "good.json"], 2, "which is read"),
        (["--replay", "good.json", "--faults", "none.toml"], 2, "no such file"),
        (["--replay", "good.json", "--device", "cuda:9"], 2, "no device"),
        (["--record", "-"], 2, "--record"),
        (["--record", "nowhere/r.json"], 2, "no directory"),
        (["--record", "same.json", "-o", "same.json"], 2, "same file"),
    ],
)
def test_options_that_contradict_each_other(
    options: list[str], code: int, says: str, h200: files.Recording, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    recordings.save(tmp_path / "good.json", h200)
    assert main(["roofline", *options]) == code
    assert says in capsys.readouterr().err


def test_faults_default_to_none(h200: files.Recording) -> None:
    assert ReplayBackend(h200, Faults()).absent == []
