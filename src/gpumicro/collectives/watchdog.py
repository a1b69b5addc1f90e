"""A rank that waits for ever is ended, and says where it stood: a thread that looks at what the main one did last."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

GRACE_S = 2.0  # for the main thread to end by itself after a signal
SPEAK_S = 1.0  # between the words and the end, so that the other ranks can speak too
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Watchdog(threading.Thread):
    """Calls `abort(code)` after `timeout_s` without a beat, or where a signal finds the main thread waiting."""

    def __init__(self, who: str, timeout_s: float, abort: Callable[[int], None], nap_s: float = 0.25) -> None:
        super().__init__(name="gpumicro-watchdog", daemon=True)
        self._who, self._timeout_s, self._abort, self._nap_s = who, timeout_s, abort, nap_s
        self._place, self._beaten_s = "the start", time.monotonic()
        self._over = threading.Event()
        self._pipe: tuple[int, int] | None = None

    def beat(self, place: str) -> None:
        """Something has moved on."""
        self._place, self._beaten_s = place, time.monotonic()

    @property
    def place(self) -> str:
        """Where the last beat came from."""
        return self._place

    def listen(self) -> None:
        """Hear of signals even while the main thread waits in a call that does not return. Main thread only."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        os.set_blocking(reading, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._pipe = (reading, writing)

    def stop(self) -> None:
        """The work is done."""
        self._over.set()
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)

    def run(self) -> None:
        while not self._over.is_set():
            if self._signalled():
                if not self._over.wait(GRACE_S):
                    self._end(f"interrupted while it waited for the others in or after {self._place}", 130)
                return
            idle_s = time.monotonic() - self._beaten_s
            if idle_s > self._timeout_s:
                self._end(
                    f"nothing moved for {idle_s:.3g} s in or after {self._place}: a rank that does not say so as well "
                    "has died, hangs or is elsewhere. --timeout sets how long to wait",
                    1,
                )
                return

    def _signalled(self) -> bool:
        if self._pipe is None:
            self._over.wait(self._nap_s)
            return False
        ready, _, _ = select.select([self._pipe[0]], [], [], self._nap_s)
        if not ready:
            return False
        with suppress(BlockingIOError):
            return any(number in _SIGNALS for number in os.read(self._pipe[0], 64))
        return False

    def _end(self, words: str, code: int) -> None:
        say(f"{self._who}: {words}")
        self._over.wait(SPEAK_S)
        if not self._over.is_set():
            self._abort(code)


def say(text: str) -> None:
    """One line on the error stream, at once."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"gpumicro: {text}\n")
        sys.stderr.flush()
