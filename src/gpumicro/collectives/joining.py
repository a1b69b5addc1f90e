"""The other ranks' side of a meeting: reach rank 0, prove the token, wait until all are there."""

from __future__ import annotations

import hmac
import os
import socket
import time

from ..errors import MeetingError
from . import greeting, wire
from .greeting import Peer, at, proof
from .started import Started

_RETRY_S = 0.05


def join(where: Started, until: float) -> Peer:
    """A line to rank 0, once all ranks are there. MeetingError, UsageError."""
    who = greeting.me(where)
    line = _dial(where, until)
    try:
        _claim(where, line)
        line.settimeout(max(0.0, until - time.monotonic()) + greeting.GREETING_S)
        frame = wire.receive(line, 1 << 16)
    except TimeoutError:
        line.close()
        raise MeetingError(f"{who}: what listens at {at(where)} says nothing: it is no rank 0, or it hangs") from None
    except wire.Gone as error:
        line.close()
        raise MeetingError(f"{who}: rank 0 at {at(where)} went away at the start ({error})") from None
    except MeetingError as error:
        line.close()
        raise MeetingError(f"{who}: {error}") from None
    if frame.kind != wire.Kind.GO:
        line.close()
        raise MeetingError(f"{who}: {frame.data.decode('utf-8', 'replace')}")
    return Peer(line, 0, where.address)


def _dial(where: Started, until: float) -> socket.socket:
    """A line to rank 0, which may come later than we."""
    why = "it was too late to try"
    while time.monotonic() < until:
        for family, address in greeting.addresses(where):
            line = socket.socket(family, socket.SOCK_STREAM)
            line.settimeout(max(0.05, min(greeting.GREETING_S, until - time.monotonic())))
            try:
                line.connect(address)
                if line.getsockname() != line.getpeername():  # Linux lets a line meet itself where nobody listens
                    return line
                line.close()
            except OSError as error:
                why = error.strerror or str(error)
                line.close()
        time.sleep(min(_RETRY_S, max(0.0, until - time.monotonic())))
    raise MeetingError(
        f"{greeting.me(where)}: rank 0 was not to be reached at {at(where)} ({why}): it did not start, or MASTER_ADDR "
        "and MASTER_PORT are not those of its host"
    )


def _claim(where: Started, line: socket.socket) -> None:
    line.settimeout(greeting.GREETING_S)
    magic, version, theirs = greeting.CHALLENGE.unpack(wire.exactly(line, greeting.CHALLENGE.size))
    if magic != greeting.MAGIC:
        raise MeetingError(f"what listens at {at(where)} is another program; set MASTER_PORT to a free one")
    if version != greeting.VERSION:
        raise MeetingError(f"rank 0 at {at(where)} is of another version of gpumicro")
    nonce, host = os.urandom(16), socket.gethostname().encode()[:255]
    head = greeting.CLAIM.pack(greeting.MAGIC, greeting.VERSION, where.rank, where.size, nonce, len(host))
    line.sendall(head + host + proof(where.token, b"rank", theirs, head, host))
    refused, length, proven = greeting.ANSWER.unpack(wire.exactly(line, greeting.ANSWER.size))
    words = wire.exactly(line, min(length, greeting.WORDS_BYTES))
    if refused:
        raise MeetingError(words.decode("utf-8", "replace"))
    if not hmac.compare_digest(proven, proof(where.token, b"rank 0", theirs, nonce, words)):
        raise MeetingError(f"what listens at {at(where)} does not have our token: {greeting.TOKEN_DIFFERS}")
