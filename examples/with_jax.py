"""JAX: a jitted function; compiled in the first call, and every array of its result waited for in each."""

from __future__ import annotations

import sys

import gpumicro as gm

try:
    import jax
except ImportError:
    sys.exit(print("skipped: JAX is not installed"))

device = "cuda:0" if jax.default_backend() == "gpu" else "cpu"
roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline(device, mode="quick", dtype="float32")

n = 1 << 22
triad = jax.jit(lambda b, c: b + 3.0 * c)
b, c = jax.numpy.ones(n), jax.numpy.ones(n)
seen = gm.time_kernel(triad, b, c, max_time_s=1.0)
print(f"triad: {3 * 4 * n / seen.estimate_s / 1e9:.1f} GB/s, estimand {seen.estimand}")
point = roof.place(lambda: triad(b, c), flops=2 * n, bytes=3 * 4 * n, dtype="float32", name="jax triad")
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
