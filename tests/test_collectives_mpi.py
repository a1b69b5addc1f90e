"""Collectives over a real MPI, where mpi4py and a library that it can load are here; and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from gpumicro import result
from gpumicro.collectives import launch
from gpumicro.errors import BackendUnavailable

LIMIT_S = 120
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "OMPI_", "RANK", "WORLD_SIZE"))}


def gpumicro(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpumicro", *arguments], capture_output=True, text=True, timeout=LIMIT_S,
        env={**CLEAN, **environment}, check=False,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _why_not() -> str:
    """Why there is no MPI here, "" where there is. Asked in a process of its own: loading MPI starts it."""
    pytest.importorskip("mpi4py", reason="collectives on CPUs need mpi4py: pip install '.[mpi]' mpich")
    try:
        launch.find_mpirun()
    except BackendUnavailable as missing:
        return str(missing)
    done = subprocess.run([sys.executable, "-c", "import mpi4py.MPI"], capture_output=True, text=True, check=False)
    return done.stderr.strip()[-200:] if done.returncode else ""


@pytest.fixture
def mpi() -> Iterator[None]:
    if why := _why_not():
        pytest.skip(why)
    return


@pytest.mark.usefixtures("mpi")
@pytest.mark.parametrize(
    ("ranks", "dtype", "op", "loop"), [(2, "float32", "sum", "python"), (4, "int8", "prod", "auto")]
)
def test_all_collectives_between_real_ranks(tmp_path: Path, ranks: int, dtype: str, op: str, loop: str) -> None:
    """By the compiled loop where there is one, or with the reason why not."""
    file = tmp_path / "r.json"
    done = gpumicro(
        "collectives", "all", "--ranks", str(ranks), "-b", "4K", "-e", "64K", "-f", "16", "--iters", "2",
        "--dtype", dtype, "--op", op, "--root", "1", "--max-time", "0.05", "--loop", loop, "-o", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    doc = result.read(file)
    assert result.missing_reasons(doc) == []
    assert not doc["interrupted"]
    assert len(doc["measurements"]) == 2 * (8 * 2 + 1) + 1
    assert all(m["wrong"] in (0, None) and m["ranks"] == ranks for m in doc["measurements"])
    assert done.stdout.count("#wrong") == 10
    assert all(m["timing"]["loop"] == m["facts"]["loop"] for m in doc["measurements"])
    loops = {(m["facts"]["loop"], bool(m["facts"].get("loop_why"))) for m in doc["measurements"]}
    assert loops in ({("python", True)}, *([{("native", False)}] if loop == "auto" else []))


@pytest.mark.usefixtures("mpi")
def test_one_rank_needs_no_launcher(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    done = gpumicro("allreduce", "-e", "64", "--iters", "2", "--place", "out", "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert "no busbw" in done.stdout
    assert all(m["busbw_bytes_per_s"] is None for m in result.read(file)["measurements"])


@pytest.mark.usefixtures("mpi")
def test_the_result_on_stdout_is_clean() -> None:
    done = gpumicro("collectives", "-e", "16", "--iters", "2", "-o", "-")
    assert json.loads(done.stdout)["schema"] == result.SCHEMA
    assert "#wrong" in done.stderr


@pytest.mark.usefixtures("mpi")
def test_too_few_ranks_end_with_a_sentence() -> None:
    done = gpumicro("collectives", "--expect-ranks", "2", "-e", "16")
    assert done.returncode == 2
    assert "2 ranks were expected and 1 came" in done.stderr


@pytest.mark.usefixtures("mpi")
def test_a_rank_that_is_killed_ends_the_others(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    code = (
        "import os, signal, sys, gpumicro.__main__ as m; import gpumicro.collectives.session as s\n"
        "check = s.Session._check_again\n"
        "def dying(self, number):\n"
        "    if self.control.rank == 1 and self.case.size_bytes == 32: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return check(self, number)\n"
        "s.Session._check_again = dying\n"
        "sys.exit(m.main(['collectives', '-e', '64', '--place', 'out', '--iters', '2', *sys.argv[1:]]))"
    )
    mpirun = launch.find_mpirun()
    argv = launch.command(mpirun, 2, [], open_mpi=launch.is_open_mpi(mpirun), as_root=os.geteuid() == 0)
    argv = [*argv[: argv.index("-m")], "-c", code, "--timeout", "5", "-o", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env=CLEAN, check=False)
    assert done.returncode != 0
    doc = result.read(file)
    assert doc["interrupted"]
    assert [m["size_bytes"] for m in doc["measurements"]] == [8, 16]


# -- without MPI -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--op", "avg"], 2, "MPI has no average"),
        (["--dtype", "half"], 2, "MPI has no half"),
        (["nothing"], 2, "unknown collective"),
        (["--iters", "1"], 2, "--iters must be at least 2"),
        (["--format", "xml"], 2, "unknown format"),
        (["--timeout", "0"], 2, "--timeout must be"),
        (["--ranks", "0"], 2, "--ranks must be"),
        (["-o", "/nowhere/r.json"], 2, "there is no directory"),
    ],
)
def test_wrong_use_is_said_before_anything_starts(arguments: list[str], code: int, words: str) -> None:
    done = gpumicro("collectives", *arguments)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


def test_without_a_gpu_it_says_so_and_ends_with_3() -> None:
    done = gpumicro("collectives", "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (3, "")
    assert "gpumicro: --device cuda cannot be had: " in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ImportError", "mpi4py, which is not here"),
        ("raise RuntimeError('cannot load MPI library')", "no MPI"),
        ("import mpi4py; raise RuntimeError(mpi4py.rc.thread_level)", "no MPI library (serialized)"),
    ],
)
def test_a_missing_mpi_says_what_to_install(tmp_path: Path, body: str, words: str) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("class rc: pass")
    (tmp_path / "mpi4py" / "MPI.py").write_text(body)
    path = os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    done = gpumicro("collectives", PYTHONPATH=path)
    assert done.returncode == 3
    assert words in done.stderr
    assert "pip install '.[mpi]' mpich" in done.stderr


@pytest.mark.usefixtures("mpi")
def test_real_ranks_meet_in_pairs(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    done = gpumicro("collectives", "--pairs", "--ranks", "4", "-e", "4K", "--iters", "2", "--max-time", "0.05",
                    "-o", str(file))  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert "straggler" in done.stdout or "SLOW" in done.stdout
    assert len(result.read(file)["measurements"]) >= 6
