"""The gap from spec to kernel in words: one paragraph of lines for each quantity."""

from __future__ import annotations

from dataclasses import dataclass

from ..units import format_fraction
from .tables import Doc, clean, quantity


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the stairs, as text. `share` is its fraction of the last known step above, "" for the first."""

    name: str
    label: str
    value: str
    share: str


@dataclass(frozen=True, slots=True)
class Gap:
    """One quantity from spec to kernel; `causes` and `open` are sentences."""

    quantity: str
    steps: tuple[Step, ...]
    causes: tuple[str, ...]
    open: tuple[str, ...]


def gaps(doc: Doc) -> list[Gap]:
    """Every gap of the document, in its order."""
    return [
        Gap(
            clean(gap["quantity"]),
            tuple(_steps(gap)),
            tuple(map(_cause, gap["causes"])),
            tuple(map(_open, gap["unattributed"])),
        )
        for gap in doc.get("gap", [])
    ]


def _steps(gap: Doc) -> list[Step]:
    steps: list[Step] = []
    above: tuple[str, float] | None = None
    for step in gap["steps"]:
        value: float | None = step["value"]
        share = ""
        if value is not None and above and above[1] > 0:
            share = f"{format_fraction(value / above[1])} of {above[0]}"
        label = clean(step.get("label") or "")
        if value is None:
            label = clean(step.get("value_why") or "no reason given")
        steps.append(Step(clean(step["name"]), label, quantity(value, gap["unit"], step.get("ci95")), share))
        if value is not None:
            above = (clean(step["name"]), value)
    return steps


def _between(item: Doc) -> str:
    upper, lower = item["between"]
    return f"{clean(upper)} -> {clean(lower)}"


def _cause(cause: Doc) -> str:
    fraction: float | None = cause.get("fraction")
    size = (
        f"accounts for {format_fraction(fraction, 2)} of {clean(cause['between'][0])}"
        if fraction is not None
        else "size not measured"
    )
    return f"{_between(cause)}: {clean(cause['cause'])}, {size} ({clean(cause['evidence'])})"


def _open(item: Doc) -> str:
    fraction: float | None = item.get("fraction")
    note = clean(item.get("note") or "")
    if fraction is not None and fraction < 0:  # more than the step above, or more named than lost
        return f"{_between(item)}: {note or 'more than can be'}"
    size = f"{format_fraction(fraction, 2)} of {clean(item['between'][0])} " if fraction is not None else ""
    return f"{_between(item)}: {size}not attributed{f': {note}' if note else ''}"
