"""For github-action-benchmark: its customSmallerIsBetter and customBiggerIsBetter JSON, a list of named numbers.

Format: https://github.com/benchmark-action/github-action-benchmark, "name", "unit", "value", "range", "extra".
"""

from __future__ import annotations

import json

from .series import Figure, figures
from .tables import Doc


def to_smaller(doc: Doc) -> bytes:
    """Times (ns), for `tool: customSmallerIsBetter`."""
    return _listed([one for one in figures(doc) if one.smaller_is_better])


def to_bigger(doc: Doc) -> bytes:
    """Bandwidths (GB/s) and rates of operations (GFLOP/s, of integers GOP/s), for `tool: customBiggerIsBetter`."""
    return _listed([one for one in figures(doc) if not one.smaller_is_better])


def _listed(found: list[Figure]) -> bytes:
    return (json.dumps([_entry(one) for one in found], indent=1, allow_nan=False) + "\n").encode()


def _entry(one: Figure) -> dict[str, object]:
    name = one.name if one.smaller_is_better else f"{one.name} {one.quantity}"
    entry: dict[str, object] = {"name": name, "unit": one.unit, "value": one.value, "extra": one.remark}
    if one.ci95:
        low, high = one.ci95
        entry["range"] = f"{low:.4g} to {high:.4g}"
    return entry
