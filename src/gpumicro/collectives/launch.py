"""mpirun, started for those whom no launcher did."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .. import children
from ..errors import BackendUnavailable, UsageError
from .mpi import CURE
from .watchdog import say

_GRACE_S = 10.0  # for the ranks to end after a Ctrl-C
_NAMES = ("mpirun", "mpiexec")


def find_mpirun(folder: Path | None = None) -> str:
    """The path of mpirun: beside this interpreter (wheels put it there), else on PATH. BackendUnavailable."""
    beside = folder or Path(sys.executable).parent  # not resolved: a virtual environment's folder is meant
    for name in _NAMES:
        if os.access(beside / name, os.X_OK):
            return str(beside / name)
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    raise BackendUnavailable(f"--ranks starts mpirun, and there is none beside {sys.executable} or on PATH", CURE)


def command(mpirun: str, ranks: int, arguments: Sequence[str], *, open_mpi: bool, as_root: bool) -> list[str]:
    """What starts so many ranks of this interpreter with these arguments for `gpumicro`."""
    flags = ["--oversubscribe"] if open_mpi else []
    flags += ["--allow-run-as-root"] if open_mpi and as_root else []
    return [mpirun, *flags, "-n", str(ranks), sys.executable, "-m", "gpumicro", *arguments]


def is_open_mpi(mpirun: str) -> bool:
    """Whether it is Open MPI's, which wants a word before it runs more ranks than cores, or as root."""
    said = children.run([mpirun, "--version"], timeout_s=20, keep_output=True)
    return "open mpi" in said.output.lower() or "prte" in said.output.lower()


def start(ranks: int, arguments: Sequence[str]) -> int:
    """Run them to their end; the exit code. A Ctrl-C goes to all of them once, and they get time to end."""
    if ranks < 1:
        raise UsageError(f"--ranks must be at least 1, not {ranks}")
    mpirun = find_mpirun()
    argv = command(mpirun, ranks, arguments, open_mpi=is_open_mpi(mpirun), as_root=_is_root())
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise UsageError(f"cannot run {mpirun}: {error.strerror or error}") from None
    try:
        return _code(process.wait(), mpirun)
    except KeyboardInterrupt:
        _end(process)
        raise


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _code(returned: int, mpirun: str) -> int:
    """The ranks' own codes; whatever else mpirun ends with is a failure, and said."""
    if returned in (0, 1, 2, 3, 130):
        return returned
    say(f"{mpirun} ended with code {returned}: a rank was killed, or it could not start them; finished rows are kept")
    return 1


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask once, ask again, then kill the whole session."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
                return
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
