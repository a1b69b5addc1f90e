"""Draws the roofline from a result document (matplotlib, without pyplot's global state). Only draws: every figure
shown stands in the document. Artists carry gids ("point-3", "ceiling-0") that the page's hover finds."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..units import format_quantity, format_tick, shown_unit
from . import network
from .busbw import draw_busbw, drawn
from .labels import Placer, Spot, drawable
from .stairs import draw_gap
from .stragglers import draw_pairs, is_pairs
from .tables import LEVEL_NAMES, Doc, ceiling_name, clean, headline, shows_roofline, suspicious

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every kind of colour vision
DTYPE_COLOURS = {
    "float64": "#0072B2",
    "float32": "#D55E00",
    "bfloat16": "#009E73",
    "int8": "#CC79A7",
    "float16": "#E69F00",
    "tf32": "#56B4E9",
    "float8_e4m3fn": "#7a3b00",
    "int32": "#6a3d9a",
}
_OTHER_DTYPE = "#666666"
_LEVEL_COLOURS = {"shared": "#b5b5b5", "l1": "#9a9a9a", "l2": "#7d7d7d", "l3": "#5c5c5c", "dram": "#222222"}
_MARKERS = {"gemm": "s^vD", "stream": "o", "mixed": ".", "user": "*XP"}  # of a kind's kernels in their order
_KIND_WORDS = {"stream": "stream.*", "mixed": "mixed-intensity sweep"}
_FLAGGED = "#b00020"
_LABEL = {"fontsize": 7.5}
_CLOSE = 1.3  # ratio of spec to achieved
_ROOFLINE_HEIGHT = 6.4  # inches, of a figure 10 inches wide
_COLLECTIVES_HEIGHT = 5.2
_HIT_WIDTH = 9  # points: an invisible wide line under each roof that a pointer can find


def colour_of(dtype: str | None) -> str:
    """The colour of a dtype, the same in every panel and report."""
    return DTYPE_COLOURS.get(dtype or "", _OTHER_DTYPE)


def _ink(colour: str) -> tuple[float, float, float]:
    """The colour darkened until small text in it reads well on white."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.65 * red, 0.65 * green, 0.65 * blue


def draw_roofline(doc: Doc, ax: Axes) -> Axes:
    """The log-log roofline of one document: x in FLOP/B, y in FLOP/s. The axes' position should be final."""
    roofs = [
        (i, c) for i, c in enumerate(doc["ceilings"]) if c.get("scope", "roof") == "roof" and _drawable(c["achieved"])
    ]
    points = [
        (i, p)
        for i, p in enumerate(doc["points"])
        if _drawable(p["intensity_flop_per_byte"]) and _drawable(p["flop_per_s"])
    ]
    _set_axes(ax, roofs, points, [x for x, _ in network.places(doc)])
    placer = Placer(ax)
    _draw_roofs(ax, roofs, placer)
    _draw_points(ax, points, placer)
    network.draw_works(doc, ax, placer)
    _add_legend(ax, points, placer, network.places(doc))
    network.label_works(doc, placer)
    _label_roofs(ax, roofs, placer)
    _label_points(points, placer)
    device, when, *alarms = map(drawable, headline(doc))
    ax.set_title(f"Roofline: {device}", fontsize=10.5, loc="left", parse_math=False)
    style: dict[str, Any] = {"fontsize": 7.5, "color": _FLAGGED if alarms else "#555555", "parse_math": False}
    ax.annotate("   ".join([when, *alarms]), (0, 0), (0, -40), "axes fraction", textcoords="offset points", **style)
    return ax


def _add_legend(
    ax: Axes, points: Sequence[tuple[int, Doc]], placer: Placer, works: Sequence[tuple[float, float]]
) -> None:
    """Lower right, below the roof; where a point lies there, upper left, above it."""
    if not ax.get_legend_handles_labels()[0]:
        return
    for where in ("lower right", "upper left"):
        legend = ax.legend(loc=where, fontsize=7.5, framealpha=0.9)
        for text in legend.get_texts():
            text.set_parse_math(False)
        box = legend.get_window_extent()
        places = [*((p["intensity_flop_per_byte"], p["flop_per_s"]) for _, p in points), *works]
        spots = ax.transData.transform(places)
        if not any(box.contains(x, y) for x, y in spots):
            break
    placer.avoid_box(box)


def _drawable(value: float | None) -> bool:
    """Whether a logarithmic axis can hold it: a file may say anything."""
    return value is not None and 1e-30 < value < 1e30


def _memory(roofs: Sequence[tuple[int, Doc]]) -> list[tuple[int, Doc]]:
    return [(i, c) for i, c in roofs if c["kind"] == "memory"]


def _arithmetic(roofs: Sequence[tuple[int, Doc]]) -> list[tuple[int, Doc]]:
    return [(i, c) for i, c in roofs if c["kind"] == "arithmetic"]


def _set_axes(
    ax: Axes, roofs: Sequence[tuple[int, Doc]], points: Sequence[tuple[int, Doc]], works: Sequence[float] = ()
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    memory = [c["achieved"] for _, c in _memory(roofs)]
    arithmetic = [value for _, c in _arithmetic(roofs) for value in (c["achieved"], c["spec"]) if _drawable(value)]
    intensities = [*(p["intensity_flop_per_byte"] for _, p in points), *works]
    slopes = [c["achieved"] for _, c in roofs if c["kind"] != "arithmetic"]
    ridges = [top / bandwidth for top in arithmetic for bandwidth in slopes]
    x0, x1 = min([1 / 16, *intensities, *ridges]) / 1.6, max([64, *intensities, *(2 * ridge for ridge in ridges)]) * 1.6
    rates = [p["flop_per_s"] for _, p in points] + [bandwidth * x0 for bandwidth in memory] + arithmetic
    y0, y1 = (min(rates) / 1.4, max(rates) * 2.2) if rates else (1e9, 1e12)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(x0, x1)
    ax.set_ylim(y0, y1)
    wire = "; under the network: FLOP a byte over the wire" if any(c["kind"] == "network" for _, c in roofs) else ""
    ax.set_xlabel(f"Arithmetic intensity (FLOP/B{wire})")
    ax.set_ylabel("Performance (FLOP/s)")
    step = max(1, math.ceil(math.log2(x1 / x0) / 16))
    ax.xaxis.set_major_locator(LogLocator(base=2.0**step, numticks=40))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _intensity_tick(x)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0,) if y1 / y0 > 300 else (1.0, 2.0, 5.0), numticks=40))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: format_tick(y, "FLOP/s")))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(True, which="major", color="#e6e6e6", linewidth=0.6, zorder=0)
    ax.tick_params(labelsize=8)


def _intensity_tick(x: float) -> str:
    return f"1/{round(1 / x)}" if x < 1 else format_tick(x, "FLOP/B").removesuffix(" FLOP/B")


def _draw_roofs(ax: Axes, roofs: Sequence[tuple[int, Doc]], placer: Placer) -> None:
    for index, ceiling in roofs:
        colour = _roof_colour(ceiling)
        for value, kind in ((ceiling["achieved"], "ceiling"), (ceiling["spec"], "spec")):
            if not _drawable(value):
                continue
            xs, ys = _roof_line(ax, roofs, ceiling, value)
            style: dict[str, Any] = (
                {"linestyle": "-" if ceiling["kind"] != "network" else "-.", "linewidth": 1.7}
                if kind == "ceiling"
                else {"linestyle": (0, (5, 3)), "linewidth": 1.0}
            )
            ax.plot(xs, ys, color=colour, zorder=2, solid_capstyle="butt", **style)
            ax.plot(xs, ys, color=colour, alpha=0, linewidth=_HIT_WIDTH, zorder=2.5, gid=f"{kind}-{index}")
            placer.avoid_line(xs, ys)
        if ceiling["ci95"]:
            (xs, low), (_, high) = (_roof_line(ax, roofs, ceiling, end, ceiling["achieved"]) for end in ceiling["ci95"])
            ax.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0, zorder=1)


def _roof_colour(ceiling: Doc) -> str:
    if ceiling["kind"] == "network":
        return network.COLOUR
    return (
        _LEVEL_COLOURS.get(ceiling["level"] or "", "#444444")
        if ceiling["kind"] == "memory"
        else colour_of(ceiling["dtype"])
    )


def _roof_line(
    ax: Axes, roofs: Sequence[tuple[int, Doc]], ceiling: Doc, value: float, extent_of: float | None = None
) -> tuple[list[float], list[float]]:
    """The two ends of a roof: memory from the left edge to the highest arithmetic roof, arithmetic from the nearest
    memory level's roof to the right edge. `extent_of`: another value of the same roof that fixes where it ends."""
    (x0, x1), reach = ax.get_xlim(), extent_of or value
    if ceiling["kind"] != "arithmetic":
        x0 = max(x0, ax.get_ylim()[0] / reach)  # a slow one comes in from below
        tops = [c["achieved"] for _, c in _arithmetic(roofs)]
        end = min(x1, max(tops) / reach) if tops else x1
        return [x0, max(end, x0)], [value * x0, value * max(end, x0)]
    bandwidths = [c["achieved"] for _, c in _memory(roofs)]
    start = max(x0, reach / max(bandwidths)) if bandwidths else x0
    return [min(start, x1), x1], [value, value]


def _draw_points(ax: Axes, points: Sequence[tuple[int, Doc]], placer: Placer) -> None:
    sweeps: dict[tuple[Any, ...], list[Doc]] = defaultdict(list)
    markers = _markers(points)
    named: set[str] = set()
    for index, point in points:
        kind, dtype = point.get("kind") or "user", point.get("dtype")
        x, y, colour = point["intensity_flop_per_byte"], point["flop_per_s"], colour_of(dtype)
        if kind == "mixed":
            sweeps[dtype, point.get("level"), point.get("threads")].append(point)
        if point.get("ci95"):
            ax.plot([x, x], point["ci95"], color=colour, linewidth=1.2, zorder=4)
        label = f"{_KIND_WORDS.get(kind, _kernel(point))} {drawable(dtype or '', 16)}".strip()
        size = {"mixed": 7.0, "user": 11.0}.get(kind, 6.0)
        edge: dict[str, Any] = (
            {"markeredgecolor": _FLAGGED, "markeredgewidth": 1.8}
            if suspicious(point)
            else {"markeredgecolor": "white", "markeredgewidth": 0.5}
        )
        ax.plot([x], [y], markers[kind, _kernel(point)], color=colour, markersize=size, zorder=5, linestyle="none",
                label=None if label in named else label, gid=f"point-{index}", **edge)  # fmt: skip
        named.add(label)
        placer.avoid_marker(x, y, 4.5 if kind == "mixed" else size + 1)
    for (dtype, _, _), sweep in sweeps.items():
        sweep.sort(key=lambda p: float(p["intensity_flop_per_byte"]))
        ax.plot(
            [p["intensity_flop_per_byte"] for p in sweep],
            [p["flop_per_s"] for p in sweep],
            color=colour_of(dtype),
            linewidth=1.1,
            alpha=0.7,
            zorder=3,
        )
    if any(suspicious(point) for _, point in points):
        ax.plot(
            [],
            [],
            "o",
            markerfacecolor="none",
            markeredgecolor=_FLAGGED,
            markeredgewidth=1.8,
            markersize=6,
            linestyle="none",
            label="suspicious: see its flags",
        )


def _kernel(point: Doc) -> str:
    return drawable(point["name"], 40).partition(" ")[0]


def _markers(points: Sequence[tuple[int, Doc]]) -> dict[tuple[str, str], str]:
    """(kind, kernel) -> marker: GEMMs and a user's kernels are told apart, the other kinds are one family each."""
    markers: dict[tuple[str, str], str] = {}
    for _, point in points:
        kind = point.get("kind") or "user"
        seen = len({kernel for known, kernel in markers if known == kind} - {_kernel(point)})
        choice = _MARKERS.get(kind, "D")
        markers.setdefault((kind, _kernel(point)), choice[seen % len(choice)])
    return markers


def _label_roofs(ax: Axes, roofs: Sequence[tuple[int, Doc]], placer: Placer) -> None:
    for _, ceiling in roofs:
        unit, achieved, spec = shown_unit(ceiling["unit"], ceiling["dtype"]), ceiling["achieved"], ceiling["spec"]
        recipe = clean(ceiling.get("recipe") or "").partition(" (")[0]  # the mix in brackets is for the table
        measured = f"{ceiling_name(ceiling)} {format_quantity(achieved, unit, ceiling['ci95'])}"
        texts = [f"{measured} ({recipe})", measured] if recipe else [measured]
        labels = [(achieved, texts)]
        if _drawable(spec):
            # two lines that nearly touch share one label, on the upper of them
            said = f"spec {format_quantity(spec, unit)}"
            close = max(spec, achieved) / min(spec, achieved) < _CLOSE
            labels = (
                [(max(spec, achieved), [f"{text}; {said}" for text in texts])]
                if close
                else [*labels, (spec, [f"{ceiling_name(ceiling)} {said}"])]
            )
        for value, variants in labels:
            xs, ys = _roof_line(ax, roofs, ceiling, value)
            placer.place(variants, _spots(ax, ceiling, xs, ys), color=_ink(_roof_colour(ceiling)), **_LABEL)


def _spots(ax: Axes, ceiling: Doc, xs: Sequence[float], ys: Sequence[float]) -> Iterator[Spot]:
    """Along the line: memory roofs from their left end, arithmetic ones from their right end; above, then below."""
    (ax_x, ax_y), (bx, by) = ax.transData.transform(list(zip(xs, ys, strict=True)))
    angle = math.degrees(math.atan2(by - ax_y, bx - ax_x))
    ratio = xs[1] / xs[0] if xs[0] > 0 else 1.0
    memory = ceiling["kind"] != "arithmetic"
    for step in range(38):
        along = 0.015 + step * 0.025
        part = along if memory else 1 - along
        for above in (True, False):
            x = xs[0] * ratio**part
            y = ys[0] * (ys[1] / ys[0]) ** part
            yield Spot(x, y, angle, above, "left" if memory else "right")


def _label_points(points: Sequence[tuple[int, Doc]], placer: Placer) -> None:
    """Names of the few points that are not part of a crowd; the rest is told by legend, table and hover."""
    for _, point in points:
        if point.get("kind") in ("user", None) or suspicious(point):
            x, y = point["intensity_flop_per_byte"], point["flop_per_s"]
            spots = [
                Spot(x, y * up, 0.0, above, ha)
                for ha in ("left", "right", "center")
                for above, up in ((False, 0.93), (True, 1.07))
            ]
            placer.place([point["name"]], spots, color=_ink(colour_of(point.get("dtype"))), fontsize=6.5)


# -- figures and files -----------------------------------------------------------------------------------------------


def roofline_figure(doc: Doc) -> Figure:
    """The roofline alone."""
    figure = _figure(10, _ROOFLINE_HEIGHT)
    draw_roofline(doc, figure.add_axes((0.115, 0.13, 0.87, 0.81)))
    return figure


def gap_figure(doc: Doc) -> Figure | None:
    """The stairs of every quantity, one below the other; None where there are none."""
    gaps = doc.get("gap") or []
    if not gaps:
        return None
    heights = [0.55 + 0.52 * len(gap["steps"]) for gap in gaps]
    figure = _figure(10, sum(heights) + 0.1)
    _add_gaps(doc, figure, heights, sum(heights) + 0.1)
    return figure


def collectives_figure(doc: Doc) -> Figure | None:
    """Bandwidth over size of the document's collectives; None where there are none."""
    if not drawn(doc):
        return None
    if is_pairs(doc):
        figure = _figure(8, 7)
        draw_pairs(doc, figure, (0.16, 0.16, 0.72, 0.72))
        return figure
    figure = _figure(10, _COLLECTIVES_HEIGHT)
    draw_busbw(doc, figure.add_axes((0.115, 0.16, 0.87, 0.77)))
    return figure


def report_figure(doc: Doc) -> Figure:
    """The roofline with the stairs below it, or the collectives where there is no roofline: what PNG and SVG hold."""
    collectives = None if shows_roofline(doc) else collectives_figure(doc)
    if collectives is not None:
        return collectives
    heights = [0.55 + 0.52 * len(gap["steps"]) for gap in doc.get("gap") or []]
    total = _ROOFLINE_HEIGHT + sum(heights)
    figure = _figure(10, total)
    below = 1.0  # inches under the roofline's axes: ticks, axis title, caption
    height = _ROOFLINE_HEIGHT - below - 0.35
    draw_roofline(doc, figure.add_axes((0.115, (total - _ROOFLINE_HEIGHT + below) / total, 0.87, height / total)))
    _add_gaps(doc, figure, heights, sum(heights))
    return figure


def _add_gaps(doc: Doc, figure: Figure, heights: Sequence[float], top: float) -> None:
    """Axes stacked down from `top` inches above the figure's lower edge."""
    total = figure.get_figheight()
    for index, height in enumerate(heights):
        top -= height
        draw_gap(doc, figure.add_axes((0.115, top / total, 0.87, (height - 0.35) / total)), index)


def _import_quietly() -> None:
    """matplotlib logs a complaint about a home it cannot write to, which is none of the reader's business."""
    import logging

    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        import matplotlib.font_manager  # noqa: F401
    finally:
        log.setLevel(level)


def _figure(width: float, height: float) -> Figure:
    _import_quietly()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def to_png(doc: Doc) -> bytes:
    """The report's picture as PNG at 160 dpi."""
    return _saved(report_figure(doc), "png", dpi=160)


def to_svg(doc: Doc) -> bytes:
    """The report's picture as SVG; the same document gives the same bytes."""
    return save_svg(report_figure(doc))


def save_svg(figure: Figure, salt: str = "gpumicro") -> bytes:
    """SVG with text as paths (the same everywhere), without date, with ids that depend on `salt` only."""
    return _saved(figure, "svg", salt=salt)


def _saved(figure: Figure, kind: str, salt: str = "gpumicro", **more: Any) -> bytes:
    from matplotlib import rc_context

    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        figure.savefig(buffer, format=kind, metadata=metadata, **more)
    return buffer.getvalue()


assert set(_LEVEL_COLOURS) <= set(LEVEL_NAMES)
