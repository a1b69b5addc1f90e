"""A stream of loads with a chosen number of multiply-adds: it traces the roof from 1/16 to 256 FLOP/B.

`k` FMAs are done for every 8 elements loaded, so that less than one FMA an element is possible: 2k FLOP on 8 elements.
Every load also goes into an XOR checksum, which is no floating-point operation and proves that it was made.
"""

from __future__ import annotations

from ..errors import UsageError
from ..spec import ITEMSIZE, KernelSpec, Operand

GROUP = 8  # elements that k counts for
K_VALUES = tuple(1 << i for i in range(14))  # 1 to 8192


def k_for(intensity_flop_per_byte: float, dtype: str) -> int:
    """The k that gives this intensity: `k_for(0.0625, "float64")` is 2."""
    k = intensity_flop_per_byte * GROUP * ITEMSIZE[dtype] / 2
    if k not in K_VALUES:
        low, high = (2 * edge / (GROUP * ITEMSIZE[dtype]) for edge in (K_VALUES[0], K_VALUES[-1]))
        raise UsageError(
            f"intensity {intensity_flop_per_byte} FLOP/B: {dtype} has powers of two from {low:g} to {high:g}"
        )
    return int(k)


SPECS = (
    KernelSpec(
        name="mixed.fma",
        summary="k multiply-adds for every 8 elements loaded",
        dtypes=("float64", "float32"),
        sizes=("n", "k"),
        operands=(Operand("x", "in", lambda p: p["n"]),),
        bytes_moved=lambda p: p["n"] * p.itemsize,
        traffic="exact",
        flops=lambda p: 2 * p["k"] * p["n"] // GROUP,
        unit="FLOP/s",
    ),
)
