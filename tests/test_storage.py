"""`gpumicro io`: what it runs, what it leaves behind, and what it says where storage, fio or the user fail."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_fio
import pytest

from gpumicro.__main__ import main
from gpumicro.cluster import fio_runs, loader, storage
from gpumicro.cluster.feeding import Need, need_of
from gpumicro.cluster.scratch import PREFIX, StorageError, require_room, scratch
from gpumicro.cluster.storage import StorageRun, StorageSettings, measure_storage
from gpumicro.cluster.storage_place import Place
from gpumicro.errors import UsageError
from gpumicro.result import missing_reasons, read
from gpumicro.units import GIB, KIB, MIB

SMALL = ["--runtime", "0.1", "--files", "40", "--workers", "2", "--sample-bytes", "4KiB", "--size", "64MiB"]
Run = Callable[..., int]


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """`main` in this process takes signals over."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A directory with something of the user's in it."""
    folder = tmp_path / "data of mine"
    folder.mkdir()
    (folder / "data").write_text("precious")
    return folder


@pytest.fixture
def io(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`gpumicro io` with the fake fio; the directory is then as it was."""
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", f"{fake_fio.install(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_FIO_LOG", str(log))

    def run(*arguments: str, how: str = "") -> int:
        log.write_text("")
        monkeypatch.setenv("FAKE_FIO", how)
        code = main(["io", str(target), *SMALL, *arguments])
        assert {p.name for p in target.iterdir()} == {"data"}, "only what was there before is there"
        assert (target / "data").read_text() == "precious"
        return code

    return run


def calls(tmp_path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


# -- what it measures --------------------------------------------------------------------------------------------------


def test_it_measures_fio_and_loader_and_writes_a_result(
    io: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "io.json"
    assert io("-o", str(path)) == 0
    out = capsys.readouterr()
    assert "500 MB/s" in out.out
    assert "randread-sample" in out.out
    assert f"wrote {path}" in out.err
    doc = read(path)
    assert missing_reasons(doc["storage"]) == []
    found = doc["storage"]
    assert [part["name"] for part in found["parts"]] == [
        "write-1m", "read-1m", "randread-sample", "randread-one", "randwrite-128k",
    ]  # fmt: skip
    assert found["parts"][0]["latency_s"] == pytest.approx(120e-6)
    assert found["parts"][0]["latency_p99_s"] == pytest.approx(800e-6)
    assert {part["measurement"] for part in found["parts"]} == {m["id"] for m in doc["measurements"]}
    assert not any("size=" in m["id"] for m in doc["measurements"])  # two runs bear the same names
    assert found["loader"]["workers"] == 2
    assert found["loader"]["files"] == 36  # four were asked whether they are cached, and are not read
    assert found["need"] is None
    assert found["need_why"]


def test_report_shows_a_saved_result(io: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    io("-o", str(tmp_path / "io.json"))
    capsys.readouterr()
    for ending in ("md", "html", "csv"):
        assert main(["report", str(tmp_path / "io.json"), "-o", str(tmp_path / f"r.{ending}")]) == 0
    assert "randread-sample" in (tmp_path / "r.md").read_text()
    assert main(["report", str(tmp_path / "io.json")]) == 0
    assert "What it feeds" in capsys.readouterr().out


def test_parts_read_what_the_first_wrote_and_only_by_name(io: Run, tmp_path: Path) -> None:
    io()
    made = calls(tmp_path)
    assert {one["filename"] for one in made} == {"data"}  # in its own folder: no path that fio could take apart
    assert made[0]["rw"] == "write"
    assert made[0]["size"] == str(64 * MIB)
    assert all(int(one["size"]) <= 2 * MIB for one in made[1:])


def test_direct_io_keeps_the_depth_and_cached_io_takes_threads_that_read_nothing_twice() -> None:
    job = fio_runs.Job("randread-sample", "randread", 128 * KIB, 32, "samples")
    tool = fio_runs.Tool("/usr/bin/fio", "3.36", "libaio")
    direct = fio_runs.command(tool, job, GIB, 4.0, True)
    assert {"--direct=1", "--iodepth=32", "--ioengine=libaio", "--time_based", "--numjobs=1"} <= set(direct)
    cached = fio_runs.command(tool, job, GIB, 4.0, False)
    assert {"--direct=0", "--numjobs=32", "--ioengine=psync", "--invalidate=1"} <= set(cached)
    assert f"--offset_increment={GIB // 32}" in cached
    assert f"--size={GIB // 32}" in cached
    assert "--time_based" not in cached
    first = fio_runs.command(tool, fio_runs.jobs(KIB)[0], GIB, 4.0, True)
    assert "--time_based" not in first  # each block once: no hole is read later
    assert "--end_fsync=1" in first


def test_a_file_system_without_direct_io_is_said(
    io: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return before(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    assert io("-o", str(tmp_path / "io.json")) == 0
    assert {one["direct"] for one in calls(tmp_path)} == {"0"}
    found = read(tmp_path / "io.json")
    assert found["storage"]["direct"] is False
    assert "no direct I/O" in " ".join(found["notes"])
    assert "through the page cache" in capsys.readouterr().out


def test_without_fio_the_loader_alone_is_read(io: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert io("--no-fio", "-o", str(tmp_path / "io.json")) == 0
    assert calls(tmp_path) == []
    assert read(tmp_path / "io.json")["storage"]["direct"] is None
    assert "loader only" in capsys.readouterr().out


# -- what it answers ---------------------------------------------------------------------------------------------------


def test_enough_is_0_and_too_little_is_1_with_the_numbers(io: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert io("--gpus", "2", "--samples-per-s", "0.5") == 0
    assert "passed: storage-feeds" in capsys.readouterr().out
    assert io("--gpus", "100000", "--samples-per-s", "100000") == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "FAILED: storage-feeds: 100,000 GPUs need 10,000,000,000 samples/s (41.0 TB/s)" in text
    assert "enough for 1 GPU." in text  # 500 MB/s of 4 KiB are 122,070 samples/s


def test_the_need_comes_from_a_file_of_scale(io: Run, tmp_path: Path) -> None:
    plan, out = tmp_path / "scale.json", tmp_path / "io.json"
    curves = [
        {"fabric": {"name": name}, "rows": [{"gpus": 2, "samples_per_s": rate}, {"gpus": 4, "samples_per_s": 2 * rate}]}
        for name, rate in (("eth100", 0.5), ("ib-ndr", 0.6))
    ]
    plan.write_text(json.dumps({"schema": "gpumicro/scale/1", "curves": curves, "setting": {"model": {"seq": 4096}}}))
    assert io("--scale", str(plan), "-o", str(out)) == 0
    need = read(out)["storage"]["need"]
    assert (need["gpus"], need["samples_per_s"], need["sample_bytes"]) == (4, pytest.approx(0.3), 4096)
    assert need["origin"] == "model"
    assert "ib-ndr" in need["source"]  # the fabric on which they are fastest
    assert need_of(2, None, 1.0, str(plan), 1.0) == Need(2, 0.3, 1.0, "model", f"{plan}, over ib-ndr")
    with pytest.raises(UsageError, match="no row for 3 GPUs; it has 2, 4"):
        need_of(3, None, 1.0, str(plan), 1.0)
    with pytest.raises(UsageError, match="4096 tokens of 4 bytes are 16384 B"):
        need_of(None, None, None, str(plan), 1.0)


@pytest.mark.parametrize(("text", "words"), [
    ("{", "not JSON"), ("[]", "not what"), ("{}", "no 'curves'"), ('{"curves": []}', "not what"),
    ('{"curves": [{"fabric": {"name": "x"}, "rows": [{"gpus": 1, "samples_per_s": "fast"}]}]}', "is 'fast'"),
    ('{"curves": [{"fabric": {"name": "x"}, "rows": [{"gpus": 0, "samples_per_s": 1}]}]}', "gpus is 0"),
])  # fmt: skip
def test_a_damaged_file_of_scale_is_named(tmp_path: Path, text: str, words: str) -> None:
    plan = tmp_path / "scale.json"
    plan.write_text(text)
    with pytest.raises(UsageError, match=f"scale.json: .*{words}"):
        need_of(None, None, 1.0, str(plan), 1.0)


# -- what the user gets wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "0", "--samples-per-s", "1"], "--gpus must be 1"),
        (["--gpus", "8"], "--gpus needs --samples-per-s"),
        (["--samples-per-s", "nan"], "--samples-per-s must be above 0"),
        (["--samples-per-s", "-3"], "--samples-per-s must be above 0"),
        (["--sample-bytes", "many"], "--sample-bytes: 'many' is not a number"),
        (["--sample-bytes", "0"], "--sample-bytes must be"),
        (["--runtime", "0"], "--runtime must be"),
        (["--size", "1KiB"], "--size must be at least 64 MiB"),
        (["--size", "9000TiB"], "Take a smaller --size"),
        (["--sample-bytes", "2GiB"], "--sample-bytes must be 1 B to 1 GiB"),
        (["--sample-bytes", "16MiB"], "40 files of 16 MiB are more than --size (64 MiB)"),
        (["--workers", "0"], "--workers must be 1 to 256"),
        (["-o", "/nowhere/at/all.json"], "cannot write"),
    ],
)
def test_wrong_use_is_named_before_anything_is_written(
    io: Run, tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert io(*arguments) == 2
    assert words in capsys.readouterr().err
    assert calls(tmp_path) == []


def test_a_directory_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["io", str(tmp_path / "none")]) == 2
    assert "there is no such directory" in capsys.readouterr().err
    assert main(["io", str(tmp_path / "file")]) == 2
    assert "is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_directory_that_cannot_be_written_is_said(
    io: Run, target: Path, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert io() == 2
    error = capsys.readouterr().err
    assert f"{target}: no folder can be made there" in error
    assert "name a directory that you may write" in error


def test_a_disk_that_would_be_filled_is_refused(target: Path) -> None:
    def place(free: int, files: int | None = None) -> Place:
        return Place(str(target), "/", "ext4", "/dev/x", free, 100 * GIB, files)

    require_room(place(20 * GIB), 17 * GIB, 1000)
    with pytest.raises(UsageError, match=r"20 GiB are free there, and 19 GiB would be written; 2 GiB must stay free"):
        require_room(place(20 * GIB), 19 * GIB, 1000)
    with pytest.raises(UsageError, match="1 GiB must stay free"):
        require_room(place(GIB), 1, 1)
    with pytest.raises(UsageError, match="100 more files"):
        require_room(place(20 * GIB, files=100), 1, 51)


# -- what fails --------------------------------------------------------------------------------------------------------


def test_no_fio_is_said_with_the_cure(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert main(["io", str(target)]) == 3
    error = capsys.readouterr().err
    assert "fio is not on PATH" in error
    assert "apt install fio" in error
    assert "--no-fio" in error


def test_an_old_fio_is_refused(io: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert io(how="old") == 3
    assert "fio-2.2.10, whose output counts in other units" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("full", "No space left on device"),
        ("silent", "no figure of a write"),
        ("cut", "cut off"),
        ("zero", "less than a millisecond"),
    ],
)
def test_fio_that_fails_is_quoted_and_the_loader_goes_on(
    io: Run, tmp_path: Path, how: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert io("--samples-per-s", "0.001", "-o", str(tmp_path / "io.json"), how=how) == 1  # asked to judge: it can't
    text = " ".join(capsys.readouterr().out.split())
    assert words in text
    assert "fio (write-1m)" in text
    found = read(tmp_path / "io.json")["storage"]
    assert found["parts"] == []
    assert found["loader"]["reads"] > 0


def test_one_part_that_fails_leaves_the_others(io: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert io("-o", str(tmp_path / "io.json"), how="no-reads") == 0
    assert [part["mode"] for part in read(tmp_path / "io.json")["storage"]["parts"]] == ["write", "randwrite"]
    assert "take a smaller --size" in " ".join(capsys.readouterr().out.split())


def test_ctrl_c_removes_the_folder_and_keeps_what_was_measured(
    io: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert io("-o", str(tmp_path / "io.json"), how="interrupt") == 130
    doc = read(tmp_path / "io.json")
    assert doc["interrupted"] is True
    assert [part["name"] for part in doc["storage"]["parts"]] == ["write-1m"]
    assert "the folder is removed" in capsys.readouterr().err


def _use_and_raise(folder: Path, error: type[BaseException]) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "deep").mkdir()
    (folder / "deep" / "file").touch()
    raise error


def test_the_folder_goes_whatever_is_raised_inside(target: Path) -> None:
    for error in (KeyboardInterrupt, SystemExit, RuntimeError):
        with pytest.raises(error), scratch(str(target)) as folder:
            _use_and_raise(folder, error)
    assert [p.name for p in target.iterdir()] == ["data"]


def test_the_folder_of_a_killed_run_is_told_and_left(target: Path) -> None:
    old = target / f"{PREFIX}0123"
    old.mkdir()
    (old / "data").touch()
    settings = StorageSettings(str(target), 64 * MIB, 4096, 0.1, 1, 20, use_fio=False)
    run = StorageRun(settings)
    run.run()
    assert any(old.name in note and "left alone" in note for note in run.notes)
    assert (old / "data").exists()


def test_a_full_disk_while_files_are_written_is_said(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(loader.os, "fsync", full)
    with pytest.raises(StorageError, match="the file system is full; take a smaller --size"):
        measure_storage(target, use_fio=False, runtime_s=0.1, files=20)
    assert [p.name for p in target.iterdir()] == ["data"]


def test_defaults_shrink_where_there_is_little_room(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "look", lambda *_: Place(str(target), "/", "ext4", "x", 3 * GIB, 9 * GIB, None))
    run = StorageRun(StorageSettings(str(target), use_fio=False))
    assert run.size_bytes == 2 * GIB * 2 // 3
