"""torchrun's way between CPUs, with torch's gloo: for real, in processes; skipped without torch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpumicro import result

LIMIT_S = 120
LAUNCHERS = ("PMI", "OMPI_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "SLURM_")
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)} | {"OMP_NUM_THREADS": "1"}
DYING = (
    "import os, signal, sys, gpumicro.__main__ as m; from gpumicro.collectives.gloo import GlooRanks as G\n"
    "barrier = G.barrier\n"
    "G.barrier = lambda self: os.kill(os.getpid(), signal.SIGKILL) if self.rank == 1 else barrier(self)\n"
    "sys.exit(m.main(sys.argv[1:]))"
)


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def by_hand(ranks: int, start: list[str], *arguments: str, **more: str) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of every rank, its variables set as torchrun would, but by us."""
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [sys.executable, *start, "collectives", "--device", "cpu", *arguments], text=True,
            env={**CLEAN, **place, "RANK": str(rank), **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    said = [process.communicate(timeout=LIMIT_S) for process in processes]
    return [(process.returncode, *words) for process, words in zip(processes, said, strict=True)]


@pytest.fixture
def torch() -> None:
    pytest.importorskip("torch", reason="gloo comes with torch")


@pytest.mark.usefixtures("torch")
def test_torchrun_itself(tmp_path: Path) -> None:
    """Every collective that torch has, and what it has not is said."""
    file = tmp_path / "r.json"
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()),
        "-m", "gpumicro", "collectives", "all", "--device", "cpu", "-b", "4K", "-e", "4K", "--iters", "2",
        "--root", "1", "--max-time", "0.02", "-o", str(file),
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env=CLEAN, check=False)
    assert done.returncode == 0, done.stderr
    doc = result.read(file)
    assert result.missing_reasons(doc) == []
    rows = doc["measurements"]
    assert len({row["collective"] for row in rows}) == 10
    assert all(row["wrong"] in (0, None) and row["ranks"] == 2 and row["backend"] == "gloo" for row in rows)
    assert all(row["facts"]["library"].startswith("gloo of torch ") for row in rows)
    assert any("alltoall in place is left out: torch.distributed.all_to_all_single" in note for note in doc["notes"])


@pytest.mark.usefixtures("torch")
def test_variables_set_by_hand_and_a_rank_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    quick = ["-b", "8", "-e", "8", "--iters", "2", "--max-time", "0.02", "-o", str(file)]
    root, killed = by_hand(2, ["-c", DYING], "broadcast", *quick)
    assert killed[0] < 0
    assert root[0] == 1
    assert "rank 1 of 2 on" in root[2], root
    assert "is gone" in root[2] or "closed" in root[2].lower()


def test_a_rank_that_never_comes_and_torch_that_is_not_there(tmp_path: Path) -> None:
    """Without torch the ranks do not even meet; the sentence has the cure."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
    )
    path = os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    ((code, _, words),) = by_hand(1, ["-m", "gpumicro"], WORLD_SIZE="2", PYTHONPATH=path)
    assert code == 3
    assert "torch is not here" in words
    assert "mpirun -n 2" in words


def test_half_of_the_variables() -> None:
    ((code, _, words),) = by_hand(1, ["-m", "gpumicro"], WORLD_SIZE="2", MASTER_PORT="")
    assert code == 2
    assert "MASTER_PORT is not set" in words
