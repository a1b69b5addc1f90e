"""The compiled loop between MPI ranks: what keeps it from being used, without any MPI; and the real one where it is."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumicro.collectives import native_loop
from gpumicro.collectives.mpi import MpiRanks, _all
from gpumicro.collectives.native_loop import Unusable

STUB = """
typedef long MPI_Comm;
int gpumicro_same_mpi(const void *world, unsigned long bytes) {
    return bytes == sizeof(MPI_Comm) && *(const MPI_Comm *)world == 77;
}
int gpumicro_spans(void) { return 0; }
int gpumicro_row(void) { return 0; }
"""


def compiler(folder: Path, body: str) -> Path:
    """A program called mpicc."""
    folder.mkdir(exist_ok=True)
    path = folder / "mpicc"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH but the system's, with no mpicc beside this Python; the cache is there too."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), "/usr/bin", "/bin"]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_without_mpicc(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(alone))
    with pytest.raises(Unusable, match="no mpicc beside this Python or on PATH"):
        native_loop.build("MPI 1")


def test_a_compiler_that_fails_is_quoted(alone: Path) -> None:
    compiler(alone, "echo no header >&2; exit 3")
    with pytest.raises(Unusable, match=r"mpicc ended with exit code 3; it said: no header"):
        native_loop.build("MPI 1")
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.so"))


def test_it_is_built_once_for_each_mpi(alone: Path) -> None:
    log = alone / "log"
    compiler(alone, f'echo x >> {log}; while [ "$1" != -o ]; do shift; done; echo built > "$2"')
    first = native_loop.build("MPI 1")
    assert native_loop.build("MPI 1") == first
    assert native_loop.build("MPI 2") != first
    assert log.read_text().count("x") == 2
    assert first.parent.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_nothing_is_loaded_from_where_others_write(alone: Path, tmp_path: Path) -> None:
    compiler(alone, "exit 0")
    (tmp_path / "cache" / "gpumicro").mkdir(parents=True)
    (tmp_path / "cache" / "gpumicro").chmod(0o777)
    with pytest.raises(Unusable, match="can be written by them"):
        native_loop.build("MPI 1")


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A library like ours, whose MPI_COMM_WORLD is 77 in eight bytes."""
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        pytest.skip("no C compiler")
    (tmp_path / "stub.c").write_text(STUB)
    done = native_loop.children.run(
        [gcc, "-shared", "-fPIC", "-o", str(tmp_path / "stub.so"), str(tmp_path / "stub.c")]
    )
    assert not done.failure
    return tmp_path / "stub.so"


def mpi4py(world: int, size: int) -> Any:
    import ctypes

    handle = ctypes.c_long(world)
    return SimpleNamespace(
        COMM_WORLD=handle, _addressof=ctypes.addressof, _sizeof=lambda _: size, Get_library_version=lambda: "MPI 1, x"
    )


def test_another_mpi_is_recognised_before_it_is_called(stub: Path, tmp_path: Path) -> None:
    assert native_loop.load(stub, mpi4py(77, 8))
    for other in (mpi4py(78, 8), mpi4py(77, 4)):
        with pytest.raises(Unusable, match="of another MPI than mpi4py's MPI 1"):
            native_loop.load(stub, other)
    with pytest.raises(Unusable, match="cannot be loaded"):
        native_loop.load(tmp_path / "none.so", mpi4py(77, 8))


def test_one_rank_that_cannot_speaks_for_all() -> None:
    ranks: Any = SimpleNamespace(rank=0, exchange=lambda mine: [mine, b"rank 1 on b: no mpicc".ljust(len(mine))])
    typed: MpiRanks = ranks
    assert _all(typed, lambda: None) == "rank 1 on b: no mpicc"

    def fail() -> None:
        raise Unusable("no home")

    assert _all(typed, fail).endswith(": no home")


def test_the_calls_of_python_and_c_are_the_same() -> None:
    source = native_loop._SOURCE.read_text()
    names = source[source.index("enum {") + 6 : source.index("}")].split(",")
    assert tuple(name.strip().lower() for name in names) == native_loop._KINDS
    fields = source[source.index("typedef struct {") + 16 : source.index("} Call;")]
    words = re.sub(r"/\*.*?\*/|MPI_\w+|int32_t|void|[*,;]", " ", fields).split()
    assert words == [name for name, _ in native_loop.Call._fields_]
