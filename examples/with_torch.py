"""PyTorch: a module on the CPU or the GPU, under the roof of a result file (an argument) or of this machine."""

from __future__ import annotations

import sys

import gpumicro as gm

try:
    import torch
except ImportError:
    sys.exit(print("skipped: PyTorch is not installed"))

device = "cuda:0" if torch.cuda.is_available() else "cpu"
roof = gm.Roofline.load(sys.argv[1]) if len(sys.argv) > 1 else gm.roofline(device, mode="quick", dtype="float32")

n = 1024
a, b = torch.rand(n, n, device=device), torch.rand(n, n, device=device)
seen = gm.time_kernel(torch.mm, a, b, max_time_s=1.0)
print(f"torch.mm: {seen.estimate_s * 1e6:.0f} us by timer {seen.timer}, flags: {', '.join(seen.flags) or 'none'}")
point = roof.place(lambda: torch.mm(a, b), flops=2 * n**3, bytes=3 * 4 * n * n, dtype="float32", name="torch.mm")
print(f"{point['fraction_of_attainable']:.0%} of attainable, held by {point['bound_by']}")
