"""A kernel of the catalogue, prepared, verified and timed by hand."""

from __future__ import annotations

import gpumicro as gm

with gm.prepare("stream.triad", n=1 << 22, dtype="float64") as triad:
    check = triad.verify()
    seen = gm.time_kernel(triad, max_time_s=1.0)
    isa = triad.facts["isa"]
moved = triad.spec.bytes_moved(triad.problem)
print(f"{moved / seen.estimate_s / 1e9:.1f} GB/s, {check.elements} elements checked, {isa} kernels")
