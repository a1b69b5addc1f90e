"""Pieces of a page that stands alone: texts of a result become HTML here, each escaped."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from ..units import UNITS, parse
from . import plot
from .tables import Table

_E = html.escape


def resource(name: str) -> str:
    return (files("gpumicro") / "report" / name).read_text("utf-8")


def script_json(value: Any) -> str:
    """JSON that cannot end a script element."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"<h2>{_E(title)}</h2>{bullet_list(lines)}"


def bullet_list(lines: list[str] | tuple[str, ...]) -> str:
    def item(line: str) -> str:
        alarm = ' class="alarm"' if line.startswith("FAILED") else ""
        return f"<li{alarm}>{_E(line)}</li>"

    return f"<ul>{''.join(map(item, lines))}</ul>" if lines else ""


def figure(picture: Any, name: str, description: str) -> str:
    svg = plot.save_svg(picture, salt=name).decode()
    svg = svg[svg.index("<svg") :]
    # the page scales the picture; ids of glyphs and clips are local to a picture, of points and roofs to the page
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    svg = re.sub(r'id="(?!point-|ceiling-|spec-|work-)', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\1{name}-", svg)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{_E(description)}"', 1)
    return f"<figure>{svg}</figure>"


def table_html(table: Table, heading: bool = True) -> str:
    title = f"<h2>{_E(table.title)}</h2>" if heading else ""
    head = "".join(
        f'<th scope="col"{" class=number" if c.right else ""}><button type="button">{_E(c.name)}</button></th>'
        for c in table.columns
    )
    rows = "".join(
        "<tr>" + "".join(_cell(table, i, text) for i, text in enumerate(row)) + "</tr>" for row in table.rows
    )
    inner = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'{title}<div class="wide"><table>{inner}</table></div>{bullet_list(table.remarks)}'


def _cell(table: Table, index: int, text: str) -> str:
    column = table.columns[index]
    kind = "number" if column.right else "flags" if "flags" in column.name and text else ""
    value = _sort_value(text) if column.right else None
    return (
        f"<td{f' class={kind}' if kind else ''}{f' data-value={value!r}' if value is not None else ''}>{_E(text)}</td>"
    )


def _sort_value(text: str) -> float | None:
    """The number that a formatted cell stands for, so that GB/s and TB/s sort rightly."""
    first = text.partition(" to ")[0]
    unit = next((u for u in UNITS if u and first.endswith(u)), "")
    try:
        return parse(first.rstrip("%"), unit)
    except ValueError:
        return None
