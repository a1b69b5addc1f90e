"""A comparison of two commands (`command_pairs`) on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ..command_pairs import cpu_time_s
from ..units import format_fraction, format_interval, format_quantity
from .console import as_text, bullets, print_parts, rich_table
from .diff import change
from .tables import Doc, Table, clean, columns_of

_STOPPED = {
    "resolved": "the interval is as narrow as the margin asks for",
    "runs": "so many runs were asked for",
    "max-time": "the time was up",
    "interrupted": "interrupted",
    "failed": "a command failed",
}


def print_ab(doc: Doc, console: Console) -> None:
    """Print the comparison."""
    print_parts(Group(*_parts(doc)), console)


def ab_text(doc: Doc, width: int = 80) -> str:
    """The comparison as plain text of that width."""
    return as_text(Group(*_parts(doc)), width)


def _parts(doc: Doc) -> Iterator[RenderableType]:
    yield Text(sentence(doc), style="bold")
    yield Text("")
    yield rich_table(_table(doc))
    yield Text("")
    yield from bullets(_remarks(doc))


def sentence(doc: Doc) -> str:
    """ "B is slower than A: wall time +2.13% (+1.90% to +2.40%)"."""
    if doc["ratio"] is None:
        return f"inconclusive: {doc['ratio_why']}"
    verdict = {"equivalent": "equivalent: B against A", "inconclusive": "inconclusive: B against A"}
    said = verdict.get(doc["verdict"], f"B is {_word(doc)} than A")
    low, high = doc["ci95"]
    return f"{said}: {clean(doc['what'])} {change(doc['ratio'])} ({change(low)} to {change(high)})"


def _word(doc: Doc) -> str:
    if doc["unit"] == "s":
        return str(doc["verdict"])
    return "better" if doc["verdict"] == "faster" else "worse"


def _table(doc: Doc) -> Table:
    rows = []
    for name in ("a", "b"):
        arm = doc[name]
        cpu_s = cpu_time_s(arm)
        rows.append((
            f"{name.upper()}: {clean(arm['command'])}", *_location(arm, doc["unit"]),
            "-" if cpu_s is None else format_quantity(cpu_s, "s"), str(len(arm["values"])),
        ))  # fmt: skip
    columns = columns_of("command", ">median", ">95% interval", ">CPU time", ">runs")
    return Table("ab", "", columns, tuple(rows))


def _location(arm: dict[str, Any], unit: str) -> tuple[str, str]:
    if arm["estimate"] is None:
        return "-", "-"
    shown = format_quantity(arm["estimate"], unit, arm["ci95"]), format_interval(arm["ci95"], arm["estimate"], unit)
    return shown if arm["confidence"] >= 0.95 else (shown[0], "-")


def _remarks(doc: Doc) -> list[str]:
    blocks = f"{doc['blocks']} block{'s' if doc['blocks'] != 1 else ''}"
    lines = [f"{blocks} of two runs of each; stopped because {_STOPPED[doc['stop_reason']]}."]
    if doc["mde"] is not None:
        lines.append(
            f"Least difference that would have been found in 80 of 100 such comparisons: {format_fraction(doc['mde'])}."
        )
        if doc["verdict"] == "inconclusive":
            lines.append(f"{doc['need']} blocks would resolve {format_fraction(doc['margin'])}.")
    if "few-blocks" in doc["flags"] and doc["stop_reason"] not in ("failed", "interrupted"):
        lines.append("There is no verdict from fewer than 6 blocks: give --max-time or --runs more.")
    if "correlated" in doc["flags"]:
        lines.append("Blocks depend on their predecessors; the interval was widened for it.")
    return [*lines, *([f"FAILED: {clean(doc['error'])}"] if "error" in doc else [])]
