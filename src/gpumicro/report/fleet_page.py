"""The fleet as one self-contained page: a map with a square a node, and the tables. All text is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

from .diff import change
from .fleet import fleet_tables, headline, legend, verdict_lines
from .markup import bullet_list, resource, script_json, table_html
from .tables import Doc, clean

_E = html.escape
FOLDED = ("ceilings", "members", "faults")  # long and seldom the question: a click away
BINS, REACH = 60, 0.15  # of a histogram: so many bars from -15% to +15%


def fleet_html(found: Doc) -> str:
    """The page as text."""
    title = f"Fleet: {headline(found)}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_E(title)}</title>\n<style>\n{resource('page.css')}{resource('fleet.css')}</style></head>\n<body>\n"
        f"<h1>{_E(title)}</h1>\n" + "\n".join(_body(found)) + '\n<div id="tip" role="tooltip"></div>\n'
        '<script type="application/json" id="tips">{}</script>\n'
        f'<script type="application/json" id="fleet">{script_json(map_data(found))}</script>\n'
        f"<script>\n{resource('page.js')}</script>\n<script>\n{resource('fleet.js')}</script>\n</body></html>\n"
    )


def fleet_bytes(found: Doc) -> bytes:
    """The page as UTF-8."""
    return fleet_html(found).encode("utf-8", "replace")


def _body(found: Doc) -> Iterator[str]:
    yield f'<p class="dim">{_E(clean(found["folder"]))}, {_E(clean(found["created"]))}</p>'
    for line in verdict_lines(found):
        yield f'<p class="{"alarm" if line.startswith("FAILED") else "good"}">{_E(line)}</p>'
    yield bullet_list([clean(note) for note in found["notes"]])
    yield _MAP
    for table in fleet_tables(found):
        if table.key not in FOLDED:
            yield table_html(table)
        elif table.key == "ceilings":
            yield table_html(table)
            yield from _histograms(found)
        else:
            inner = table_html(table, False)
            yield f"<details><summary>{_E(table.title)}: {len(table.rows)}</summary>{inner}</details>"
    yield "<h2>How it was judged</h2>" + bullet_list([
        *legend(found),
        "The map's colour is the distance from the median of the same model, full at 10%; a frame marks what the rule "
        "above calls slow or fast. Of a node with several devices the slowest one is shown.",
        f"Nodes are told by their files' names{_by(found['rules']['node_pattern'])}, "
        f"racks{_by(found['rules']['rack_pattern']) or ' not at all (--rack)'}.",
    ])  # fmt: skip


def _by(pattern: str) -> str:
    return f" by the pattern {clean(pattern)}" if pattern else ""


_MAP = """<section class="map" aria-label="Map of the fleet">
<div class="controls"><label>Show <select id="what"></select></label>
<label>Find <input id="find" type="search" placeholder="node" autocomplete="off"></label>
<span class="legend" aria-hidden="true"><span>slower</span><canvas id="scale" width="160" height="12"></canvas>
<span>faster</span></span></div>
<canvas id="map" tabindex="0" role="img" aria-label="A square a node; the tables below name those out of line"></canvas>
<div id="detail" aria-live="polite">Point at a square; click to keep it. Arrow keys move from node to node.</div>
<noscript><p>The map needs JavaScript; the tables below hold what it shows.</p></noscript></section>"""


def map_data(found: Doc) -> dict[str, Any]:
    """What the map draws: ratios as parts in ten thousand from the median, null where a device lacks the ceiling."""
    ceilings = [(c["model"], c["name"]) for c in found["ceilings"]]
    names = list(dict.fromkeys(name for _, name in ceilings))
    models = list(dict.fromkeys(model for model, _ in ceilings))
    racks = sorted({d["groups"].get("rack", "") for d in found["devices"]}, key=_natural)
    place = {rack: i for i, rack in enumerate(racks)}
    out = {
        (o["node"], o["device"], o["model"]): [names.index(d["ceiling"]) for d in (o["shown_by"], *o["others"])]
        for o in (*found["slow"], *found["fast"])
    }
    nodes: dict[str, list[Any]] = {}
    refused = {r["node"] for r in (found["acceptance"] or {}).get("refusals", ())}
    for d in sorted(found["devices"], key=lambda d: _natural(d["node"])):
        node = nodes.setdefault(
            d["node"], [clean(d["node"]), place[d["groups"].get("rack", "")], int(d["node"] in refused), []]
        )
        ratios = [_parts_of(d["ratios"].get(name)) for name in names]
        model = models.index(d["model"]) if d["model"] in models else -1
        node[3].append([clean(d["device"]), model, ratios, out.get((d["node"], d["device"], d["model"]), [])])
    return {"names": list(map(clean, names)), "models": list(map(clean, models)), "racks": list(map(clean, racks)),
            "nodes": list(nodes.values())}  # fmt: skip


def _parts_of(ratio: float | None) -> int | None:
    return None if ratio is None else round(1e4 * (min(ratio, 100.0) - 1))


def _natural(text: str) -> list[tuple[int, int, str]]:
    """node2 before node10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]+)", text) if part]


def _histograms(found: Doc) -> Iterator[str]:
    """A row of bars for each ceiling that was judged: how its devices lie about the median, counts by their roots."""
    rows = []
    for ceiling in found["ceilings"]:
        if not ceiling["why"]:
            ratios = [d["ratios"][ceiling["name"]] for d in found["devices"]
                      if d["model"] == ceiling["model"] and ceiling["name"] in d["ratios"]]  # fmt: skip
            rows.append((ceiling, _bars(ratios)))
    if not rows:
        return
    several = len({ceiling["model"] for ceiling, _ in rows}) > 1
    body = "".join(
        f"<tr><td>{_E(clean(c['name']))}{_E(', ' + clean(c['model'])) if several else ''}</td><td>{bars}</td></tr>"
        for c, bars in rows
    )
    yield (
        "<h3>How devices lie about the median</h3>"
        f'<p class="dim">From {-REACH:.0%} to {REACH:+.0%}, what lies beyond in the last bar; the height of a bar is '
        "the root of its count, so that a single device shows.</p>"
        f'<div class="wide"><table class="spread"><tbody>{body}</tbody></table></div>'
    )


def _bars(ratios: list[float]) -> str:
    counts: dict[int, int] = {}
    for ratio in ratios:
        place = int((ratio - 1 + REACH) / (2 * REACH) * BINS)
        bin_ = min(BINS - 1, max(0, place))
        counts[bin_] = counts.get(bin_, 0) + 1
    top = max(counts.values()) ** 0.5
    bars = "".join(
        f'<rect x="{8 * i}" y="{30 - 28 * count**0.5 / top:.1f}" width="7" height="{28 * count**0.5 / top + 1:.1f}" '
        f'class="{_side(i)}"><title>{_E(_span(i, count))}</title></rect>'
        for i, count in sorted(counts.items())
    )
    return (
        f'<svg viewBox="0 0 {8 * BINS} 34" role="img" aria-label="{len(ratios)} devices">'
        f'<line x1="{4 * BINS}" x2="{4 * BINS}" y1="0" y2="34"/><line x1="0" x2="{8 * BINS}" y1="31.5" y2="31.5"/>'
        f"{bars}</svg>"
    )


def _side(place: int) -> str:
    middle = (place + 0.5) / BINS * 2 * REACH - REACH
    return "low" if middle < -0.03 else "high" if middle > 0.03 else "mid"


def _span(place: int, count: int) -> str:
    low, high = (1 - REACH + 2 * REACH * edge / BINS for edge in (place, place + 1))
    return f"{count} from {change(low)} to {change(high)}"
