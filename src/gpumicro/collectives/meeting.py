"""The meeting of ranks without MPI: rank 0 listens at MASTER_ADDR alone, the others come and prove the shared token."""

from __future__ import annotations

import errno
import hmac
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ..errors import MeetingError, UsageError
from . import greeting, wire
from .greeting import Peer, at, proof
from .joining import join
from .started import Started


def meet(where: Started, timeout_s: float) -> dict[int, Peer]:
    """Rank 0: a line to each other rank. The others: one, to rank 0. MeetingError on every rank where some do not come.

    UsageError where MASTER_ADDR or MASTER_PORT cannot be what they are.
    """
    until = time.monotonic() + timeout_s
    return _gather(where, until) if where.rank == 0 else {0: join(where, until)}


def listen(where: Started) -> socket.socket:
    """A socket bound to the address and nothing else; port 0 takes a free one. UsageError."""
    who = greeting.me(where)
    for family, address in greeting.addresses(where):
        if address[0] in ("0.0.0.0", "::"):
            raise UsageError(f"{who}: MASTER_ADDR must be one address of rank 0's host, not {address[0]}")
        line = socket.socket(family, socket.SOCK_STREAM)
        try:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            line.bind(address)
            line.listen(where.size)
            return line
        except OSError as error:
            line.close()
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"{who}: port {where.port} of {where.address} is in use: another job, or another program; set "
                    "MASTER_PORT to a free one on all ranks"
                ) from None
            if error.errno == errno.EACCES:
                raise UsageError(f"{who}: port {where.port} may not be used; set MASTER_PORT above 1023") from None
            if error.errno != errno.EADDRNOTAVAIL:
                raise UsageError(f"{who}: cannot listen at {at(where)}: {error.strerror or error}") from None
    raise UsageError(
        f"{who}: MASTER_ADDR is {where.address}, which is no address of this host; it must be that of rank 0's host"
    )


# -- rank 0 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Claim:
    peer: Peer
    size: int
    nonces: tuple[bytes, bytes]  # ours, theirs
    known: bool  # has the token


def _gather(where: Started, until: float) -> dict[int, Peer]:
    with listen(where) as listener:
        return welcome(where, listener, until)


def welcome(where: Started, listener: socket.socket, until: float) -> dict[int, Peer]:
    """All other ranks, by their numbers; `listener` is bound already."""
    where = replace(where, port=listener.getsockname()[1])
    claims: queue.Queue[_Claim | str] = queue.Queue()
    over = threading.Event()
    threading.Thread(target=_accept, args=(where, listener, claims, over), daemon=True).start()
    here: dict[int, Peer] = {}
    strangers: list[str] = []
    why = f"{greeting.me(where)} has all its ranks already"
    try:
        while len(here) < where.size - 1:
            try:
                claim = claims.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise MeetingError(_missing(where, here, strangers, listener)) from None
            if isinstance(claim, str):
                strangers.append(claim)
            else:
                _admit(where, claim, here, strangers)
        for peer in here.values():
            wire.send(peer.line, wire.Kind.GO)
    except (MeetingError, OSError) as error:
        why = str(error)
        _dismiss(here, why)
        raise error if isinstance(error, MeetingError) else MeetingError(f"a rank left at the start: {error}") from None
    finally:
        over.set()
        _turn_away(where, claims, why)
    return here


def _turn_away(where: Started, claims: queue.Queue[_Claim | str], why: str) -> None:
    """Whoever still waits to be let in, or came too late."""
    with suppress(queue.Empty):
        while True:
            claim = claims.get_nowait()
            if isinstance(claim, _Claim):
                _answer(where, claim, why)


def _accept(where: Started, listener: socket.socket, claims: queue.Queue[_Claim | str], over: threading.Event) -> None:
    """Greet whoever comes, each in a thread of its own: one who says nothing keeps nobody waiting."""
    listener.settimeout(0.1)
    while not over.is_set():
        try:
            line, address = listener.accept()
        except TimeoutError:
            continue
        except OSError:
            return
        threading.Thread(target=_greet, args=(where, line, str(address[0]), claims, over), daemon=True).start()


def _greet(
    where: Started, line: socket.socket, address: str, claims: queue.Queue[_Claim | str], over: threading.Event
) -> None:
    nonce = os.urandom(16)
    try:
        line.settimeout(greeting.GREETING_S)
        line.sendall(greeting.CHALLENGE.pack(greeting.MAGIC, greeting.VERSION, nonce))
        head = wire.exactly(line, greeting.CLAIM.size)
        magic, version, rank, size, theirs, length = greeting.CLAIM.unpack(head)
        if magic != greeting.MAGIC or version != greeting.VERSION or length > 255:
            raise MeetingError("no rank of this version of gpumicro")
        host = wire.exactly(line, length)
        proven = wire.exactly(line, 32)
    except (OSError, MeetingError) as error:
        line.close()
        claims.put(f"somebody from {address} who is no rank of this version ({error})")
        return
    known = hmac.compare_digest(proven, proof(where.token, b"rank", nonce, head, host))
    name = host.decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "?" for c in name) or address
    claims.put(_Claim(Peer(line, rank, shown), size, (nonce, theirs), known))
    if over.is_set():  # too late: nobody will look
        _turn_away(where, claims, "the ranks have met already, or in vain")


def _admit(where: Started, claim: _Claim, here: dict[int, Peer], strangers: list[str]) -> None:
    """Into `here`, or away with a reason. MeetingError where one of our own job cannot be right."""
    peer, who = claim.peer, greeting.me(where)
    if not claim.known:  # not of this job, so it does not end it
        why = f"{who} at {at(where)} has another token: another job on this port, or {greeting.TOKEN_DIFFERS}"
        _answer(where, claim, why)
        strangers.append(f"rank {peer.rank} of {claim.size} on {peer.host} with another token")
        return
    if claim.size != where.size or not 0 < peer.rank < where.size:
        why = (
            f"rank {peer.rank} of {claim.size} on {peer.host} came to {who} at {at(where)}: two jobs on one port, or "
            "WORLD_SIZE and RANK are not the same job's on every host"
        )
    elif peer.rank in here:
        why = f"two processes say that they are rank {peer.rank}: on {here[peer.rank].host} and on {peer.host}"
    else:
        _answer(where, claim, "")
        here[peer.rank] = peer
        return
    _answer(where, claim, why)
    raise MeetingError(why)


def _answer(where: Started, claim: _Claim, why: str) -> None:
    words = why.encode()[: greeting.WORDS_BYTES]
    proven = proof(where.token, b"rank 0", *claim.nonces, words) if claim.known else bytes(32)
    with suppress(OSError):
        claim.peer.line.sendall(greeting.ANSWER.pack(1 if why else 0, len(words), proven) + words)
    if why:
        claim.peer.line.close()


def _dismiss(here: Mapping[int, Peer], why: str) -> None:
    for peer in here.values():
        with suppress(OSError):
            wire.send(peer.line, wire.Kind.FAIL, 0, why.encode()[: greeting.WORDS_BYTES])
        peer.line.close()


def _missing(where: Started, here: Mapping[int, Peer], strangers: list[str], listener: socket.socket) -> str:
    absent = [rank for rank in range(1, where.size) if rank not in here]
    came = ", ".join(f"{rank} on {peer.host}" for rank, peer in sorted(here.items())) or "none"
    text = (
        f"{greeting.me(where)} waited in vain at {at(where)} for "
        f"{'rank' if len(absent) == 1 else 'ranks'} {_some(absent)}; of the others there came: {came}"
    )
    bound = listener.getsockname()[0]
    if bound.startswith("127.") or bound == "::1":
        text += f". {bound} is this host's own loopback: ranks of other hosts cannot reach it"
    return text + (f". There also came {'; '.join(strangers[:3])}" if strangers else "")


def _some(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
