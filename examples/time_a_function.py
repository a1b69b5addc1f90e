"""How long does a call take, and how sure is that?"""

from __future__ import annotations

import numpy as np

import gpumicro as gm

a = np.random.default_rng(0).random(10_000)
seen = gm.time_kernel(lambda: np.sort(a), max_time_s=1.0)
low, high = seen.ci95_s
print(f"{seen.estimate_s * 1e6:.1f} us, 95% interval {low * 1e6:.1f} to {high * 1e6:.1f} us, n = {seen.n}")
print("stopped because:", seen.stop_reason, "flags:", ", ".join(seen.flags) or "none")
