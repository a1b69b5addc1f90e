"""How ranks find each other, whoever started them; and what carries NCCL's 128-byte id to all of them.

Nothing here launches anything. MPI's launchers are served by MPI; torchrun, srun without MPI and variables set by hand
by a line to MASTER_ADDR (`meeting`), where torchrun's own store listens there already, found through that store.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..errors import BackendUnavailable, MeetingError, UsageError
from . import meeting, mpi
from .alone import Alone
from .greeting import Peer
from .placement import Place as Place
from .placement import place as place
from .ranks import Control, Ints, Ranks
from .socket_ranks import SocketRanks
from .started import Started, started

_CARRIED_BYTES = 4096
_RECORD_BYTES = 512
_STORE_KEY = "gpumicro/meeting"


def connect(timeout_s: float, environment: Mapping[str, str] = os.environ, loop: str = "auto") -> Ranks:
    """The ranks on CPUs: MPI's, torch's gloo where torchrun or srun started them, one where nobody did.

    `loop`: see `mpi.connect`. MeetingError where some do not come within `timeout_s`, UsageError for variables that
    make no sense, BackendUnavailable for what is not installed.
    """
    where = started(environment)
    if where.kind in ("mpi", "alone"):
        return mpi.connect(timeout_s, loop)
    if where.kind == "srun" and (ranks := _mpi_under_srun(timeout_s, loop)):
        return ranks
    if find_spec("torch") is None:
        raise BackendUnavailable(
            f"this was started {where.words}; between CPUs such ranks go through torch's gloo, and torch is not here",
            f"Install torch, or start them by MPI: mpirun -n {where.size} python -m gpumicro collectives --device cpu",
        )
    from .gloo import GlooRanks

    return GlooRanks(_by_socket(where, timeout_s), timeout_s)


def control(timeout_s: float, environment: Mapping[str, str] = os.environ) -> Control:
    """What ranks with GPUs need beside NCCL: MPI where its launcher started them and mpi4py is here, else a line to
    MASTER_ADDR; without a launcher this rank alone. Errors as in `connect`."""
    where = started(environment)
    if where.kind == "alone":
        return Alone()
    if where.kind != "mpi":
        return _by_socket(where, timeout_s)
    try:
        return mpi.connect(timeout_s, "python")
    except BackendUnavailable as missing:
        if where.size and where.address and where.port:
            return _by_socket(where, timeout_s)
        if where.size == 1:
            return Alone()
        raise BackendUnavailable(
            f"a launcher of MPI started this, but {missing.reason}",
            f"{mpi.CURE}, or set MASTER_ADDR and MASTER_PORT (a host name and a free port of rank 0) for all ranks",
        ) from None


def _mpi_under_srun(timeout_s: float, loop: str) -> Ranks | None:
    """MPI's ranks where srun speaks with it by means that show in no variable."""
    try:
        ranks = mpi.connect(timeout_s, loop)
    except BackendUnavailable:
        return None
    return ranks if ranks.size > 1 else None


def _by_socket(where: Started, timeout_s: float) -> SocketRanks:
    peers = _through_store(where, timeout_s) if where.agent_store else meeting.meet(where, timeout_s)
    return SocketRanks(where.rank, where.size, peers, timeout_s, where.address)


def _through_store(where: Started, timeout_s: float) -> dict[int, Peer]:
    """torchrun listens at MASTER_PORT itself: rank 0 takes a free port there, and torchrun's store says which.

    The token is then a secret of this job.
    """
    until = time.monotonic() + timeout_s
    store = _agent_store(where, timeout_s)
    if where.rank == 0:
        listener = meeting.listen(replace(where, port=0))
        with listener:
            here = {"port": listener.getsockname()[1], "token": secrets.token_hex(32)}
            store.set(_STORE_KEY, json.dumps(here))
            return meeting.welcome(replace(where, token=bytes.fromhex(here["token"])), listener, until)
    try:
        said = json.loads(store.get(_STORE_KEY))
        where = replace(where, port=int(said["port"]), token=bytes.fromhex(said["token"]))
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise MeetingError(
            f"rank {where.rank} of {where.size} on {socket.gethostname()}: rank 0 did not say in torchrun's store at "
            f"{where.address}:{where.port} where it listens ({str(error).splitlines()[0]})"
        ) from None
    return meeting.meet(where, max(0.0, until - time.monotonic()))


def _agent_store(where: Started, timeout_s: float) -> Any:
    me = f"rank {where.rank} of {where.size} on {socket.gethostname()}"
    try:
        torch: Any = import_module("torch.distributed")
    except ImportError as error:
        raise BackendUnavailable(
            f"{me}: torchrun listens at {where.address}:{where.port} itself, and this Python has no torch to ask it "
            f"({error})",
            "Install torch, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT without torchrun",
        ) from None
    try:
        store = torch.TCPStore(where.address, where.port, is_master=False, timeout=timedelta(seconds=timeout_s))
    except RuntimeError as error:
        raise MeetingError(
            f"{me}: torchrun's store at {where.address}:{where.port} was not to be reached "
            f"({str(error).splitlines()[0]})"
        ) from None
    return torch.PrefixStore(f"gpumicro/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def carry(ranks: Control, make: Callable[[], bytes]) -> bytes:
    """What `make` gives on rank 0, on every rank: NCCL's unique id. Up to 4096 bytes.

    An error in it is raised on rank 0, and is a MeetingError with its words on the others.
    """
    failed: Exception | None = None
    data = b""
    if ranks.rank == 0:
        try:
            data = make()
            if len(data) > _CARRIED_BYTES:
                raise UsageError(f"{len(data)} bytes are more than the {_CARRIED_BYTES} that are carried")
        except Exception as error:
            failed, data = error, str(error).encode()[:_CARRIED_BYTES]
    head = np.array([len(data), failed is not None], dtype=np.int64)
    ranks.tell(head)
    words: Ints = np.zeros(-(-int(head[0]) // 8), dtype=np.int64)
    if ranks.rank == 0:
        words.view(np.uint8)[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    if len(words):
        ranks.tell(words)
    got = words.tobytes()[: int(head[0])]
    if failed is not None:
        raise failed
    if head[1]:
        raise MeetingError(f"rank 0 failed: {got.decode('utf-8', 'replace')}")
    return got
