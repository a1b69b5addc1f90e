"""CuPy: a raw kernel with its arguments, and a function of its arrays."""

from __future__ import annotations

import sys

import gpumicro as gm

try:
    import cupy
except ImportError:
    sys.exit(print("skipped: CuPy is not installed"))
if not cupy.cuda.is_available():
    sys.exit(print("skipped: CuPy finds no GPU"))

CODE = """extern "C" __global__ void triad(float* a, const float* b, const float* c, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] + 3.0f * c[i];
}"""
roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline("cuda:0", mode="quick", dtype="float32")
n = 1 << 24
a, b, c = (cupy.ones(n, cupy.float32) for _ in range(3))
seen = gm.time_kernel(cupy.RawKernel(CODE, "triad"), (n // 256,), (256,), (a, b, c, cupy.int64(n)))
print(f"triad: {3 * 4 * n / seen.estimate_s / 1e9:.0f} GB/s, estimand {seen.estimand}")
point = roof.place(lambda: cupy.add(b, c, out=a), flops=n, bytes=3 * 4 * n, dtype="float32", name="cupy.add")
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
