"""How far the clocks of other hosts are from rank 0's, so that starts on different hosts can be compared.

One round trip between rank 0 and the first rank of a host bounds the offset: the host's reading lies between rank 0's
two. The shortest of many bounds it best; the error is at most half of that trip, whatever the way there and back took
(Cristian 1989; NTP's rule too). What the offset moves between two looks counts as uncertainty as well.
"""

from __future__ import annotations

import socket

import numpy as np

from .placement import boot_id, place_of
from .ranks import Control, Ints

_TRIPS = 40


class Clocks:
    """The offset of this rank's clock, and on every rank how sure all of them are. Made and refreshed by all ranks.

    `one`: all ranks share a clock (one host, or containers on one kernel), and there is nothing to find out.
    """

    def __init__(self, control: Control, clock: str | None = None, trips: int = _TRIPS) -> None:
        self._control, self._trips = control, trips
        here = place_of(control, clock or boot_id() or socket.gethostname())
        self._mine, count = here.host, len(here.hosts)
        self.one = count == 1
        firsts = np.full(count, control.rank if here.local_rank == 0 else -1, dtype=np.int64)
        firsts[np.arange(count) != self._mine] = -1
        self._firsts = control.greatest(firsts)  # by host: its first rank
        control.tell(self._firsts)
        self._offsets: Ints = np.zeros(count, dtype=np.int64)
        self._errors: Ints = np.zeros(count, dtype=np.int64)
        self._worst: Ints = np.zeros(count, dtype=np.int64)  # since `forget`
        self._known = False

    @property
    def offset_ns(self) -> int:
        """To be taken off a reading of this rank's clock to have rank 0's."""
        return int(self._offsets[self._mine])

    @property
    def uncertainty_ns(self) -> int:
        """Of the difference of two readings on different hosts, at most, since `forget`: the two worst added."""
        return int(np.sort(self._worst)[-2:].sum())

    def forget(self) -> None:
        """Another row begins: what was uncertain before is of no concern."""
        self._worst[:] = 0
        self._known = False

    def refresh(self) -> None:
        """Look again, host after host."""
        if self.one:
            return
        found: Ints = np.zeros(2 * len(self._firsts), dtype=np.int64)
        for host, first in enumerate(self._firsts.tolist()):
            if first and self._control.rank in (0, first):
                found[2 * host : 2 * host + 2] = self._trip(first)
        self._control.tell(found)
        offsets, self._errors = found[::2].copy(), found[1::2].copy()
        moved = np.abs(offsets - self._offsets) if self._known else np.zeros_like(offsets)
        self._worst = np.maximum(self._worst, self._errors + moved)
        self._offsets, self._known = offsets, True

    def _trip(self, first: int) -> tuple[int, int]:
        """(offset of the host's clock, its greatest error), on rank 0.

        The other rank reads its clock after the first number came and gives the reading as the second: it lies between
        rank 0's readings before and after both.
        """
        clock, swap, here = self._control.clock_ns, self._control.swap, self._control.rank == 0
        best = (1 << 62, 0)
        for _ in range(self._trips):
            begun = clock()
            swap(first if here else 0, 0)
            theirs = swap(first if here else 0, clock())
            ended = clock()
            best = min(best, (ended - begun, theirs - (begun + ended) // 2))
        return best[1], -(-best[0] // 2)
