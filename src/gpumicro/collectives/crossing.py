"""How many bytes cross a rank's link for each byte of a collective's size, by algorithm: what busbw may be a share of.

busbw's factor is that of a ring: the bytes that each rank must send, and receive, where every reduction is done by the
ranks. A switch that reduces or multicasts moves less, a tree more. All of it is arithmetic, none of it measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from .operations import COLLECTIVES

_IN_SWITCH = ("nvls", "collnet", "sharp")
POINT_TO_POINT = ("sendrecv", "send_recv", "alltoall", "all_to_all", "alltoallv", "gather", "scatter")
# Rings, and PAT (parallel aggregated trees: a tree from every rank, so that each rank sends n-1 parts in all).
_AS_COUNTED = ("ring", "pat")


@dataclass(frozen=True, slots=True)
class Wire:
    """`factor`: bytes over one rank's busiest direction, per byte of size; None where only `words` can be given.

    `exact`: whether busbw's factor is that number, so that busbw over the link's rate is the link's share.
    """

    factor: float | None
    exact: bool
    words: str

    def bound(self, link_bytes_per_s: float) -> float | None:
        """The highest algbw (B/s) that a link of that rate allows."""
        return link_bytes_per_s / self.factor if self.factor else None


def in_switch(algorithm: str) -> bool:
    """Whether a switch reduces or multicasts under it: NVLS, CollNet, SHARP, multicast kernels."""
    name = algorithm.lower()
    if name.startswith("symmetric:"):
        return "mc" in name.partition(":")[2]  # multicast, in the names of NCCL's kernels on symmetric memory
    return any(word in name for word in _IN_SWITCH)


def wire(collective: str, algorithm: str | None, ranks: int | None) -> Wire | None:
    """What crosses a link under the named algorithm; None where that is not known.

    An all_reduce of n ranks over NVLink's multicast (NVLS) reads 1/n of the sum through the switch, which takes all of
    every rank's data, and writes 1/n, of which every rank gets all: 1 + 1/n bytes each way (PTX ISA, multimem.ld_reduce
    and multimem.st; counted by this file). Its all_gather and reduce_scatter move the whole size one way. A double tree
    sends and receives up to 2 bytes a byte of all_reduce (Sanders, Speck and Traff 2009).
    """
    if collective in POINT_TO_POINT:
        return _counted(collective, ranks, "every byte goes from rank to rank")
    if not algorithm or not ranks or ranks < 2:
        return None
    names = algorithm.lower().split("+")
    if all(name in _AS_COUNTED for name in names):
        return _counted(collective, ranks, f"{algorithm} moves the bytes that busbw counts")
    if len(names) > 1:
        return None
    name = names[0]
    if name == "nvls" and (factor := _multicast(collective, ranks)):
        return Wire(factor, False, f"NVLS: {factor:.4g} bytes cross a GPU's link, each way, for a byte of size")
    if name == "tree" and collective == "all_reduce":
        return Wire(2.0, False, "Tree: up to 2 bytes cross a rank's link, each way, for a byte of size")
    return None


def _multicast(collective: str, ranks: int) -> float | None:
    return {"all_reduce": 1 + 1 / ranks, "all_gather": 1.0, "reduce_scatter": 1.0}.get(collective)


def _counted(collective: str, ranks: int | None, words: str) -> Wire:
    kind = COLLECTIVES.get(collective)
    factor = kind.factor(ranks) if kind is not None and ranks else None
    return Wire(factor, True, words)
