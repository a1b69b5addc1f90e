"""The waterfall from spec to ceiling to library to kernel: one bar a step, its loss at its end, causes in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..units import format_quantity
from .labels import drawable
from .tables import Doc

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM_FOR_LABEL = 0.4  # of the longest bar


def draw_gap(doc: Doc, ax: Axes, index: int = 0) -> Axes:
    """The stairs from spec to kernel of `doc["gap"][index]`."""
    gap = doc["gap"][index]
    unit, steps = gap["unit"], gap["steps"]
    top = max((s["value"] for s in steps if s["value"]), default=1.0)
    right = max([top, *(step["ci95"][1] for step in steps if step.get("ci95"))])  # values stand beyond every interval
    right = min(right, 1.6 * top)
    above: Doc | None = None
    for row, step in enumerate(steps):
        value = step["value"]
        _draw_step(ax, row, step, unit, top, right)
        words = []
        if value is not None and above is not None:
            words = _draw_losses(ax, row, gap, above, step)
        ax.annotate(
            "   ".join(words),
            (0, row + 0.31),
            (6, 0),
            textcoords="offset points",
            fontsize=6.8,
            va="top",
            color="#444444",
            parse_math=False,
        )
        above = step if value is not None else above
    ax.set_ylim(len(steps) - 0.35, -0.6)
    ax.set_xlim(0, right + 0.3 * top)
    ax.set_yticks(range(len(steps)), [drawable(step["name"]) for step in steps], fontsize=8.5, parse_math=False)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.set_title(f"From spec to kernel: {drawable(gap['quantity'])}", fontsize=9.5, loc="left", parse_math=False)
    return ax


def _draw_step(ax: Axes, row: int, step: Doc, unit: str, top: float, right: float) -> None:
    value = step["value"]
    if value is None:
        ax.barh([row], [top], height=0.52, facecolor="none", edgecolor="#999999", linestyle="--", linewidth=0.9)
        why = drawable(step.get("value_why") or "")
        ax.annotate(
            f"unknown: {why}",
            (0, row),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color="#555555",
            parse_math=False,
        )
        return
    ax.barh([row], [value], height=0.52, color="#9ec5de" if step["name"] == "spec" else "#0072B2", linewidth=0)
    if step.get("ci95"):
        low, high = step["ci95"]
        ax.plot([low, min(high, right)], [row, row], color="black", linewidth=1.2)
    inside = value > _ROOM_FOR_LABEL * top
    colour = "white" if inside and step["name"] != "spec" else "#1a1a1a"
    # a short bar's label stands beside it, on the hatched loss
    back = None if inside else {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "parse_math": False}
    label = drawable(step.get("label") or "", 60)
    ax.annotate(label, (0 if inside else value, row), (6, 0), fontsize=7.5, color=colour, bbox=back, **style)
    ax.annotate(format_quantity(value, unit, step.get("ci95")), (right, row), (8, 0), fontsize=8.5, **style)


def _draw_losses(ax: Axes, row: int, gap: Doc, above: Doc, step: Doc) -> list[str]:
    """What lies between this step and the one above: the known part in colour, the rest hatched. Returns the words."""
    start, words = step["value"], []
    here = [item for item in gap["causes"] if list(item["between"]) == [above["name"], step["name"]]]
    for cause, colour in zip(here, _cycle(), strict=False):
        share = cause.get("fraction")
        words.append(f"{drawable(cause['cause'])}{f' {100 * share:.2g}%' if share is not None else ''}")
        if share and share > 0:
            width = min(share * above["value"], max(0.0, above["value"] - start))
            ax.barh([row], [width], left=start, height=0.52, color=colour, linewidth=0)
            start += width
    rest = above["value"] - start
    if rest > 0:
        ax.barh(
            [row], [rest], left=start, height=0.52, facecolor="none", edgecolor="#999999", hatch="////", linewidth=0.5
        )
    for item in gap["unattributed"]:
        share = item.get("fraction")
        if list(item["between"]) == [above["name"], step["name"]]:
            if share is not None and share < 0:
                words.append(
                    f"above {drawable(above['name'])}" if step["value"] > above["value"] else "effects overlap"
                )
                continue
            words.append(f"not attributed{f' {100 * share:.2g}%' if share is not None else ''}")
    return words


def _cycle() -> Sequence[str]:
    return ("#E69F00", "#CC79A7", "#009E73", "#D55E00", "#56B4E9", "#F0E442") * 4
