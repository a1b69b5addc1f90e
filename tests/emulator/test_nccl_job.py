"""`gpumicro collectives --device cuda` on the doubles of CUDA and NCCL, from end to end."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from emulator.conftest import Completed, Emulated

from gpumicro import result

SMALL = ("-b", "4K", "-e", "4K", "--iters", "2", "--max-time", "0.02")
KILLED = -9


def collectives(emulated: Emulated, file: Path, *arguments: str, **env: str) -> tuple[Completed, dict[str, Any]]:
    """(how it ended, its result)."""
    done = emulated.cli("collectives", *SMALL, "--device", "cuda", "-o", str(file), *arguments, env=env)
    return done, result.read(file) if file.exists() else {}


def ranks(emulated: Emulated, file: Path, count: int, *arguments: str, **env: str) -> list[Completed]:
    """A process a device, started torchrun's way."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def one(rank: int) -> Completed:
        own = {
            "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "PTXEMU_DEVICES": "1", **env,
        }  # fmt: skip
        return collectives(emulated, file, *arguments, **own)[0]

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_one_process_with_all_devices(emulated_nccl: Emulated, tmp_path: Path) -> None:
    done, doc = collectives(
        emulated_nccl, tmp_path / "r.json", "all", "--dtype", "bf16", "--op", "avg", "--root", "1", PTXEMU_DEVICES="3"
    )
    assert done.returncode == 0, done.stderr
    assert result.missing_reasons(doc) == []
    assert (doc["emulated"], doc["interrupted"]) == (True, False)
    assert len(doc["measurements"]) == 7 * 2 + 2 + 1
    assert all(m["wrong"] in (0, None) and m["ranks"] == 3 for m in doc["measurements"])
    assert all(m["timing"]["estimand"] == "isolated" for m in doc["measurements"])
    assert done.stdout.count("#wrong") == 10


def test_graphs_and_groups_and_chosen_devices(emulated_nccl: Emulated, tmp_path: Path) -> None:
    more = ("--device", "cuda:1,3", "--graph", "3", "--aggregate", "2")
    done, doc = collectives(emulated_nccl, tmp_path / "r.json", *more, "--algorithms")
    assert done.returncode == 0, done.stderr
    assert [device["index"] for device in doc["devices"][1:]] == [1, 3]
    assert {(m["wrong"], m["labels"]["graph"], m["labels"]["aggregate"]) for m in doc["measurements"]} == {
        (0, "3", "2")
    }


def test_a_wrong_element_fails_the_run(emulated_nccl: Emulated, tmp_path: Path) -> None:
    done, doc = collectives(emulated_nccl, tmp_path / "r.json", PTXEMU_DEVICES="2", NCCLEMU_WRONG="1:17")
    assert done.returncode == 1
    assert [(m["status"], m["wrong"]) for m in doc["measurements"]] == [("failed", 1)] * 2


def test_transports_side_by_side(emulated_nccl: Emulated, tmp_path: Path) -> None:
    more = ("--transport", "auto,socket", "--place", "out")
    done, doc = collectives(emulated_nccl, tmp_path / "r.json", *more, PTXEMU_DEVICES="2")
    assert done.returncode == 0, done.stderr
    assert [m["transport"] for m in doc["measurements"]] == ["auto", "socket"]
    assert doc["settings"]["transports"] == ["auto", "socket"]
    assert "Transports side by side" in done.stdout


def test_a_process_a_device(emulated_nccl: Emulated, tmp_path: Path) -> None:
    ends = ranks(emulated_nccl, tmp_path / "r.json", 2, "all_gather", "--expect-ranks", "2")
    assert [done.returncode for done in ends] == [0, 0], ends[0].stderr + ends[1].stderr
    doc = result.read(tmp_path / "r.json")
    assert {(m["ranks"], m["hosts"], m["wrong"], m["facts"]["processes"]) for m in doc["measurements"]} == {
        (2, 1, 0, 2)
    }


@pytest.mark.parametrize(("fault", "ends_with"), [("NCCLEMU_STALL", (1, 1)), ("NCCLEMU_DIE", (1, KILLED))])
def test_a_rank_that_hangs_or_dies_ends_all_in_time(
    emulated_nccl: Emulated, tmp_path: Path, fault: str, ends_with: tuple[int, int]
) -> None:
    began_s = time.monotonic()
    more = ("-e", "64K", "-f", "4", "--place", "out", "--timeout", "4")
    ends = ranks(emulated_nccl, tmp_path / "r.json", 2, *more, **{fault: "1:45"})
    assert time.monotonic() - began_s < 60
    assert tuple(done.returncode for done in ends) == ends_with
    assert "of 2 on " in ends[0].stderr
    doc = result.read(tmp_path / "r.json")
    assert doc["interrupted"]
    assert 1 <= len(doc["measurements"]) < 3


def test_ranks_of_different_minds_do_not_start(emulated_nccl: Emulated, tmp_path: Path) -> None:
    first, second = ranks(emulated_nccl, tmp_path / "r.json", 2, "--expect-ranks", "4")
    assert (first.returncode, second.returncode) == (2, 2)
    assert "4 ranks were expected and 2 came" in first.stderr
    assert second.stderr == ""
