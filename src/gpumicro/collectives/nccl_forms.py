"""How NCCL has each collective, and what records say of a run by NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import gpu_pairs
from .nccl_log import NcclLog
from .operations import BARRIER, Collective
from .ranks import Case, Form
from .records import Medium, Record
from .settings import Peer, Settings

_GROUPED = "ncclSend/ncclRecv"
# In place a grouped send and receive would overwrite what it has yet to send: those are out of place only.
FORMS = {
    "all_reduce": Form("ncclAllReduce", (False, True)), "all_gather": Form("ncclAllGather", (False, True)),
    "reduce_scatter": Form("ncclReduceScatter", (False, True)), "broadcast": Form("ncclBroadcast", (False, True)),
    "reduce": Form("ncclReduce", (False, True)), "alltoall": Form(_GROUPED, (False,)),
    "sendrecv": Form(_GROUPED, (False,)), "scatter": Form(_GROUPED, (False, True)),
    "gather": Form(_GROUPED, (False, True)), BARRIER: Form("ncclAllReduce", (False,)),
}  # fmt: skip
NOT_ASKED = "NCCL's log says what it picks for each run with --algorithms, at the cost of a line a call"
TIME = (
    "time: by the GPUs' clocks, the median over the runs of the longest rank's, each run after a barrier on the GPUs; "
    "no launch is in it"
)


class World:
    """So many ranks of NCCL."""

    def __init__(self, size: int) -> None:
        self.size = size

    def form(self, kind: Collective) -> Form:
        """NCCL's function for it."""
        return FORMS[kind.name]


def medium_of(nccl: Any, peers: Sequence[Peer], settings: Settings, log: Callable[[], NcclLog]) -> Medium:
    """NCCL between these processes' devices; `log` is what it has said so far."""
    size = sum(peer.ranks for peer in peers)
    hosts = list(dict.fromkeys(peer.host for peer in peers))
    ranks = [(hosts.index(peer.host), device) for peer in peers for device in peer.devices]
    devices: list[Record] = [
        {"id": f"rank:{rank}", "kind": "cuda", "rank": rank, "host_index": host, **device}
        for rank, (host, device) in enumerate(ranks)
    ]
    names = list(dict.fromkeys(device["name"] for device in devices))

    def keys(case: Case) -> Record:
        found = log().keys(case.kind.name, case.size_bytes, size)
        why = {} if settings.tuning else dict.fromkeys(("algorithm_why", "protocol_why"), NOT_ASKED)
        return found | {key: text for key, text in why.items() if key in found}

    def facts() -> Record:
        said = {key: value for key, value in log().facts().items() if value is not None}
        return {
            "library": f"NCCL {nccl.version_text}", "library_path": nccl.path, "devices": names,
            "processes": len(peers), "loop": "native", **said,
        }  # fmt: skip

    joined: list[Record] = []

    def document() -> Record:
        """How the GPUs of rank 0's host are joined; asked once."""
        if not joined:
            uuids = [device["uuid"] for device in devices if device["host_index"] == 0 and not device["emulated"]]
            joined.append({"topology": gpu_pairs.topology(uuids)} if len(uuids) > 1 else {})
        return joined[0]

    return Medium(
        backend="nccl", library=f"NCCL {nccl.version_text}, {', '.join(names)}", time=TIME,
        level_why="between GPUs: NVLink, PCIe, the host's memory or a network; see transport and facts",
        intensity_why="what goes over the wire depends on NCCL's algorithm",
        form=lambda kind: FORMS[kind.name], keys=keys, facts=facts, transport=settings.transport,
        overhead_why="launches stand in the stream before the span begins: no call is in the time",
        skew="from the first rank's arrival to the last's, by how long each waited in the barrier; no part of the time",
        devices=devices, unit=settings.unit, graph=settings.graph,
        document=document,
        settings={"aggregate": settings.aggregate, "graph": settings.graph, "transport": settings.transport},
    )  # fmt: skip
