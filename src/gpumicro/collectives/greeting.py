"""What ranks say to each other when they meet, and the proofs that both have the job's token.

A challenge, a claim (rank, size, host) with an HMAC-SHA256 of both sides' nonces under the token, and an answer with
rank 0's own. The token itself never goes over the wire. All lengths are checked.
"""

from __future__ import annotations

import hmac
import socket
import struct
from dataclasses import dataclass

from ..errors import UsageError
from .started import Started

MAGIC, VERSION = b"gpumicro", 1
CHALLENGE = struct.Struct("!8sB16s")
CLAIM = struct.Struct("!8sBII16sH")  # magic, version, rank, size, nonce, bytes of the host's name
ANSWER = struct.Struct("!BH32s")  # 0: welcome, bytes of words, rank 0's proof
GREETING_S = 5.0  # for one stranger or rank to say who it is
WORDS_BYTES = 2000
TOKEN_DIFFERS = "GPUMICRO_TOKEN differs between the hosts"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a line."""

    line: socket.socket
    rank: int
    host: str


def proof(token: bytes, side: bytes, *parts: bytes) -> bytes:
    """32 bytes that only one who has the token can make; `side` keeps one's proof from being the other's."""
    return hmac.digest(token, b"\n".join((side, *parts)), "sha256")


def me(where: Started) -> str:
    """ "rank 1 of 2 on node7"."""
    return f"rank {where.rank} of {where.size} on {socket.gethostname()}"


def at(where: Started) -> str:
    """ "10.0.0.1:29500"."""
    return f"{where.address}:{where.port}"


def addresses(where: Started) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """What MASTER_ADDR may mean. UsageError where nobody knows."""
    try:
        found = socket.getaddrinfo(where.address, where.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{me(where)}: MASTER_ADDR is {where.address!r}, which no address is known for ({why})"
        ) from None
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]
