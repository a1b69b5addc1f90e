"""The table as it grows, row by row: our own, and the one that scripts for nccl-tests read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .. import __version__
from ..errors import UsageError
from ..units import format_fraction, format_quantity, format_size
from .operations import BARRIER
from .records import Results, skew_known
from .run import Row

FORMATS = ("table", "nccl-tests")
_NCCL_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip


class Table(Protocol):
    """Lines for the output: those before the first row, those of a row, those at the end."""

    def head(self) -> Iterator[str]: ...
    def row(self, row: Row) -> Iterator[str]: ...
    def foot(self) -> Iterator[str]: ...


def table(name: str, results: Results) -> Table:
    """By its name. UsageError for an unknown one, or for a barrier in the format that has none."""
    if name == "table":
        return OwnTable(results)
    if name != "nccl-tests":
        raise UsageError(f"unknown format {name!r}: one of {', '.join(FORMATS)}")
    if BARRIER in results.settings.collectives:
        raise UsageError("nccl-tests has no barrier: take --format table")
    return NcclTable(results)


class OwnTable:
    """80 columns: the time of the longest rank, how far its interval reaches, and what follows from it."""

    def __init__(self, results: Results) -> None:
        self._results, self._title = results, ""

    def head(self) -> Iterator[str]:
        yield f"{self._results.where}, {self._results.settings.dtype}"
        yield self._results.medium.time

    def row(self, row: Row) -> Iterator[str]:
        case, time = row.case, row.measurement
        title = f"{case.kind.name}{f' ({case.op})' if case.kind.reduces else ''}"
        title += f", root {case.root}" if case.kind.rooted else ""
        if title != self._title:
            self._title = title
            yield ""
            yield f"{title}{_overhead(row)}"
            yield (
                f"{'size':>9} {'place':<5} {'time':>8} {'+-':>5} {'algbw':>10} {'busbw':>10} {'skew':>8}"
                f" {'nccl avg':>8} {'#wrong':>6}"
            )
        factor = case.kind.factor(self._results.size)
        algbw = case.size_bytes / time.estimate_s if time.estimate_s > 0 else 0.0
        moves = case.kind.name != BARRIER
        place = "in" if case.in_place else "out"
        yield (
            f"{format_size(case.size_bytes) if moves else '-':>9} {place if moves else '-':<5}"
            f" {format_quantity(time.estimate_s, 's', time.ci95_s, 3):>8} {format_fraction(time.half_width, 2):>5}"
            f" {format_quantity(algbw, 'B/s') if moves else '-':>10}"
            f" {'-' if factor is None or not moves else format_quantity(algbw * factor, 'B/s'):>10}"
            f" {format_quantity(row.skew_s, 's') if skew_known(row) else '-':>8}"
            f" {format_quantity(row.average_s, 's'):>8} {row.wrong if moves else '-':>6}"
        )

    def foot(self) -> Iterator[str]:
        yield ""
        yield "nccl avg: as nccl-tests has it, runs in a row without a barrier between them, the mean of all ranks"
        yield f"skew: {self._results.medium.skew}"
        if not all(map(skew_known, self._results.rows)):
            yield "skew -: smaller than what the clocks of the hosts can be compared to; the file has both"
        if self._results.size == 1:
            yield "one rank: there is no bus, so no busbw"
        yield from self._results.notes


def _overhead(row: Row) -> str:
    if row.call_s is None:
        return ""
    return f"; the call alone, with one element on one rank: {format_quantity(row.call_s[0], 's', row.call_s[1:])}"


class NcclTable:
    """The columns of nccl-tests, filled with its own definition of time: the mean of runs in a row, over the ranks."""

    def __init__(self, results: Results) -> None:
        self._results, self._waiting = results, dict[bool, Row]()
        self._name = ""
        self._busbw: list[float] = []
        self._wrong = 0

    def head(self) -> Iterator[str]:
        medium = self._results.medium
        by = medium.library if medium.backend == "nccl" else f"ranks on CPUs by {medium.library}, no NCCL"
        yield f"# gpumicro {__version__} in the format of nccl-tests: {by}"

    def _head(self, row: Row) -> Iterator[str]:
        results = self._results
        sweep, together = results.settings.sweep, results.settings.aggregate
        yield f"# Collective test starting: {row.case.kind.name}_perf"
        yield (
            f"# nThread 1 nGpus 1 minBytes {sweep.begin} maxBytes {sweep.end} step: {sweep.step or f'{sweep.factor:g}'}"
            f"({'bytes' if sweep.step else 'factor'}) warmup iters: 1 iters: {row.average_runs // together} "
            f"agg iters: {together} validation: 1 graph: {results.settings.graph}"
        )
        yield "#"
        yield "# Using devices"
        for rank in range(results.size):
            index, bus, name = results.place(rank)
            yield f"#  Rank {rank:2d} Group  0 Pid      0 on       host device {index:2d} [{bus}] {name}"
        yield "#"
        half = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
        yield f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}{half}{half}"
        half = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
        yield f"# {'(B)':>10}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}{half}{half}"

    def row(self, row: Row) -> Iterator[str]:
        if row.case.kind.name != self._name:
            yield from self._end()
            self._name = row.case.kind.name
            yield from self._head(row)
        self._waiting[row.case.in_place] = row
        wished = [
            place for place in self._results.medium.form(row.case.kind).places if place in self._results.settings.places
        ]
        if len(self._waiting) == len(wished):
            yield self._line()

    def _line(self) -> str:
        pair, self._waiting = self._waiting, {}
        case = next(iter(pair.values())).case
        dtype, op = _NCCL_TYPES.get(case.dtype, case.dtype), case.op if case.kind.reduces else "none"
        root = case.root if case.kind.rooted else -1
        head = f"{case.size_bytes:>12}  {case.counts.share:>12}  {dtype:>8}  {op:>6}  {root:>6}"
        return head + "".join(self._half(pair.get(place)) for place in (False, True))

    def _half(self, row: Row | None) -> str:
        if row is None:
            return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
        algbw = row.case.size_bytes / row.average_s / 1e9
        factor = row.case.kind.factor(self._results.size)
        self._wrong += row.wrong
        self._busbw += [] if factor is None else [algbw * factor]
        busbw = "N/A" if factor is None else f"{algbw * factor:.2f}"
        return f"  {row.average_s * 1e6:>7.2f}  {algbw:>6.2f}  {busbw:>6}  {row.wrong:>6}"

    def _end(self) -> Iterator[str]:
        if not self._name:
            return
        if self._waiting:
            yield self._line()
        mean = f"{sum(self._busbw) / len(self._busbw):g}" if self._busbw else "N/A"
        yield f"# {'Out of bounds values':<20} : {self._wrong} {'FAILED' if self._wrong else 'OK'}"
        yield f"# {'Avg bus bandwidth':<20} : {mean}"
        yield "#"
        yield f"# Collective test concluded: {self._name}_perf"
        self._busbw, self._wrong = [], 0

    def foot(self) -> Iterator[str]:
        yield from self._end()
        yield from (f"# {note}" for note in self._results.notes)
