"""Triton: a kernel launched on PyTorch's current stream, which is the one that is timed."""

from __future__ import annotations

import sys

import gpumicro as gm

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    sys.exit(print(f"skipped: {error.name} is not installed"))
if not torch.cuda.is_available():
    sys.exit(print("skipped: PyTorch finds no GPU"))


@triton.jit
def triad(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(a + i, tl.load(b + i, mask=inside) + 3.0 * tl.load(c + i, mask=inside), mask=inside)


roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline("cuda:0", mode="quick", dtype="float32")
n = 1 << 24
a, b, c = (torch.ones(n, device="cuda") for _ in range(3))
seen = gm.time_kernel(lambda: triad[(n // 1024,)](a, b, c, n, BLOCK=1024))
print(f"triad: {3 * 4 * n / seen.estimate_s / 1e9:.0f} GB/s, estimand {seen.estimand}")
point = roof.place(
    lambda: triad[(n // 1024,)](a, b, c, n, BLOCK=1024),
    flops=2 * n, bytes=3 * 4 * n, dtype="float32", name="triton triad",
)  # fmt: skip
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
