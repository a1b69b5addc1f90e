"""Ranks by MPI, through mpi4py. The only file that imports it; it does so when asked for."""

from __future__ import annotations

import faulthandler
import os
import socket
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import BackendUnavailable
from . import endings, native_loop
from .operations import Collective
from .placement import place
from .ranks import Case, Form, Ints

CURE = "Install both with: pip install '.[mpi]' mpich"
_TAG = 7


def connect(timeout_s: float, loop: str = "auto") -> MpiRanks:
    """All ranks that the launcher started; one where there was none. BackendUnavailable says what is missing.

    `loop`: "native" for the compiled one or BackendUnavailable, "python", "auto" for the first that there is. MPI may
    wait for ranks that never come, and holds Python's lock meanwhile: after `timeout_s` this process ends, with a
    traceback to here.
    """
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    try:
        # mpi4py asks for threads that call at once; MPICH then locks in every call, and 8 B take 3.5 us instead of 1.0
        import_module("mpi4py").rc.thread_level = "serialized"
        mpi = import_module("mpi4py.MPI")
        ranks = MpiRanks(mpi, mpi.COMM_WORLD)
        if loop != "python":
            faulthandler.dump_traceback_later(timeout_s + native_loop.BUILD_S, exit=True)
            _take_native(ranks, mpi, must=loop == "native")
        return ranks
    except ImportError as error:
        raise BackendUnavailable(f"ranks on CPUs talk through mpi4py, which is not here ({error})", CURE) from None
    except RuntimeError as error:  # mpi4py's wheel found no library that it could load
        first = str(error).splitlines()[0] if str(error) else "no reason given"
        raise BackendUnavailable(f"mpi4py is here, but no MPI library ({first})", CURE) from None
    finally:
        faulthandler.cancel_dump_traceback_later()


def _take_native(ranks: MpiRanks, mpi: Any, must: bool) -> None:
    """The compiled loop, where every rank has it. One rank of each host builds it."""
    found: list[Any] = []

    def build() -> None:
        if place(ranks).local_rank == 0:
            native_loop.build(mpi.Get_library_version())

    def load() -> None:
        found.append(native_loop.load(native_loop.build(mpi.Get_library_version()), mpi))

    why = _all(ranks, build) or _all(ranks, load)
    if why and must:
        raise BackendUnavailable(f"no compiled loop: {why}", "Take --loop python, or an MPI that brings mpicc")
    ranks.loop_why = why
    if not why:
        ranks.native, ranks.loop = found[0], "native"


def _all(ranks: MpiRanks, step: Callable[[], None]) -> str:
    """Why one of the ranks cannot do it, "" where all have."""
    why = ""
    try:
        step()
    except native_loop.Unusable as error:
        why = f"rank {ranks.rank} on {socket.gethostname()}: {error}"
    said = (one.rstrip().decode("utf-8", "replace") for one in ranks.exchange(why.encode()[:500].ljust(500)))
    return next((one for one in said if one), "")


class MpiRanks:
    """A communicator of MPI. See `ranks.Ranks`."""

    backend = "mpi"

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi, self._comm = mpi, comm
        self.loop, self.loop_why = "python", "as asked for"
        self.native: Any = None  # the compiled loop
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.library = _short(mpi.Get_library_version())
        self.barrier = comm.Barrier
        self.before_exit: Callable[[], object] | None = None
        self.clock_ns = time.perf_counter_ns

    def tell(self, words: Ints) -> None:
        """Overwrite `words` with those of rank 0."""
        self._comm.Bcast(words, 0)

    def greatest(self, values: Ints) -> Ints:
        """Element by element the greatest, on rank 0."""
        found = np.empty_like(values)
        self._comm.Reduce(values, found, self._mpi.MAX, 0)
        return found

    def total(self, values: Ints) -> Ints:
        """Element by element the sum, on rank 0."""
        found = np.empty_like(values)
        self._comm.Reduce(values, found, self._mpi.SUM, 0)
        return found

    def exchange(self, record: bytes) -> list[bytes]:
        """Every rank's record."""
        found = np.empty((self.size, len(record)), dtype=np.uint8)
        self._comm.Allgather(np.frombuffer(record, dtype=np.uint8), found)
        return [one.tobytes() for one in found]

    def alone(self) -> MpiRanks:
        """This rank by itself."""
        lone = MpiRanks(self._mpi, self._mpi.COMM_SELF)
        lone.native, lone.loop, lone.loop_why = self.native, self.loop, self.loop_why
        return lone

    def split(self, group: int) -> MpiRanks:
        """The ranks that name the same group, in their order; `free` it afterwards. Called by all."""
        part = MpiRanks(self._mpi, self._comm.Split(group, self.rank))
        part.native, part.loop, part.loop_why = self.native, self.loop, self.loop_why
        return part

    def free(self) -> None:
        """Let go of what `split` made: an MPI has some thousand communicators at most."""
        self._comm.Free()

    def swap(self, other: int, word: int) -> int:
        """Give a rank a number and get its own."""
        mine, found = np.array([word], dtype=np.int64), np.zeros(1, dtype=np.int64)
        self._comm.Sendrecv(mine, other, _TAG, found, other, _TAG)
        return int(found[0])

    def form(self, kind: Collective) -> Form:
        """MPI's function for it."""
        return Form(kind.mpi, kind.places)

    def abort(self, code: int) -> None:
        """End all ranks."""
        endings.last_chance(self.before_exit)
        endings.leave_later(code)  # MPI may not like to be called while another thread waits in it
        try:
            self._mpi.COMM_WORLD.Abort(code)
        finally:
            os._exit(code)  # an MPI that gave no thread may refuse: this rank ends, and the launcher the others

    def bind(self, case: Case, send: Any, receive: Any) -> Callable[[], object]:
        """One run of the case. In place: all data are in `receive`."""
        bound = _Bound(self._mpi, self._comm, case, send, receive)
        if self.native is None:
            return bound.call()
        return native_loop.Spans(self.native, self._mpi, (self._comm, bound.kind, bound.op), case, send, receive)


class _Bound:
    """The arguments of one call, made once: what mpi4py would find out again in every call is not timed.

    mpi4py's counts are those of one rank's block, as MPI's are, also where the buffer holds the blocks of all.
    """

    def __init__(self, mpi: Any, comm: Any, case: Case, send: Any, receive: Any) -> None:
        self.comm, self.case, self.mpi = comm, case, mpi
        self.kind = getattr(mpi, {"float32": "FLOAT", "float64": "DOUBLE"}.get(case.dtype, f"{case.dtype.upper()}_T"))
        self.op = getattr(mpi, case.op.upper())
        self.size, self.rank = comm.Get_size(), comm.Get_rank()
        self.at_root = self.rank == case.root
        self.send, self.receive = send, receive

    def call(self) -> Callable[[], object]:
        """The call without arguments."""
        made: Callable[[], object] = getattr(self, f"_{self.case.kind.name}")()
        return made

    def _sent(self, count: int) -> Any:
        """The data to be sent: in place they lie in the buffer of the result."""
        return [self.receive if self.case.in_place else self.send, count, self.kind]

    def _got(self, count: int) -> Any:
        return [self.receive, count, self.kind]

    def _given(self, count: int) -> Any:
        return self.mpi.IN_PLACE if self.case.in_place else self._sent(count)

    def _all_reduce(self) -> Callable[[], object]:
        share, call, op = self.case.counts.share, self.comm.Allreduce, self.op
        given, got = self._given(share), self._got(share)
        return lambda: call(given, got, op)

    def _all_gather(self) -> Callable[[], object]:
        share, call = self.case.counts.share, self.comm.Allgather
        given, got = self._given(share), self._got(share)
        return lambda: call(given, got)

    def _reduce_scatter(self) -> Callable[[], object]:
        share, call, op = self.case.counts.share, self.comm.Reduce_scatter_block, self.op
        given, got = self._given(share), self._got(share)
        return lambda: call(given, got, op)

    def _broadcast(self) -> Callable[[], object]:
        call, got, root = self.comm.Bcast, self._got(self.case.counts.share), self.case.root
        return lambda: call(got, root)

    def _reduce(self) -> Callable[[], object]:
        share, call, op, root = self.case.counts.share, self.comm.Reduce, self.op, self.case.root
        given = self._given(share) if self.at_root else self._sent(share)
        got = self._got(share) if self.at_root else None
        return lambda: call(given, got, op, root)

    def _alltoall(self) -> Callable[[], object]:
        share, call = self.case.counts.share, self.comm.Alltoall
        given, got = self._given(share), self._got(share)
        return lambda: call(given, got)

    def _sendrecv(self) -> Callable[[], object]:
        share = self.case.counts.share
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        if self.case.in_place:
            replace, both = self.comm.Sendrecv_replace, self._got(share)
            return lambda: replace(both, after, _TAG, before, _TAG)
        call, given, got = self.comm.Sendrecv, self._sent(share), self._got(share)
        return lambda: call(given, after, _TAG, got, before, _TAG)

    def _scatter(self) -> Callable[[], object]:
        share, call, root = self.case.counts.share, self.comm.Scatter, self.case.root
        given = self._sent(share) if self.at_root else None
        got = self.mpi.IN_PLACE if self.at_root and self.case.in_place else self._got(share)
        return lambda: call(given, got, root)

    def _gather(self) -> Callable[[], object]:
        share, call, root = self.case.counts.share, self.comm.Gather, self.case.root
        given = self._given(share) if self.at_root else self._sent(share)
        got = self._got(share) if self.at_root else None
        return lambda: call(given, got, root)

    def _barrier(self) -> Callable[[], object]:
        call: Callable[[], object] = self.comm.Barrier
        return call


def _short(version: str) -> str:
    """ "Open MPI v5.0.11" or "MPICH Version: 5.0.2" of what the library says at length."""
    first = (
        version.replace("Version: ", "").replace("\0", "").strip().splitlines()[0] if version.strip() else "unknown MPI"
    )
    return " ".join(first.split(",")[0].split())
