"""`precision`'s answer as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .. import __version__
from ..report.tables import Table, clean, columns_of, interval, quantity
from ..result import to_plain
from .precision import DevicePrecision, Precision

_HEADS = columns_of(
    "type", ">GEMM", "/95% interval", "/kernel", ">x fp32", ">step", ">error", ">roundoff", ">bytes",
)  # fmt: skip


def table(found: DevicePrecision) -> Table:
    """A row a type."""
    sizes = dict(found.rows[0].problem) if found.rows else {}
    at = "x".join(str(size) for size in dict.fromkeys(sizes.values()))
    remarks = [
        *found.advice,
        "x fp32: the GEMM's rate over float32's. error: the worst of one element of C against the float64 product of "
        "the same stored operands, over a typical element; rounding the operands to the type (roundoff) comes on top.",
        "bytes: of an operand's element, then of the result's.",
    ]
    if any(row.step for row in found.rows):
        remarks.append(
            f"step: how much faster {found.model.params:.3g} parameters train than in float32, on one device (model)."
        )
    if any(not row.same_problem for row in found.rows):
        remarks.append("* measured at another size than float32.")
    origins = ", ".join(dict.fromkeys(row.rate.origin for row in found.rows))
    title = f"{clean(found.name)} ({clean(found.device)}): GEMM by type, {at} ({origins})"
    return Table("precision", title, _HEADS, tuple(map(_row, found.rows)), tuple(remarks)).without_empty()


def _row(row: Precision) -> tuple[str, ...]:
    rate = row.rate
    times = "-" if row.speedup is None else f"{row.speedup:.3g}x{'' if row.same_problem else '*'}"
    size = "x".join(str(extent) for extent in dict.fromkeys(extent for _, extent in row.problem))
    return (
        row.dtype, quantity(rate.estimate, rate.unit, rate.ci95), interval(rate.estimate, rate.ci95, rate.unit),
        f"{clean(row.kernel)}, {size}", times, "" if row.step is None else f"{row.step:.3g}x",
        "-" if row.error is None else "exact" if row.error == 0 else f"{row.error:.0e}",
        f"{row.roundoff:.0e}" if row.roundoff else "exact", f"{row.operand_bytes} / {row.result_bytes}",
    )  # fmt: skip


def to_json(found: Sequence[DevicePrecision]) -> dict[str, Any]:
    """Everything."""
    devices = to_plain([asdict(one) for one in found])
    return {"schema": "gpumicro/precision/1", "gpumicro_version": __version__, "devices": devices}
