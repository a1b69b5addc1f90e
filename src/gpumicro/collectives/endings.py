"""The end of a process for the sake of the others: once, after a last chance to let go of a device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

LAST_CHANCE_S = 2.0


def last_chance(before_exit: Callable[[], object] | None) -> None:
    """Call it in a thread of its own, and wait no longer than `LAST_CHANCE_S`."""
    if before_exit is not None:
        thread = threading.Thread(target=before_exit, daemon=True)
        thread.start()
        thread.join(LAST_CHANCE_S)


def leave_later(code: int) -> None:
    """End this process after `LAST_CHANCE_S`, if it is still there."""
    timer = threading.Timer(LAST_CHANCE_S, leave, [code])
    timer.daemon = True
    timer.start()


def leave(code: int) -> None:
    """End this process at once, from whatever thread."""
    os._exit(code)
