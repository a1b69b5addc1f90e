"""The report as Markdown, for a README or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .gap import gaps
from .tables import Doc, Table, all_tables, document_title, flag_words, headline, remarks, unmeasured


def to_markdown(doc: Doc) -> str:
    """GitHub-flavoured Markdown; every text from the file is escaped."""
    return "\n".join(_lines(doc)).rstrip() + "\n"


def to_bytes(doc: Doc) -> bytes:
    """The Markdown as UTF-8."""
    return to_markdown(doc).encode("utf-8", "replace")


# "@cpu" outside of code calls the user or team of that name to an issue or a comment, escaped or not
_MENTION = re.compile(r"((?<!\w)@[\w./:=-]*\w)")


def escape(text: str) -> str:
    """Text that means nothing but itself on GitHub."""
    parts = _MENTION.split(text)
    parts[::2] = (re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", part).replace("&", "&amp;") for part in parts[::2])
    parts[1::2] = (f"`{part}`" for part in parts[1::2])
    return "".join(parts)


def _lines(doc: Doc) -> Iterator[str]:
    device, *rest = headline(doc)
    yield f"# {document_title(doc)}: {escape(device)}"
    for line in rest:
        yield ""
        yield escape(line)
    for table in all_tables(doc):
        yield from table_lines(table)
    for gap in gaps(doc):
        yield from (
            "",
            f"## From spec to kernel: {escape(gap.quantity)}",
            "",
            "| step | value | share | what |",
            "| --- | ---: | --- | --- |",
        )
        for step in gap.steps:
            yield f"| {escape(step.name)} | {escape(step.value)} | {escape(step.share)} | {escape(step.label)} |"
        yield from _list([*gap.causes, *gap.open])
    yield from section("Not measured", unmeasured(doc))
    yield from section("Flags", [f"{flag}: {words}" for flag, words in flag_words(doc)])
    yield from section("Verdicts and notes", remarks(doc))


def section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"## {title}")
        yield from _list(lines)


def _list(lines: tuple[str, ...] | list[str]) -> Iterator[str]:
    if lines:
        yield ""
    for line in lines:
        yield f"- {escape(line)}"


def table_lines(table: Table) -> Iterator[str]:
    yield from ("", f"## {escape(table.title)}", "")
    yield "| " + " | ".join(column.name for column in table.columns) + " |"
    yield "| " + " | ".join("---:" if column.right else "---" for column in table.columns) + " |"
    for row in table.rows:
        yield "| " + " | ".join(map(escape, row)) + " |"
    yield from _list(table.remarks)
