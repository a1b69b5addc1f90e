"""Child processes: each in a session of its own, timed and accounted for one by one, and stopped when we are."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO

from .errors import UsageError

GRACE_S = 2.0  # from the request to end to the kill
_TAIL_BYTES = 4096  # of the error stream, to quote from
_NAP_S = 0.002  # between two looks, where the system has no file descriptor of a process


@dataclass(frozen=True, slots=True)
class Ended:
    """What a process did. Seconds; `code` below zero is the signal that ended it."""

    code: int
    wall_s: float  # from before it was started to its end
    user_s: float  # of it and the children it waited for
    system_s: float
    timed_out: bool
    output: str  # "" unless asked for
    errors: str  # the end of its error stream, "" where that was shown

    @property
    def failure(self) -> str:
        """Why it is not to be counted, "" where it ended well: how it ended, and what it said last."""
        if self.timed_out:
            how = f"did not end within {self.wall_s:.3g} s and was stopped"
        elif self.code < 0:
            how = f"was ended by {_signal_name(-self.code)}"
        elif self.code:
            how = f"ended with exit code {self.code}"
        else:
            return ""
        said = [line for line in self.errors.splitlines() if line.strip()][-3:]
        return f"{how}; it said: {' | '.join(said)}" if said else how


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def run(
    argv: Sequence[str], *, timeout_s: float | None = None, keep_output: bool = False, show: bool = False,
    environment: Mapping[str, str] | None = None, folder: str | None = None,
) -> Ended:  # fmt: skip
    """Run a program to its end, without a shell and with nothing on its standard input.

    What it writes goes nowhere, but the end of its error stream; `keep_output` keeps its standard output, `show` sends
    both to our error stream. It works in `folder`. An exception here (Ctrl-C) stops the whole session first.
    UsageError: cannot be started.
    """
    with ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile()) if keep_output else None
        errors = None if show else stack.enter_context(tempfile.TemporaryFile())
        began_s = time.perf_counter()
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output or (sys.stderr if show else subprocess.DEVNULL),
                stderr=errors or sys.stderr, env=environment, cwd=folder, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"cannot run {argv[0]!r}: {(reason or 'unknown').lower()}") from None
        try:
            timed_out, status, usage = _wait(process.pid, timeout_s)
        except BaseException:
            _stop(process.pid)
            process.returncode = -signal.SIGKILL  # it is reaped: nobody is to wait for it again
            raise
        wall_s = time.perf_counter() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        text = _read(output, None)
        if show and text:
            sys.stderr.write(text)
        return Ended(
            process.returncode, wall_s, usage.ru_utime, usage.ru_stime, timed_out, text, _read(errors, _TAIL_BYTES)
        )  # fmt: skip


def _read(file: IO[bytes] | None, tail: int | None) -> str:
    if file is None:
        return ""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - tail) if tail else 0)
    return file.read().decode("utf-8", "replace")


def _wait(pid: int, timeout_s: float | None) -> tuple[bool, int, _Usage]:
    """(stopped for want of time, wait status, use of the CPU)."""
    in_time = timeout_s is None or ends_within(pid, timeout_s)
    if in_time:
        _, status, usage = os.wait4(pid, 0)
        return False, status, usage
    return True, *_stop(pid)


if sys.platform == "win32":
    _Usage = object
else:
    from resource import struct_rusage as _Usage


def ends_within(pid: int, timeout_s: float) -> bool:
    """Whether it ends in that time; it is not waited for yet."""
    deadline_s = time.monotonic() + timeout_s
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_NAP_S)
        return True
    try:
        return bool(select.select([handle], [], [], timeout_s)[0])
    finally:
        os.close(handle)


def _stop(pid: int) -> tuple[int, _Usage]:
    """End the session that it leads: asked first, then killed; (wait status, use of the CPU)."""
    try:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
        ends_within(pid, GRACE_S)
    finally:  # a second Ctrl-C does not wait; what ignores the request or was left behind goes too
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return status, usage
