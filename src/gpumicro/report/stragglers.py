"""Pairs of nodes in a report: the verdict on slow nodes and links, the slowest pairs, and all of them as a map.

From the document alone: our own `collectives --pairs`, or logs of nccl-tests that were imported, a file a pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any

from ..collectives.pairs import LEAST_NODES, Pair, PairTime, Search, Slow, find_stragglers, pair_of, pair_times
from ..errors import UsageError
from ..units import format_fraction, format_quantity, format_size
from .labels import drawable
from .tables import Doc, Table, clean, columns_of, fraction, headline, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40  # of the table of pairs: those that took longest
_STRAGGLERS = columns_of("who", "what", ">longer by", ">robust z", ">slow pairs")
_PAIRS = columns_of("pair", ">time", ">of typical", ">times", "verdict")
_MOST_NAMES = 40  # on the axes of the map


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of a document at one size: seconds of each, a list where one was timed again."""

    size_bytes: int
    times: Mapping[Pair, Sequence[float]]
    search: Search | None
    why: str = ""  # why there is no search

    @property
    def nodes(self) -> list[str]:
        """Their names, in order."""
        return sorted({name for pair in self.times for name in pair}, key=_natural)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """n2 before n10."""
    return [(part.isdigit(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]


def is_pairs(doc: Doc) -> bool:
    """Whether the document's collectives are those of pairs, of four nodes or more."""
    items = [item for item in doc["measurements"] if item["family"] == "collective"]
    named = [pair_of(item) for item in items]
    return bool(named) and all(named) and len({name for pair in named if pair for name in pair}) >= LEAST_NODES


def pairs_in(doc: Doc) -> Pairs | None:
    """The pairs, None where the document holds others than pairs."""
    if not is_pairs(doc):
        return None
    try:
        size, times = pair_times_at([doc])
    except UsageError as error:
        return Pairs(0, {}, None, str(error))
    groups: dict[Pair, list[float]] = {}
    for one in times:
        groups.setdefault((min(one.a, one.b), max(one.a, one.b)), []).append(one.time_s)
    try:
        return Pairs(size, groups, find_stragglers(times))
    except UsageError as error:
        return Pairs(size, groups, None, str(error))


def pair_times_at(docs: Sequence[Doc]) -> tuple[int, list[PairTime]]:
    """(the largest size that every pair has, its times)."""
    times = pair_times(docs)
    sizes = [
        {item["size_bytes"] for item in doc["measurements"] if pair_of(item) == pair and item["status"] == "ok"}
        for doc in docs
        for pair in {pair_of(item) for item in doc["measurements"] if item["family"] == "collective"}
    ]
    return max(set.intersection(*(found for found in sizes if found))), times


def straggler_tables(doc: Doc) -> Iterator[Table]:
    """Who is slow, then the pairs, the slowest first."""
    found = pairs_in(doc)
    if found is None:
        return
    if found.search is None:
        yield Table("stragglers", "Stragglers", _STRAGGLERS[:1], (("unknown",),), (f"{clean(found.why)}.",))
        return
    yield _verdict(found, found.search)
    yield _slowest(found, found.search)


def _verdict(found: Pairs, search: Search) -> Table:
    rows = [_slow_row(slow, "node") for slow in search.slow_nodes] + [
        _slow_row(slow, "link") for slow in search.slow_links
    ]
    rows += [(clean(name), "suspect: node or link not told apart", "", "", "") for name in search.suspects]
    rows = rows or [("nobody", "all pairs are alike", "", "", "")]
    remarks = (
        f"{len(found.times)} pairs of {len(found.nodes)} nodes at {format_size(found.size_bytes)}: typical "
        f"{format_quantity(search.typical_s, 's')}, robust spread {format_fraction(search.spread)}.",
        "Slow: over 10% and more than a robust z (median and MAD, Bonferroni over the pairs) above the others. A node: "
        "with most partners; a link: both its nodes are well with others.",
    )
    return Table("stragglers", "Stragglers", _STRAGGLERS, tuple(rows), remarks).without_empty()


def _slow_row(slow: Slow, what: str) -> tuple[str, ...]:
    return (
        clean("--".join(slow.names)), f"SLOW {what}", format_fraction(slow.excess), f"{slow.z:.1f}", str(slow.pairs)
    )  # fmt: skip


def _slowest(found: Pairs, search: Search) -> Table:
    nodes = {slow.names[0] for slow in search.slow_nodes}
    links = {frozenset(slow.names) for slow in search.slow_links}
    ordered = sorted(found.times.items(), key=lambda one: -median(one[1]))
    rows = []
    for pair, times in ordered[:MOST_ROWS]:
        word = "slow link" if frozenset(pair) in links else "slow node" if nodes & set(pair) else ""
        rows.append((
            clean("--".join(pair)), quantity(median(times), "s"), fraction(median(times) / search.typical_s),
            str(len(times)), word,
        ))  # fmt: skip
    left = len(ordered) - len(rows)
    remarks = (f"{left} faster pairs are left out.",) if left > 0 else ()
    return Table("straggler-pairs", "Pairs, the slowest first", _PAIRS, tuple(rows), remarks).without_empty()


def straggler_rows(doc: Doc) -> Iterator[Mapping[str, Any]]:
    """For CSV: the times of all pairs, then the slow nodes and links with their z as the value."""
    found = pairs_in(doc)
    if found is None or found.search is None:
        return
    for pair, times in found.times.items():
        middle = median(times)
        yield {
            "record": "pair", "name": "--".join(pair), "unit": "s", "value": middle, "samples": len(times),
            "reference": found.search.typical_s, "fraction_of_reference": middle / found.search.typical_s,
        }  # fmt: skip
    for what, slow in (("slow-node", found.search.slow_nodes), ("slow-link", found.search.slow_links)):
        for one in slow:
            yield {"record": what, "name": "--".join(one.names), "unit": "robust z", "value": one.z,
                   "fraction_of_reference": 1 + one.excess, "samples": one.pairs, "status": "model"}  # fmt: skip
    for name in found.search.suspects:
        yield {"record": "suspect", "name": name, "status": "model"}


# -- the picture -------------------------------------------------------------------------------------------------------


def draw_pairs(doc: Doc, figure: Figure, place: tuple[float, float, float, float]) -> Axes:
    """A map of all pairs: time over that of the typical pair, 1 is white."""
    from matplotlib.colors import TwoSlopeNorm

    found = pairs_in(doc)
    assert found is not None
    names, typical = found.nodes, found.search.typical_s if found.search else median(map(median, found.times.values()))
    row = {name: index for index, name in enumerate(names)}
    grid = [[float("nan")] * len(names) for _ in names]
    for (a, b), times in found.times.items():
        grid[row[a]][row[b]] = grid[row[b]][row[a]] = median(times) / typical
    most = max(1.2, *(value for line in grid for value in line if value == value))
    ax = figure.add_axes(place)
    image = ax.imshow(grid, cmap=_colours(), norm=TwoSlopeNorm(1.0, 1 / most, most), interpolation="nearest")
    ax.set_facecolor("#e6e6e6")  # not timed
    bar = figure.colorbar(image, ax=ax, fraction=0.04, pad=0.03)
    bar.set_label("Time over that of the typical pair", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    shown = range(0, len(names), max(1, -(-len(names) // _MOST_NAMES)))
    slow = {slow.names[0] for slow in found.search.slow_nodes} if found.search else set()
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(list(shown), [drawable(names[i], 24) for i in shown], fontsize=7.5)
        for tick, i in zip(axis.get_ticklabels(), shown, strict=True):
            tick.set(parse_math=False, color="#b00020" if names[i] in slow else "#222222",
                     rotation=90 if axis is ax.xaxis else 0)  # fmt: skip
    for one in found.search.slow_links if found.search else ():
        for a, b in (one.names, one.names[::-1]):
            ax.add_patch(_frame(row[a], row[b]))
    device, when, *alarms = map(drawable, headline(doc))
    ax.set_title(f"Pairs: {device}", fontsize=10.5, loc="left", parse_math=False, pad=26)
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7.5, "parse_math": False}
    colour = "#b00020" if alarms else "#555555"
    ax.annotate("   ".join([when, *alarms]), (0, 1), (0, 15), "axes fraction", color=colour, **style)
    words = "red names: slow nodes; frames: slow links"
    ax.annotate(words, (0, 1), (0, 4), "axes fraction", color="#555555", **style)
    return ax


@lru_cache(maxsize=1)
def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("pairs", ["#0072B2", "#ffffff", "#D55E00"])


def _frame(row: int, column: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#b00020", linewidth=1.8)
