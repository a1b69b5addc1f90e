"""Which rank of its host one is, and how many hosts there are."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from ..limits import read_text
from .ranks import Control

_RECORD_BYTES = 512


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is: the how-manieth of its host's ranks, and the how-manieth host (by their first rank)."""

    local_rank: int
    local_size: int
    host: int
    hosts: tuple[str, ...]


def place(ranks: Control) -> Place:
    """Found out by an exchange, not from variables: those may be a surrounding job's. Called by all ranks.

    Two processes are on one host where the host's name and the kernel's boot id agree.
    """
    return place_of(ranks, f"{socket.gethostname()[:255]}\n{boot_id()}")


def place_of(ranks: Control, host: str) -> Place:
    """As `place`, for a host called so."""
    record = host.encode()[:_RECORD_BYTES].ljust(_RECORD_BYTES)
    found = [one.rstrip().decode("utf-8", "replace") for one in ranks.exchange(record)]
    hosts = list(dict.fromkeys(found))
    mine = [rank for rank, name in enumerate(found) if name == found[ranks.rank]]
    names = tuple(name.split("\n")[0] for name in hosts)
    return Place(mine.index(ranks.rank), len(mine), hosts.index(found[ranks.rank]), names)


def boot_id(root: Path = Path("/")) -> str:
    """Names this start of this kernel, hence its monotonic clock; "" where the system does not say."""
    return read_text(root / "proc/sys/kernel/random/boot_id") or ""
