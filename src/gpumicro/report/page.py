"""One self-contained HTML file: the pictures as SVG with hover, the tables, the gap in words, the environment.

No network, no library: style and script stand beside this file and are copied in. Every text of the result is escaped.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping

from ..units import shown_unit
from . import busbw, network, plot
from .gap import gaps
from .markup import bullet_list as _list
from .markup import figure as _figure
from .markup import resource as _resource
from .markup import script_json as _script_json
from .markup import section as _section
from .markup import table_html as _table
from .stragglers import is_pairs
from .tables import (
    Column,
    Doc,
    Table,
    achieved_of,
    all_tables,
    ceiling_name,
    clean,
    describe_recipe,
    document_title,
    flag_words,
    fraction,
    headline,
    imported_from,
    intensity_text,
    interval,
    level_name,
    measurements_table,
    quantity,
    remarks,
    shows_roofline,
    threads_text,
    unmeasured,
    warnings,
)

_E = html.escape
AFTER_THE_GAP = ("latency", "sustained")  # tables that the roofline does not rest on


def to_html(doc: Doc) -> str:
    """The page as text."""
    device, when, *_ = headline(doc)
    title = f"{document_title(doc)}: {device}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_E(title)}</title>\n<style>\n{_resource('page.css')}</style></head>\n<body>\n"
        f'<h1>{_E(title)}</h1>\n<p class="dim">{_E(when)}</p>\n'
        + "\n".join(_body(doc))
        + '\n<div id="tip" role="tooltip"></div>\n'
        f'<script type="application/json" id="tips">{_script_json(tips(doc))}</script>\n'
        f"<script>\n{_resource('page.js')}</script>\n</body></html>\n"
    )


def to_bytes(doc: Doc) -> bytes:
    """The page as UTF-8."""
    return to_html(doc).encode("utf-8", "replace")


def _body(doc: Doc) -> Iterator[str]:
    for line in warnings(doc):
        yield f'<p class="alarm">{_E(line)}</p>'
    if shows_roofline(doc):
        yield from _roofline(doc)
    yield from _collectives(doc)
    made = list(all_tables(doc))
    yield from (_table(table) for table in made if table.key not in AFTER_THE_GAP)
    yield from _gap_section(doc)
    yield from (_table(table) for table in made if table.key in AFTER_THE_GAP)
    yield from _section("Not measured", unmeasured(doc))
    yield from _section("Verdicts and notes", remarks(doc))
    words = flag_words(doc)
    if words:
        yield (
            "<h2>Flags</h2><dl>" + "".join(f"<dt>{_E(flag)}</dt><dd>{_E(text)}</dd>" for flag, text in words) + "</dl>"
        )
    yield from _method(doc)


def _roofline(doc: Doc) -> Iterator[str]:
    yield _figure(
        plot.roofline_figure(doc), "roofline", f"Roofline of {headline(doc)[0]}; the tables below hold the same figures"
    )
    yield '<p class="dim">Solid: measured; dashed: spec peak. Point at a line or a marker for its figures.</p>'


def _collectives(doc: Doc) -> Iterator[str]:
    picture = plot.collectives_figure(doc)
    if picture is not None:
        yield _figure(picture, "collectives", "The collectives; the tables below hold the same figures")
        if is_pairs(doc):
            return
        yield '<p class="dim">Points: measured; lines: fitted, a line a regime; dashed: spec rate of the link.</p>'


def _gap_section(doc: Doc) -> Iterator[str]:
    figure = plot.gap_figure(doc)
    if figure is None:
        return
    yield "<h2>From spec to kernel</h2>"
    yield _figure(
        figure, "gap", "What is lost from spec to ceiling to library to kernel; the lists below say the same in words"
    )
    yield '<p class="dim">Coloured ends: losses with a known cause; hatched: not attributed.</p>'
    for gap in gaps(doc):
        columns = (Column("step"), Column("value", True), Column("share", True), Column("what"))
        rows = tuple((step.name, step.value, step.share, step.label) for step in gap.steps)
        yield f"<h3>{_E(gap.quantity)}</h3>"
        yield _table(Table("gap", "", columns, rows, (*gap.causes, *gap.open)), heading=False)


def _method(doc: Doc) -> Iterator[str]:
    yield "<h2>How it was measured</h2>"
    yield _list(list(_method_lines(doc)))
    yield f"<details><summary>All measurements</summary>{_table(measurements_table(doc), heading=False)}</details>"
    for title, key in (
        ("Environment", "environment"),
        ("Devices", "devices"),
        ("Settings", "settings"),
        ("Spec", "spec"),
    ):
        if doc.get(key):
            text = json.dumps(doc[key], indent=2, ensure_ascii=False)
            yield f"<details><summary>{title}</summary><pre>{_E(text)}</pre></details>"


def _method_lines(doc: Doc) -> Iterator[str]:
    timings = [m["timing"] for m in doc["measurements"] if m["timing"]]
    timers = sorted({clean(t["timer"]) for t in timings})
    samples = sum(t["n"] for t in timings)
    yield f"Command: gpumicro {' '.join(map(clean, doc['argv']))}"
    if doc.get("imported"):
        yield f"Measured by {imported_from(doc)}; gpumicro read its output and measured nothing."
        yield f"{len(timings)} of {len(doc['measurements'])} measurements came with their samples, {samples} in all."
        yield "Without samples there is no interval. 1 GB/s = 1e9 B/s; sizes are binary (1 MiB = 2^20 B)."
        return
    if doc.get("storage"):
        yield f"{len(doc['measurements'])} parts by fio, each one figure without an interval; the loader by Python."
    if doc.get("monitor"):
        yield f"{doc['monitor']['samples']} samples; percentiles are of the samples, averages over the time."
    if doc.get("storage") or doc.get("monitor"):
        yield "1 GB/s = 1e9 B/s; sizes are binary (1 MiB = 2^20 B)."
        return
    yield f"{len(timings)} measurements, {samples} samples, all kept in the result file."
    yield f"Timer: {', '.join(timers) or 'none'}."
    yield "Intervals are 95% intervals of the location (the median, or what the result says), not the samples' spread."
    yield "1 GB/s = 1e9 B/s; sizes are binary (1 MiB = 2^20 B); a fused multiply-add counts as 2 FLOP."
    yield "Bytes are those the algorithm must move, counted as STREAM does."
    yield "GEMM's intensity counts compulsory bytes and so is an upper bound."
    checked = [m["check"] for m in doc["measurements"] if m["check"]]
    passed = sum(bool(c["passed"]) for c in checked)
    yield f"{passed} of {len(checked)} checked outputs agreed with a reference in higher precision."


def tips(doc: Doc) -> Mapping[str, str]:
    """gid of a line or marker -> the lines of its hover text."""
    found: dict[str, str] = {} if is_pairs(doc) else dict(busbw.tips(doc))
    found |= network.tips(doc)
    for index, ceiling in enumerate(doc["ceilings"]):
        unit = shown_unit(ceiling["unit"], ceiling["dtype"])
        name = f"{ceiling_name(ceiling)}, {threads_text(ceiling)}".rstrip(", ")
        achieved, ci95 = ceiling["achieved"], ceiling["ci95"]
        share = f"{fraction(ceiling['fraction_of_spec'])} of spec" if ceiling["fraction_of_spec"] is not None else ""
        measured = (quantity(achieved, unit, ci95), f"95%: {interval(achieved, ci95, unit)}")
        lines = [name, *measured, describe_recipe(ceiling), share, *map(clean, ceiling["flags"])]
        found[f"ceiling-{index}"] = "\n".join(filter(None, lines))
        if ceiling["spec"] is not None:
            found[f"spec-{index}"] = f"{name}\nspec peak {quantity(ceiling['spec'], unit)}"
    for index, point in enumerate(doc["points"]):
        value, ci95, unit = achieved_of(point)
        bound = level_name(point["bound_by"]) if point["bound_by"] else ""
        share = f"{fraction(point['fraction_of_attainable'])} of attainable, bound by {bound}" if bound else ""
        measured = (quantity(value, unit, ci95), f"95%: {interval(value, ci95, unit)}")
        intensity = intensity_text(point)
        lines = [clean(point["name"]), *measured, intensity, share, *map(clean, point["flags"])]
        found[f"point-{index}"] = "\n".join(filter(None, lines))
    return found
