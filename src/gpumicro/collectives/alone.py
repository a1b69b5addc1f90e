"""One rank that nobody started with others: the control channel needs nothing there."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import endings
from .ranks import Ints


class Alone:
    """See `ranks.Control`."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self.before_exit: Callable[[], object] | None = None
        self.clock_ns = time.perf_counter_ns

    def barrier(self) -> None:
        """Nobody to wait for."""

    def tell(self, words: Ints) -> None:
        """They are rank 0's."""

    def greatest(self, values: Ints) -> Ints:
        """The values."""
        return values

    def total(self, values: Ints) -> Ints:
        """The values."""
        return values

    def exchange(self, record: bytes) -> list[bytes]:
        """The record."""
        return [record]

    def swap(self, other: int, word: int) -> int:
        """There is no other."""
        raise AssertionError(f"rank {other} of one, with {word}")

    def abort(self, code: int) -> None:
        """End this process."""
        endings.last_chance(self.before_exit)
        endings.leave(code)
