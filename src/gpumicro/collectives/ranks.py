"""What the timed loop asks of a set of ranks: a protocol, so that the host code runs on threads in a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..kernels import formats
from .operations import Collective, Counts, Form

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


class Control(Protocol):
    """What processes tell each other beside the data. Every method but `clock_ns` and `abort` is called by all of them,
    in the same order."""

    rank: int
    size: int

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

    def abort(self, code: int) -> None:
        """End all ranks with this exit code, from whatever thread."""
        ...


class Ranks(Control, Protocol):
    """A communicator that moves the data too."""

    library: str  # what moves them, in words

    def form(self, kind: Collective) -> Form:
        """How it has a collective."""
        ...

    def bind(self, case: Case, send: Any, receive: Any) -> Callable[[], object]:
        """One run of the case as a call without arguments, on arrays that stay where they are."""
        ...

    def alone(self) -> Ranks:
        """This rank in a communicator of its own."""
        ...
