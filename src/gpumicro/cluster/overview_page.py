"""The cluster's page: one self-contained HTML file, the answers first, each with its evidence a click away."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence

from ..report import page, plot
from ..report.markup import bullet_list, figure, resource, script_json, table_html
from ..report.tables import Table, clean, columns_of, headline, shows_roofline
from .overview import SECTIONS, Advice, Finding, Overview, Part
from .overview_tables import facts_table, gain_text, section_tables

_E = html.escape
FOLD_OVER = 30  # rows: a longer table opens by a click
MOST_OF_KIND = 4  # rooflines that are drawn of one kind of device


def cluster_html(overview: Overview) -> str:
    """The page as text; every text of a file is escaped."""
    tips: dict[str, str] = {}
    body = "\n".join(_body(overview, tips))
    title = f"Cluster: {summary(overview)}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_E(title)}</title>\n<style>\n{resource('page.css')}{resource('cluster.css')}</style></head>\n<body>\n"
        f'<h1>{_E(title)}</h1>\n{body}\n<div id="tip" role="tooltip"></div>\n'
        f'<script type="application/json" id="tips">{script_json(tips)}</script>\n'
        f"<script>\n{resource('page.js')}</script>\n</body></html>\n"
    )


def cluster_bytes(overview: Overview) -> bytes:
    """The page as UTF-8."""
    return cluster_html(overview).encode("utf-8", "replace")


def summary(overview: Overview) -> str:
    """ "9 files, 3 verdicts failed, 6 things to gain by"."""
    failed = sum(finding.state == "failed" for finding in overview.findings)
    gains = sum(advice.gain is not None for advice in overview.advice)
    words = [f"{len(overview.parts)} file{'s' * (len(overview.parts) != 1)}"]
    words.append(f"{failed} verdict{'s' * (failed != 1)} failed" if failed else "no verdict failed")
    words.append(f"{gains} thing{'s' * (gains != 1)} to gain by")
    return ", ".join(words)


def _body(overview: Overview, tips: dict[str, str]) -> Iterator[str]:
    places = {(part.file, kind): f"{kind}-{i}" for i, part in enumerate(overview.parts) for kind in part.kinds}
    yield _contents(overview)
    yield '<h2 id="next">What to do next</h2>' + _advice(overview.advice, places)
    yield '<h2 id="verdicts">Verdicts</h2>' + _findings(overview.findings, places)
    facts = facts_table(overview)
    yield f'<h2 id="facts">Facts</h2>{_wide(facts)}'
    for kind, missing in SECTIONS.items():
        parts = overview.of(kind)
        if kind == "facts":
            continue
        yield f'<h2 id="{kind}">{_E(missing.title)}</h2>'
        if not parts:
            yield f'<p class="dim">Not known yet. This brings it: <code>{_E(missing.command)}</code></p>'
        drawn: dict[str, int] = {}
        for part in parts:
            yield from _part(part, kind, places[part.file, kind], drawn, tips)
    yield "<h2>How gains are reckoned</h2>" + bullet_list([
        "A gain is an upper bound on how much more of the same work the same machines or the same money would do, by "
        "the figures that stand beside it; two gains do not add up.",
        "measured: by gpumicro on these devices; imported: another tool's word; spec: a data sheet's; model: what a "
        "formula makes of them; synthetic, replayed and emulated figures are of no device. Doubtful: a verdict says "
        "that the file's figures are not to be believed.",
    ])  # fmt: skip


def _contents(overview: Overview) -> str:
    links = [("next", "What to do next"), ("verdicts", "Verdicts")]
    links += [(kind, missing.title) for kind, missing in SECTIONS.items()]
    empty = {kind for kind, _ in overview.missing}
    shown = "".join(
        f'<a href="#{kind}"{" class=dim" if kind in empty else ""}>{_E(title)}</a>' for kind, title in links
    )
    return f'<nav aria-label="Contents">{shown}</nav>'


def _advice(advice: Sequence[Advice], places: Mapping[tuple[str, str], str]) -> str:
    rows = []
    for a in advice:
        link = places.get((a.file, a.section), a.section)
        command = f"<br><code>{_E(a.command)}</code>" if a.command else ""
        basis = f' <span class="basis">{_E(a.basis)}</span>' if a.basis else ""
        of = f'<br><span class="dim">{_E(a.of)}</span>' if a.of and a.of != "trust" else ""
        rows.append(
            f'<tr class="{_weight(a)}"><td class="gain"><b>{_E(gain_text(a))}</b>{of}</td>'
            f"<td><b>{_E(clean(a.what))}</b><br>{_E(clean(a.why))}{basis}{command}</td>"
            f'<td><a href="#{link}">evidence</a></td></tr>'
        )
    return f'<div class="wide"><table class="next"><tbody>{"".join(rows)}</tbody></table></div>'


def _weight(advice: Advice) -> str:
    return "trust" if advice.of == "trust" else "known" if advice.gain is not None else "unknown"


def _findings(findings: Sequence[Finding], places: Mapping[tuple[str, str], str]) -> str:
    if not findings:
        return '<p class="dim">No file holds a verdict.</p>'
    rows = "".join(
        f'<tr><td class="{f.state}">{f.state}</td><td>{_E(clean(f.name))}</td><td>{_E(clean(f.text))}</td>'
        f'<td><a href="#{places.get((f.file, f.section), f.section)}">evidence</a></td></tr>'
        for f in findings
    )
    return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>'


def _part(part: Part, kind: str, anchor: str, drawn: dict[str, int], tips: dict[str, str]) -> Iterator[str]:
    yield f'<section id="{anchor}"><h3>{_E(_title(part, kind))} <span class="dim">{_E(clean(part.file))}</span></h3>'
    if kind == "roofline" and shows_roofline(part.doc):
        name = _title(part, kind)
        drawn[name] = drawn.get(name, 0) + 1
        if drawn[name] <= MOST_OF_KIND:
            yield _drawn(plot.roofline_figure(part.doc), anchor, f"Roofline of {name}", part, tips)
    if kind == "collectives":
        picture = plot.collectives_figure(part.doc)
        if picture is not None:
            yield _drawn(picture, anchor, "Bandwidth of the collectives by size", part, tips)
    for table in section_tables(part, kind):
        yield _wide(table, heading=True)
    yield "</section>"


def _title(part: Part, kind: str) -> str:
    return headline(part.doc)[0] if kind in ("roofline", "collectives") else ""


def _drawn(picture: object, anchor: str, words: str, part: Part, tips: dict[str, str]) -> str:
    """With ids of its own: two rooflines stand on one page."""
    svg = figure(picture, anchor, words)
    for name, text in page.tips(part.doc).items():
        if f'id="{name}"' in svg:
            svg = svg.replace(f'id="{name}"', f'id="{anchor}-{name}"')
            tips[f"{anchor}-{name}"] = text
    return svg


def _wide(table: Table, heading: bool = False) -> str:
    title = f"<h4>{_E(table.title)}</h4>" if heading else ""
    shown = table_html(table, heading=False)
    if len(table.rows) <= FOLD_OVER:
        return title + shown
    return f"<details><summary>{_E(table.title)}: {len(table.rows)} rows</summary>{shown}</details>"


def missing_table(overview: Overview) -> Table:
    """Sections without a file, and the commands that bring them."""
    rows = tuple((missing.title, missing.command) for _, missing in overview.missing)
    return Table("missing", "Not known yet", columns_of("what", "/command"), rows)
