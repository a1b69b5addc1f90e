"""Peak arithmetic in registers. One run is a fixed number of operations, whatever the ISA and the number of threads.

A ceiling states its recipe: cores with adders of their own (Zen 3 and 4) do more when adds run beside the FMAs, yet a
GEMM can only be held against the FMA rate. On a GPU the problem says how many blocks and steps; the kernels are those
of csrc/kernels/peak.cuh, with tensor cores in peak_tensor.py.
"""

from __future__ import annotations

from ..device import Device
from ..spec import GpuForm, KernelSpec, Problem
from . import peak_gpu
from .gpu import capability, needs
from .peak_check import CHAINS, UNROLL, dot_sums, fma_chains

# Operations of one run on a CPU; csrc/cpu/peak.cpp says the same, and a test compares them through the native steps.
FMA_FLOP = 96 << 20
FMA_ADD_FLOP = 72 << 20
DOT_OPS = 192 << 20

BLOCKS_PER_SM = 4  # 1,024 threads: all that sm_75 holds, and 8 warps a scheduler everywhere

FMA_SYMBOLS = {
    "float64": "gm::fma_peak<double>",
    "float32": "gm::fma_peak<float>",
    "float16": "gm::fma_peak<gm::pair<gm::half>>",
    "bfloat16": "gm::fma_peak<gm::pair<gm::bfloat16>>",
    "int32": "gm::fma_peak<int>",
}


def _nothing(_: Problem) -> int:
    return 0


def _spec(name: str, summary: str, dtypes: tuple[str, ...], operations: int, gpu: GpuForm | None = None) -> KernelSpec:
    return KernelSpec(
        name=f"peak.{name}",
        summary=summary,
        dtypes=dtypes,
        sizes=(),
        operands=(),
        bytes_moved=_nothing,
        traffic="none",
        flops=lambda problem: _on_gpu(name, problem) if problem.sizes else operations,
        unit="FLOP/s",
        gpu=gpu,
    )


def _on_gpu(name: str, problem: Problem) -> int:
    """A multiply-add is 2, of two halves 4, of four bytes 8."""
    each = 8 if name == "dot" else 4 if problem.dtype in ("float16", "bfloat16") else 2
    return problem["blocks"] * peak_gpu.THREADS * problem["steps"] * UNROLL * CHAINS.get(problem.dtype, 16) * each


def _fma_why_not(dtype: str, device: Device) -> str:
    return needs(device, 8, 0) if dtype == "bfloat16" else needs(device, 7, 5)


def flop_per_cycle(dtype: str, device: Device) -> int:
    """Of one SM, for sizing only. CUDA programming guide, "Throughput of native arithmetic instructions"."""
    have = capability(device)
    if dtype == "float64":
        return {(8, 0): 64, (9, 0): 128, (10, 0): 128}.get(have, 4)
    if dtype in ("float16", "bfloat16"):
        return 512 if have in ((8, 0), (9, 0), (10, 0)) else 256
    if dtype == "float32":
        return 128 if have < (8, 6) else 256
    return 512 if dtype == "int8" else 128


def gpu_sizes(spec: KernelSpec, dtype: str, device: Device) -> dict[str, int]:
    """Blocks and steps for a device: every SM full once, a launch of some 0.3 to 0.6 ms; tiny where it is emulated."""
    if spec.on_cpu:
        return peak_gpu.sizes_for(spec, dtype, device, BLOCKS_PER_SM, flop_per_cycle(dtype, device))
    from .peak_tensor import BLOCKS, tensor_flop_per_cycle

    rate = tensor_flop_per_cycle(spec, dtype, device)
    return peak_gpu.sizes_for(spec, dtype, device, BLOCKS[spec.name], rate)


SPECS = (
    _spec(
        "fma",
        "x = a * x + b in registers, |a| < 1",
        ("float64", "float32"),
        FMA_FLOP,
        peak_gpu.form("peak.cuh", FMA_SYMBOLS, fma_chains, unit="vector", why_not=_fma_why_not),
    ),
    _spec("fma_add", "x = a * x + b beside y = b - y in registers", ("float64", "float32"), FMA_ADD_FLOP),
    _spec(
        "dot",
        "acc += x . y of narrow types in registers; a product and its sum are 2",
        ("bfloat16", "int8"),
        DOT_OPS,
        peak_gpu.form(
            "peak.cuh",
            {"int8": "gm::dot_peak<signed char>"},
            dot_sums,
            unit="vector",
            why_not=lambda _, device: needs(device, 7, 5),
        ),
    ),
)
