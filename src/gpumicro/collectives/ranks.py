"""What the timed loop asks of a set of ranks: a protocol, so that the host code runs on threads in a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..kernels import formats
from .operations import Collective, Counts

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: what is run, on how much."""

    kind: Collective
    counts: Counts
    dtype: str
    op: str
    root: int
    in_place: bool

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return formats.stored(self.dtype).itemsize

    @property
    def size_bytes(self) -> int:
        """The size as nccl-tests counts it."""
        return self.counts.shown * self.itemsize

    @property
    def place(self) -> str:
        """The variant in words."""
        return "in-place" if self.in_place else "out-of-place"


@dataclass(frozen=True, slots=True)
class Form:
    """How a library does a collective: the function that is called, and where it can (out of place, in place)."""

    call: str
    places: tuple[bool, ...]


class Control(Protocol):
    """What ranks tell each other beside the data. All but `clock_ns` and `abort` is called by all, in the same order.

    `before_exit` is called once, from whatever thread, before this process is ended because of another rank or by
    `abort`: it gets two seconds.
    """

    rank: int
    size: int
    before_exit: Callable[[], object] | None

    def clock_ns(self) -> int:
        """Nanoseconds on a clock that the ranks of one host share."""
        ...

    def barrier(self) -> None: ...

    def tell(self, words: Ints) -> None:
        """Overwrite `words` with those of rank 0."""
        ...

    def greatest(self, values: Ints) -> Ints:
        """Element by element the greatest of all ranks; of use on rank 0 only."""
        ...

    def total(self, values: Ints) -> Ints:
        """Element by element the sum over all ranks; of use on rank 0 only."""
        ...

    def exchange(self, record: bytes) -> list[bytes]:
        """Every rank's record, which are all of one length."""
        ...

    def swap(self, other: int, word: int) -> int:
        """Give the rank `other` a number and get its own; these two ranks only, one of which is rank 0."""
        ...

    def abort(self, code: int) -> None:
        """End all ranks with this exit code, from whatever thread."""
        ...


class Ranks(Control, Protocol):
    """A communicator that moves arrays. `alone` and `form` are for one rank to call."""

    library: str  # what moves the data, in words
    backend: str  # "mpi", "gloo"
    loop: str  # "native": the timed loop is compiled; "python": each call goes through Python
    loop_why: str  # why it is Python's, "" where it is compiled

    def form(self, kind: Collective) -> Form:
        """How this library does it."""
        ...

    def bind(self, case: Case, send: Any, receive: Any) -> Callable[[], object]:
        """One run of the case as a call without arguments, on arrays that stay where they are.

        Where the call has the methods `spans` and `row` they are the timed loops: see `native_loop.Spans`.
        """
        ...

    def alone(self) -> Ranks:
        """This rank in a communicator of its own."""
        ...
