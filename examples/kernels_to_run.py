"""Functions that name their counts: `python -m gpumicro run examples/kernels_to_run.py:add`."""

from __future__ import annotations

import numpy as np

import gpumicro as gm

n = 1 << 22
a, b = np.ones(n), np.ones(n)


@gm.measured(counts=gm.counts.elementwise(n, inputs=2))
def add() -> None:
    """By the decorator."""
    np.add(a, b, out=b)


def scale(factor: float) -> None:
    """By the names below."""
    np.multiply(a, factor, out=a)


ARGS = {"scale": [1.0]}
COUNTS = {"scale": gm.counts.elementwise(n)}

if __name__ == "__main__":
    for _ in range(10):
        add()
    print(add.report())
