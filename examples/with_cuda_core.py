"""cuda.core: a program compiled by NVRTC, launched on the stream that the work is given."""

from __future__ import annotations

import sys

import gpumicro as gm

try:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
except ImportError:
    sys.exit(print("skipped: cuda.core is not installed"))
try:
    device = Device(0)
    device.set_current()
except Exception as error:
    sys.exit(print(f"skipped: cuda.core finds no GPU ({type(error).__name__})"))

CODE = """extern "C" __global__ void scale(float* a, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) a[i] = 3.0f * a[i];
}"""
program = Program(CODE, "c++", ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
kernel = program.compile("cubin", name_expressions=("scale",)).get_kernel("scale")
n = 1 << 24
buffer = device.allocate(4 * n)
config = LaunchConfig(grid=n // 256, block=256)


def work(stream):
    launch(stream, config, kernel, buffer, n)


roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline("cuda:0", mode="quick", dtype="float32")
seen = gm.time_kernel(work)
print(f"scale: {2 * 4 * n / seen.estimate_s / 1e9:.0f} GB/s, estimand {seen.estimand}")
point = roof.place(work, flops=n, bytes=2 * 4 * n, dtype="float32", name="cuda.core scale")
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
