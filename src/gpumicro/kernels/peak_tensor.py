"""Peak arithmetic of a GPU's tensor cores: mma.sync of one warp, wgmma of sm_90a, tcgen05 of sm_100a.

mma.sync alone does not reach a Hopper's or Blackwell's peak (WMMA loops stop near 69% of an H200's bf16 peak), which is
why each has its own kernel. Kernels: csrc/kernels/peak_mma.cuh, peak_wgmma.cuh, peak_tcgen05.cuh.
"""

from __future__ import annotations

from collections.abc import Callable

from ..device import Device
from ..spec import GpuForm, KernelSpec, Problem
from . import peak_gpu
from .gpu import capability, needs
from .peak_check import FRAGMENTS, HALF_SUMS, TILE_UNROLL, mma_sums, tcgen05_sums, wgmma_sums

BLOCKS = {"peak.mma": 2, "peak.mma_half": 2, "peak.wgmma": 1, "peak.tcgen05": 1}  # of an SM, all resident

TYPES = {
    "float64": "double, double",
    "tf32": "gm::tf32, float",
    "float16": "gm::half, float",
    "bfloat16": "gm::bfloat16, float",
    "float8_e4m3fn": "gm::e4m3, float",
    "int8": "signed char, int",
}
TILE_TYPES = tuple(dtype for dtype in TYPES if dtype != "float64")


def _symbols(kernel: str, dtypes: tuple[str, ...] = tuple(TYPES)) -> dict[str, str]:
    return {dtype: f"gm::{kernel}<{TYPES[dtype]}>" for dtype in dtypes}


def _mma_flops(problem: Problem, half: bool) -> int:
    part = HALF_SUMS if half else FRAGMENTS[problem.dtype]
    products = (problem["steps"] * part.unroll + part.cancels) * part.accumulators
    return problem["blocks"] * peak_gpu.THREADS // 32 * products * 2 * 16 * 8 * part.k


def _wgmma_flops(problem: Problem) -> int:
    part = FRAGMENTS[problem.dtype]
    return problem["blocks"] * 2 * (problem["steps"] * TILE_UNROLL + part.cancels) * 2 * 64 * 256 * part.k


def _tcgen05_flops(problem: Problem) -> int:
    return problem["blocks"] * (problem["steps"] * TILE_UNROLL + 2) * 2 * 128 * 256 * FRAGMENTS[problem.dtype].k


def _mma_why_not(dtype: str, device: Device) -> str:
    """Where the instruction exists but no unit for it, a "peak" would be that of something else."""
    have = capability(device)
    if dtype == "float8_e4m3fn" and have >= (8, 9):
        if have == (8, 9) or have >= (12, 0):
            return ""
        return f"mma.sync converts fp8 to half on {have[0]}.{have[1]}; peak.wgmma and peak.tcgen05 do not"
    if dtype == "float64" and have >= (8, 0):
        if have in ((8, 0), (9, 0), (10, 0)):
            return ""
        return f"compute capability {have[0]}.{have[1]} has no fp64 tensor cores to speak of"
    return needs(device, 8, 9) if dtype == "float8_e4m3fn" else needs(device, 8, 0)


def tensor_flop_per_cycle(spec: KernelSpec, dtype: str, device: Device) -> int:
    """Of one SM, for sizing only."""
    if dtype == "float64":
        return 256 if capability(device) == (9, 0) else 128
    half = {"peak.wgmma": 4096, "peak.tcgen05": 8192}.get(spec.name, 2048)
    return half // 2 if dtype == "tf32" else half if dtype in ("float16", "bfloat16") else half * 2


def _spec(name: str, summary: str, flops: Callable[[Problem], int], gpu: GpuForm) -> KernelSpec:
    return KernelSpec(
        name=f"peak.{name}",
        summary=summary,
        dtypes=gpu.dtypes,
        sizes=peak_gpu.SIZES,
        operands=gpu.operands or (),
        bytes_moved=lambda _: 0,
        traffic="none",
        flops=flops,
        unit="FLOP/s",
        on_cpu=False,
        gpu=gpu,
    )


SPECS = (
    _spec(
        "mma",
        "d += a b by tensor cores, mma.sync with operands in registers",
        lambda problem: _mma_flops(problem, half=False),
        peak_gpu.form("peak_mma.cuh", _symbols("mma_peak"), mma_sums, unit="tensor", why_not=_mma_why_not),
    ),
    _spec(
        "mma_half",
        "d += a b of float16 by mma.sync with sums in float16",
        lambda problem: _mma_flops(problem, half=True),
        peak_gpu.form(
            "peak_mma.cuh",
            {"float16": "gm::mma_peak<gm::half, gm::half>"},
            lambda seeds, dtype, steps: mma_sums(seeds, dtype, steps, HALF_SUMS),
            unit="tensor",
            why_not=lambda _, device: needs(device, 8, 0),
            seeds_name="few_digits",
        ),
    ),
    _spec(
        "wgmma",
        "d += a b by Hopper's tensor cores, wgmma m64n256 from shared memory",
        _wgmma_flops,
        peak_gpu.form(
            "peak_wgmma.cuh",
            _symbols("wgmma_peak", TILE_TYPES),
            wgmma_sums,
            unit="tensor",
            why_not=lambda _, device: needs(device, 9, 0, exact=True),
            target="90a",
        ),
    ),
    _spec(
        "tcgen05",
        "d += a b by Blackwell's tensor cores, tcgen05.mma m128n256 from shared into tensor memory",
        _tcgen05_flops,
        peak_gpu.form(
            "peak_tcgen05.cuh",
            _symbols("tcgen05_peak", TILE_TYPES),
            tcgen05_sums,
            unit="tensor",
            why_not=lambda _, device: needs(device, 10, 0, exact=True),
            target="100a",
            threads=128,
        ),
    ),
)
