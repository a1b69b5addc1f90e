"""One run at a time on a device: who comes second waits, is told for whom, and goes on in the end."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumicro.lock import device_lock, lock_folder

UUID = "GPU-11111111-2222-3333-4444-555555555555"
HOLD = """
import sys
from pathlib import Path
from gpumicro.lock import device_lock
with device_lock(sys.argv[1], folder=Path(sys.argv[2])) as held:
    print("held" if held.alone else held.why, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the device."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, UUID, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "held"
        yield process
        process.kill()


def test_a_free_device_is_had_at_once_and_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with device_lock(UUID, folder=tmp_path, wait_s=0) as held:
            assert held.alone
            assert held.why == ""
            file = tmp_path / f"gpumicro-{UUID}.lock"
            assert file.read_text().strip() == str(os.getpid())
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_second_says_for_whom_it_waits_and_goes_on(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    said: list[str] = []
    with device_lock(UUID, folder=tmp_path, wait_s=0.05, say=said.append) as held:
        assert not held.alone
        assert f"process {holder.pid}" in held.why
    assert len(said) == 1
    assert f"process {holder.pid}" in said[0]


def test_another_device_is_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert holder.poll() is None
    with device_lock("GPU-another", folder=tmp_path, wait_s=0) as held:
        assert held.alone


def test_whoever_holds_it_dies_and_it_is_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    def kill(_: str) -> None:
        holder.kill()
        holder.wait()

    with device_lock(UUID, folder=tmp_path, wait_s=60, say=kill) as held:
        assert held.alone


def test_an_error_inside_gives_it_back(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), device_lock(UUID, folder=tmp_path, wait_s=0):
        raise RuntimeError
    with device_lock(UUID, folder=tmp_path, wait_s=0) as held:
        assert held.alone


def test_where_no_lock_can_be_made_the_run_goes_on_and_says_so(tmp_path: Path) -> None:
    with device_lock(UUID, folder=tmp_path / "nowhere", wait_s=0) as held:
        assert held.alone
        assert "no lock could be made" in held.why


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("untouched")
    (tmp_path / f"gpumicro-{UUID}.lock").symlink_to(target)
    with device_lock(UUID, folder=tmp_path, wait_s=0) as held:
        assert "no lock could be made" in held.why
    assert target.read_text() == "untouched"


def test_a_uuid_can_not_leave_the_folder(tmp_path: Path) -> None:
    with device_lock("../../etc/passwd", folder=tmp_path, wait_s=0) as held:
        assert held.alone
    assert [path.parent for path in tmp_path.rglob("*.lock")] == [tmp_path]


def test_the_folder_is_the_users_own(tmp_path: Path) -> None:
    assert lock_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path
    for absent in ({}, {"XDG_RUNTIME_DIR": str(tmp_path / "none")}):
        folder = lock_folder(absent)
        assert folder.name == f"gpumicro-{os.getuid()}"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
