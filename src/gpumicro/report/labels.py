"""Labels on lines that touch neither each other nor a marker: greedy placing of rotated boxes, in display pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .tables import clean

Corners = npt.NDArray[np.float64]  # (4, 2), in order around the box

_CLEARANCE_POINTS = 3.0  # between a label and the line it belongs to: a small marker on the line fits under it
_SPARE = 1.04  # text is up to this much wider at another resolution, where hinting rounds differently


def drawable(text: object, limit: int = 100) -> str:
    """The text as the default font can draw it: one line of at most `limit` characters, "?" for a missing glyph."""
    line = clean(text)
    shown = "".join(c if c.isascii() or _font().get_char_index(ord(c)) else "?" for c in line[:limit])
    return shown if len(line) <= limit else f"{shown[: limit - 3]}..."


@lru_cache(maxsize=1)
def _font() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties()))


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a label may stand: its anchor in data coordinates, its angle in degrees, above or below the anchor."""

    x: float
    y: float
    angle: float
    above: bool
    ha: str = "center"  # "left", "center", "right" along the text's own direction


def box_corners(x: float, y: float, width: float, height: float, angle: float, spot: Spot, clearance: float) -> Corners:
    """The corners of the text box whose anchor is at pixel (x, y), rotated about the anchor."""
    left = {"left": 0.0, "center": -width / 2, "right": -width}[spot.ha]
    bottom = clearance if spot.above else -height - clearance
    box = np.array([(left, bottom), (left + width, bottom), (left + width, bottom + height), (left, bottom + height)])
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    corners: Corners = box @ np.array([(cos, sin), (-sin, cos)]) + (x, y)
    return corners


def overlap(one: Corners, other: Corners) -> bool:
    """Whether two convex polygons (a segment counts as one) intersect, by the separating axis theorem."""
    for shape in (one, other):
        edges = np.roll(shape, -1, axis=0) - shape
        for dx, dy in edges:
            if not (dx or dy):
                continue
            axis = np.array([-dy, dx])
            a, b = one @ axis, other @ axis
            if a.max() <= b.min() or b.max() <= a.min():
                return False
    return True


@dataclass
class Placer:
    """Places texts on one axes, whose limits and position must be final; remembers what is taken."""

    ax: Any
    taken: list[Corners] = field(default_factory=list)
    lines: list[Corners] = field(default_factory=list)

    def avoid_marker(self, x: float, y: float, size_points: float) -> None:
        """Keep labels off the marker at that place in data coordinates."""
        px, py = self.ax.transData.transform((x, y))
        half = size_points / 2 * self._pixels_per_point
        self.taken.append(
            np.array([(px - half, py - half), (px + half, py - half), (px + half, py + half), (px - half, py + half)])
        )

    def avoid_box(self, extent: Any) -> None:
        """Keep labels out of that box of display pixels (a legend)."""
        self.taken.append(
            np.array([(extent.x0, extent.y0), (extent.x1, extent.y0), (extent.x1, extent.y1), (extent.x0, extent.y1)])
        )

    def avoid_line(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Prefer spots that this line does not cross."""
        pixels = self.ax.transData.transform(np.column_stack([xs, ys]))
        self.lines += [np.array([a, b]) for a, b in pairwise(pixels)]

    def place(self, texts: Sequence[str], spots: Iterable[Spot], **style: Any) -> bool:
        """Draw the first of `texts` (longest first) that fits at one of the spots; False where none does."""
        candidates = list(spots)
        texts = [drawable(text) for text in texts]
        for crossing_allowed in (False, True):
            for text in texts:
                width, height = self._size(text, style)
                for spot in candidates:
                    corners = self._corners(spot, width, height)
                    if self._free(corners, crossing_allowed):
                        self._draw(text, spot, corners, style)
                        return True
        return False

    @property
    def _pixels_per_point(self) -> float:
        return float(self.ax.figure.dpi) / 72

    def _size(self, text: str, style: dict[str, Any]) -> tuple[float, float]:
        probe = self.ax.text(0.5, 0.5, text, transform=self.ax.transAxes, parse_math=False, **style)
        extent = probe.get_window_extent()
        probe.remove()
        return float(extent.width) * _SPARE, float(extent.height)

    def _corners(self, spot: Spot, width: float, height: float) -> Corners:
        x, y = self.ax.transData.transform((spot.x, spot.y))
        return box_corners(x, y, width, height, spot.angle, spot, _CLEARANCE_POINTS * self._pixels_per_point)

    def _free(self, corners: Corners, crossing_allowed: bool) -> bool:
        bounds = self.ax.bbox
        inside = (corners >= (bounds.x0, bounds.y0)).all() and (corners <= (bounds.x1, bounds.y1)).all()
        if not inside or any(overlap(corners, box) for box in self.taken):
            return False
        return crossing_allowed or not any(overlap(corners, line) for line in self.lines)

    def _draw(self, text: str, spot: Spot, corners: Corners, style: dict[str, Any]) -> None:
        self.taken.append(corners)
        # the middle of the box is the anchor that draws to the same place whatever the renderer's idea of a baseline
        middle = self.ax.transData.inverted().transform(corners.mean(axis=0))
        label = self.ax.text(
            *middle,
            text,
            ha="center",
            va="center",
            rotation=spot.angle,
            rotation_mode="default",
            parse_math=False,
            **style,
        )
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6})
