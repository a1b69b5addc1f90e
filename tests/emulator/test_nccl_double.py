"""The NCCL binding on the doubles of CUDA and NCCL: the cases in a process each, then ranks in several processes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from emulator.conftest import HERE, Completed, Emulated

UNIQUE_ID = """
from gpumicro import cuda_native, libraries
print(cuda_native.load().nccl.Nccl(libraries.find("nccl").path).unique_id().hex())
"""
KILLED = -9


@pytest.mark.parametrize(("file", "least"), [("nccl_cases.py", 122), ("nccl_fault_cases.py", 22)])
def test_cases(emulated_nccl: Emulated, file: str, least: int) -> None:
    done = emulated_nccl.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= least, done.stdout[-2000:]


def together(
    emulated: Emulated, size: int, ranks: Sequence[str], *options: str, env: Sequence[Mapping[str, str]] = ()
) -> list[Completed]:
    """A process for each of `ranks`, with `env` of its own, all at once."""
    key = emulated.python("-c", UNIQUE_ID).stdout.strip()

    def one(place: int) -> Completed:
        own = env[place] if env else {}
        return emulated.python(str(HERE / "nccl_rank.py"), key, str(size), ranks[place], *options, env=own)

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, range(len(ranks))))


def said(done: Completed) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("options", [("20",), ("20", "blocking")], ids=["non-blocking", "blocking"])
def test_processes_of_one_and_of_two_ranks(emulated_nccl: Emulated, tmp_path: Path, options: Sequence[str]) -> None:
    ends = together(emulated_nccl, 4, ["0", "1,2", "3"], *options, env=[{"NCCLEMU_DIR": str(tmp_path)}] * 3)
    assert [said(done)["sum"] for done in ends] == [[16.0]] * 3
    assert [said(done)["spans"] for done in ends] == [[2, 1], [2, 2], [2, 1]]
    assert list(tmp_path.iterdir()) == []  # the shared file is gone


def test_a_process_that_dies_is_named_by_the_other(emulated_nccl: Emulated) -> None:
    first, second = together(emulated_nccl, 2, ["0", "1"], env=[{}, {"NCCLEMU_DIE": "1:2"}])
    assert second.returncode == KILLED
    found = said(first)
    assert (found["error"], found["timed_out"]) == ("ncclRemoteError", False)
    assert "rank 1 closed by remote peer" in found["detail"]


def test_a_death_that_nobody_notices_times_out(emulated_nccl: Emulated) -> None:
    env = {"NCCLEMU_SILENT": "1", "NCCLEMU_DIE": "1:2"}
    first, second = together(emulated_nccl, 2, ["0", "1"], "1", env=[env, env])
    assert second.returncode == KILLED
    assert said(first)["timed_out"] is True


def test_another_version_at_one_rank_is_said(emulated_nccl: Emulated) -> None:
    ends = together(emulated_nccl, 2, ["0", "1"], env=[{"NCCLEMU_VERSION": "22703"}, {}])
    for done in ends:
        found = said(done)
        assert found["error"] == "ncclInvalidUsage"
        assert "Mismatched NCCL version" in found["detail"]


def test_the_log_is_like_the_real_ones(emulated_nccl: Emulated, tmp_path: Path) -> None:
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(tmp_path / "log.%p")}
    done = together(emulated_nccl, 2, ["0,1"], env=[env])[0]
    assert said(done)["sum"] == [4.0]
    (file,) = tmp_path.glob("log.*")
    lines = file.read_text()
    assert re.search(r"\[0\] NCCL INFO NCCL version 2\.28\.3\+emulated", lines)
    assert re.search(r"NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 - Init COMPLETE", lines)
