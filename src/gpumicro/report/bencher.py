"""For Bencher: Bencher Metric Format, benchmark -> measure -> value with its bounds.

Format: https://bencher.dev/docs/reference/bencher-metric-format. `latency` is its built-in measure, in nanoseconds;
`bandwidth` (GB/s), `flop-rate` (GFLOP/s) and `op-rate` (of integers, GOP/s) come into being as measures of that name.
"""

from __future__ import annotations

import json

from .series import figures
from .tables import Doc

LONGEST = 1024  # characters of a benchmark's name


def to_bytes(doc: Doc) -> bytes:
    """The JSON file, for `bencher run --adapter json --file FILE`."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for one in figures(doc):
        metric = {"value": one.value}
        if one.ci95:
            metric |= {"lower_value": one.ci95[0], "upper_value": one.ci95[1]}
        out.setdefault(one.name[:LONGEST], {})[one.quantity] = metric
    return (json.dumps(out, indent=1, allow_nan=False) + "\n").encode()
