"""The report as CSV: one row a ceiling, ridge point, point, measurement; SI base units, numbers unrounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from ..model import flags_of
from .collectives import csv_rows
from .gpus import pair_rows
from .network import work_rows
from .tables import Doc, achieved_of, clean, imported_from

COLUMNS = (
    "record",
    "name",
    "kernel",
    "dtype",
    "level",
    "threads",
    "intensity_flop_per_byte",
    "unit",
    "value",
    "ci95_low",
    "ci95_high",
    "reference",
    "fraction_of_reference",
    "bound_by",
    "time_s",
    "samples",
    "status",
    "flags",
    "measurement",
)


def to_csv(doc: Doc) -> str:
    """RFC 4180 text with a heading; `reference` is the spec peak of a ceiling and the attainable rate of a point."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for row in rows(doc):
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return buffer.getvalue()


def to_bytes(doc: Doc) -> bytes:
    """The CSV as UTF-8."""
    return to_csv(doc).encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        text = clean(value)
        # a spreadsheet takes these for a formula
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return "" if value is None else value


def rows(doc: Doc) -> Iterator[dict[str, Any]]:
    if doc.get("imported"):
        yield {"record": "imported", "name": imported_from(doc)}
    for ceiling in doc["ceilings"]:
        row = _estimate(ceiling["achieved"], ceiling["ci95"])
        row |= {
            "record": "ceiling",
            "name": ceiling.get("id") or ceiling["level"] or ceiling["dtype"],
            "kernel": ceiling.get("recipe"),
        }
        row |= {key: ceiling.get(key) for key in ("dtype", "level", "threads", "unit", "measurement")}
        yield row | {
            "reference": ceiling["spec"],
            "fraction_of_reference": ceiling["fraction_of_spec"],
            "flags": " ".join(ceiling["flags"]),
        }
    for ridge in doc.get("ridge_points", []):
        row = _estimate(ridge["intensity_flop_per_byte"], ridge.get("ci95")) | {"record": "ridge", "unit": "FLOP/B"}
        yield row | {
            "name": f"{ridge['memory']}/{ridge['arithmetic']}",
            "threads": ridge.get("threads"),
            "level": ridge["memory"],
            "dtype": ridge["arithmetic"],
        }
    for point in doc["points"]:
        value, ci95, unit = achieved_of(point)
        row = _estimate(value, ci95) | {
            "record": "point",
            "unit": "B/s" if unit == "B/s" else "FLOP/s",
            "kernel": point.get("kind"),
        }
        row |= {
            key: point.get(key)
            for key in (
                "name",
                "dtype",
                "level",
                "threads",
                "intensity_flop_per_byte",
                "bound_by",
                "time_s",
                "measurement",
            )
        }
        attainable = point.get("attainable_bytes_per_s") if unit == "B/s" else point["attainable_flop_per_s"]
        row |= {"reference": attainable, "fraction_of_reference": point["fraction_of_attainable"]}
        yield row | {"flags": " ".join(point["flags"])}
    for item in doc["measurements"]:
        time, timing = item["time_s"] or {}, item["timing"] or {}
        key, unit = _shown(item)
        figure = item.get(key) or {}
        row = _estimate(figure.get("estimate"), figure.get("ci95")) | {
            "record": "measurement",
            "unit": unit,
            "name": item["id"],
        }
        row |= {
            key: item.get(key) for key in ("kernel", "dtype", "level", "threads", "intensity_flop_per_byte", "status")
        }
        yield row | {
            "time_s": time.get("estimate"),
            "samples": timing.get("n"),
            "flags": " ".join(flags_of(item)),
            "measurement": item["id"],
        }
    yield from map(dict, work_rows(doc))
    yield from map(dict, pair_rows(doc))
    yield from map(dict, csv_rows(doc))


def _shown(item: dict[str, Any]) -> tuple[str, str]:
    """(key, unit) of a measurement's figure: its time; of one imported without a time the rate or latency it states."""
    stated = (("bandwidth_bytes_per_s", "B/s"), ("latency_s", "s")) if item.get("imported") else ()
    return next(((key, unit) for key, unit in (("time_s", "s"), *stated) if item.get(key)), ("time_s", "s"))


def _estimate(value: float | None, ci95: Sequence[float] | None) -> dict[str, Any]:
    low, high = ci95 or (None, None)
    return {"value": value, "ci95_low": low, "ci95_high": high}
