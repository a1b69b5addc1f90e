"""The CPU backend: kernels compiled for several instruction sets, the best of this CPU picked at run time."""

from __future__ import annotations

import os
import weakref
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import limits, topology
from ..device import Device
from ..errors import BackendUnavailable, OutOfMemory, UsageError, nearest
from ..kernels import mixed
from ..spec import Execution, KernelSpec, Problem
from . import blas
from .base import Availability, Prepared
from .cpu_prepared import CpuPrepared, VendorPrepared

if TYPE_CHECKING:
    from .._core import cpu as native

GPU_ONLY = "It runs on a GPU (--device cuda:0)"

SEED = 0x67756D69  # of all operands: the same numbers in every run

# The operands of one family and problem serve all its kernels while one of them lives.
_arrays: weakref.WeakValueDictionary[tuple[object, ...], native.Arrays] = weakref.WeakValueDictionary()


def _native() -> Any:
    from .._core import cpu

    return cpu


def chosen_isa() -> str:
    """$GPUMICRO_CPU_ISA, else the best that this build and this CPU share."""
    usable = _native().usable_isas()
    wanted = os.environ.get("GPUMICRO_CPU_ISA")
    if not wanted:
        return str(usable[0])
    if wanted in usable:
        return wanted
    if wanted in ("sse2", "avx2", "avx512", "neon", "baseline"):
        raise BackendUnavailable(f"GPUMICRO_CPU_ISA={wanted}: this CPU or this build has only {', '.join(usable)}")
    raise UsageError(f"GPUMICRO_CPU_ISA={wanted}: no such instruction set{nearest(wanted, usable)}")


class CpuBackend:
    """Kernels on this machine's CPU."""

    name = "cpu"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._discover = lru_cache(maxsize=4)(lambda affinity: topology.discover(root, affinity))

    def availability(self) -> Availability:
        try:
            _native()
        except ImportError as error:
            return Availability(False, f"the native module cannot be loaded ({error})", "Install gpumicro with pip")
        return Availability(True)

    def devices(self) -> tuple[Device, ...]:
        return (self._discover(frozenset(topology.current_affinity())),)

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability:  # noqa: ARG002
        if not spec.on_cpu:
            return Availability(False, "the cpu backend has no form of it", GPU_ONLY)
        if dtype not in spec.dtypes and spec.gpu is not None and dtype in spec.gpu.dtypes:
            return Availability(False, f"the cpu backend has no form of it in {dtype}", GPU_ONLY)
        if dtype not in spec.dtypes:
            return Availability(False, f"{spec.name} has no {dtype}, only {', '.join(spec.dtypes)}")
        if spec.name == "gemm.vendor":
            return blas.availability()
        if spec.name == "peak.dot" and _native().dot_recipe(dtype, isa := chosen_isa()) is None:
            return Availability(False, f"{_missing_dot(dtype)} (kernels for {isa} in use)")
        return Availability(True)

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared:
        can = self.supports(spec, problem.dtype, device)
        if spec.on_cpu and can.remedy != GPU_ONLY:
            validate(spec, problem, execution, device)
        if not can:
            raise BackendUnavailable(f"{spec.name} in {problem.dtype} cannot run here because {can.reason}", can.remedy)
        isa = chosen_isa()
        kernel, arrays = self.bind(spec, problem, execution, device, isa)
        kind = VendorPrepared if spec.name == "gemm.vendor" else CpuPrepared
        return kind(spec, problem, execution, device, kernel, arrays, isa)

    def bind(
        self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device, isa: str
    ) -> tuple[native.Kernel, native.Arrays | None]:
        """The native kernel for this ISA, and its operands where they lie in memory: filled, and shared by a family.

        Raises OutOfMemory before any page is touched, BackendUnavailable for what this build cannot do.
        """
        cpus = list(execution.cpus or device.cpus[: execution.threads])
        try:
            arrays = self._operands(spec, problem, cpus)
            return _kernel(spec, problem, execution, device, cpus, isa, arrays), arrays
        except MemoryError as error:
            raise OutOfMemory(f"{spec.name}: the operating system gave no memory for {problem}") from error
        except (RuntimeError, ValueError) as error:  # OpenMP gave fewer threads; no such store in this build
            raise BackendUnavailable(f"{spec.name}: {error}") from error

    def _operands(self, spec: KernelSpec, problem: Problem, cpus: list[int]) -> native.Arrays | None:
        if spec.family == "stream":
            counts = [problem["n"]] * 3
        elif spec.family in ("gemm", "mixed"):
            counts = [operand.size(problem) for operand in spec.operands]
        else:
            self._need(spec, sum(operand.size(problem) * problem.itemsize for operand in spec.operands))
            return None
        key = (spec.family, problem.dtype, tuple(counts), problem.operands, tuple(cpus))
        arrays = _arrays.get(key)
        if arrays is None:
            # A GEMM also packs its operands and is checked against a second product.
            copies = 2 if spec.family == "gemm" else 1
            self._need(spec, sum(counts) * problem.itemsize * copies)
            arrays = _native().Arrays(problem.dtype, counts, cpus, problem.operands, SEED)
            _arrays[key] = arrays
        return arrays

    def _need(self, spec: KernelSpec, size_bytes: int) -> None:
        available = limits.memory_available(self._root)
        if available is not None and size_bytes + (32 << 20) > available:
            raise OutOfMemory(
                f"{spec.name}: needs {size_bytes / 2**20:.0f} MiB and {available / 2**20:.0f} MiB may be used "
                "(MemAvailable and the cgroup's limit); choose a smaller problem"
            )


def _missing_dot(dtype: str) -> str:
    if dtype == "bfloat16":
        return "this CPU has neither AVX512_BF16 nor Arm's bf16 dot products"
    return "this CPU has neither AVX2, AVX-VNNI, AVX512_VNNI nor Arm's dot products"


def validate(spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> None:
    """Raises UsageError where a CPU's kernel does not take these sizes, this dtype, variant or number of threads."""
    sizes = dict(problem.sizes)
    if set(sizes) != set(spec.sizes):
        wanted = ", ".join(spec.sizes) or "no sizes"
        raise UsageError(f"{spec.name} takes {wanted}, not {', '.join(sizes) or 'none'}")
    for name, size in sizes.items():
        if size < 0:
            raise UsageError(f"{spec.name}: {name}={size} is negative")
    if problem.dtype not in spec.dtypes:
        raise UsageError(f"{spec.name} has no dtype {problem.dtype!r}{nearest(problem.dtype, spec.dtypes)}")
    if execution.variant not in spec.variants:
        known = ", ".join(repr(variant) for variant in spec.variants)
        raise UsageError(f"{spec.name} has no variant {execution.variant!r}, only {known}")
    limit = 1 if spec.name == "latency.chase" else len(execution.cpus or device.cpus)
    if not 1 <= execution.threads <= limit:
        raise UsageError(f"{spec.name} runs on 1 to {limit} threads here, not {execution.threads}")
    if spec.name == "latency.chase" and sizes["n"] < 1:
        raise UsageError("latency.chase needs at least one line")
    if spec.name == "mixed.fma" and sizes["k"] not in mixed.K_VALUES:
        raise UsageError(f"mixed.fma: k={sizes['k']} is no power of two from 1 to {mixed.K_VALUES[-1]}")


def _kernel(
    spec: KernelSpec,
    problem: Problem,
    execution: Execution,
    device: Device,
    cpus: list[int],
    isa: str,
    arrays: native.Arrays | None,
) -> native.Kernel:
    core = _native()
    kernel: native.Kernel
    if spec.family == "stream":
        kernel = core.stream(arrays, spec.name.partition(".")[2], execution.variant == "nontemporal", isa)
    elif spec.family == "gemm":
        l1, l2, l3 = _cache_shares(device)
        kernel = core.gemm(arrays, problem["m"], problem["n"], problem["k"], l1, l2, l3, isa)
    elif spec.family == "mixed":
        kernel = core.mixed(arrays, problem["k"], isa)
    elif spec.name == "peak.dot":
        kernel = core.dot(problem.dtype == "bfloat16", cpus, SEED, isa)
    elif spec.family == "peak":
        kernel = core.chains(problem.dtype, spec.name == "peak.fma_add", cpus, problem.operands, SEED, isa)
    elif spec.name == "latency.chase":
        kernel = core.chase(problem["n"], 64, cpus[0], SEED)
    else:
        kernel = core.launch([-1] * len(cpus))  # -1: not pinned
    return kernel


def _cache_shares(device: Device) -> tuple[int, int, int]:
    """L1, L2 and L3 bytes that a GEMM's blocks may fill; of a last level shared with neighbours, 4 L2 at most."""
    sizes = {cache.level: cache.size_bytes for cache in device.caches}
    l1 = sizes.get("l1", 32 << 10)
    l2 = sizes.get("l2", 256 << 10)
    return l1, l2, max(min(sizes.get("l3", 8 << 20) // 8, 4 * l2), 1 << 20)
