"""Rows as entries of a result file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..result import document, or_why, rate, to_plain
from .operations import BARRIER, Collective
from .ranks import Case, Form, Ranks
from .run import Row
from .settings import Peer, Settings

Record = dict[str, Any]

ALONE = "one rank: there is no bus"
NO_DATA = "a barrier moves no data"


@dataclass(frozen=True, slots=True)
class Medium:
    """What moves the data, in the words of tables and records. `keys` gives what is
    known of one case beside that (algorithm, protocol, channels), each null with its reason."""

    backend: str  # "mpi", "nccl"
    library: str
    time: str  # what the column says
    level_why: str
    intensity_why: str
    form: Callable[[Collective], Form]
    keys: Callable[[Case], Record]
    transport: str | None = None
    transport_why: str = ""
    overhead_why: str = "not measured"
    skew: str = "from the first rank's start to the last's; it is not taken off the time"
    facts: Callable[[], Record] = dict
    devices: Sequence[Record] = ()
    unit: int = 1
    graph: int = 0
    settings: Record = field(default_factory=dict)  # beside those that every medium has
    document: Callable[[], Record] = dict  # further keys of the whole result


def host_medium(ranks: Ranks) -> Medium:
    """What moves the data between CPUs."""
    library, backend = ranks.library, ranks.backend
    loop = {"loop": ranks.loop} | ({"loop_why": ranks.loop_why} if ranks.loop == "python" else {})
    from_where = "in a compiled loop" if ranks.loop == "native" else "from Python"
    return Medium(
        backend=backend, library=library,
        time=f"time: median over the runs of the longest rank's, each run after a barrier, {from_where}",
        level_why=f"between ranks: shared memory or a network, as {backend} chose",
        intensity_why=f"what goes over the wire depends on the algorithm of {backend}",
        form=ranks.form, keys=lambda _: {},
        transport_why=f"{library} does not say what it moved the data by",
        facts=lambda: {"library": library, **loop},
    )  # fmt: skip


def record(row: Row, ranks: int, hosts: int, medium: Medium) -> Record:
    """One measurement: rates from the time of the longest rank; busbw null at one rank."""
    case, timed = row.case, row.measurement.to_json()
    failed = f"{row.wrong} elements were wrong" if row.wrong else None
    reduces = case.kind.reduces
    found: Record = {
        "id": identity(case, ranks, medium), "status": "failed" if failed else "ok",
        "kernel": f"{medium.backend}.{case.kind.name}", "family": "collective", "variant": case.place,
        "dtype": case.dtype, **or_why("level", None, medium.level_why),
        "device": f"ranks:{ranks}", "backend": medium.backend, "threads": 1, "problem": {"size_bytes": case.size_bytes},
        "bytes_moved": 0, "traffic": "none", "flops": 0,
        **or_why("intensity_flop_per_byte", None, medium.intensity_why),
        "timing": timed["timing"], "time_s": timed["time_s"],
        **or_why("bandwidth_bytes_per_s", None, "see algbw_bytes_per_s and busbw_bytes_per_s"),
        **or_why("flop_per_s", None, "no arithmetic is counted"),
        "collective": case.kind.name, "ranks": ranks, "hosts": hosts,
        **or_why("op", case.op if reduces else None, "the collective reduces nothing"), "in_place": case.in_place,
        **or_why("root", case.root if case.kind.rooted else None, "the collective has no root"),
        "size_bytes": case.size_bytes, "count": case.counts.shown,
        **bandwidths(case, timed["time_s"], ranks),
        **_checked(row),
        "time_max_rank_s": row.measurement.estimate_s, "time_mean_rank_s": row.mean_rank_s,
        **skew(row),
        "nccl_tests_average_s": row.average_s, "nccl_tests_iterations": row.average_runs,
        **or_why("call_overhead_s", _interval(row.call_s), medium.overhead_why),
        **or_why("transport", medium.transport, medium.transport_why),
        **medium.keys(case),
        "facts": {"call": medium.form(case.kind).call} | medium.facts(),
    }  # fmt: skip
    if labels := labels_of(medium):
        found["labels"] = labels
    if failed:
        found["error"] = failed
    plain = to_plain(found)
    assert isinstance(plain, dict)
    return plain


def skew_known(row: Row) -> bool:
    """Whether the ranks' clocks are surer than their starts are apart."""
    return not row.skew_error_s or row.skew_error_s < row.skew_s


def skew(row: Row) -> Record:
    """How far apart the ranks started, with the clocks' uncertainty across hosts; null where that is as large."""
    error = row.skew_error_s
    if not error:
        return {"skew_s": row.skew_s}
    why = f"{row.skew_s:.3g} s, but the clocks of the hosts are known to {error:.3g} s only"
    return or_why("skew_s", row.skew_s if skew_known(row) else None, why) | {"skew_uncertainty_s": error}


def labels_of(medium: Medium) -> Record:
    """What a run was where it was more than one call."""
    graph = {"graph": str(medium.graph)} if medium.graph else {}
    together = medium.unit // max(1, medium.graph)
    return graph | ({"aggregate": str(together)} if together > 1 else {})


def identity(case: Case, ranks: int, medium: Medium) -> str:
    """What a comparison pairs rows by."""
    sizes = [f"size_bytes={case.size_bytes}", f"dtype={case.dtype}"]
    sizes += [f"op={case.op}"] if case.kind.reduces else []
    sizes += [f"root={case.root}"] if case.kind.rooted and case.root else []
    sizes += [f"{name}={value}" for name, value in labels_of(medium).items()]
    sizes += [f"transport={medium.transport}"] if medium.transport else []
    backend = medium.backend
    return f"{backend}.{case.kind.name}[{','.join(sizes)}]@ranks:{ranks}/{backend}/variant={case.place}"


def bandwidths(case: Case, time_s: Mapping[str, Any], ranks: int) -> Record:
    """algbw = size over time, busbw = that times the collective's factor."""
    if case.kind.name == BARRIER:
        return or_why("algbw_bytes_per_s", None, NO_DATA) | or_why("busbw_bytes_per_s", None, NO_DATA)
    factor = case.kind.factor(ranks)
    bus = None if factor is None else rate(case.size_bytes * factor, time_s)
    return {"algbw_bytes_per_s": rate(case.size_bytes, time_s)} | or_why("busbw_bytes_per_s", bus, ALONE)


def _checked(row: Row) -> Record:
    if row.case.kind.name == BARRIER:
        return or_why("wrong", None, NO_DATA) | or_why("check", None, NO_DATA)
    exact = "within rounding" if row.case.kind.reduces and row.case.op == "avg" else "exact"
    reference = f"{exact}: wrong elements"
    check = {"passed": not row.wrong, "worst": float(row.wrong), "bound": 0.0, "reference": reference}
    return {"wrong": row.wrong, "check": check}


def _interval(call_s: tuple[float, float, float] | None) -> Record | None:
    return None if call_s is None else {"estimate": call_s[0], "ci95": [call_s[1], call_s[2]]}


class Results:
    """The rows so far, and the document that they make."""

    def __init__(self, medium: Medium, peers: Sequence[Peer], settings: Settings, notes: Sequence[str]) -> None:
        self.medium, self.settings, self.peers = medium, settings, peers
        self.size = sum(peer.ranks for peer in peers)
        self.hosts = len({peer.host for peer in peers})
        self.rows: list[Row] = []
        self.notes = list(notes)
        self._environment: Record | None = None

    @property
    def where(self) -> str:
        """ "4 ranks on 2 hosts, MPICH 5.0.2"."""
        ranks = f"{self.size} rank{'s' * (self.size > 1)} on {self.hosts} host{'s' * (self.hosts > 1)}"
        return f"{ranks}, {self.medium.library}"

    def place(self, rank: int) -> tuple[int, str, str]:
        """(device's index, its bus id, what it is) of a rank, for the eye."""
        if not self.medium.devices:
            return rank, "0000:00:00", f"CPU, {self.medium.library}"
        device = self.medium.devices[rank]
        return device["index"], device["pci_bus_id"], device["name"]

    def document(self, *, interrupted: bool) -> Record:
        """The whole result so far."""
        from ..environment import collect

        self._environment = self._environment or collect()
        wished = {
            "collectives": self.settings.collectives, "dtype": self.settings.dtype, "op": self.settings.op,
            "target": self.settings.target, "max_time_s": self.settings.max_time_s,
            **or_why("iters", self.settings.iters, "samples are taken until the interval is narrow"),
            **self.medium.settings,
        }  # fmt: skip
        whole = document(
            argv=sys.argv[1:],
            devices=[{"id": f"ranks:{self.size}", "kind": "group", "name": self.where}, *self.medium.devices],
            measurements=[record(row, self.size, self.hosts, self.medium) for row in self.rows],
            notes=self.notes,
            settings=wished,
            environment=self._environment,
            interrupted=interrupted,
            emulated=any(device.get("emulated") for device in self.medium.devices),
        )
        return whole | self.medium.document()
