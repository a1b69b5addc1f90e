"""Collectives in a report: the rows of each sweep, what was fitted to them, and what busbw is a share of.

Works on our own results and on imported ones (nccl-tests, OSU) alike. What may be a share of a link: `shares`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..collectives.fit import Fit, Regime, fit
from ..collectives.sweeps import IN_A_ROW, Sweep, sweeps_of
from ..model import flags_of
from ..peaks.links import Link, find_link
from ..units import format_count, format_size
from .shares import Share, share_of
from .stragglers import is_pairs, straggler_rows, straggler_tables
from .tables import Doc, Table, clean, columns_of, fraction, interval, quantity
from .transports import transport_tables

_ROWS = columns_of(
    ">size", ">count", ">time", "/95% interval", ">algbw", ">busbw", ">of link", ">of bound", ">avg", ">skew", ">wrong",
    "/picked", "/flags",
)  # fmt: skip
_FITS = columns_of("sweep", "/sizes", ">alpha", "/alpha, 95%", ">1/beta", "/1/beta, 95%", ">busbw", ">n1/2", ">misfit")


def link_of(doc: Doc) -> Link | None:
    """The link that the document's busbw is set against: settings.link, a name of links.toml or a rate."""
    name = (doc.get("settings") or {}).get("link")
    return find_link(str(name)) if name else None


def collective_tables(doc: Doc) -> Iterator[Table]:
    """A table a sweep, then one of what was fitted."""
    if is_pairs(doc):
        yield from straggler_tables(doc)
        return
    sweeps = sweeps_of(doc)
    items = {item["id"]: item for item in doc["measurements"] if item["family"] == "collective"}
    link = link_of(doc)
    yield from transport_tables(doc, sweeps)
    for index, sweep in enumerate(sweeps):
        rows = [items[name] for name in sweep.ids]
        shares = [share_of(item, link) if link else Share() for item in rows]
        yield Table(
            f"collective-{index}", clean(sweep.name), _ROWS, tuple(map(_row, rows, shares)),
            tuple(_row_remarks(rows, shares, None if index else link)),
        ).without_empty()  # fmt: skip
    yield _fits(sweeps)


# -- rows --------------------------------------------------------------------------------------------------------------


def _row(item: Doc, share: Share) -> tuple[str, ...]:
    time, size = item.get("time_s") or {}, item.get("size_bytes")
    count, wrong = item.get("count"), item.get("wrong")
    flags = [*map(clean, flags_of(item)), *((clean(item["status"]),) if item["status"] != "ok" else ())]
    return (
        "-" if not size else format_size(size), "" if count is None else format_count(count),
        quantity(time["estimate"], "s", time["ci95"]) if time else "-",
        interval(time["estimate"], time["ci95"], "s") if time.get("ci95") else "",
        _rate(item, "algbw_bytes_per_s"), _rate(item, "busbw_bytes_per_s"),
        *("" if part is None else fraction(part) for part in (share.of_link, share.of_bound)),
        _seconds(item, "nccl_tests_average_s", "time_mean_rank_s"), _seconds(item, "skew_s"),
        "" if wrong is None else str(wrong), _picked(item), ", ".join(flags),
    )  # fmt: skip


def _rate(item: Doc, key: str) -> str:
    figure = item.get(key)
    return quantity(figure["estimate"], "B/s", figure["ci95"]) if figure else ""


def _seconds(item: Doc, *keys: str) -> str:
    value = next((item[key] for key in keys if item.get(key) is not None), None)
    return "" if value is None else quantity(value, "s")


def _picked(item: Doc) -> str:
    """ "Ring, LL128, 16 channels": what the library took for this size, where it says so."""
    channels = item.get("channels") if item.get("algorithm") else None
    said = [item.get("algorithm"), item.get("protocol"), f"{channels} channels" if channels else None]
    return ", ".join(clean(word) for word in said if word)


def _row_remarks(rows: Sequence[Doc], shares: Sequence[Share], link: Link | None) -> Iterator[str]:
    if link:
        yield f"Link: {clean(link.name)}, {quantity(link.bytes_per_s, 'B/s')} ({clean(link.note)})."
    yield from dict.fromkeys(f"busbw is {share.why}." for share in shares if share.why)
    yield from dict.fromkeys(share.note for share in shares if share.note)
    if any((share.of_link or 0) > 1 for share in shares):
        yield "busbw above the link's spec: another link carried it, or a switch reduced on the way."
    if any(row.get("ranks") == 1 for row in rows):
        yield "One rank: nothing crosses a bus, so there is no busbw."


# -- the model ---------------------------------------------------------------------------------------------------------


def _fits(sweeps: Sequence[Sweep]) -> Table:
    """Alpha, beta and where one gives way to the other, a row a regime; what could not be fitted stands below."""
    rows: list[tuple[str, ...]] = []
    remarks: dict[str, None] = {}
    for sweep in with_in_a_row(sweeps):
        fitted = fit(sweep)
        rows += [_fit_row(fitted, regime) for regime in fitted.regimes]
        remarks |= dict.fromkeys(fit_remarks(fitted))
    if rows:
        remarks[
            "time = alpha + size x beta; alpha: latency; 1/beta: algbw at size without end, and busbw that of it; "
            "n1/2 = alpha/beta: the size at which latency ends and bandwidth begins. Intervals are the fit's, 95%."
        ] = None
    if any(sweep.how.endswith(IN_A_ROW) for sweep in with_in_a_row(sweeps)):
        remarks[
            "Runs in a row: without a barrier before each. Over a network ranks leave a barrier a delay apart, and the "
            "longest rank's time counts its wait for the last: alpha in a row is the network's own."
        ] = None
    return Table("collective-fits", "Latency and bandwidth (model)", _FITS, tuple(rows), tuple(remarks)).without_empty()


def with_in_a_row(sweeps: Sequence[Sweep]) -> Iterator[Sweep]:
    """Each sweep, and after it the same by its runs in a row where that differs."""
    for sweep in sweeps:
        yield sweep
        if row := sweep.in_a_row():
            yield row


def _fit_row(fitted: Fit, regime: Regime) -> tuple[str, ...]:
    alpha, half = regime.alpha_s, regime.n_half_bytes
    rate, ends = rate_of(regime)
    return (
        clean(fitted.sweep.name), f"{format_size(regime.from_bytes)} to {format_size(regime.to_bytes)}",
        quantity(alpha.value, "s", alpha.ci95) if alpha.value else "not resolved",
        f"alpha {interval(alpha.value, alpha.ci95, 's')}" if alpha.ci95 else "",
        "not resolved" if rate is None else quantity(rate, "B/s", ends),
        f"1/beta {interval(rate, ends, 'B/s')}" if ends else "",
        "" if rate is None or not fitted.sweep.factor else quantity(rate * fitted.sweep.factor, "B/s"),
        "" if half is None else format_size(_two_digits(half.value)), fraction(regime.misfit),
    )  # fmt: skip


def _two_digits(size_bytes: float) -> float:
    """Rounded to what a fit knows of it, in the binary unit that it is shown in."""
    unit = 2.0 ** (10 * max(0, math.floor(math.log2(size_bytes) / 10))) if size_bytes >= 1 else 1.0
    return float(f"{size_bytes / unit:.2g}") * unit


def rate_of(regime: Regime) -> tuple[float | None, tuple[float, float] | None]:
    """1/beta in B/s with its interval; None where beta does not show, no interval where it reaches 0."""
    beta = regime.beta_s_per_byte
    if beta.value <= 0:
        return None, None
    ends = (1 / beta.high, 1 / beta.low) if beta.low and beta.high else None
    return 1 / beta.value, ends


def fit_remarks(fitted: Fit) -> Iterator[str]:
    """What a reader must know of a fit before its figures."""
    name = clean(fitted.sweep.name)
    if fitted.why and fitted.sweep.points:  # a barrier has no sizes
        yield f"{name}: nothing fitted: {fitted.why}."
    for low, high in fitted.kinks:
        yield (
            f"{name}: the line changes between {format_size(low)} and {format_size(high)} (another protocol?); one "
            f"line through all sizes would miss them by {fraction(fitted.single_misfit)}."
        )
    for regime in fitted.regimes:
        if regime.outliers:
            sizes = ", ".join(map(format_size, regime.outliers))
            yield f"{name}: far off the line and hardly counted: {sizes}."


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_rows(doc: Doc) -> Iterator[Mapping[str, Any]]:
    """busbw of every row of a sweep, with the link as its reference, then alpha (s) and beta (s/B) of every regime; of
    pairs their times and the stragglers."""
    if is_pairs(doc):
        yield from straggler_rows(doc)
        return
    link = link_of(doc)
    items = {item["id"]: item for item in doc["measurements"] if item["family"] == "collective"}
    for sweep in sweeps_of(doc):
        rows = [items[name] for name in sweep.ids]
        for item in rows:
            share = share_of(item, link) if link else Share()
            for word, reference, part in (
                ("algbw", share.bound, share.of_bound),
                ("busbw", link.bytes_per_s if link and share.of_link is not None else None, share.of_link),
            ):
                figure = item.get(f"{word}_bytes_per_s")
                if not figure:
                    continue
                low, high = figure["ci95"] or (None, None)
                yield {
                    "record": word, "name": item["id"], "kernel": item["kernel"], "dtype": item["dtype"],
                    "unit": "B/s", "value": figure["estimate"], "ci95_low": low, "ci95_high": high,
                    "reference": reference, "fraction_of_reference": part,
                    "status": item["status"], "flags": " ".join(flags_of(item)), "measurement": item["id"],
                }  # fmt: skip
    for sweep in with_in_a_row(sweeps_of(doc)):
        for regime in fit(sweep).regimes:
            reach = f"{sweep.name}, {regime.from_bytes} to {regime.to_bytes} B"
            for word, unit, value in (
                ("alpha", "s", regime.alpha_s), ("beta", "s/B", regime.beta_s_per_byte),
            ):  # fmt: skip
                yield {
                    "record": word, "name": reach, "kernel": sweep.collective, "dtype": sweep.dtype, "unit": unit,
                    "value": value.value, "ci95_low": value.low, "ci95_high": value.high, "status": "model",
                }  # fmt: skip
