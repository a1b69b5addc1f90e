"""The report on a terminal: reads well at 80 columns, without colour, without a TTY and in ASCII."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from .gap import Gap, gaps
from .tables import Doc, Table, all_tables, flag_words, headline, remarks, unmeasured

_RULE = SIMPLE_HEAD.head_row_horizontal
_FAILURE_WORDS = ("FAILED", "EMULATED", "SYNTHETIC", "REPLAYED", "IMPORTED", "INTERRUPTED")


def render(doc: Doc) -> Group:
    """The whole report as one renderable; texts from the file are never read as markup."""
    return Group(*_parts(doc))


def render_text(doc: Doc, width: int = 80) -> str:
    """The report as plain text of that width, without colour."""
    return as_text(render(doc), width)


def as_text(parts: RenderableType, width: int) -> str:
    """Anything as plain text of that width, without colour."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=False, color_system=None, legacy_windows=False)
    console.print(parts)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def to_bytes(doc: Doc) -> bytes:
    """The report as a text file (UTF-8)."""
    return render_text(doc).encode("utf-8", "replace")


def print_report(doc: Doc, console: Console) -> None:
    """Print; what the console's encoding cannot show becomes a dash (lines) or a question mark instead of an error."""
    print_parts(render(doc), console)


def print_parts(parts: RenderableType, console: Console) -> None:
    """As `print_report`, of anything."""
    if console.encoding.replace("-", "").startswith("utf"):
        console.print(parts)
        return
    text = as_text(parts, console.width).replace(_RULE, "-")
    console.file.write(text.encode(console.encoding, "replace").decode(console.encoding))


def _parts(doc: Doc) -> Iterator[RenderableType]:
    first, *rest = headline(doc)
    yield Text(first, style="bold")
    for line in rest:
        yield _line(line)
    for table in all_tables(doc):
        yield Text("")
        yield Text(table.title, style="bold")
        yield rich_table(table)
        yield from bullets(table.remarks)
    for gap in gaps(doc):
        yield Text("")
        yield from _gap(gap)
    yield from _section("Not measured", unmeasured(doc))
    yield from _section("Flags", [f"{flag}: {words}" for flag, words in flag_words(doc)])
    yield from _section("Verdicts and notes", remarks(doc))


def _section(title: str, lines: list[str]) -> Iterator[RenderableType]:
    if lines:
        yield Text("")
        yield Text(title, style="bold")
        yield from bullets(lines)


def bullets(lines: tuple[str, ...] | list[str]) -> Iterator[RenderableType]:
    for line in lines:
        # a hanging indent: the dash in a column of its own
        grid = RichTable.grid(padding=(0, 1))
        grid.add_row(Text(" -"), _line(line))
        yield grid


def _line(text: str) -> Text:
    return Text(text, style="bold red" if text.startswith(_FAILURE_WORDS) else "", overflow="fold")


def rich_table(table: Table) -> RichTable:
    """What is marked `under` goes to a second line of the first column: eighty columns do not hold it beside."""
    under = [i for i, column in enumerate(table.columns) if column.under]
    beside = [i for i, column in enumerate(table.columns) if not column.under]
    shown = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for i in beside:
        column = table.columns[i]
        right = column.right and (i > 0 or not under)  # second lines stand flush left
        shown.add_column(column.name, justify="right" if right else "left", no_wrap=i > 0, overflow="fold")
    for row in table.rows:
        cells = [Text(row[i]) for i in beside]
        for i in under:
            if row[i]:
                flags = table.columns[i].name == "flags"
                cells[0].append(f"\n  {'! ' if flags else ''}{row[i]}", style="yellow" if flags else "dim")
        shown.add_row(*cells)
    return shown


def _gap(gap: Gap) -> Iterator[RenderableType]:
    yield Text(f"From spec to kernel: {gap.quantity}", style="bold")
    stairs = RichTable.grid(padding=(0, 2))
    stairs.add_column()
    stairs.add_column(justify="right", no_wrap=True)
    stairs.add_column(no_wrap=True)
    stairs.add_column(overflow="fold")
    for step in gap.steps:
        stairs.add_row(Text(step.name), Text(step.value), Text(step.share), Text(step.label, style="dim"))
    yield Padding(stairs, (0, 0, 0, 1))
    yield from bullets([*gap.causes, *gap.open])
