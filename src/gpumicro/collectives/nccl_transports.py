"""What NCCL is told to move data by, and whether it did. Pure: environment in, environment and words out.

Variables: NCCL's user guide, "Environment Variables". They are read at NCCL's first use in a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import UsageError, unknown

AUTO = "auto"
_NO_NVLINK_NODES = {"NCCL_MNNVL_ENABLE": "0"}  # NVLink between hosts counts as peer to peer
_NO_PEERS = {"NCCL_P2P_DISABLE": "1", **_NO_NVLINK_NODES}
_BUILT_IN = {"NCCL_NET_PLUGIN": "none"}  # no vendor's network in place of NCCL's own
VARIABLES: Mapping[str, Mapping[str, str]] = {
    AUTO: {},
    "p2p": {"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "SYS", "NCCL_SHM_DISABLE": "1"},
    "shm": {**_NO_PEERS, "NCCL_SHM_DISABLE": "0"},
    "ib": {**_NO_PEERS, "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "0", "NCCL_NET": "IB", **_BUILT_IN},
    "socket": {**_NO_PEERS, "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", **_BUILT_IN},
}
MEANINGS = {
    AUTO: "what NCCL chooses",
    "p2p": "GPU to GPU over NVLink or PCIe, at any distance within a host",
    "shm": "through the host's memory",
    "ib": "InfiniBand or RoCE (RDMA), also within a host",
    "socket": "TCP, also within a host",
}
# how NCCL's log names them; between hosts p2p and shm leave the choice to NCCL
_NAMES = {"p2p": ("P2P",), "shm": ("SHM",), "ib": ("NET/IB",), "socket": ("NET/Socket",)}
_WITHIN = ("p2p", "shm")


def parse(text: str) -> tuple[str, ...]:
    """ "auto,p2p" as names, each once. UsageError names those that there are."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in VARIABLES:
            raise UsageError(unknown("transport", name, VARIABLES))
    if not names:
        raise UsageError(f"--transport names none of {', '.join(VARIABLES)}")
    return names


def why_not(name: str, ranks: int, hosts: int, root: Path = Path("/")) -> str:
    """Why a transport can't be had, as far as that shows before NCCL is asked; "" where nothing speaks against it."""
    if name in _WITHIN and hosts == ranks > 1:
        return f"{name} is between GPUs of one host, and each of the {hosts} hosts has one"
    folder = root / "sys/class/infiniband"
    if name == "ib" and not (folder.is_dir() and any(folder.iterdir())):
        return "this host has no InfiniBand or RoCE device (/sys/class/infiniband is empty)"
    return ""


def taken_instead(name: str, seen: Iterable[str], hosts: int) -> str:
    """What NCCL took in the place of a transport, "" where it took that or its log does not say.

    `seen` are the transports of its log: "P2P/CUMEM", "NET/Socket" ...
    """
    wanted, others = _NAMES.get(name, ("",)), list(dict.fromkeys(seen))
    if name in _WITHIN and hosts > 1:
        others = [one for one in others if not one.startswith("NET/")]
    return ", ".join(one for one in others if not one.startswith(wanted))


def had(name: str, seen: Iterable[str]) -> bool:
    """Whether any connection was of that kind, as far as the log says."""
    found = list(seen)
    return not found or any(one.startswith(_NAMES.get(name, ("",))) for one in found)
