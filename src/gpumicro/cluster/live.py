"""One sample shown: a table for a terminal, a line elsewhere. Texts alone; nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..units import format_quantity, format_size
from .monitoring import Sample

if TYPE_CHECKING:
    from rich.console import RenderableType

_HOST = (
    ("CPU", "cpu_utilization", ""), ("busiest", "cpu_busiest", ""), ("I/O wait", "cpu_iowait", ""),
    ("memory", "memory_utilization", ""), ("disk in", "disk_read_bytes_per_s", "B/s"),
    ("disk out", "disk_write_bytes_per_s", "B/s"), ("net in", "net_received_bytes_per_s", "B/s"),
    ("net out", "net_sent_bytes_per_s", "B/s"), ("power", "cpu_power_w", "W"),
)  # fmt: skip
_GPU = (
    ("use", "utilization", ""), ("mem bw", "memory_busy", ""), ("memory", "memory_used_bytes", "B"),
    ("clock", "sm_hz", "Hz"), ("power", "power_w", "W"), ("temp", "temperature_c", "C"),
    ("PCIe in", "pcie_received_bytes_per_s", "B/s"), ("PCIe out", "pcie_sent_bytes_per_s", "B/s"),
    ("NVLink in", "nvlink_received_bytes_per_s", "B/s"), ("NVLink out", "nvlink_sent_bytes_per_s", "B/s"),
)  # fmt: skip


def shown(value: float | None, unit: str) -> str:
    """ "97%", "1.98 GHz", "12 GiB", "61 C"; "-" for None."""
    if value is None:
        return "-"
    if unit == "":
        return f"{value:.0%}"
    if unit == "C":
        return f"{value:.0f} C"
    if unit == "W":
        return f"{value:.0f} W"
    return format_size(float(f"{value:.3g}")) if unit == "B" else format_quantity(value, unit)


def table(sample: Sample, gpus: Sequence[tuple[int, str]]) -> RenderableType:
    """For a terminal: the host, and a row for each GPU (index, name)."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def columns(first: str, names: Sequence[str]) -> Table:
        made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        made.add_column(first, no_wrap=True)
        for name in names:
            made.add_column(name, justify="right", no_wrap=True)
        return made

    parts: list[RenderableType] = [Text(f"{clock(sample.t_s)}  (Ctrl-C ends it)", style="dim")]
    host = columns("", [title for title, _, _ in _HOST])
    host.add_row("host", *(shown(sample.host.get(key), unit) for _, key, unit in _HOST))
    parts.append(host)
    if gpus:
        known = [one for one in _GPU if any(values.get(one[1]) is not None for values in sample.gpus)]
        cards = columns("", [*(title for title, _, _ in known), "held back by"])
        for (index, name), values, reasons in zip(gpus, sample.gpus, sample.reasons, strict=True):
            cells = [shown(values.get(key), unit) for _, key, unit in known]
            cards.add_row(Text(f"gpu {index} {name}"), *cells, Text(", ".join(reasons) or "-"))
        parts += [Text(""), cards]
    return Group(*parts)


def line(sample: Sample, gpus: Sequence[tuple[int, str]]) -> str:
    """For a log: what is known, in one line."""
    parts = [clock(sample.t_s), _words("host", sample.host, _HOST)]
    for (index, _), values, reasons in zip(gpus, sample.gpus, sample.reasons, strict=True):
        held = f", held back by {' and '.join(reasons)}" if reasons else ""
        parts.append(_words(f"gpu {index}", values, _GPU) + held)
    return "; ".join(parts)


def _words(subject: str, values: Mapping[str, float | None], known: Sequence[tuple[str, str, str]]) -> str:
    told = [f"{title} {shown(values.get(key), unit)}" for title, key, unit in known if values.get(key) is not None]
    return f"{subject}: {', '.join(told) or 'nothing told'}"


def clock(seconds: float) -> str:
    """ "0:01:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
