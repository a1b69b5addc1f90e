"""Peak arithmetic in registers. One run is a fixed number of operations, whatever the ISA and the number of threads.

A ceiling states its recipe: cores with adders of their own (Zen 3 and 4) do more when adds run beside the FMAs, yet a
GEMM can only be held against the FMA rate.
"""

from __future__ import annotations

from ..spec import KernelSpec, Problem

# Operations of one run; csrc/cpu/peak.cpp says the same, and a test compares them through the native steps.
FMA_FLOP = 96 << 20
FMA_ADD_FLOP = 72 << 20
DOT_OPS = 192 << 20


def _nothing(_: Problem) -> int:
    return 0


def _spec(name: str, summary: str, dtypes: tuple[str, ...], operations: int) -> KernelSpec:
    return KernelSpec(
        name=f"peak.{name}",
        summary=summary,
        dtypes=dtypes,
        sizes=(),
        operands=(),
        bytes_moved=_nothing,
        traffic="none",
        flops=lambda _: operations,
        unit="FLOP/s",
    )


SPECS = (
    _spec("fma", "x = a * x + b in registers, |a| < 1", ("float64", "float32"), FMA_FLOP),
    _spec("fma_add", "x = a * x + b beside y = b - y in registers", ("float64", "float32"), FMA_ADD_FLOP),
    _spec(
        "dot", "acc += x . y of narrow types in registers; a product and its sum are 2", ("bfloat16", "int8"), DOT_OPS
    ),
)
