"""What the monitor saw, in a report: percentiles of each quantity, energy, what held clocks back, and the verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..units import GIB, format_fraction, format_quantity, format_size
from .tables import Doc, Table, clean, columns_of

_SPREAD = columns_of("quantity", ">5%", ">50%", ">95%", ">most", ">average")
_VERDICTS = columns_of("verdict")  # in one column, which wraps


def monitor_tables(doc: Doc) -> Iterator[Table]:
    """The host's table, one a GPU, and the verdicts, of a document with the key "monitor"."""
    seen = doc.get("monitor")
    if not seen:
        return
    yield Table("monitor-host", f"Host over {_seconds(seen['duration_s'])}", _SPREAD, _rows(seen["host"]),
                (*_energy(seen["host"], "CPU packages"), *_cost(seen)))  # fmt: skip
    for gpu in seen["gpus"]:
        title = f"GPU {gpu['index']}: {clean(gpu['name'])}"
        yield Table(f"monitor-gpu-{gpu['index']}", title, _SPREAD, _rows(gpu), (*_energy(gpu, ""), *_held(gpu)))
    verdicts = tuple((clean(f"{v['subject']}: {v['verdict']}: {v['reason']}"),) for v in seen["verdicts"])
    yield Table("monitor-verdicts", "What it says", _VERDICTS, verdicts)


def _rows(subject: Doc) -> tuple[tuple[str, ...], ...]:
    found = []
    for spread in subject["metrics"].values():
        if isinstance(spread, dict):
            values = (spread[key] for key in ("p5", "p50", "p95", "max", "average"))
            found.append((clean(spread["title"]), *(_value(value, spread["unit"]) for value in values)))
    return tuple(found)


def _value(value: float, unit: str) -> str:
    if unit == "":
        return format_fraction(value, 2) if value else "0%"
    if unit == "B":
        return f"{value / GIB:.3g} GiB"
    return f"{value:.3g} {unit}" if unit == "C" else format_quantity(value, unit)


def _energy(subject: Doc, of: str) -> Iterator[str]:
    what = f"Energy of the {of}" if of else "Energy"
    if subject["energy_j"] is None:
        yield f"{what}: not known: {clean(subject['energy_j_why'])}."
    else:
        yield f"{what}: {subject['energy_j']:,.4g} J, from {clean(subject['energy_from'])}."


def _held(gpu: Doc) -> Iterator[str]:
    shares = [f"{clean(reason)} {format_fraction(share, 2)}" for reason, share in gpu["held_back"].items()]
    if shares:
        yield f"Clock held back, of the samples: {', '.join(shares)}."
    silent = sorted(key.removesuffix("_why") for key in gpu["metrics"] if key.endswith("_why"))
    if silent:
        yield f"Not told by the driver: {', '.join(map(clean, silent))}."


def _cost(seen: Doc) -> Iterator[str]:
    cost: Any = seen["cost"]
    if cost["sample_s"] is not None and cost["cpu_fraction"] is not None:
        yield (
            f"{seen['samples']:,} samples; one takes {format_quantity(cost['sample_s'], 's')}, and all the watching "
            f"took {format_fraction(cost['cpu_fraction'], 2)} of one CPU."
        )
    command = seen["command"]
    if command:
        yield (
            f"The command ended with {command['exit_code']}: {_seconds(command['user_s'])} of CPU time, "
            f"{_seconds(command['system_s'])} in the kernel, at most {format_size(command['most_memory_bytes'])} in "
            "one process."
        )


def _seconds(value: float) -> str:
    return f"{value:,.3g} s" if value < 1000 else f"{value:,.0f} s"
