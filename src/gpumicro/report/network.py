"""The network in a roofline: its roofs' colours, the table of what binds a work, and its place on the chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..units import format_size
from .labels import Placer, Spot, drawable
from .tables import Doc, Table, clean, columns_of, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR = "#b5179e"  # of network roofs: none of the dtypes' or the levels'
_WORKS = columns_of(
    "work", "/a call", ">compute", ">memory", ">network", "bound by", ">at least", ">one by one", "/intensity"
)  # fmt: skip


def works_table(doc: Doc) -> Table:
    """What binds each work: compute, memory or network."""
    rows = [
        (
            clean(work["name"]),
            f"{quantity(work['flops'], 'FLOP')} {clean(work['dtype'])}, {format_size(work['bytes'])} of memory, "
            f"{format_size(work['wire_bytes'])} over the wire",
            *(quantity(work[f"{name}_s"], "s") for name in ("compute", "memory", "network")), work["bound_by"],
            quantity(work["least_s"], "s"), quantity(work["one_by_one_s"], "s"),
            " and ".join(
                quantity(work["flops"] / work[key], "FLOP/B") + words
                for key, words in (("bytes", ""), ("wire_bytes", " of wire")) if work[key]
            ),
        )
        for work in doc.get("works", ())
    ]  # fmt: skip
    remarks = (
        "Model: at least the longest of FLOP / peak, bytes / DRAM bandwidth and wire bytes / network rate, where all go"
        " on at once; one by one: the network waits for the rest. Latency is not in it.",
    )
    return Table("works", "Compute, memory or network bound?", _WORKS, tuple(rows), remarks)


def work_rows(doc: Doc) -> Iterator[Mapping[str, Any]]:
    """For CSV: the least time of a work, and the time at each roof."""
    for work in doc.get("works", ()):
        for record, key in (("work", "least_s"), ("work-compute", "compute_s"), ("work-memory", "memory_s"),
                            ("work-network", "network_s")):  # fmt: skip
            yield {"record": record, "name": work["name"], "dtype": work["dtype"], "unit": "s", "value": work[key],
                   "bound_by": work["bound_by"], "status": "model"}  # fmt: skip


def places(doc: Doc) -> list[tuple[float, float]]:
    """Where the works stand on the chart: (FLOP/B, FLOP/s), by memory and by wire."""
    return [
        (work["flops"] / work[key], work["flop_per_s"])
        for work in doc.get("works", ())
        for key in ("bytes", "wire_bytes")
    ]


def draw_works(doc: Doc, ax: Axes, placer: Placer) -> None:
    """Each work twice at its attainable rate: by its bytes of memory (square) and by those over the wire (diamond).

    Filled is what binds; where it is compute, neither is.
    """
    for index, work in enumerate(doc.get("works", ())):
        y, by = work["flop_per_s"], work["bound_by"]
        places = {"memory": work["flops"] / work["bytes"], "network": work["flops"] / work["wire_bytes"]}
        ax.plot(list(places.values()), [y, y], color=COLOUR, linestyle=":", linewidth=1.0, zorder=3)
        for what, marker in (("memory", "s"), ("network", "D")):
            label = None if index else f"work by its bytes {'of memory' if what == 'memory' else 'over the wire'}"
            ax.plot([places[what]], [y], marker, color=COLOUR, markersize=7, zorder=6, linestyle="none",
                    markerfacecolor=COLOUR if by == what else "white", label=label,
                    gid=f"work-{index}-{what}")  # fmt: skip
            placer.avoid_marker(places[what], y, 9)


def label_works(doc: Doc, placer: Placer) -> None:
    """Name and verdict beside the marker of what binds, of the wire where that is compute."""
    for work in doc.get("works", ()):
        x = work["flops"] / work["bytes" if work["bound_by"] == "memory" else "wire_bytes"]
        y = work["flop_per_s"]
        text = f"{drawable(work['name'], 30)}: {work['bound_by']} bound"
        spots = [Spot(x, y * up, 0.0, above, ha) for ha in ("left", "center", "right")
                 for above, up in ((True, 1.08), (False, 0.92))]  # fmt: skip
        placer.place([text], spots, color=COLOUR, fontsize=7.5)


def tips(doc: Doc, names: Sequence[str] = ("memory", "network")) -> Iterator[tuple[str, str]]:
    """(gid, hover text) of the works."""
    for index, work in enumerate(doc.get("works", ())):
        times = "\n".join(f"{name} {quantity(work[f'{name}_s'], 's')}" for name in ("compute", *names))
        for name in names:
            yield f"work-{index}-{name}", f"{clean(work['name'])}\n{times}\n{work['bound_by']} bound (model)"
