"""What the records of host actions share: works that the CUDA runtime does and no kernel of csrc/kernels."""

from __future__ import annotations

from collections.abc import Callable

from ..device import Device
from ..spec import Execution, GpuForm, KernelSpec, Launch, Problem


def _no_launch(_problem: Problem, _execution: Execution, _device: Device) -> Launch:
    raise NotImplementedError("a host action has no launch: backends/cuda_host.py makes its work")


def nothing(_: Problem) -> int:
    """No bytes, no FLOP."""
    return 0


def host_action(
    name: str,
    summary: str,
    *,
    sizes: tuple[str, ...] = (),
    variants: tuple[str, ...] = ("",),
    payload: Callable[[Problem], int] = nothing,
    why_not: Callable[[str, Device], str] = lambda _dtype, _device: "",
) -> KernelSpec:
    """A record whose GPU form has no source; `payload` is what a copy is credited with, in bytes."""
    return KernelSpec(
        name=name,
        summary=summary,
        dtypes=("int8",),
        sizes=sizes,
        operands=(),
        bytes_moved=payload,
        traffic="none" if payload is nothing else "compulsory",
        flops=nothing,
        variants=variants,
        unit="s" if payload is nothing else "B/s",
        on_cpu=False,
        gpu=GpuForm("", _no_launch, ("int8",), why_not=why_not, variants=lambda _dtype, _device: variants),
    )
