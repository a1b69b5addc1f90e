"""The command that is watched: started, sent on the signals that reach us, waited for, and accounted for."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ..errors import UsageError

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended: its exit code, 128 + n for one that signal n ended; CPU seconds of it and its children."""

    exit_code: int
    user_s: float
    system_s: float
    most_memory_bytes: int  # resident, of the largest of its processes; no less than ours when it was forked


class WatchedCommand:
    """It keeps our terminal, standard input and process group, as if it had been started alone."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self.ended: Ended | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._gone = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it, and wait for its end on the way out, whatever happens inside: it is the user's, never ours to kill.

        Raises UsageError where it cannot be started.
        """
        with self._forwarding():
            try:
                self._process = subprocess.Popen(self.argv)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise UsageError(f"cannot run {self.argv[0]!r}: {(reason or 'unknown').lower()}") from None
            for number in self._early:
                self._send(number)
            try:
                yield
            finally:
                self._finish()

    def _finish(self) -> None:
        assert self._process is not None
        if self.ended is not None:
            return
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._gone = True  # signals go nowhere from here on
        _, status, usage = os.wait4(self._process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # it is reaped: nobody is to wait for it again
        self.ended = Ended(
            code if code >= 0 else 128 - code, usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024
        )  # ru_maxrss is in KiB

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """Signals go on to the command, and it decides; those that we were started to ignore it ignores too."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {}
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, self._forward)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._process is None:
            self._early.append(number)
        elif number not in _KEYBOARD or not _from_keyboard():
            self._send(number)

    def _send(self, number: int) -> None:
        """Its process id is its own until it is reaped; Popen.send_signal would reap it."""
        if self._process is not None and not self._gone:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)


def _from_keyboard() -> bool:
    """Whether our group is the terminal's foreground: then Ctrl-C has reached the command as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
