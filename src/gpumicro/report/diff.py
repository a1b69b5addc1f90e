"""A comparison of results (`result_diff`) on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ..units import format_fraction, format_quantity
from .console import as_text, bullets, print_parts, rich_table
from .markdown import escape, section, table_lines
from .tables import Doc, Table, clean, columns_of

ORDER = ("slower", "faster", "inconclusive", "equivalent")
_ALIKE = 3  # measurements with one reason that get a row each; more share one


def print_diff(diff: Doc, console: Console) -> None:
    """Print the comparison."""
    print_parts(Group(*_parts(diff)), console)


def diff_text(diff: Doc, width: int = 80) -> str:
    """The comparison as plain text of that width."""
    return as_text(Group(*_parts(diff)), width)


def diff_markdown(diff: Doc) -> str:
    """The comparison as GitHub-flavoured Markdown, for a comment in a CI; every text from the files is escaped."""
    return "\n".join(_markdown(diff)).rstrip() + "\n"


def headline(diff: Doc) -> str:
    """ "1 slower, 3 equivalent of 4 measurements; 2 not compared"."""
    counts = [f"{diff['summary'][verdict]} {verdict}" for verdict in ORDER if diff["summary"].get(verdict)]
    many = len(diff["compared"])
    seen = f"{', '.join(counts)} of {many} measurement{'s' if many != 1 else ''}" if many else "nothing was compared"
    left = len(diff["not_compared"])
    return f"{seen}; {left} not compared" if left else seen


def sides(diff: Doc) -> list[str]:
    """Which files stand on which side."""
    return [f"{side}: {', '.join(clean(source['file']) for source in diff[side])}" for side in ("base", "new")]


def _parts(diff: Doc) -> Iterator[RenderableType]:
    yield Text(headline(diff), style="bold")
    for line in sides(diff):
        yield Text(line, overflow="fold")
    for table in diff_tables(diff):
        yield Text("")
        yield Text(table.title, style="bold")
        yield rich_table(table)
    yield Text("")
    yield from bullets([*_legend(diff), *map(clean, diff["notes"])])


def _markdown(diff: Doc) -> Iterator[str]:
    yield f"# Compared: {escape(headline(diff))}"
    for line in sides(diff):
        yield from ("", escape(line))
    for table in diff_tables(diff):
        yield from table_lines(table)
    yield from section("Notes", [*_legend(diff), *map(clean, diff["notes"])])


def _legend(diff: Doc) -> list[str]:
    if not diff["compared"]:
        return []
    rules = diff["settings"]
    return [
        f"time: of the new result against the base, with its {rules['confidence']:.0%} interval, and the least "
        f"difference that would have been visible in 80 of 100 such comparisons. Equivalent: the interval lies within "
        f"{format_fraction(rules['margin'])}. Faster and slower: at most {rules['fdr']:.0%} of these verdicts are "
        "chance, on average."
    ]


def diff_tables(diff: Doc) -> list[Table]:
    """What was compared, the changes first, and what was not; tables without rows are left out."""
    return [table.without_empty() for table in (_compared(diff), _not_compared(diff)) if table.rows]


def _compared(diff: Doc) -> Table:
    rows = [_row(record) for record in sorted(diff["compared"], key=lambda r: ORDER.index(r["verdict"]))]
    columns = columns_of("measurement", ">base", ">new", ">time", "verdict", "/interval", "/why", "/flags")
    return Table("compared", "Compared", columns, tuple(rows))


def _row(record: Mapping[str, Any]) -> tuple[str, ...]:
    base, new = (format_quantity(record[side]["value"], record[side]["unit"]) for side in ("base", "new"))
    span = " to ".join(change(end) for end in record["ci95"]) if record["ci95"] else "unknown"
    mde = record["mde"]
    visible = "" if mde is None else f"; visible from {format_fraction(mde) if mde < 1 else change(1 + mde)}"
    why = "; ".join(filter(None, (record.get("why", ""), *(f"FORCED: {text}" for text in record["forced"]))))
    flags = ", ".join(map(clean, record["flags"]))
    return (
        readable(record["id"]), base, new, change(record["ratio"]), record["verdict"], span + visible, clean(why), flags
    )  # fmt: skip


def change(ratio: float) -> str:
    """1.0213 as `+2.13%`, 1.2 as `+20.0%`; many times or a small part as `x12.3`, `x0.0123`."""
    percent = 100 * (ratio - 1)
    places = 2 if abs(percent) < 9.995 else 1 if abs(percent) < 99.95 else 0
    return f"{percent:+.{places}f}%" if 0.1 <= ratio < 10 else f"x{ratio:.3g}"


def readable(name: str) -> str:
    """A measurement's name with spaces where a narrow column may break it."""
    return clean(name).replace("[", " [", 1).replace(",", ", ").replace("]@", "] @")


def _not_compared(diff: Doc) -> Table:
    alike: dict[tuple[str, ...], list[str]] = {}
    for left in diff["not_compared"]:
        reasons = tuple(map(clean, left["reasons"]))
        cure = ("--force would compare it all the same",) if left["forcible"] else ()
        alike.setdefault((*reasons, *cure), []).append(readable(left["id"]))
    rows: list[tuple[str, ...]] = []
    for reasons, names in alike.items():
        shown: Sequence[str] = names if len(names) <= _ALIKE else [f"{names[0]} and {len(names) - 1} more"]
        rows += [(name, "; ".join(reasons)) for name in shown]
    return Table("not-compared", "Not compared", columns_of("measurement", "/reason"), tuple(rows))
