"""Result files: written whole or not at all, and refused with the place when they are not what they claim."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpumicro import result
from gpumicro.errors import SchemaError, UsageError


@pytest.fixture
def doc() -> dict[str, Any]:
    return result.read(Path(__file__).parent / "data" / "roofline-cpu.json")


# -- writing ---------------------------------------------------------------------------------------------------------


def test_write_then_read_gives_the_same(tmp_path: Path, doc: dict[str, Any]) -> None:
    target = tmp_path / "r.json"
    result.write(target, doc)
    assert result.read(target) == doc
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    assert "[10, 1" in target.read_text(), "a list of numbers stands on one line"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_write_refuses_what_is_not_finite_and_keeps_the_old_file(
    tmp_path: Path, doc: dict[str, Any], bad: float
) -> None:
    target = tmp_path / "r.json"
    target.write_text("old")
    doc["measurements"][3]["timing"]["raw_s"][2] = bad
    with pytest.raises(SchemaError, match=r"measurements\[3\]\.timing\.raw_s\[2\] is -?(nan|inf)"):
        result.write(target, doc)
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_write_that_fails_midway_keeps_the_old_file(
    tmp_path: Path, doc: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "r.json"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"cannot write .*r\.json: No space left"):
        result.write(target, doc)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_write_goes_through_links_and_into_devices(
    tmp_path: Path, doc: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    result.write(link, doc)
    assert link.is_symlink()
    assert result.read(real) == doc
    result.check_writable("/dev/null")
    result.write("/dev/null", doc)
    assert Path("/dev/null").is_char_device()
    result.write("-", doc)
    assert json.loads(capsys.readouterr().out) == doc


def test_check_writable_finds_out_early(tmp_path: Path) -> None:
    result.check_writable("-")
    result.check_writable(tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    for path, words in (
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "r.json", "there is no directory"),
        (tmp_path / "file" / "r.json", "there is no directory"),
        ("/proc/r.json", "cannot write /proc/r.json"),
    ):
        with pytest.raises(UsageError, match=words):
            result.check_writable(path)


# -- reading ---------------------------------------------------------------------------------------------------------


def _changed(doc: dict[str, Any], *path: Any, value: Any = None, drop: bool = False) -> bytes:
    doc = copy.deepcopy(doc)
    *way, last = path
    place = doc
    for part in way:
        place = place[part]
    if drop:
        del place[last]
    else:
        place[last] = value
    return json.dumps(doc).encode()


def test_unreadable_files_name_file_and_place(tmp_path: Path, doc: dict[str, Any]) -> None:
    whole = result.dumps(doc).encode()
    lines = whole.count(b"\n")
    cases = {
        "truncated": (whole[: len(whole) // 2], r"truncated: the text ends too early \(line \d+, column \d+\)"),
        "cut in a word": (b'{"schema": "gpumi', r"truncated"),
        "almost": (whole.rstrip()[:-1], rf"truncated.*line {lines}"),
        "empty": (b" \n", "the file is empty"),
        "not json": (b'{"schema": gpumicro}', r"not JSON: .*\(line 1, column 12\)"),
        "python": (b"{'schema': 1}", r"not JSON"),
        "not utf-8": (whole.replace(b"AMD EPYC (Zen 3)", b"AMD \xff"), r"not UTF-8 \(byte \d+\)"),
        "list": (b"[]", r'no "schema"'),
        "no schema": (b"{}", r'no "schema"'),
        "other": (b'{"schema": "nvbench/1"}', "another schema: 'nvbench/1'"),
        "newer": (b'{"schema": "gpumicro/2"}', "newer than this gpumicro"),
        "nan": (_changed(doc, "points", 2, "flop_per_s", value=float("nan")), r"points\[2\]\.flop_per_s is nan"),
        "huge": (b'{"schema": "gpumicro/1", "x": 1e999}', "x is inf"),
        "digits": (b'{"schema": "gpumicro/1", "x": ' + b"1" * 5000 + b"}", "not a result file"),
        "deep": (b"[" * 100_000, "nested too deeply"),
        "missing key": (
            _changed(doc, "measurements", 1, "flops", drop=True),
            r"measurements\[1\] must contain \['flops'\]",
        ),
        "wrong type": (
            _changed(doc, "ceilings", 0, "achieved", value="fast"),
            r"ceilings\[0\]\.achieved must be number or null",
        ),
        "bad enum": (
            _changed(doc, "measurements", 0, "status", value="fine"),
            r"measurements\[0\]\.status must be one of",
        ),
        "null, no reason": (
            _changed(doc, "ceilings", 0, "spec_why", drop=True),
            r"ceilings\[0\] must contain \['spec_why'\]",
        ),
        "failed, no error": (
            _changed(doc, "measurements", -2, "error", drop=True),
            r"measurements\[\d+\] must contain \['error'\]",
        ),
        "ok, no time": (_changed(doc, "measurements", 0, "time_s", value=None), r"measurements\[0\]"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(content)
        with pytest.raises(SchemaError, match=words) as caught:
            result.read(path)
        assert str(path) in str(caught.value), name
        assert path.read_bytes() == content
    with pytest.raises(SchemaError, match="no such file"):
        result.read(tmp_path / "none.json")
    with pytest.raises(SchemaError, match="cannot be read"):
        result.read(tmp_path)


def test_additions_and_minor_versions_are_read(doc: dict[str, Any]) -> None:
    doc["schema"] = "gpumicro/1.4"
    doc["measurements"][0]["novelty"] = {"x": [1]}
    result.validate(doc)
    assert result.parse(b"\xef\xbb\xbf" + result.dumps(doc).encode(), "with a mark")["schema"] == "gpumicro/1.4"


def test_the_file_is_utf8_whatever_the_names(tmp_path: Path, doc: dict[str, Any]) -> None:
    doc["devices"][0]["name"] = "Größe 中 \ud83d"
    result.write(tmp_path / "r.json", doc)
    assert result.read(tmp_path / "r.json")["devices"][0]["name"] == "Größe 中 \ud83d"
