"""The cluster on a terminal: verdicts, what to do next, what is not known yet."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ..report.console import bullets, print_parts, rich_table
from ..report.tables import Table
from .overview import Overview
from .overview_page import missing_table, summary
from .overview_tables import advice_table, facts_table, findings_table


def print_overview(overview: Overview) -> None:
    """To standard output."""
    parts: list[RenderableType] = [Text(f"Cluster: {summary(overview)}", style="bold")]
    advice = [one for one in overview.advice if not one.command]
    unmet = [finding for finding in overview.findings if finding.state != "passed"]
    tables = (advice_table(advice), findings_table(unmet), _files(overview), missing_table(overview))
    passed = len(overview.findings) - len(unmet)
    for table in tables:
        if table.rows:
            parts += [Text(""), Text(table.title, style="bold"), rich_table(table.without_empty())]
    parts += [
        Text(""),
        *bullets(
            [
                f"{passed} verdict{'s' * (passed != 1)} passed.",
                "Gains are upper bounds by the figures beside them, and do not add up. --html has all.",
            ]
        ),
    ]
    print_parts(Group(*parts), Console())


def _files(overview: Overview) -> Table:
    """The facts without command and time."""
    whole = facts_table(overview)
    keep = [i for i, column in enumerate(whole.columns) if column.name not in ("command", "made", "host")]
    columns = tuple(whole.columns[i] for i in keep)
    return Table("files", "Files", columns, tuple(tuple(row[i] for i in keep) for row in whole.rows))
