"""Numba on the CPU: a parallel compiled function with its arguments."""

from __future__ import annotations

import sys

import numpy as np

import gpumicro as gm

try:
    import numba
except ImportError:
    sys.exit(print("skipped: Numba is not installed"))


@numba.njit(parallel=True, fastmath=True)
def triad(a, b, c):
    for i in numba.prange(a.size):
        a[i] = b[i] + 3.0 * c[i]


roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline("cpu", mode="quick", dtype="float64")
n = 1 << 22
a, b, c = (np.ones(n) for _ in range(3))
seen = gm.time_kernel(triad, a, b, c, max_time_s=1.0)
print(f"triad: {3 * 8 * n / seen.estimate_s / 1e9:.1f} GB/s, n = {seen.n}")
point = roof.place(lambda: triad(a, b, c), flops=2 * n, bytes=3 * 8 * n, name="numba triad")
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
