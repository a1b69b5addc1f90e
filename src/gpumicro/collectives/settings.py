"""What is to be run, the same on every rank; and the rows that follow from it."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from .. import __version__
from ..errors import BackendUnavailable, GpumicroError, UsageError
from ..kernels import formats
from ..limits import memory_available
from ..measurement import Policy
from ..units import format_size
from .operations import BARRIER, Collective, Counts, collective
from .ranks import Case, Control, Form
from .sizes import Sweep

_RECORD_BYTES = 8192
_SHARE_OF_MEMORY = 0.8
_BUFFERS = 4  # sent, received, and what MPI and the check may take beside them
_DEVICE_BUFFERS = 2  # on a GPU: the check is the host's
MOST_SAMPLES = 2000  # of a row: the file is rewritten with all of them after each
ITERATIONS = 20  # of the row of runs that nccl-tests times


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's wishes. `iters`: so many samples, None to stop by the interval.

    library: what moves the data. On GPUs a run is `aggregate` operations in one group, and `graph` such groups in one
    graph (0: no graph); transport is what NCCL is told to take.
    """

    collectives: tuple[str, ...]
    sweep: Sweep
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0
    places: tuple[bool, ...] = (False, True)
    iters: int | None = None
    max_time_s: float = 1.0
    target: float = 0.02
    library: str = "mpi"
    aggregate: int = 1
    graph: int = 0
    transport: str = "auto"
    tuning: bool = False  # let NCCL's log say what it picks for each run

    @property
    def unit(self) -> int:
        """Operations in a run."""
        return self.aggregate * max(1, self.graph)

    def policy(self) -> Policy:
        """How carefully each row is measured: a span is one run, and its first seconds are not believed."""
        return Policy(
            target=self.target, max_time_s=self.max_time_s, max_warmup_s=self.max_time_s / 2, batch=1,
            min_samples=self.iters, max_samples=self.iters or MOST_SAMPLES,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Peer:
    """What a process said of itself at the start. `devices`: its GPUs, a rank each; none: one rank on a CPU.

    memory_bytes: of its host, or free on the GPU that has least. error, code: why it cannot take part, "" where it can.
    """

    host: str
    version: str
    numpy: str
    settings: str
    memory_bytes: int | None
    nccl: str = ""
    devices: Sequence[dict[str, Any]] = ()
    gates: bool = True
    error: str = ""
    code: int = 0

    @property
    def ranks(self) -> int:
        """How many."""
        return max(1, len(self.devices))


def describe(settings: Settings) -> Peer:
    """This process, on a CPU."""
    wishes = json.dumps(asdict(settings), sort_keys=True)
    return Peer(socket.gethostname()[:255], __version__, np.__version__, wishes, memory_available())


def failed(peer: Peer, error: GpumicroError) -> Peer:
    """A process that cannot take part, and why."""
    return replace(peer, error=str(error)[:2000], code=error.exit_code)


def meet(ranks: Control, settings: Settings, expect: int | None, mine: Peer | None = None) -> list[Peer]:
    """All processes by their numbers. UsageError or BackendUnavailable, on every rank, where one cannot take part, they
    are not of one mind or not as many as said."""
    record = json.dumps(asdict(mine or describe(settings))).encode()
    if len(record) > _RECORD_BYTES:
        raise UsageError("the settings are too long to be compared between the ranks")
    peers = [Peer(**json.loads(one.rstrip())) for one in ranks.exchange(record.ljust(_RECORD_BYTES))]
    check_able(peers)
    size = sum(peer.ranks for peer in peers)
    if expect is not None and expect != size:
        alone = size == 1 and not peers[0].devices
        cure = ": each process is alone, so this launcher is of another MPI than mpi4py's" if alone else ""
        raise UsageError(f"{expect} ranks were expected and {size} came{cure}")
    check_alike(peers)
    if not 0 <= settings.root < size:
        raise UsageError(f"--root is {settings.root}, and the ranks are 0 to {size - 1}")
    return peers


def check_able(peers: Sequence[Peer]) -> None:
    """Raise what the first process said that cannot take part, with its rank and host where it is not alone."""
    for rank, peer in enumerate(peers):
        if peer.error:
            where = f"rank {rank} on {peer.host}: " if len(peers) > 1 else ""
            kind = BackendUnavailable if peer.code == BackendUnavailable.exit_code else UsageError
            raise kind(where + peer.error)


def check_alike(peers: Sequence[Peer]) -> None:
    """UsageError naming the first rank that differs from rank 0, its host, and in what."""
    for rank, peer in enumerate(peers):
        for what in ("version", "numpy", "nccl", "settings"):
            ours, theirs = getattr(peers[0], what), getattr(peer, what)
            if ours != theirs:
                raise UsageError(
                    f"rank {rank} on {peer.host} differs from rank 0 on {peers[0].host} in "
                    f"{_difference(what, ours, theirs)}; start all ranks with one command in one environment"
                )


def _difference(what: str, ours: str, theirs: str) -> str:
    if what != "settings":
        name = {"version": "gpumicro", "nccl": "NCCL"}.get(what, what)
        return f"the version of {name}: {theirs}, not {ours}"
    first, other = json.loads(ours), json.loads(theirs)
    differing = [f"{key}: {other[key]}, not {first[key]}" for key in first if first[key] != other.get(key)]
    return "; ".join(differing)


def most_bytes(peers: Sequence[Peer]) -> int | None:
    """The largest buffer that every rank can have; None where no host tells what memory it has."""
    if any(peer.devices for peer in peers):  # each has a memory of its own
        free = [peer.memory_bytes for peer in peers if peer.memory_bytes is not None]
        return int(min(free) * _SHARE_OF_MEMORY / _DEVICE_BUFFERS) if free else None
    on_host = Counter(peer.host for peer in peers)
    rooms = [p.memory_bytes / on_host[p.host] for p in peers if p.memory_bytes is not None]
    return int(min(rooms) * _SHARE_OF_MEMORY / _BUFFERS) if rooms else None


def _left_out(name: str, form: Form, wished: Sequence[bool]) -> list[str]:
    """What the library cannot do of what was asked for."""
    words = {False: "out of place", True: "in place"}
    left = [words[place] for place in wished if place not in form.places]
    return [f"{name} {place} is left out: {form.call} has no such form" for place in left]


class Group(Protocol):
    """Ranks, as far as the rows depend on them."""

    size: int

    def form(self, kind: Collective) -> Form: ...


def cases(settings: Settings, ranks: Group, most: int | None) -> tuple[list[Case], list[str]]:
    """(rows, remarks): sizes rounded, those that round to nothing or to one before left out, and those above `most`."""
    found: list[Case] = []
    remarks: list[str] = []
    itemsize = formats.stored(settings.dtype).itemsize
    for name in settings.collectives:
        kind = collective(name)
        form = ranks.form(kind)
        places = [place for place in form.places if place in settings.places]
        if name != BARRIER:
            remarks += _left_out(name, form, settings.places)
        if name == BARRIER:
            found.append(Case(kind, Counts(0, 0, 0), settings.dtype, settings.op, settings.root, False))
            continue
        counts = {size: kind.counts(size, itemsize, ranks.size) for size in settings.sweep.sizes()}
        empty = [size for size, one in counts.items() if not one.shown]
        large = [size for size, one in counts.items() if most is not None and one.shown * itemsize > most]
        if empty:
            remarks.append(f"{name}: sizes up to {format_size(max(empty))} round to nothing and are left out")
        if large:
            remarks.append(
                f"{name}: sizes from {format_size(min(large))} are left out: {format_size(most or 0)} is the most that "
                "the memory of every rank allows"
            )
        kept = dict.fromkeys(one for size, one in counts.items() if size not in {*empty, *large})
        found += [
            Case(kind, one, settings.dtype, settings.op, settings.root, place) for one in kept for place in places
        ]
    if not found:
        raise UsageError("nothing is left to run: " + "; ".join(remarks))
    return found, remarks
