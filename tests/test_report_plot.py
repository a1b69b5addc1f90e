"""The picture: what is drawn where, and that no label touches another."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gpumicro import result
from gpumicro.report import plot
from gpumicro.report.labels import Spot, box_corners, overlap

GOLDEN = Path(__file__).parent / "data" / "roofline-cpu.json"


@pytest.fixture
def doc() -> dict[str, Any]:
    return result.read(GOLDEN)


def _axes(figure: Figure) -> Any:
    return figure.axes[0]


def _gid(ax: Any, name: str) -> Any:
    return next(line for line in ax.lines if line.get_gid() == name)


def _boxes(ax: Any) -> list[np.ndarray]:
    """Corners in pixels of every placed label (they have a background), and of the legend."""
    boxes = []
    for text in ax.texts:
        if text.get_bbox_patch() is None:
            continue
        angle = text.get_rotation()
        text.set_rotation(0)
        extent = text.get_window_extent()
        text.set_rotation(angle)
        x, y = text.get_transform().transform(text.get_position())
        spot = Spot(0, 0, angle, True)
        centred = box_corners(0, 0, extent.width, extent.height, angle, spot, -extent.height / 2)
        boxes.append(centred + np.array([x, y]))
    if ax.get_legend():
        extent = ax.get_legend().get_window_extent()
        boxes.append(
            np.array([(extent.x0, extent.y0), (extent.x1, extent.y0), (extent.x1, extent.y1), (extent.x0, extent.y1)])
        )
    return boxes


def _assert_no_overlap(ax: Any) -> int:
    boxes = _boxes(ax)
    for i, one in enumerate(boxes):
        assert (one >= (ax.bbox.x0 - 1, ax.bbox.y0 - 1)).all()
        assert (one <= (ax.bbox.x1 + 1, ax.bbox.y1 + 1)).all()
        for other in boxes[:i]:
            assert not overlap(one, other)
    return len(boxes)


def test_roofs_and_points_stand_where_the_file_says(doc: dict[str, Any]) -> None:
    ax = _axes(plot.roofline_figure(doc))
    dram = _gid(ax, "ceiling-3")
    assert np.asarray(dram.get_ydata()) / np.asarray(dram.get_xdata()) == pytest.approx(doc["ceilings"][3]["achieved"])
    float64 = _gid(ax, "ceiling-5")
    assert set(float64.get_ydata()) == {doc["ceilings"][5]["achieved"]}
    assert set(_gid(ax, "spec-5").get_ydata()) == {113.6e9}
    for index, point in enumerate(doc["points"]):
        marker = _gid(ax, f"point-{index}")
        assert (marker.get_xdata()[0], marker.get_ydata()[0]) == (point["intensity_flop_per_byte"], point["flop_per_s"])
    assert not [line for line in ax.lines if line.get_gid() == "ceiling-4"], "one-thread ceilings are in the table only"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Arithmetic intensity (FLOP/B)", "Performance (FLOP/s)")
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_ticks_are_readable(doc: dict[str, Any]) -> None:
    figure = plot.roofline_figure(doc)
    figure.canvas.draw()
    ax = _axes(figure)
    low, high = ax.get_xlim()
    xs = [t.get_text() for t, at in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True) if low <= at <= high]
    ys = [t.get_text() for t in ax.get_yticklabels()]
    assert {"1/16", "1", "256"} <= set(xs)
    assert "10 GFLOP/s" in ys


def test_no_label_touches_another(doc: dict[str, Any]) -> None:
    for figure in (plot.roofline_figure(doc), plot.report_figure(doc)):
        # 4 memory roofs, 3 arithmetic ones that name their spec, the flagged point, the legend
        assert _assert_no_overlap(_axes(figure)) == 9


@pytest.mark.parametrize("seed", range(8))
def test_no_label_touches_another_on_any_machine(doc: dict[str, Any], seed: int) -> None:
    draw = random.Random(seed)
    scale = 10.0 ** draw.uniform(-1, 4)
    for ceiling in doc["ceilings"]:
        # neighbours within a few percent and far apart alike
        ceiling["achieved"] *= scale * 2.0 ** draw.uniform(-1.5, 1.5)
        ceiling["ci95"] = [ceiling["achieved"] * 0.9, ceiling["achieved"] * 1.1]
        ceiling["spec"] = ceiling["achieved"] * draw.uniform(0.8, 2.5) if ceiling["kind"] == "arithmetic" else None
        ceiling["scope"] = "roof"
    for point in doc["points"]:
        point["flop_per_s"] *= scale * draw.uniform(0.1, 2)
        point["ci95"] = [point["flop_per_s"] * 0.95, point["flop_per_s"] * 1.05]
        point["flags"] = ["above-ceiling"] if draw.random() < 0.4 else []
    assert _assert_no_overlap(_axes(plot.roofline_figure(doc))) > 8


def test_identical_roofs_are_both_labelled(doc: dict[str, Any]) -> None:
    for ceiling in doc["ceilings"][:3]:
        ceiling["achieved"] = 1e11
    ax = _axes(plot.roofline_figure(doc))
    _assert_no_overlap(ax)
    texts = [text.get_text() for text in ax.texts]
    for level in ("L1 ", "L2 ", "L3 ", "DRAM "):
        assert any(text.startswith(level) for text in texts)


def test_users_axes_are_drawn_into(doc: dict[str, Any]) -> None:
    figure = Figure(figsize=(5, 4))
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    assert plot.draw_roofline(doc, ax) is ax
    gap = figure.add_axes((0, 0, 0.4, 0.4))
    assert plot.draw_gap(doc, gap, 1) is gap


def test_stairs_show_every_step_and_its_loss(doc: dict[str, Any]) -> None:
    figure = plot.gap_figure(doc)
    assert figure is not None
    ax = figure.axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["spec", "ceiling", "library", "kernel"]
    bars = sorted((patch.get_y(), patch.get_x(), patch.get_width()) for patch in ax.patches)
    steps = doc["gap"][0]["steps"]
    ceiling = [bar for bar in bars if math.isclose(bar[0], 1 - 0.26)]
    # value, the cause's 4.1% of spec, and the rest up to the spec
    assert [width for _, _, width in ceiling] == pytest.approx(
        [steps[1]["value"], 0.041 * steps[0]["value"], 0.959 * steps[0]["value"] - steps[1]["value"]]
    )
    words = " ".join(text.get_text() for text in ax.texts)
    assert "clock below spec 4.1%" in words
    assert "unknown: virtual machine: channels unknown" in " ".join(text.get_text() for text in figure.axes[1].texts)


def test_a_cause_larger_than_the_loss_stays_within_it(doc: dict[str, Any]) -> None:
    doc["gap"][0]["causes"][0]["fraction"] = 0.9
    figure = plot.gap_figure(doc)
    assert figure is not None
    top = doc["gap"][0]["steps"][0]["value"]
    assert all(patch.get_x() + patch.get_width() <= top * (1 + 1e-9) for patch in figure.axes[0].patches)


def test_no_gap_no_picture_of_it(doc: dict[str, Any]) -> None:
    doc["gap"] = []
    assert plot.gap_figure(doc) is None
    assert len(plot.report_figure(doc).axes) == 1


def test_drawing_leaves_pyplot_alone_and_needs_no_home() -> None:
    code = (
        "import sys; from gpumicro import result; from gpumicro.report import plot; "
        f"plot.to_png(result.read({str(GOLDEN)!r})); assert 'matplotlib.pyplot' not in sys.modules"
    )
    bare = {"PATH": os.environ.get("PATH", ""), "HOME": "/proc/none", "LC_ALL": "C"}
    ran = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, check=True, timeout=120)
    assert ran.stderr == b""


def test_figures_that_no_axis_can_hold_are_left_out(doc: dict[str, Any]) -> None:
    doc["points"][3]["intensity_flop_per_byte"] = doc["ceilings"][5]["spec"] = 1e300
    doc["ceilings"][0]["achieved"] = 1e-300
    ax = _axes(plot.roofline_figure(doc))
    drawn = {line.get_gid() for line in ax.lines}
    assert not drawn & {"point-3", "spec-5", "ceiling-0"}
    assert {"point-2", "ceiling-5", "ceiling-1"} <= drawn


def test_colours_are_apart_for_every_eye() -> None:
    """Every pair differs in lightness or from blue to yellow, which colour-blind eyes keep."""
    from matplotlib.colors import to_rgb

    def seen(colour: str) -> tuple[float, float]:
        red, green, blue = to_rgb(colour)
        return 0.3 * red + 0.59 * green + 0.11 * blue, blue - (red + green) / 2

    colours = list(plot.DTYPE_COLOURS.values())
    for i, one in enumerate(colours):
        for other in colours[:i]:
            assert math.dist(seen(one), seen(other)) > 0.12, (one, other)


def test_boxes_are_told_apart() -> None:
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1)], dtype=float)
    assert overlap(square, square + 0.5)
    assert not overlap(square, square + np.array([1.1, 0]))
    diamond = np.array([(2.0, 1.2), (2.8, 2.0), (2.0, 2.8), (1.2, 2.0)]) - (0.35, 0.35)
    assert not overlap(square, diamond), "the bounding boxes overlap, the shapes do not"
    assert overlap(square, np.array([(-1.0, 0.5), (2.0, 0.5)])), "a line through it"
