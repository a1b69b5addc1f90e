"""Draws bandwidth over size of every sweep: measured points, the fitted lines, the spec line of the link."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..collectives.fit import fit
from ..collectives.sweeps import Sweep, sweeps_of
from ..peaks.links import Link
from ..units import format_quantity, format_size, format_tick
from .collectives import link_of
from .labels import drawable
from .shares import share_of
from .tables import Doc, clean, headline, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, black last
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
_MARKERS = "os^Dv*X"
_FLAGGED = "#b00020"


def drawn(doc: Doc) -> tuple[Sweep, ...]:
    """The sweeps that have a point to draw."""
    return tuple(sweep for sweep in sweeps_of(doc) if sweep.points)


def is_busbw(sweeps: Sequence[Sweep]) -> bool:
    """Whether each has a bus bandwidth; else all are drawn as size over time."""
    return all(sweep.factor for sweep in sweeps)


def draw_busbw(doc: Doc, ax: Axes) -> Axes:
    """Log-log: x in bytes, y in B/s. Small sizes, whose busbw a tool prints as 0.00, follow from size over time."""
    sweeps, link = drawn(doc), _comparable_link(doc)
    bus = is_busbw(sweeps)
    for index, sweep in enumerate(sweeps):
        _draw_sweep(ax, index, sweep, sweep.factor if bus and sweep.factor else 1.0)
    _set_axes(ax, sweeps, "Bus bandwidth (B/s)" if bus else "Size over time (B/s)")
    if link and bus:
        ax.axhline(link.bytes_per_s, color="#444444", linestyle=(0, (5, 3)), linewidth=1.1, zorder=2)
        low, high = ax.get_ylim()
        ax.set_ylim(low, max(high, link.bytes_per_s * 1.8))
        ax.annotate(
            f"{drawable(link.name)} spec {format_quantity(link.bytes_per_s, 'B/s')}", (0, link.bytes_per_s), (4, 3),
            xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=7.5, color="#444444",
            parse_math=False,
        )  # fmt: skip
    legend = ax.legend(loc="lower right", fontsize=7.5, framealpha=0.9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    device, when, *alarms = map(drawable, headline(doc))
    ax.set_title(f"Collectives: {device}", fontsize=10.5, loc="left", parse_math=False)
    style: dict[str, Any] = {"fontsize": 7.5, "color": _FLAGGED if alarms else "#555555", "parse_math": False}
    ax.annotate("   ".join([when, *alarms]), (0, 0), (0, -40), "axes fraction", textcoords="offset points", **style)
    return ax


def _comparable_link(doc: Doc) -> Link | None:
    """The link, where busbw may be set against it in any row."""
    link = link_of(doc)
    items = (item for item in doc["measurements"] if item["family"] == "collective")
    return link if link and any(share_of(item, link).of_link is not None for item in items) else None


def _draw_sweep(ax: Axes, index: int, sweep: Sweep, factor: float) -> None:
    colour, marker = _COLOURS[index % len(_COLOURS)], _MARKERS[index // len(_COLOURS) % len(_MARKERS)]
    size = 7.5 - 1.5 * min(index, 2)  # sweeps that coincide stay visible
    for number, point in enumerate(sweep.points):
        rate = factor * point.size_bytes / point.time_s
        if point.low_s and point.high_s:
            ends = [factor * point.size_bytes / time for time in (point.high_s, point.low_s)]
            ax.plot([point.size_bytes] * 2, ends, color=colour, linewidth=1.2, zorder=3)
        ax.plot([point.size_bytes], [rate], marker, color=colour, markersize=size, markeredgecolor="white",
                markeredgewidth=0.5, linestyle="none", zorder=4, gid=f"point-busbw-{index}-{number}",
                label=None if number else drawable(sweep.name, 60))  # fmt: skip
    for regime in fit(sweep).regimes:
        xs = [regime.from_bytes * (regime.to_bytes / regime.from_bytes) ** (step / 60) for step in range(61)]
        ys = [factor * x / regime.time_s(x).value for x in xs]
        ax.plot(xs, ys, color=colour, linewidth=max(2.4 - 1.2 * index, 1.0), alpha=0.7, zorder=2)


def _set_axes(ax: Axes, sweeps: Sequence[Sweep], label: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    least, most = min(sweep.sizes[0] for sweep in sweeps), max(sweep.sizes[-1] for sweep in sweeps)
    ax.set_xlim(least / 1.5, most * 1.5)
    step = max(1, math.ceil(math.log2(most / least) / 12))
    ax.xaxis.set_major_locator(LogLocator(base=2.0**step, numticks=40))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_size(x)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0,) if high / low > 300 else (1.0, 2.0, 5.0), numticks=40))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: format_tick(y, "B/s")))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("Size")
    ax.set_ylabel(label)
    ax.grid(True, which="major", color="#e6e6e6", linewidth=0.6, zorder=0)
    ax.tick_params(labelsize=8)


def tips(doc: Doc) -> Iterator[tuple[str, str]]:
    """(gid of a point, its hover text)."""
    sweeps = drawn(doc)
    bus = is_busbw(sweeps)
    for index, sweep in enumerate(sweeps):
        factor = sweep.factor if bus and sweep.factor else 1.0
        for number, point in enumerate(sweep.points):
            ends = None if point.low_s is None or point.high_s is None else (point.low_s, point.high_s)
            rate = quantity(factor * point.size_bytes / point.time_s, "B/s")
            lines = (clean(sweep.name), format_size(point.size_bytes), quantity(point.time_s, "s", ends),
                     f"{'busbw' if bus else 'size over time'} {rate}")  # fmt: skip
            yield f"point-busbw-{index}-{number}", "\n".join(lines)
