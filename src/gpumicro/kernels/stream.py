"""STREAM's kernels, and read, write and dot. Always a = f(b, c): inputs are never written, so any run can be checked.

Bytes as STREAM counts them: each load and each store once. A temporal store also reads the line it writes to
(write-allocate): a temporal triad really moves 4/3 of what is counted, copy and scale 3/2, write twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..spec import KernelSpec, Operand, Problem, Role

SCALAR = 0.4  # the s of scale and triad; write stores it too
DTYPES = ("float64", "float32")

_Array = npt.NDArray[np.generic]


def _n(problem: Problem) -> int:
    return problem["n"]


def _spec(
    name: str, summary: str, roles: dict[str, Role], flops_each: int, reference: Callable[..., _Array]
) -> KernelSpec:
    operands = tuple(Operand(operand, role, _n if operand != "sum" else lambda _: 1) for operand, role in roles.items())
    arrays = sum(operand != "sum" for operand in roles)
    stores = "a" in roles
    return KernelSpec(
        name=f"stream.{name}",
        summary=summary,
        dtypes=DTYPES,
        sizes=("n",),
        operands=operands,
        bytes_moved=lambda problem: arrays * problem["n"] * problem.itemsize,
        traffic="exact",
        flops=lambda problem: flops_each * problem["n"],
        reference=reference,
        variants=("temporal", "nontemporal") if stores else ("",),
    )


def _scalar(like: _Array) -> np.generic:
    scalar: np.generic = like.dtype.type(SCALAR)
    return scalar


# A reference takes every operand in order; what the output holds before does not matter.
SPECS = (
    _spec("read", "sum of b[i]", {"b": "in", "sum": "out"}, 1, lambda b, _: np.sum(b, keepdims=True)),
    _spec("write", "a[i] = s", {"a": "out"}, 0, lambda a: np.full_like(a, SCALAR)),
    _spec("copy", "a[i] = b[i]", {"a": "out", "b": "in"}, 0, lambda _, b: b.copy()),
    _spec("scale", "a[i] = s * b[i]", {"a": "out", "b": "in"}, 1, lambda _, b: _scalar(b) * b),
    _spec("add", "a[i] = b[i] + c[i]", {"a": "out", "b": "in", "c": "in"}, 1, lambda _, b, c: b + c),
    _spec("triad", "a[i] = b[i] + s * c[i]", {"a": "out", "b": "in", "c": "in"}, 2, lambda _, b, c: b + _scalar(c) * c),
    _spec(
        "dot", "sum of b[i] * c[i]", {"b": "in", "c": "in", "sum": "out"}, 2,
        lambda b, c, _: np.sum(b * c, keepdims=True),
    ),
)  # fmt: skip
