"""Signals that ask a run to end, and the moments in which they have to wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ASKING = (signal.SIGTERM, signal.SIGHUP)  # a batch system's, and that of a terminal that goes: both end as Ctrl-C does


def heeded(*numbers: signal.Signals) -> list[signal.Signals]:
    """Those that are not ignored: nohup's wish is kept."""
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


@contextmanager
def waiting() -> Iterator[None]:
    """A signal that comes now is a KeyboardInterrupt at the end: nothing here is left half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    numbers = heeded(signal.SIGINT, *ASKING)
    before = [signal.signal(number, lambda n, _: asked.append(n)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt(asked[0])
