"""Frames of the control channel: a header of fixed size, a length that is checked, bytes. Nothing in them is code."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

from ..errors import MeetingError

MOST_BYTES = 64 << 20  # of one frame: the records of 16,000 ranks
_MAGIC = b"gmc1"
_HEADER = struct.Struct("!4sBIQ")  # magic, kind, number of the step, bytes that follow


class Kind(IntEnum):
    """What a frame is for."""

    BARRIER, TELL, GREATEST, TOTAL, EXCHANGE, PING, GO, FAIL, ABORT, BYE = range(10)


@dataclass(frozen=True, slots=True)
class Frame:
    """One message; `number` is the sender's step, so that ranks that run apart are found out."""

    kind: Kind
    number: int
    data: bytes


class Gone(ConnectionError):
    """The other end has closed, or was closed by its system."""


def send(line: socket.socket, kind: Kind, number: int = 0, data: bytes = b"") -> None:
    """Write one frame. Gone, or TimeoutError by the socket's own limit."""
    if len(data) > MOST_BYTES:
        raise MeetingError(f"a message of {len(data)} bytes is above the {MOST_BYTES} that a frame may have")
    try:
        line.sendall(_HEADER.pack(_MAGIC, kind, number & 0xFFFFFFFF, len(data)) + data)
    except TimeoutError:
        raise
    except OSError as error:
        raise Gone(error.strerror or str(error)) from None


def receive(line: socket.socket, most: int = MOST_BYTES) -> Frame:
    """Read one frame. Gone; TimeoutError by the socket's own limit; MeetingError where it is no frame of ours."""
    magic, kind, number, length = _HEADER.unpack(exactly(line, _HEADER.size))
    if magic != _MAGIC or kind >= len(Kind):
        raise MeetingError("what came over the control channel is no message of gpumicro")
    if length > most:
        raise MeetingError(f"a message over the control channel claims {length} bytes; {most} are allowed")
    return Frame(Kind(kind), number, exactly(line, length))


def exactly(line: socket.socket, count: int) -> bytes:
    """So many bytes, however they are cut. Gone where the line ends before."""
    parts = bytearray()
    while len(parts) < count:
        try:
            part = line.recv(min(count - len(parts), 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise Gone(error.strerror or str(error)) from None
        if not part:
            raise Gone("the connection was closed")
        parts += part
    return bytes(parts)
