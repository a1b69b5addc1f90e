"""One process of a job on GPUs: which devices it takes, NCCL as it is found here, the communicators and their end."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from .. import cuda_native, libraries
from ..backends import get
from ..device_timers import EventTimer
from ..errors import BackendUnavailable, GpumicroError, UsageError
from ..timers import Timer
from . import settings as wishes
from .crew import Crew
from .nccl_crew import DeviceCrew
from .nccl_forms import World, medium_of
from .nccl_logfile import LogFile
from .nccl_transports import VARIABLES, taken_instead
from .ranks import Case, Control
from .records import Medium
from .settings import Group, Peer, Settings

_SOONER = 0.9  # of the time-out: NCCL's own words come before the watchdog's
Carry = Callable[[Control, Callable[[], bytes]], bytes]  # rank 0's bytes, on every rank


def pick(chosen: Sequence[int] | None, visible: int, local_rank: int | None) -> list[int]:
    """The devices of this process: all that were chosen (None: all there are), or the one of its local rank.

    `local_rank`: None where no launcher started others on this host. UsageError for a device that is not there,
    BackendUnavailable for a rank that finds none of its own.
    """
    for device in chosen or ():
        if not 0 <= device < visible:
            raise UsageError(f"there is no cuda:{device} here: {visible} device{'s' * (visible != 1)} can be seen")
    devices = list(range(visible)) if chosen is None else list(chosen)
    if local_rank is None:
        return devices
    if len(devices) == 1:  # the launcher gave each rank a device, or the user wants this one
        return devices
    if local_rank >= len(devices):
        raise BackendUnavailable(
            f"this is rank {local_rank} of its host, counted from 0, and {len(devices)} GPUs can be seen here",
            "Start one rank per GPU",
        )
    return [devices[local_rank]]


class NcclSide:
    """See `side.Side`. `carry` brings NCCL's unique id from rank 0 to the others; `local_rank` as in `pick`."""

    def __init__(
        self, control: Control, carry: Carry, *, chosen: Sequence[int] | None = None, local_rank: int | None = None,
        timeout_s: float = 120.0, environment: MutableMapping[str, str] = os.environ,
        timer: Callable[[int], Timer] = EventTimer,
    ) -> None:  # fmt: skip
        self.control, self.ended = control, False
        self._carry, self._chosen, self._local_rank, self._timeout_s = carry, chosen, local_rank, timeout_s
        self._environment, self._make_timer = environment, timer
        self._log = LogFile(environment)
        self._peers: Sequence[Peer] = ()
        self._devices: list[int] = []
        self._communicators: Any = None
        self._crew: DeviceCrew | None = None

    # --- in the order of a job ---

    def introduce(self, settings: Settings) -> Peer:
        """This process, with its devices; or why it has none."""
        self._settings = settings
        mine = wishes.describe(settings)
        try:
            return self._able(mine)
        except GpumicroError as error:
            if self.control.size == 1:
                raise
            return wishes.failed(mine, error)

    def _able(self, mine: Peer) -> Peer:
        can = get("cuda").availability()
        if not can:
            raise BackendUnavailable(f"--device cuda cannot be had: {can.reason}", can.remedy)
        self._cuda = cuda_native.load()
        count = int(self._cuda.probe()["count"])
        self._devices = pick(self._chosen, count, self._local_rank)
        self._environment.update(VARIABLES[self._settings.transport])
        if self.control.rank == 0:
            self._log.begin(self._settings.tuning)
        self._nccl = open_nccl(self._cuda)
        if why := self._nccl.why_not(self._settings.dtype):
            raise UsageError(f"NCCL {self._nccl.version_text} has no {self._settings.dtype}: {why}")
        self._timer = self._make_timer(self._devices[0])
        facts = [self._cuda.device_facts(device) for device in self._devices]
        keys = ("name", "uuid", "pci_bus_id", "emulated")
        return replace(
            mine, nccl=self._nccl.version_text, gates=bool(getattr(self._timer, "gates", True)),
            memory_bytes=min(self._cuda.free_memory(device)[0] for device in self._devices),
            devices=[
                {"index": index, **{key: one[key] for key in keys}}
                for index, one in zip(self._devices, facts, strict=True)
            ],
        )  # fmt: skip

    def know(self, peers: Sequence[Peer]) -> Group:
        """All processes. UsageError where two ranks share a GPU."""
        self._peers = peers
        taken: dict[tuple[str, str], int] = {}
        ranks = [(peer.host, device) for peer in peers for device in peer.devices]
        for rank, (host, device) in enumerate(ranks):
            other = taken.setdefault((host, device["uuid"]), rank)
            if other != rank and not device["emulated"]:
                raise UsageError(
                    f"ranks {other} and {rank} on {host} share one GPU ({device['pci_bus_id']}): start one rank per GPU"
                )
        return World(len(ranks))

    def medium(self) -> Medium:
        """NCCL, and what its log says once it has one."""
        return medium_of(self._nccl, self._peers, self._settings, self._log.read)

    def crew(self, cases: Sequence[Case], beat: Callable[[str], None]) -> Crew:
        """The communicators, which every process makes together, and the ranks on them."""
        beat("making NCCL's communicators")
        module, timeout_s = self._cuda.nccl, _SOONER * self._timeout_s
        if self.control.size == 1:
            made = module.Communicators.local(self._nccl, self._devices, timeout_s=timeout_s)
        else:
            name = self._carry(self.control, self._nccl.unique_id)
            first = sum(peer.ranks for peer in self._peers[: self.control.rank])
            ranks = list(range(first, first + len(self._devices)))
            size = sum(peer.ranks for peer in self._peers)
            made = module.Communicators(self._nccl, size, name, ranks, self._devices, timeout_s=timeout_s)
        self._communicators = made
        self.control.before_exit = self.abort
        beat("the start")
        gated = all(peer.gates for peer in self._peers)
        self._crew = DeviceCrew(
            self._cuda, made, self.control, cases, self._settings, timer=self._timer, gated=gated, beat=beat
        )
        return self._crew

    def remarks(self) -> list[str]:
        """What the run has shown beside its rows: a transport that NCCL did not take."""
        seen = self._log.read().transports
        hosts = len({peer.host for peer in self._peers})
        instead = taken_instead(self._settings.transport, seen, hosts)
        return [f"--transport {self._settings.transport}: NCCL took {instead} instead"] if instead else []

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()
        self._log.end()

    def abort(self) -> None:
        self.ended = True
        if self._communicators is not None:
            self._communicators.abort()
        self._log.end()


def open_nccl(cuda: Any) -> Any:
    """NCCL where it is found. BackendUnavailable says what to install."""
    library = libraries.find("nccl")
    if not library:
        raise BackendUnavailable(f"NCCL is not here: {library.reason}")
    try:
        return cuda.nccl.Nccl(library.path)
    except RuntimeError as error:
        cure = libraries.KNOWN["nccl"].package
        raise BackendUnavailable(f"NCCL at {library.path} cannot be used ({error})", cure) from None
