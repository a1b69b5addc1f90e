"""The timed loop between MPI ranks, compiled: built by mpicc at first use into the user's cache, loaded by ctypes.

It needs the mpicc of the MPI that mpi4py has loaded. Another one is recognised before anything of it is called: it
would be a second MPI library in the process, and its MPI_COMM_WORLD is not mpi4py's.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import children
from .ranks import Case, Ints

_SOURCE = Path(__file__).with_name("mpi_loop.c")
_COMPILERS = ("mpicc", "mpicc_abi")
BUILD_S = 60.0
_KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv", "scatter", "gather",
    "barrier",
)  # fmt: skip


class Unusable(Exception):
    """Why there is no compiled loop here, in words."""


class Call(ctypes.Structure):
    """As in mpi_loop.c."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("kind", "in_place", "count", "root", "rank", "size")),
        *((name, ctypes.c_void_p) for name in ("send", "receive", "comm", "type", "op")),
    ]


class Spans:
    """One case on its arrays: a call is one run; `spans` and `row` are timed loops of it."""

    loop = "native"

    def __init__(self, loop: Any, mpi: Any, handles: tuple[Any, Any, Any], case: Case, send: Any, receive: Any) -> None:
        comm, kind, op = handles
        self._kept = (send, receive, *handles)  # the call has their addresses
        self._mpi, self._loop = mpi, loop
        addresses = [mpi._addressof(one) for one in (comm, kind, op)]
        self._call = Call(
            _KINDS.index(case.kind.name), case.in_place, case.counts.share, case.root, comm.Get_rank(), comm.Get_size(),
            send.ctypes.data, receive.ctypes.data, *addresses,
        )  # fmt: skip

    def __call__(self) -> None:
        self._check(self._loop.gpumicro_run(ctypes.byref(self._call)))

    def spans(self, count: int) -> tuple[Ints, Ints]:
        """Nanoseconds before and after each of `count` runs, each after a barrier."""
        starts: Ints = np.empty(count, dtype=np.int64)
        ends: Ints = np.empty(count, dtype=np.int64)
        self._check(self._loop.gpumicro_spans(ctypes.byref(self._call), count, starts.ctypes, ends.ctypes))
        return starts, ends

    def row(self, count: int) -> int:
        """Nanoseconds of `count` runs with nothing between them."""
        span = ctypes.c_int64()
        self._check(self._loop.gpumicro_row(ctypes.byref(self._call), count, ctypes.byref(span)))
        return span.value

    def _check(self, code: int) -> None:
        if code:
            raise self._mpi.Exception(code)


def build(version: str, folder: Path | None = None) -> Path:
    """Compile with the first mpicc that can, unless that was done before; the library. Unusable.

    `version` of MPI is part of the name: another one is built anew.
    """
    why = "no mpicc beside this Python or on PATH"
    for compiler in _compilers():
        try:
            return _built(compiler, version, folder or _cache())
        except (Unusable, OSError) as error:
            why = str(error)
    raise Unusable(why)


def _compilers() -> Iterator[str]:
    """Those beside this interpreter first: wheels of MPI put them there."""
    beside = Path(sys.executable).parent
    found = [str(beside / name) for name in _COMPILERS if os.access(beside / name, os.X_OK)]
    yield from dict.fromkeys(found or [path for name in _COMPILERS if (path := shutil.which(name))])


def _built(compiler: str, version: str, folder: Path) -> Path:
    parts = (_SOURCE.read_text(encoding="utf-8"), compiler, version, platform.machine(), sys.platform)
    path = folder / f"mpi_loop-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.so"
    if path.exists():
        return path
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".so")
    os.close(handle)
    try:
        argv = [compiler, "-O2", "-std=gnu11", "-shared", "-fPIC", "-o", temporary, str(_SOURCE)]
        done = children.run(argv, timeout_s=BUILD_S)
        if done.failure:
            raise Unusable(f"{compiler} {done.failure}")
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def _cache() -> Path:
    """$XDG_CACHE_HOME/gpumicro or ~/.cache/gpumicro, ours alone: what lies there is loaded. Unusable."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "gpumicro"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody's home is known
        raise Unusable(f"no folder for the compiled loop: {error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise Unusable(f"{folder} belongs to others or can be written by them, so nothing is loaded from it")
    return folder


def load(path: Path, mpi: Any) -> Any:
    """The library, if it is of the MPI that mpi4py has loaded. Unusable."""
    before = _loaded_mpi()
    try:
        loop = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unusable(f"the compiled loop cannot be loaded: {error}") from None
    world = mpi.COMM_WORLD
    loop.gpumicro_same_mpi.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    same = loop.gpumicro_same_mpi(mpi._addressof(world), mpi._sizeof(world))
    if not same or (before and _loaded_mpi() != before):
        raise Unusable(f"the mpicc at hand is of another MPI than mpi4py's {mpi.Get_library_version().split(',')[0]}")
    for name in ("gpumicro_spans", "gpumicro_row"):
        getattr(loop, name).argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * (1 + (name[-1] == "s"))]
    return loop


def _loaded_mpi() -> set[str]:
    """The MPI libraries in this process; empty where the system does not say."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    names = (line.split(maxsplit=5)[5] for line in lines if line.count("/"))
    return {name for name in names if Path(name).name.startswith("libmpi")}
