"""What the records of peak kernels on a GPU share: seeds, launches, checks, and sizes for a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..spec import Check, Execution, GpuForm, KernelSpec, Launch, Operand, Problem
from . import formats
from .operands import bits, operand
from .peak_check import WORDS, Known, elements_per_word, judge

THREADS = 256  # kPeakThreads
SIZES = ("blocks", "steps")
SEED = 0x7065616B
LAUNCH_CYCLES = 600_000  # what one launch should last: 0.3 to 0.6 ms at the clocks of GPUs
_Array = npt.NDArray[np.generic]


def seeds(name: str, problem: Problem) -> _Array | None:
    """What the operand `seeds` holds: the operand class in the problem's type, random bits for uniform integers.

    float8_e4m3fn, and `few_digits` (float16): k / 16 and k / 8 with whole k, so that products cancel exactly.
    """
    if name not in ("seeds", "few_digits"):
        return None
    dtype = problem.dtype
    count = WORDS * elements_per_word(dtype)
    if dtype in ("int8", "int32"):
        return _integers(count, dtype, problem)
    base = "float64" if dtype == "float64" else "float32"
    values = operand(count, base, operands=problem.operands, seed=SEED)
    if dtype == "float8_e4m3fn":
        values = np.clip(np.rint(values * 8), -15, 15) / 16
    elif name == "few_digits":
        values = np.clip(np.rint(values * 4), -7, 7) / 8
    return formats.encode(values, dtype)


def _integers(count: int, dtype: str, problem: Problem) -> _Array:
    if problem.operands == "uniform":
        return bits(count, SEED, 0).astype(f"u{dtype}").view(dtype)
    scale = 32.0 if dtype == "int8" else 2.0**29  # normal: 4 sigma fill the range
    largest = np.iinfo(dtype).max
    values = operand(count, "float64", operands=problem.operands, seed=SEED) * scale
    whole: _Array = np.clip(np.rint(values), -largest, largest).astype(dtype)
    return whole


def sum_dtype(problem: Problem) -> str:
    """The type of a thread's sum."""
    wide = {"float64": "float64", "int8": "int32", "int32": "int32"}
    return wide.get(problem.dtype, "float32")


def operands(threads: int = THREADS, name: str = "seeds") -> tuple[Operand, ...]:
    """Seeds in, one sum a thread out."""
    return (
        Operand(name, "in", lambda p: WORDS * elements_per_word(p.dtype)),
        Operand("out", "out", lambda p: p["blocks"] * threads, sum_dtype),
    )


def form(
    source: str,
    symbols: Mapping[str, str],
    known: Callable[[npt.NDArray[Any], str, int], Known],
    *,
    unit: str,
    why_not: Callable[[str, Device], str],
    threads: int = THREADS,
    seeds_name: str = "seeds",
    target: str = "",
) -> GpuForm:
    """The GPU form of a peak kernel. `symbols` by dtype; `known` computes what `out` must hold from the seeds."""

    def launch(problem: Problem, _execution: Execution, _device: Device) -> Launch:
        arguments = (seeds_name, "out", np.int64(problem["steps"]))
        return Launch(symbols[problem.dtype], (problem["blocks"], 1, 1), (threads, 1, 1), arguments)

    def check(spec: KernelSpec, problem: Problem, after: Mapping[str, _Array]) -> Check:
        return judge(spec.name, after["out"], known(after[seeds_name], problem.dtype, problem["steps"]))

    return GpuForm(
        source=source,
        launch=launch,
        dtypes=tuple(symbols),
        why_not=why_not,
        target=target,
        operands=operands(threads, seeds_name),
        sizes=SIZES,
        contents=seeds,
        check=check,
        unit="tensor" if unit == "tensor" else "vector",
    )


def sizes_for(spec: KernelSpec, dtype: str, device: Device, blocks_per_sm: int, flop_per_cycle: int) -> dict[str, int]:
    """Blocks that fill every SM once, and steps for about LAUNCH_CYCLES at `flop_per_cycle` of an SM."""
    if device.facts.get("emulated"):
        return {"blocks": 2, "steps": 1}
    blocks = (device.cores or 1) * blocks_per_sm
    one, two = (spec.flops(Problem.of(dtype, blocks=blocks_per_sm, steps=steps)) for steps in (1, 2))
    return {"blocks": blocks, "steps": max(1, round(LAUNCH_CYCLES * flop_per_cycle / (two - one)))}
