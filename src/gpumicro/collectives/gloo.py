"""Ranks on CPUs by gloo, through torch.distributed, for those whom torchrun started. Imports torch when asked."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

from ..errors import BackendUnavailable, MeetingError
from .operations import BARRIER, Collective
from .ranks import Case, Form, Ints
from .socket_ranks import SocketRanks

_IN, _OUT, _BOTH = (True,), (False,), (False, True)
# torch's functions have one buffer, or two that may not be the same; only all_gather takes a part of the result
_FORMS = {
    "all_reduce": Form("all_reduce", _IN), "all_gather": Form("all_gather_single", _BOTH),
    "reduce_scatter": Form("reduce_scatter_single", _OUT), "broadcast": Form("broadcast", _IN),
    "reduce": Form("reduce", _IN), "alltoall": Form("all_to_all_single", _OUT), "sendrecv": Form("isend, irecv", _OUT),
    "scatter": Form("scatter", _OUT), "gather": Form("gather", _OUT), BARRIER: Form("barrier", _OUT),
}  # fmt: skip


class GlooRanks:
    """See `ranks.Ranks`. What is timed and the barrier before it are gloo's; the rest goes over the channel."""

    backend, loop, loop_why = "gloo", "python", "torch.distributed has no other"

    def __init__(self, channel: SocketRanks, timeout_s: float) -> None:
        self._channel, self.rank, self.size = channel, channel.rank, channel.size
        self.clock_ns, self.tell = channel.clock_ns, channel.tell
        self.greatest, self.total, self.exchange = channel.greatest, channel.total, channel.exchange
        self.swap, self.abort = channel.swap, channel.abort
        self._torch, self._dist = _import_torch()
        self.library = f"gloo of torch {self._torch.__version__}"
        self._group = None  # the default one: all ranks
        _start(self._dist, channel, timeout_s)

    @property
    def before_exit(self) -> Callable[[], object] | None:
        """The channel's."""
        return self._channel.before_exit

    @before_exit.setter
    def before_exit(self, value: Callable[[], object] | None) -> None:
        self._channel.before_exit = value

    def barrier(self) -> None:
        """gloo's."""
        self._dist.barrier()

    def form(self, kind: Collective) -> Form:
        """torch's function for it."""
        found = _FORMS[kind.name]
        return Form(f"torch.distributed.{found.call}", found.places)

    def alone(self) -> GlooRanks:
        """This rank in a group of its own."""
        lone: GlooRanks = object.__new__(GlooRanks)
        lone.__dict__.update(self.__dict__)
        lone._group = self._dist.new_group([self.rank], use_local_synchronization=True)
        lone.rank, lone.size = 0, 1
        return lone

    def bind(self, case: Case, send: Any, receive: Any) -> Callable[[], object]:
        """One run of the case, on tensors that share the arrays' memory."""
        bound = _Bound(self._dist, self._group, case, self.rank, self.size)
        return bound.call(self._torch.from_numpy(send), self._torch.from_numpy(receive))


def _import_torch() -> tuple[Any, Any]:
    try:
        torch: Any = import_module("torch")
        dist: Any = import_module("torch.distributed")
    except (ImportError, OSError) as error:  # OSError: a library of it does not load
        raise BackendUnavailable(f"torch cannot be imported ({error})", "Install torch") from None
    if not dist.is_available() or not dist.is_gloo_available():
        raise BackendUnavailable(f"torch {torch.__version__} was built without gloo", "Install another build of it")
    return torch, dist


def _start(dist: Any, channel: SocketRanks, timeout_s: float) -> None:
    """gloo's ranks find each other through a store of torch's, on a free port of rank 0 that the channel tells."""
    import numpy as np

    limit, address = timedelta(seconds=timeout_s), channel.address
    me = f"rank {channel.rank} of {channel.size} on {socket.gethostname()}"
    port: Ints = np.zeros(1, dtype=np.int64)
    try:
        store = None
        if channel.rank == 0:
            store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=limit)
            port[0] = store.port
        channel.tell(port)
        store = store or dist.TCPStore(address, int(port[0]), is_master=False, timeout=limit)
        dist.init_process_group("gloo", store=store, rank=channel.rank, world_size=channel.size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise MeetingError(
            f"{me}: gloo did not connect the ranks ({str(error).splitlines()[0]}). Where a host has several networks, "
            "GLOO_SOCKET_IFNAME names the one to take"
        ) from None


class _Bound:
    """The calls of one case. In place, all data are in `receive`."""

    def __init__(self, dist: Any, group: Any, case: Case, rank: int, size: int) -> None:
        self.dist, self.group, self.case, self.rank, self.size = dist, group, case, rank, size
        names = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}
        self.op = getattr(dist.ReduceOp, names[case.op])
        self.at_root, self.share = rank == case.root, case.counts.share

    def call(self, send: Any, receive: Any) -> Callable[[], object]:
        """The call without arguments."""
        made: Callable[[], object] = getattr(self, f"_{self.case.kind.name}")(send, receive)
        return made

    def _parts(self, whole: Any) -> list[Any]:
        return [whole[i * self.share : (i + 1) * self.share] for i in range(self.size)]

    def _all_reduce(self, _: Any, receive: Any) -> Callable[[], object]:
        call, data, op, group = self.dist.all_reduce, receive[: self.share], self.op, self.group
        return lambda: call(data, op, group)

    def _all_gather(self, send: Any, receive: Any) -> Callable[[], object]:
        call = _newest(self.dist, "all_gather_single", "all_gather_into_tensor")
        whole, group = receive[: self.share * self.size], self.group
        mine = self._parts(receive)[self.rank] if self.case.in_place else send[: self.share]
        return lambda: call(whole, mine, group)

    def _reduce_scatter(self, send: Any, receive: Any) -> Callable[[], object]:
        call, op, group = _newest(self.dist, "reduce_scatter_single", "reduce_scatter_tensor"), self.op, self.group
        whole, mine = send[: self.share * self.size], receive[: self.share]
        return lambda: call(mine, whole, op, group)

    def _broadcast(self, _: Any, receive: Any) -> Callable[[], object]:
        call, data, root, group = self.dist.broadcast, receive[: self.share], self.case.root, self.group
        return lambda: call(data, root, group)

    def _reduce(self, _: Any, receive: Any) -> Callable[[], object]:
        call, data, op, group = self.dist.reduce, receive[: self.share], self.op, self.group
        root = self.case.root
        return lambda: call(data, root, op, group)

    def _alltoall(self, send: Any, receive: Any) -> Callable[[], object]:
        call, group, count = self.dist.all_to_all_single, self.group, self.share * self.size
        whole, got = send[:count], receive[:count]
        return lambda: call(got, whole, group=group)

    def _sendrecv(self, send: Any, receive: Any) -> Callable[[], object]:
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        given, got = send[: self.share], receive[: self.share]
        if self.size == 1:  # gloo does not send to itself
            return lambda: got.copy_(given)
        isend, irecv, group = self.dist.isend, self.dist.irecv, self.group

        def run() -> None:
            sent, came = isend(given, after, group), irecv(got, before, group)
            sent.wait()
            came.wait()

        return run

    def _scatter(self, send: Any, receive: Any) -> Callable[[], object]:
        call, root, group, got = self.dist.scatter, self.case.root, self.group, receive[: self.share]
        parts = self._parts(send) if self.at_root else None
        return lambda: call(got, parts, root, group)

    def _gather(self, send: Any, receive: Any) -> Callable[[], object]:
        call, root, group, given = self.dist.gather, self.case.root, self.group, send[: self.share]
        parts = self._parts(receive) if self.at_root else None
        return lambda: call(given, parts, root, group)

    def _barrier(self, *_: Any) -> Callable[[], object]:
        call, group = self.dist.barrier, self.group
        return lambda: call(group)


def _newest(dist: Any, *names: str) -> Any:
    """The first of these functions that this torch has: newer ones have other names, and warn of the old."""
    return next(getattr(dist, name) for name in names if hasattr(dist, name))
