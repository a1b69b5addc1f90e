"""Prints what a judging command found: a headline, tables with their remarks, notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..report.tables import Table


def show(headline: Sequence[str], tables: Iterable[Table], notes: Sequence[str] = ()) -> None:
    """To stdout; the first line of the headline is bold, and tables without rows are left out."""
    from rich.console import Console, Group, RenderableType
    from rich.text import Text

    from ..report.console import bullets, print_parts, rich_table

    parts: list[RenderableType] = [Text(line, style="" if index else "bold") for index, line in enumerate(headline)]
    for table in (table.without_empty() for table in tables if table.rows):
        parts += [Text(""), Text(table.title, style="bold"), rich_table(table), *bullets(table.remarks)]
    if notes:
        parts += [Text(""), Text("Notes", style="bold"), *bullets(list(notes))]
    print_parts(Group(*parts if headline else parts[1:]), Console())
