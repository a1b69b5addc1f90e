"""Is b faster than a? Interleaved, with an interval and the least effect that could have been seen."""

from __future__ import annotations

import numpy as np

import gpumicro as gm

x = np.random.default_rng(0).random(10_000)
result = gm.compare(lambda: np.sqrt(x), lambda: x**0.5)
print(f"b takes {result.ratio:.3f} times as long as a, 95% interval {result.ci95[0]:.3f} to {result.ci95[1]:.3f}")
print(f"verdict: {result.verdict}; a difference under {result.mde:.2%} could not have been seen")
