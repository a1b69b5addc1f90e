"""Files that are not what they should be: a sentence with file, line and cure, exit code 2, and nothing written."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumicro import imports
from gpumicro.errors import GpumicroError, UsageError
from gpumicro.imports import nvbench, source

DATA = Path(__file__).parent / "data" / "imports"
SAMPLES = sorted(path for path in DATA.iterdir() if path.is_file())


def message(tmp_path: Path, content: str | bytes, name: str = "file.txt", **options: Any) -> str:
    """What importing this content says."""
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as caught:
        imports.import_results([str(file)], **options)
    text = str(caught.value)
    assert name in text
    return text


def changed(name: str, *pairs: tuple[str, str]) -> str:
    text = (DATA / name).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


# -- the file as a whole ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\0\0\0"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    assert "the file is empty" in message(tmp_path, content)


def test_a_file_of_another_kind_names_what_is_known(tmp_path: Path) -> None:
    text = message(tmp_path, "hello\nworld\n")
    assert "--format" in text
    assert all(name in text for name in imports.FORMATS)
    assert "of no format" in message(tmp_path, '{"a": 1}')
    assert "of no format" in message(tmp_path, "[1, 2]")


def test_a_file_that_bears_two_marks_names_the_candidates(tmp_path: Path) -> None:
    both = (DATA / "osu.txt").read_text() + (DATA / "babelstream.txt").read_text()
    text = message(tmp_path, both)
    assert "babelstream or osu; say which with --format" in text
    file = tmp_path / "both.txt"
    file.write_text(both)
    assert imports.import_results([str(file)], format="osu")["imported"]["tool"] == "osu-micro-benchmarks"


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.suffix == ".json"], ids=lambda p: p.name)
@pytest.mark.parametrize("part", [0.3, 0.9])
def test_truncated_json_names_its_last_line(tmp_path: Path, path: Path, part: float) -> None:
    content = path.read_bytes()
    text = message(tmp_path, content[: int(len(content) * part)], "cut.json")
    assert "cut.json:" in text
    assert "cut off" in text or "not JSON" in text


def test_a_wrong_format_name_and_a_file_that_does_not_fit_it(tmp_path: Path) -> None:
    assert "did you mean nvbench" in _refused(["x"], format="nvbnch")
    for name in imports.FORMATS:
        assert message(tmp_path, "nothing of the kind\n", format=name)


def _refused(paths: list[str], **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        imports.import_results(paths, **options)
    return str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in _refused([str(tmp_path / "absent.json")])
    assert "directory" in _refused([str(tmp_path)])
    assert _refused(["a\0b"])
    assert "named twice" in _refused(["a", "a"])
    assert "named twice" in _refused(["a", "./a"])
    assert "no file" in _refused([])


def test_a_file_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 1000)
    assert "larger than" in message(tmp_path, "x" * 1001)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
@pytest.mark.parametrize("how", ["crlf", "bom", "utf-16"])
def test_line_ends_and_marks_do_not_matter(tmp_path: Path, path: Path, how: str) -> None:
    text = path.read_text()
    content = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "utf-16": text.encode("utf-16"),  # what PowerShell's `>` writes
    }[how]
    file = tmp_path / path.name
    file.write_bytes(content)
    (tmp_path / "nvbench.json-bin").symlink_to(DATA / "nvbench.json-bin")
    plain, same = imports.import_results([str(path)]), imports.import_results([str(file)])
    if path.name == "nvbench.json":
        assert any("not below" in note for note in same["notes"]), "the link leads out of the folder"
        return
    assert same["measurements"] == plain["measurements"]


# -- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("nccl.txt", "400.0", "nan", "nccl.txt:15: time is 'nan'"),
        ("nccl.txt", "400.0", "-400.0", "below 0"),
        ("nccl.txt", "167.77", "167,77", "decimal comma"),
        ("nccl.txt", "-1    400.0  167.77", "-1", "fields where the heading has"),
        ("nccl.json", '"time": 400.0', '"time": "nan"', "that run gave no figure"),
        ("nvbandwidth.txt", "55.25", "55,25", "decimal comma"),
        ("nvbandwidth.txt", "0     55.25 ", "0 ", "cut off"),
        ("nvbandwidth.txt", "276.50", "inf", "that run gave no figure"),
        ("nvbandwidth.json", '"275.5"', '"-275.5"', "below 0"),
        ("babelstream.csv", "2.2e+06", "2,2e+06", "LC_ALL=C"),
        ("babelstream.csv", "0.000366048", "0", "more than 0"),
        ("babelstream.csv", "max_MB_per_sec", "max_furlong_per_sec", "unit"),
        ("babelstream.txt", "0.00032000", "inf", "babelstream.txt:14:"),
        ("mixbench.txt", "7371.43", "-nan", "mixbench.txt:13: float32: GFLOPS"),
        ("mixbench.txt", "   8.00, ", "   8,00, ", "fields where the heading has"),
        ("osu.txt", "23987.18", "nan", "osu.txt:7:"),
        ("osu.txt", "0.80", "0,80", "decimal comma"),
        ("fio.json", '"iops": 15000.0', '"iops": NaN', "no figure"),
        ("fio.json", '"bw_bytes": 61440000', '"bw_kbytes": 1', "fio 2"),
        ("google-benchmark.json", '"time_unit": "us"', '"time_unit": "fortnight"', "time_unit"),
        ("google-benchmark.json", '"real_time": 1.02', '"real_time": -1.02', "below 0"),
        ("google-benchmark.json", '"real_time": 1.02', '"real_time": Infinity', "no figure"),
        ("pytest-benchmark.json", "1.95e-06", "0", "more than 0"),
        ("pytest-benchmark.json", '"rounds": 8', '"rounds": 8.5', "whole number"),
        ("nvbench.json", '"2.0e-4"', '"-1"', "below 0"),
        ("nvbench.json", '"value": "12"', '"value": "13"', "13 samples take 52"),
        ("nvbench.json", '"value": "12"', '"value": "9999999999"', "at most"),
    ],
)
def test_a_damaged_figure_is_named_with_its_place(tmp_path: Path, name: str, old: str, new: str, said: str) -> None:
    _copy_bins(tmp_path)
    where = changed(name, (old, new)) if name != "nvbench.json" or "12" not in old else _with_size(new)
    assert said in message(tmp_path, where, name)


def _copy_bins(folder: Path) -> None:
    (folder / "nvbench.json-bin").mkdir()
    (folder / "nvbench.json-bin" / "0.bin").write_bytes((DATA / "nvbench.json-bin" / "0.bin").read_bytes())


def _bench(filename: str, size: str = "12") -> str:
    doc = json.loads((DATA / "nvbench.json").read_text())
    for summary in doc["benchmarks"][0]["states"][0]["summaries"]:
        if summary["tag"].startswith("nv/json/bin"):
            summary["data"][0]["value"], summary["data"][1]["value"] = filename, size
    return json.dumps(doc)


def _with_size(new: str) -> str:
    return _bench("nvbench.json-bin/0.bin", new.rpartition(" ")[2].strip('"'))


# -- nvbench's sample files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../secret.bin", "/etc/passwd", "nvbench.json-bin/../../secret.bin", "..\\secret.bin", "C:\\secret.bin",
        "a\0b", "", "link/0.bin", "pipe", ".", "x" * 5000,
    ],
)  # fmt: skip
def test_only_files_below_the_folder_are_opened(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, outside = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    outside.mkdir()
    for secret in (tmp_path / "secret.bin", outside / "0.bin"):
        secret.write_bytes(struct.pack("<12f", *[1e-3] * 12))
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    file = folder / "r.json"
    file.write_text(_bench(name))
    opened: list[Path] = []
    original = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: (opened.append(self), original(self, *a, **k))[1])
    doc = imports.import_results([str(file)])
    assert opened == [file]
    record = doc["measurements"][0]
    assert record["timing"] is None
    assert record["time_s"]["ci95"] is None, "its mean is read all the same"
    assert "not below" in record["time_s"]["ci95_why"]


def test_a_sample_file_is_found_where_json_and_files_were_moved_together(tmp_path: Path) -> None:
    _copy_bins(tmp_path)
    found = tmp_path / "nvbench.json-bin" / "0.bin"
    for name in ("nvbench.json-bin/0.bin", "/home/someone/runs/nvbench.json-bin/0.bin", "nvbench.json-bin\\0.bin"):
        assert nvbench.sample_file(tmp_path, name) == found
    assert nvbench.sample_file(None, "nvbench.json-bin/0.bin") is None, "stdin has no folder"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
def test_samples_must_be_times(tmp_path: Path, value: float) -> None:
    (tmp_path / "nvbench.json-bin").mkdir()
    (tmp_path / "nvbench.json-bin" / "0.bin").write_bytes(struct.pack("<12f", *[1e-3] * 11, value))
    assert "sample 11" in message(tmp_path, _bench("nvbench.json-bin/0.bin"), "r.json")


# -- logs ------------------------------------------------------------------------------------------------------------


def test_several_runs_in_one_log_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text((DATA / "nccl.txt").read_text() * 2)
    ids = [m["id"] for m in imports.import_results([str(file)])["measurements"]]
    assert len(ids) == len(set(ids)) == 8
    assert sum(ident.endswith("#2") for ident in ids) == 4


def test_an_older_nccl_log_fails_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "old.txt"
    file.write_text(
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 1048576(bytes) warmup iters: 5 iters: 20 validation: 1\n"
        "#   Rank  0 Pid  99 on host-a device  0 [0x07] Imaginary\n"
        "#   Rank  1 Pid  99 on host-a device  1 [0x0a] Imaginary\n"
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n"
        "     1048576        262144   float     sum    50.00   20.97   20.97  2e-07    49.00   21.40   21.40  2e-07\n"
        "# Out of bounds values : 3 FAILED\n"
    )
    records = imports.import_results([str(file)])["measurements"]
    assert [m["status"] for m in records] == ["failed", "failed"]
    assert records[0]["ranks"] == 2
    assert records[0]["collective"] is None, "the log does not name it"
    assert records[0]["error"] == "nccl-tests: 3 values of the run were out of bounds"


def test_a_blank_column_is_not_taken_for_another(tmp_path: Path) -> None:
    """all_gather of older versions has no word in the column redop."""
    file = tmp_path / "gather.txt"
    file.write_text(
        (DATA / "nccl.txt").read_text().replace("     sum ", "         ").replace("all_reduce", "all_gather")
    )
    record = imports.import_results([str(file)])["measurements"][2]
    assert (record["collective"], record["op"]) == ("all_gather", None)
    assert record["time_s"]["estimate"] == pytest.approx(400e-6)


def test_a_list_of_ranks_with_holes_gives_no_number(tmp_path: Path) -> None:
    file = tmp_path / "holes.txt"
    file.write_text((DATA / "nccl.txt").read_text().replace("Rank  3", "Rank 999999999"))
    record = imports.import_results([str(file)])["measurements"][2]
    assert record["ranks"] is None
    assert record["busbw_bytes_per_s"]["estimate"] == 251.66e9


def test_one_rank_has_no_bus(tmp_path: Path) -> None:
    lines = (DATA / "nccl.txt").read_text().splitlines()
    file = tmp_path / "one.txt"
    file.write_text("\n".join(line for line in lines if not any(f"Rank  {i}" in line for i in (1, 2, 3))) + "\n")
    record = imports.import_results([str(file)])["measurements"][2]
    assert record["ranks"] == 1
    assert record["busbw_bytes_per_s"] is None
    assert record["algbw_bytes_per_s"]["estimate"] == 167.77e9


def test_a_log_that_ends_in_a_test(tmp_path: Path) -> None:
    text = (DATA / "nvbandwidth.txt").read_text()
    file = tmp_path / "cut.txt"
    file.write_text(text[: text.index("           0         1\n 0       N/A")])
    last = imports.import_results([str(file)])["measurements"][-1]
    assert last["status"] == "failed"
    assert "ends before" in last["error"]


# -- anything --------------------------------------------------------------------------------------------------------

EXAMPLES = int(os.environ.get("GPUMICRO_IMPORT_EXAMPLES", "150"))  # more of them by hand
_SEEDS = [path.read_bytes() for path in SAMPLES]


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A sample with pieces cut, doubled and overwritten."""
    content = bytearray(draw(st.sampled_from(_SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, max(0, len(content) - 1)))
        end = min(len(content), start + draw(st.integers(0, 60)))
        piece = draw(
            st.sampled_from([b"", b"null", b"[]", b"{}", b"-1", b"1e999", b'"x"', b"NaN", b",", b"\n", b"9" * 30])
            | st.binary(max_size=12)
            | st.just(bytes(content[start:end]) * 2)
        )  # fmt: skip
        content[start:end] = piece
    return bytes(content)


@given(content=_damaged() | st.binary(max_size=300), format=st.sampled_from([None, *imports.FORMATS]))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_document_or_our_error(tmp_path: Path, content: bytes, format: str | None) -> None:
    file = tmp_path / "any"
    file.write_bytes(content)
    with suppress(GpumicroError):
        assert imports.import_results([str(file)], format=format)["imported"]["tool"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=2),
    max_leaves=3,
)


@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_the_place_of_another_is_survived(tmp_path: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([p for p in SAMPLES if p.suffix == ".json" and p.name != "fio.json"]))
    doc = json.loads(path.read_text())
    node, places = doc, []
    while isinstance(node, (dict, list)) and node:
        key = data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        places.append((node, key))
        node = node[key]
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(JSON_VALUES)
    file = tmp_path / "any.json"
    file.write_text(json.dumps(doc))
    with suppress(GpumicroError):
        assert imports.import_results([str(file)])["measurements"]


# -- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gpumicro", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, timeout=120, check=False, input=stdin)


def test_the_command_writes_a_result_and_nothing_else(tmp_path: Path) -> None:
    done = run("import", str(DATA / "mixbench.txt"), "-o", "r.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert b"mixbench: 9 ok, 3 skipped; wrote r.json" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    shown = run("report", "r.json", cwd=tmp_path)
    assert b"IMPORTED from mixbench" in shown.stdout


def test_the_command_reads_stdin_and_writes_clean_json(tmp_path: Path) -> None:
    done = run("import", "-", "-o", "-", cwd=tmp_path, stdin=(DATA / "osu.txt").read_bytes())
    assert json.loads(done.stdout)["imported"]["file"] == "<stdin>"


def test_the_command_refuses_with_2_and_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("old")
    (tmp_path / "bad.txt").write_text("nothing")
    done = run("import", str(DATA / "osu.txt"), "bad.txt", "-o", "r.json", cwd=tmp_path)
    assert done.returncode == 2
    assert b"bad.txt" in done.stderr
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "r.json").read_text() == "old"
    assert run("import", "bad.txt", "-o", "bad.txt", cwd=tmp_path).returncode == 2
    assert run("import", cwd=tmp_path).returncode == 2
