"""What a kernel is: frozen records and pure functions, no clock, no device, no allocation.

A `KernelSpec` says what is computed, what it moves and how its output is checked; a `Problem` says how big;
an `Execution` says how it is run. Together they name a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .device import Device

Role = Literal["in", "out", "inout"]
Traffic = Literal["exact", "compulsory", "none"]
OperandClass = Literal["uniform", "normal", "zeros"]

ITEMSIZE: Mapping[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int8": 1,
    "tf32": 4,  # a compute type of tensor cores; stored as float32
}  # fmt: skip
DTYPE_ALIASES: Mapping[str, str] = {
    "f64": "float64", "fp64": "float64", "double": "float64",
    "f32": "float32", "fp32": "float32", "single": "float32",
    "f16": "float16", "fp16": "float16", "half": "float16", "bf16": "bfloat16",
    "fp8": "float8_e4m3fn", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "i8": "int8", "i32": "int32", "i64": "int64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """How big: sizes by name, the element type and what the operands hold."""

    sizes: tuple[tuple[str, int], ...]
    dtype: str
    operands: OperandClass = "uniform"

    @classmethod
    def of(cls, dtype: str = "float64", operands: OperandClass = "uniform", **sizes: int) -> Problem:
        """`Problem.of("float32", n=1024)`."""
        return cls(tuple(sizes.items()), DTYPE_ALIASES.get(dtype, dtype), operands)

    def __getitem__(self, size: str) -> int:
        return dict(self.sizes)[size]

    def __str__(self) -> str:
        return ", ".join([*(f"{name}={size}" for name, size in self.sizes), self.dtype])

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class Execution:
    """How it is run: number of threads (1 on a GPU), variant of the kernel, and the CPUs (None: the default)."""

    threads: int = 1
    variant: str = ""
    cpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """What verifying an output found: the worst error and the bound it was held to (both absolute)."""

    passed: bool
    worst: float
    bound: float
    reference: str  # "long double", "float64", ...
    elements: int


@dataclass(frozen=True, slots=True)
class Operand:
    """One array of a kernel."""

    name: str
    role: Role
    size: Callable[[Problem], int]  # elements
    dtype: Callable[[Problem], str] = lambda problem: problem.dtype  # the sums of an int8 GEMM are int32


Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch on a GPU: what both the compiled table and NVRTC need to find and start the kernel.

    `arguments`, in the kernel's order: the name of an operand stands for its address, anything else is a NumPy scalar
    or a TensorMap, passed as its bytes.
    """

    symbol: str  # "gm::triad<float>": key of the compiled table and NVRTC name expression, as the table writes it
    grid: Extent
    block: Extent
    arguments: tuple[str | np.generic | TensorMap, ...]
    shared_bytes: int = 0  # dynamic shared memory


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A TMA descriptor to be made for an operand (CUDA driver API, cuTensorMapEncodeTiled); 128 bytes when passed.

    `sizes` and `box` in elements, fastest dimension first; `swizzle_bytes` 0, 32, 64 or 128.
    """

    operand: str
    sizes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 128


@dataclass(frozen=True, slots=True)
class GpuForm:
    """How a GPU runs a kernel; the same for every backend that compiles csrc/kernels.

    `why_not(dtype, device)` is "" where it can run, else the reason ("needs compute capability 9.0, this is 8.6").
    `variants(dtype, device)`: ways to do the same work, best guess first; ("",) where there is one.
    `check`, where given, judges the operands after one run (host copies by name, as stored) and raises
    VerificationError; without it every output is compared with the spec's reference in float64, each element within
    `growth(problem)` roundoffs of reference(|inputs|): part by part and on several threads where the kernel is
    `elementwise` (element i of the output depends on elements i of the operands alone).
    """

    source: str  # "stream.cuh", in csrc/kernels
    launch: Callable[[Problem, Execution, Device], Launch]
    dtypes: tuple[str, ...]
    why_not: Callable[[str, Device], str] = lambda _dtype, _device: ""
    target: str = ""  # "90a": the one compiler target that has its instructions; code for others would trap
    variants: Callable[[str, Device], tuple[str, ...]] = lambda _dtype, _device: ("",)
    operands: tuple[Operand, ...] | None = None  # where they differ from the spec's
    sizes: tuple[str, ...] | None = None  # where they differ from the spec's
    # What an operand holds before a run (stored form); None for numbers of the problem's operand class.
    contents: Callable[[str, Problem], npt.NDArray[np.generic] | None] = lambda _name, _problem: None
    # Makes the work where it is no kernel of csrc/kernels (a copy, a library's GEMM) and `launch` has no say: takes the
    # addresses of the operands, gives an object with `work` (a _core.timing.Work) and `facts`.
    bind: Callable[[Problem, Execution, Device, Mapping[str, int]], Any] | None = None
    growth: Callable[[Problem], float] = lambda _: 2.0
    elementwise: bool = False
    check: Callable[[KernelSpec, Problem, Mapping[str, npt.NDArray[np.generic]]], Check] | None = None
    unit: Literal["vector", "tensor", ""] = ""  # what computes, for arithmetic kernels
    tensor_maps: bool = False  # whether a launch passes TensorMaps, which only the driver can make


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel of the catalogue.

    `bytes_moved` counts what the algorithm must move between the memory level and the registers (STREAM's count:
    each load and each store once, no write-allocate); `flops` counts a fused multiply-add as 2.
    `traffic` says what `bytes_moved` is: "exact" for streaming kernels, "compulsory" (the least that any algorithm
    must move) for GEMM, "none" where no memory is meant to be touched.
    """

    name: str  # "stream.triad"
    summary: str  # "a[i] = b[i] + s * c[i]"
    dtypes: tuple[str, ...]
    sizes: tuple[str, ...]  # names of the sizes a Problem must give
    operands: tuple[Operand, ...]
    bytes_moved: Callable[[Problem], int]
    traffic: Traffic
    flops: Callable[[Problem], int]
    reference: Callable[..., npt.NDArray[np.generic]] | None = None  # NumPy, in the order of the operands
    variants: tuple[str, ...] = ("",)  # ways to do the same work: "temporal", "nontemporal"
    unit: Literal["B/s", "FLOP/s", "s"] = "B/s"  # what the kernel is judged by
    on_cpu: bool = True  # whether there is a CPU form
    gpu: GpuForm | None = None  # how a GPU runs it, None where it has no such form

    @property
    def family(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    def intensity(self, problem: Problem) -> float | None:
        """FLOP per byte, None where no memory is touched."""
        moved = self.bytes_moved(problem)
        return self.flops(problem) / moved if moved else None


def measurement_id(spec: KernelSpec, problem: Problem, execution: Execution, device: str, backend: str) -> str:
    """The name that `compare` pairs measurements by.

    `stream.triad[n=33554432,dtype=float64]@cpu/cpu/threads=2,variant=nontemporal`
    """
    sizes = "".join(f"{name}={size}," for name, size in problem.sizes)
    operands = "" if problem.operands == "uniform" else f",operands={problem.operands}"
    variant = f",variant={execution.variant}" if execution.variant else ""
    where = f"{device}/{backend}/threads={execution.threads}{variant}"
    return f"{spec.name}[{sizes}dtype={problem.dtype}{operands}]@{where}"
