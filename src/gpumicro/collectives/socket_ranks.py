"""The control channel without MPI: a line from rank 0 to every other rank, and a thread that listens to each.

A rank that dies closes its line: the thread sees that at once, also while the process waits elsewhere, and ends it.
"""

from __future__ import annotations

import atexit
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np

from ..errors import MeetingError
from . import endings, wire
from .greeting import Peer
from .ranks import Ints
from .watchdog import say
from .wire import Kind

_BYTES = np.dtype("<i8")
_LOCK_S = 1.0  # for the last words to get onto a line that another thread writes to
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))  # a host without power: after 35 s


class Link:
    """One line and what has come over it."""

    def __init__(self, peer: Peer, timeout_s: float) -> None:
        self.line, self.rank, self.host = peer.line, peer.rank, peer.host
        self.inbox: queue.Queue[wire.Frame | None] = queue.Queue()  # None: nothing will come any more
        self._lock = threading.Lock()
        self.line.settimeout(None)
        with suppress(OSError):
            self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            self.line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    self.line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._timeout_s = timeout_s

    def send(self, kind: Kind, number: int = 0, data: bytes = b"", *, limit_s: float | None = None) -> None:
        """One whole frame. Gone; MeetingError where another thread never lets go of the line."""
        if not self._lock.acquire(timeout=self._timeout_s if limit_s is None else limit_s):
            raise MeetingError(f"rank {self.rank} on {self.host} takes nothing any more")
        try:
            wire.send(self.line, kind, number, data)
        finally:
            self._lock.release()


class SocketRanks:
    """See `ranks.Control`. A step that takes over `timeout_s` is a MeetingError naming who did not come."""

    def __init__(
        self, rank: int, size: int, peers: Mapping[int, Peer], timeout_s: float, address: str = "localhost",
        leave: Callable[[int], None] = endings.leave,
    ) -> None:  # fmt: skip
        self.rank, self.size, self._timeout_s, self._leave = rank, size, timeout_s, leave
        self.address = address  # of rank 0
        self.before_exit: Callable[[], object] | None = None
        self.clock_ns = time.perf_counter_ns
        self._who = f"rank {rank} of {size} on {socket.gethostname()}"
        self._links = {number: Link(peer, timeout_s) for number, peer in sorted(peers.items())}
        self._step = 0
        self._over = threading.Event()  # closing, or being ended
        self._ending = threading.Lock()
        for link in self._links.values():
            threading.Thread(target=self._listen, args=(link,), name="gpumicro-control", daemon=True).start()
        atexit.register(self.close)

    # --- what all ranks call in the same order ---

    def barrier(self) -> None:
        """Wait until all are here."""
        self._exchange(Kind.BARRIER, b"")

    def tell(self, words: Ints) -> None:
        """Overwrite `words` with those of rank 0."""
        if self.rank == 0:
            self._step += 1
            self._to_all(Kind.TELL, words.astype(_BYTES).tobytes())
        else:
            words[:] = self._numbers(self._from_root(Kind.TELL), words.shape[0])

    def greatest(self, values: Ints) -> Ints:
        """Element by element the greatest, on rank 0."""
        return self._reduce(Kind.GREATEST, values, np.maximum)

    def total(self, values: Ints) -> Ints:
        """Element by element the sum, on rank 0."""
        return self._reduce(Kind.TOTAL, values, np.add)

    def exchange(self, record: bytes) -> list[bytes]:
        """Every rank's record."""
        whole, length = self._exchange(Kind.EXCHANGE, record), len(record)
        if len(whole) != length * self.size:
            raise MeetingError(f"{self._who}: the ranks' records differ in length")
        return [whole[i * length : (i + 1) * length] for i in range(self.size)]

    def swap(self, other: int, word: int) -> int:
        """Give a rank a number and get its own; one of the two is rank 0."""
        self._links[other].send(Kind.PING, 0, word.to_bytes(8, "little", signed=True))
        return int.from_bytes(self._next(self._links[other], Kind.PING, 0), "little", signed=True)

    # --- how ---

    def _exchange(self, kind: Kind, mine: bytes) -> bytes:
        if self.rank != 0:
            self._to_root(kind, mine)
            return self._answer(kind)
        whole = mine + b"".join(self._from_all(kind))
        self._to_all(kind, whole)
        return whole

    def _reduce(self, kind: Kind, values: Ints, combine: Callable[[Ints, Ints], Ints]) -> Ints:
        if self.rank != 0:
            self._to_root(kind, values.astype(_BYTES).tobytes())
            return values
        found: Ints = values.copy()
        for data in self._from_all(kind):
            found = combine(found, self._numbers(data, len(values)))
        return found

    def _numbers(self, data: bytes, count: int) -> Ints:
        if len(data) != count * _BYTES.itemsize:
            raise MeetingError(f"{self._who}: {len(data)} bytes came where {count} numbers belong")
        found: Ints = np.frombuffer(data, dtype=_BYTES).astype(np.int64)
        return found

    def _to_root(self, kind: Kind, data: bytes) -> None:
        self._step += 1
        self._put(self._links[0], kind, data)

    def _from_root(self, kind: Kind) -> bytes:
        self._step += 1
        return self._answer(kind)

    def _answer(self, kind: Kind) -> bytes:
        return self._next(self._links[0], kind, self._step)

    def _from_all(self, kind: Kind) -> list[bytes]:
        self._step += 1
        until = time.monotonic() + self._timeout_s
        return [self._next(link, kind, self._step, until) for link in self._links.values()]

    def _to_all(self, kind: Kind, data: bytes) -> None:
        for link in self._links.values():
            self._put(link, kind, data)

    def _put(self, link: Link, kind: Kind, data: bytes) -> None:
        try:
            link.send(kind, self._step, data)
        except wire.Gone as error:
            raise MeetingError(f"{self._who}: rank {link.rank} on {link.host} is gone ({error})") from None

    def _next(self, link: Link, kind: Kind, step: int, until: float | None = None) -> bytes:
        left = self._timeout_s if until is None else max(0.0, until - time.monotonic())
        try:
            frame = link.inbox.get(timeout=left)
        except queue.Empty:
            late = [one for one in self._links.values() if one.rank >= link.rank and one.inbox.empty()]
            names = ", ".join(f"rank {one.rank} on {one.host}" for one in late[:16])
            raise MeetingError(f"{self._who}: no word of {names} within {self._timeout_s:g} s") from None
        if frame is None:
            link.inbox.put(None)
            raise MeetingError(f"{self._who}: rank {link.rank} on {link.host} has ended")
        if (frame.kind, frame.number) != (kind, step & 0xFFFFFFFF):
            raise MeetingError(
                f"{self._who} is at step {step} ({kind.name}), rank {link.rank} on {link.host} at {frame.number} "
                f"({frame.kind.name}): the ranks do not run the same program"
            )
        return frame.data

    # --- the end ---

    def _listen(self, link: Link) -> None:
        try:
            while (frame := wire.receive(link.line)).kind not in (Kind.ABORT, Kind.BYE):
                link.inbox.put(frame)
            if frame.kind == Kind.ABORT:
                self._finish(frame.number, frame.data.decode("utf-8", "replace"), link)
        except (OSError, MeetingError) as error:
            why = "its process died, or the network to it" if isinstance(error, wire.Gone) else str(error)
            self._finish(1, f"rank {link.rank} of {self.size} on {link.host} is gone: {why}", link)
        finally:
            link.inbox.put(None)
            link.line.close()

    def abort(self, code: int) -> None:
        """End all ranks, and this process."""
        self._finish(code, f"{self._who} ended the job", None)

    def _finish(self, code: int, words: str, source: Link | None) -> None:
        """Say it, pass it on, and leave; once. Nothing where this rank is closing by itself."""
        with self._ending:
            if self._over.is_set():
                return
            self._over.set()
        if source is not None:
            say(f"{self._who}: {words}")
        for link in self._links.values():
            if link is not source:
                with suppress(OSError, MeetingError):
                    link.send(Kind.ABORT, code, words.encode()[:2000], limit_s=_LOCK_S)
        endings.last_chance(self.before_exit)
        self._leave(code)

    def close(self) -> None:
        """Say goodbye, so that nobody takes the end for a death."""
        with self._ending:
            if self._over.is_set():
                return
            self._over.set()
        for link in self._links.values():
            with suppress(OSError, MeetingError):
                link.send(Kind.BYE, limit_s=_LOCK_S)
            with suppress(OSError):
                link.line.shutdown(socket.SHUT_WR)
        atexit.unregister(self.close)
