"""Measure this machine, put a function of your own under its roof, draw it."""

from __future__ import annotations

import sys

import numpy as np

import gpumicro as gm

roof = gm.roofline("cpu", mode="quick", dtype="float64")
print(f"at 1 FLOP/B: {roof.attainable(1.0) / 1e9:.1f} GFLOP/s attainable from DRAM")

n = 1 << 24
a, b = np.ones(n), np.ones(n)
point = roof.place(lambda: np.add(a, b, out=a), flops=n, bytes=3 * 8 * n, name="numpy add")
print(f"numpy add reaches {point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")

roof.save(sys.argv[1] if len(sys.argv) > 1 else "roofline.png")
