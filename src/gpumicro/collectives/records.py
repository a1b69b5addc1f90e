"""Rows as entries of a result file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..result import document, or_why, rate, to_plain
from .operations import BARRIER, collective
from .ranks import Case, Ranks
from .run import Row
from .settings import Peer, Settings

Record = dict[str, Any]

ALONE = "one rank: there is no bus"
NO_DATA = "a barrier moves no data"


def record(row: Row, results: Results) -> Record:
    """One measurement: rates from the time of the longest rank; busbw null at one rank."""
    case, timed = row.case, row.measurement.to_json()
    ranks, library, hosts, backend = results.size, results.library, results.hosts, results.backend
    failed = f"{row.wrong} elements were wrong" if row.wrong else None
    reduces = case.kind.reduces
    found: Record = {
        "id": identity(case, ranks, backend), "status": "failed" if failed else "ok",
        "kernel": f"{backend}.{case.kind.name}",
        "family": "collective", "variant": case.place, "dtype": case.dtype,
        **or_why("level", None, f"between ranks: shared memory or a network, as {backend} chose"),
        "device": f"ranks:{ranks}", "backend": backend, "threads": 1, "problem": {"size_bytes": case.size_bytes},
        "bytes_moved": 0, "traffic": "none", "flops": 0,
        **or_why("intensity_flop_per_byte", None, f"what goes over the wire depends on the algorithm of {backend}"),
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
        **or_why("call_overhead_s", _interval(row.call_s), "not measured"),
        **or_why("transport", None, f"{library} does not say what it moved the data by"),
        "facts": {"library": library, "call": results.forms[case.kind.name].call} | results.loop,
    }  # fmt: skip
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


def identity(case: Case, ranks: int, backend: str) -> str:
    """What a comparison pairs rows by."""
    sizes = [f"size_bytes={case.size_bytes}", f"dtype={case.dtype}"]
    sizes += [f"op={case.op}"] if case.kind.reduces else []
    sizes += [f"root={case.root}"] if case.kind.rooted and case.root else []
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
    check = {"passed": not row.wrong, "worst": float(row.wrong), "bound": 0.0, "reference": "exact: wrong elements"}
    return {"wrong": row.wrong, "check": check}


def _interval(call_s: tuple[float, float, float] | None) -> Record | None:
    return None if call_s is None else {"estimate": call_s[0], "ci95": [call_s[1], call_s[2]]}


class Results:
    """The rows so far, and the document that they make."""

    def __init__(self, ranks: Ranks, peers: Sequence[Peer], settings: Settings, notes: Sequence[str]) -> None:
        self.size, self.library, self.settings = ranks.size, ranks.library, settings
        self.backend = ranks.backend
        self.loop = {"loop": ranks.loop} | ({"loop_why": ranks.loop_why} if ranks.loop == "python" else {})
        self.forms = {name: ranks.form(collective(name)) for name in settings.collectives}
        self.hosts = len({peer.host for peer in peers})
        self.rows: list[Row] = []
        self.notes = list(notes)
        self._environment: Record | None = None

    @property
    def where(self) -> str:
        """ "4 ranks on 2 hosts, MPICH 5.0.2"."""
        ranks = f"{self.size} rank{'s' * (self.size > 1)} on {self.hosts} host{'s' * (self.hosts > 1)}"
        return f"{ranks}, {self.library}"

    def document(self, *, interrupted: bool) -> Record:
        """The whole result so far."""
        from ..environment import collect

        self._environment = self._environment or collect()
        wished = {
            "collectives": self.settings.collectives, "dtype": self.settings.dtype, "op": self.settings.op,
            "target": self.settings.target, "max_time_s": self.settings.max_time_s,
            **or_why("iters", self.settings.iters, "samples are taken until the interval is narrow"),
        }  # fmt: skip
        return document(
            argv=sys.argv[1:],
            devices=[{"id": f"ranks:{self.size}", "kind": "group", "name": self.where}],
            measurements=[record(row, self) for row in self.rows],
            notes=self.notes,
            settings=wished,
            environment=self._environment,
            interrupted=interrupted,
            emulated=False,
        )
