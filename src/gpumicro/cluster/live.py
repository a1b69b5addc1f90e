"""One sample shown: a table for a terminal, a line elsewhere. Texts alone; nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..units import GIB, format_quantity
from .monitoring import Sample

if TYPE_CHECKING:
    from rich.console import RenderableType

_HOST = (
    ("CPU", "cpu_utilization", ""), ("busiest", "cpu_busiest", ""), ("I/O wait", "cpu_iowait", ""),
    ("memory", "memory_utilization", ""), ("busiest disk", "disk_utilization", ""), ("power", "cpu_power_w", "W"),
)  # fmt: skip
_HOST_TRAFFIC = (
    ("disk in", "disk_read_bytes_per_s", "B/s"), ("disk out", "disk_write_bytes_per_s", "B/s"),
    ("net in", "net_received_bytes_per_s", "B/s"), ("net out", "net_sent_bytes_per_s", "B/s"),
)  # fmt: skip
_GPU = (
    ("use", "utilization", ""), ("mem bw", "memory_busy", ""), ("memory", "memory_used_bytes", "B"),
    ("clock", "sm_hz", "Hz"), ("power", "power_w", "W"), ("temp", "temperature_c", "C"),
)  # fmt: skip
_GPU_TRAFFIC = (
    ("PCIe in", "pcie_received_bytes_per_s", "B/s"), ("PCIe out", "pcie_sent_bytes_per_s", "B/s"),
    ("NVLink in", "nvlink_received_bytes_per_s", "B/s"), ("NVLink out", "nvlink_sent_bytes_per_s", "B/s"),
)  # fmt: skip
_Columns = Sequence[tuple[str, str, str]]


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
    return f"{value / GIB:.3g} GiB" if unit == "B" else format_quantity(value, unit)


def table(sample: Sample, gpus: Sequence[tuple[int, str]]) -> RenderableType:
    """For a terminal of 80 columns and more: the host, and a row for each GPU (index, name)."""
    from rich.console import Group
    from rich.text import Text

    host, names = [("host", sample.host)], [f"gpu {index}" for index, _ in gpus]
    cards = list(zip(names, sample.gpus, strict=True))
    held = [", ".join(reasons) or "-" for reasons in sample.reasons]
    parts: list[RenderableType] = [Text(f"{clock(sample.t_s)}  (Ctrl-C ends it)", style="dim")]
    parts += [_rows(host, _HOST), _rows(host, _HOST_TRAFFIC)]
    if gpus:
        kinds = dict.fromkeys(name for _, name in gpus)
        parts += [Text(""), Text("; ".join(kinds), style="dim"), _rows(cards, _GPU, held), _rows(cards, _GPU_TRAFFIC)]
    return Group(*parts)


def _rows(
    subjects: Sequence[tuple[str, Mapping[str, float | None]]], columns: _Columns, held: Sequence[str] | None = None
) -> RenderableType:
    """A table of the columns that somebody fills; `held` is a last column, which may wrap."""
    from rich.table import Table
    from rich.text import Text

    known = [one for one in columns if any(values.get(one[1]) is not None for _, values in subjects)]
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    made.add_column("", no_wrap=True)
    for title, _, _ in known:
        made.add_column(title, justify="right", no_wrap=True, min_width=8)
    if held is not None:
        made.add_column("held back by")
    if not known:
        return Text("")
    for row, (subject, values) in enumerate(subjects):
        cells = [shown(values.get(key), unit) for _, key, unit in known]
        made.add_row(subject, *cells, *([Text(held[row])] if held is not None else []))
    return made


def line(sample: Sample, gpus: Sequence[tuple[int, str]]) -> str:
    """For a log: what is known, in one line."""
    parts = [clock(sample.t_s), _words("host", sample.host, (*_HOST, *_HOST_TRAFFIC))]
    for (index, _), values, reasons in zip(gpus, sample.gpus, sample.reasons, strict=True):
        held = f", held back by {' and '.join(reasons)}" if reasons else ""
        parts.append(_words(f"gpu {index}", values, (*_GPU, *_GPU_TRAFFIC)) + held)
    return "; ".join(parts)


def _words(subject: str, values: Mapping[str, float | None], known: _Columns) -> str:
    told = [f"{title} {shown(values.get(key), unit)}" for title, key, unit in known if values.get(key) is not None]
    return f"{subject}: {', '.join(told) or 'nothing told'}"


def clock(seconds: float) -> str:
    """ "0:01:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
