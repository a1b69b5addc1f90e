"""Numba on a GPU: a configured kernel with its arguments, launched on the stream that is timed."""

from __future__ import annotations

import sys

import numpy as np

import gpumicro as gm

try:
    from numba import cuda
except ImportError:
    sys.exit(print("skipped: Numba is not installed"))
if not cuda.is_available():
    sys.exit(print("skipped: Numba finds no GPU"))


@cuda.jit
def triad(a, b, c):
    i = cuda.grid(1)
    if i < a.size:
        a[i] = b[i] + 3.0 * c[i]


roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline("cuda:0", mode="quick", dtype="float32")
n = 1 << 24
a, b, c = (cuda.to_device(np.ones(n, np.float32)) for _ in range(3))
kernel = triad[n // 256, 256]
seen = gm.time_kernel(kernel, a, b, c)
print(f"triad: {3 * 4 * n / seen.estimate_s / 1e9:.0f} GB/s, estimand {seen.estimand}")
point = roof.place(
    lambda stream: triad[n // 256, 256, cuda.external_stream(stream)](a, b, c),
    flops=2 * n, bytes=3 * 4 * n, dtype="float32", name="numba triad",
)  # fmt: skip
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
