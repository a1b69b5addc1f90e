"""CUDA C++ of your own: compiled by NVRTC for the GPU at hand, checked, put under its roof."""

from __future__ import annotations

import sys

import numpy as np

import gpumicro as gm
from gpumicro.errors import BackendUnavailable

SOURCE = """template <class T> __global__ void axpy(T a, const T* __restrict__ x, T* __restrict__ y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""
n = 1 << 24
x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
try:
    axpy = gm.Kernel.from_source(SOURCE, "axpy<float>", [2.0, x, y, n], grid=-(-n // 256), block=256)
except BackendUnavailable as error:  # no GPU, no CUDA module, no NVRTC
    sys.exit(print(f"skipped: {error}"))

with axpy:
    axpy.run()
    np.testing.assert_allclose(axpy.read(2), 2 * x + 1, rtol=1e-6)
    facts = axpy.facts
    print(f"{facts['registers']} registers, compiled for {facts['architecture']} in {facts['compile_s']:.2f} s")
    roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline("cuda:0", mode="quick", dtype="float32")
    point = roof.place(axpy, flops=2 * n, bytes=3 * 4 * n, dtype="float32", name="axpy")
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
