"""What joins GPUs: latency and time a byte of one hop, inside a node and between nodes, measured or from a spec."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..collectives.predictions import algorithm
from ..errors import UsageError
from ..peaks.links import Link, find_link
from ..units import format_quantity, parse_time
from .figures import AllReduce, Figure

# Seconds a hop of a ring costs beside its bytes. Data sheets give none: these are what NCCL itself reckons with
# (NVIDIA/nccl, src/graph/tuning.cc, hwLat, ring with the Simple protocol: NVLink 3.4, PCI 5.7, network 14 us).
# Kernel TCP adds what one message takes more than by RDMA: 28.9 us against 1.71 us for 1 B (OSU, Azure HBv3).
HOP_S = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "infiniband": 14e-6, "ethernet": 41e-6}
HOP_SOURCE = {
    "nvlink": "NCCL's tuning model, NVLink", "pcie": "NCCL's tuning model, PCI",
    "infiniband": "NCCL's tuning model, network",
    "ethernet": "NCCL's tuning model, network, and kernel TCP (OSU on Azure HBv3); with RoCE give eth100@14us",
}  # fmt: skip
OTHER_HOP_S = 14e-6  # of a rate that the user gave
GPUS_PER_NODE = 8  # DGX and HGX boards; taken where neither --gpus-per-node nor a measurement says
CHOSEN_FROM = ("ring", "double-tree")  # what NCCL chooses between on plain links; the cheaper is taken at each count
_HOP = re.compile(r"(?:(?P<ports>\d+)x)?(?P<name>[^@]+?)(?:@(?P<latency>.+))?$")


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a ring: alpha + size x beta, through the link of one GPU."""

    name: str
    alpha_s: Figure
    beta_s_per_byte: Figure
    ports: int | None = None  # of a node, where fewer or more than one a GPU

    @property
    def origin(self) -> str:
        """Of its time a byte."""
        return self.beta_s_per_byte.origin


@dataclass(frozen=True, slots=True)
class Fabric:
    """The links of a cluster. `between` None: all GPUs are joined by `inside`, however many."""

    name: str
    inside: Hop
    between: Hop | None
    gpus_per_node: int
    measured_ranks: int | None = None  # that `inside` was measured at, where it was

    def place(self, ranks: int, apart: int) -> tuple[int, int]:
        """(g, m): how many of a group's `ranks` share a node, and on how many nodes, if `apart` GPUs lie from one rank
        to the next: those of a model that is split stand next to each other."""
        if self.between is None:
            return ranks, 1
        inside = max(1, min(ranks, self.gpus_per_node // apart))
        return inside, -(-ranks // inside)


def at(figure: Figure, case: int) -> float:
    """A figure at its estimate (case 0), or at the end of its interval that is lower (-1) or higher (1)."""
    return figure.estimate if case == 0 or figure.ci95 is None else figure.ci95[0 if case < 0 else 1]


def hops_s(
    hop: Hop, ranks: int, size_bytes: float, *, case: int = 0, share: float = 1.0, names: Sequence[str] = CHOSEN_FROM,
    pieces: float = 1.0,
) -> tuple[float, str]:  # fmt: skip
    """Seconds of an all_reduce over `ranks`, and the algorithm that gives them: the cheapest of `names`.

    `share`: the part of the hop's rate that one of the ranks has; `pieces`: buckets that it is done in, each paying the
    latency. The formulas are those of collectives.predictions: Thakur, Rabenseifner and Gropp (2005) for the ring,
    Sanders, Speck and Traff (2009) for the double tree, on Hockney's alpha + n beta (1994).
    """
    if ranks < 2:
        return 0.0, "none"
    alpha, beta = at(hop.alpha_s, case) * pieces, at(hop.beta_s_per_byte, case) / share
    terms = {name: algorithm("all_reduce", name).terms(ranks) for name in names}
    times = {name: one.latency * alpha + one.bandwidth * size_bytes * beta for name, one in terms.items()}
    best = min(times, key=lambda name: times[name])
    return times[best], best


def all_reduce_s(
    fabric: Fabric, ranks: int, size_bytes: float, *, apart: int = 1, case: int = 0, pieces: float = 1.0,
    names: Sequence[str] = CHOSEN_FROM,
) -> tuple[float, str]:  # fmt: skip
    """Seconds of an all_reduce over a cluster: reduce-scatter inside each node, all_reduce of each rank's share between
    nodes, all-gather inside (the hierarchical formula of collectives.predictions).

    2(g-1) alpha1 + 2(g-1)/g n beta1 + [all_reduce of n/g over m nodes]. All GPUs of a node send at once, so each has a
    node's ports divided by its GPUs.
    """
    g, m = fabric.place(ranks, apart)
    near, name = hops_s(fabric.inside, g, size_bytes, case=case, pieces=pieces, names=("ring",) if m > 1 else names)
    if m < 2 or fabric.between is None:
        return near, name
    ports = fabric.between.ports
    share = 1.0 if ports is None else ports / fabric.gpus_per_node
    far, name = hops_s(fabric.between, m, size_bytes / g, case=case, share=share, pieces=pieces, names=names)
    return near + far, f"{name} between nodes" if g > 1 else name


# -- from names and from measurements ----------------------------------------------------------------------------------


MEASURED = "measured"  # the word of --links for what the files have


def parse_fabrics(text: str, gpus_per_node: int, measured: Fabric | None = None) -> tuple[Fabric, ...]:
    """`nvlink4+ib-ndr,nvlink4+1xeth100`: each the link inside a node, then (after +) the one between nodes.

    `1x`: ports of a whole node (default one a GPU); `@14us`: another latency of a hop; `measured+ib-ndr`: what the
    files measured inside a node, with that between nodes. Raises UsageError.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("--links is empty: give for example nvlink4+ib-ndr")
    return tuple(_fabric(name, gpus_per_node, measured) for name in dict.fromkeys(names))


def _fabric(text: str, gpus_per_node: int, measured: Fabric | None) -> Fabric:
    parts = text.split("+")
    if len(parts) > 2 or not all(parts):
        raise UsageError(f"--links: {text!r} must be INSIDE or INSIDE+BETWEEN, such as nvlink4+ib-ndr")
    between = spec_hop(parts[1]) if len(parts) == 2 else None
    if parts[0] != MEASURED:
        return Fabric(text, spec_hop(parts[0]), between, gpus_per_node)
    if measured is None:
        raise UsageError(f"--links {text}: no all_reduce can be used; add a result of `gpumicro collectives`")
    return Fabric(text, measured.inside, between or measured.between, measured.gpus_per_node, measured.measured_ranks)


def spec_hop(text: str) -> Hop:
    """A hop by the name of a link ("ib-ndr", "1xeth100", "46GB/s", "eth100@14us"). Raises UsageError."""
    match = _HOP.match(text.strip())
    if match is None or match["ports"] == "0":
        raise UsageError(f"--links: {text!r} is no link: a name, such as ib-ndr, 1xeth100 or eth100@14us")
    link = find_link(match["name"])
    if match["latency"] is None:
        latency = HOP_S.get(link.kind, OTHER_HOP_S)
        alpha = Figure(latency, "s", "spec", HOP_SOURCE.get(link.kind, "NCCL's tuning model, network"), None, _NO_ENDS)
    else:
        latency = parse_time(match["latency"])
        if latency < 0:
            raise UsageError(f"--links: {text!r}: a latency must not be negative")
        alpha = Figure(latency, "s", "spec", "the command line", None, _NO_ENDS)
    beta = Figure(1 / link.bytes_per_s, "s/B", "spec", _words(link), None, _NO_ENDS)
    return Hop(link.name, alpha, beta, int(match["ports"]) if match["ports"] else None)


_NO_ENDS = "a data sheet gives no interval"


def _words(link: Link) -> str:
    return f"{link.name}, {format_quantity(link.bytes_per_s, 'B/s')} each way: {', '.join(link.source)}"


def measured_hop(found: AllReduce) -> Hop | None:
    """One hop of the ring that a measured all_reduce was, from its fit at p ranks; None where nothing was fitted.

    alpha/(2(p-1)) and beta p/(2(p-1)), from the line that holds for the largest sizes: gradients are large. A latency
    that this line does not resolve is that of the smallest sizes.
    """
    fitted, ranks = found.fitted, found.ranks
    if not fitted.regimes or ranks is None or ranks < 2 or fitted.regimes[-1].beta_s_per_byte.value <= 0:
        return None
    terms = algorithm("all_reduce").terms(ranks)
    last = fitted.regimes[-1]
    latency = last.alpha_s if last.alpha_s.value > 0 else fitted.regimes[0].alpha_s
    where = f"{found.file}: {found.sweep.name}"
    alpha, beta = (
        Figure(
            one.value / term, unit, found.origin, f"{where}, by the ring's formula",
            None if one.ci95 is None else (one.ci95[0] / term, one.ci95[1] / term),
            "" if one.ci95 else "not resolved by the fit",
        )
        for one, term, unit in ((latency, terms.latency, "s"), (last.beta_s_per_byte, terms.bandwidth, "s/B"))
    )  # fmt: skip
    hosts = f" on {found.hosts} host{'s' * (found.hosts != 1)}" if found.hosts else ""
    return Hop(f"{ranks} ranks{hosts}", alpha, beta)


def unusable(sweeps: Sequence[AllReduce]) -> str:
    """Why the sweeps that were measured give no link, in a sentence each; "" where none was."""
    reasons = []
    for found in sweeps:
        ranks = "one rank has no link" if found.ranks == 1 else "the file does not say how many ranks ran"
        why = ranks if (found.ranks or 1) < 2 else found.fitted.why or "its time does not grow with the size"
        reasons.append(f"{found.file}: {found.sweep.name}: {why}")
    return "; ".join(reasons)


def measured_fabric(sweeps: Sequence[AllReduce], gpus_per_node: int | None) -> Fabric | None:
    """What the files have, named by its origin ("measured", "imported" ...); None without a fit.

    Sweeps on one host give the link inside a node, sweeps with one rank on each host that between nodes. A sweep over
    several ranks on each of several hosts mixes both; it stands for all ranks alike.
    """
    usable = [(sweep, hop) for sweep in sweeps if (hop := measured_hop(sweep))]
    if not usable:
        return None
    usable.sort(key=lambda pair: pair[0].ranks or 0)
    inside = [pair for pair in usable if (pair[0].hosts or 1) == 1]
    between = [pair for pair in usable if pair[0].hosts and pair[0].hosts == pair[0].ranks and pair[0].hosts > 1]
    if inside and between:
        local = gpus_per_node or inside[-1][0].ranks or 1
        return Fabric(inside[-1][1].origin, inside[-1][1], between[-1][1], local, inside[-1][0].ranks)
    sweep, hop = usable[-1]
    on_a_host = max(1, (sweep.ranks or 1) // (sweep.hosts or 1))
    return Fabric(hop.origin, hop, None, gpus_per_node or on_a_host, sweep.ranks)
