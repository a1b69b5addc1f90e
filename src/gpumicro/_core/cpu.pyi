"""The CPU's memory and kernels, native. Use `gpumicro.backends`; this is what it stands on."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from .timing import Work

compiler: str  # that built the kernels

class Finding(TypedDict):
    """`worst` and `bound`: error of the element nearest to its bound. `index`: of the first wrong element, or -1."""

    passed: bool
    worst: float
    bound: float
    elements: int
    index: int
    expected: float
    got: float

class Pages(TypedDict):
    """Memory that is there now, and how much of it on huge pages; None where /proc/self/smaps cannot be read."""

    advised: bool
    resident_bytes: int | None
    huge_bytes: int | None

class CpuidCache(TypedDict):
    level: int
    size_bytes: int
    line_bytes: int
    shared_by: int

class Arrays:
    """Operands on huge pages, each slice touched first by the thread (one for each of `cpus`) that uses it."""

    def __init__(
        self, dtype: str, counts: list[int], cpus: list[int], operands: str = "uniform", seed: int = 0
    ) -> None: ...
    def view(self, i: int) -> npt.NDArray[np.floating[Any]]:
        """Operand i itself, not a copy."""
    def poison(self, i: int) -> None:
        """Fill operand i with NaN."""
    def pages(self) -> Pages: ...

class Kernel:
    """Work on a team of pinned threads."""

    def run(self, n: int) -> None: ...
    def poison(self) -> None:
        """Make every output wrong."""
    def check(self) -> Finding:
        """Compare the outputs of a `run(1)` with a reference in higher precision."""
    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """Views."""
    def pages(self) -> Pages | None: ...
    @property
    def recipe(self) -> str: ...
    @property
    def pinned(self) -> bool: ...
    @property
    def cpus(self) -> list[int]: ...
    @property
    def code_address(self) -> int:
        """Where the native loop lies in this process; 0 where it is not a function of its own."""
    @property
    def work(self) -> Work: ...

def stream(arrays: Arrays, name: str, nontemporal: bool, isa: str) -> Kernel: ...
def chains(dtype: str, with_adds: bool, cpus: list[int], operands: str, seed: int, isa: str) -> Kernel: ...
def dot(bfloat16: bool, cpus: list[int], seed: int, isa: str) -> Kernel: ...
def gemm(arrays: Arrays, m: int, n: int, k: int, l1: int, l2: int, l3: int, isa: str) -> Kernel:
    """`l1`, `l2`, `l3`: bytes of cache that one thread may count on."""

def check_gemm(arrays: Arrays, m: int, n: int, k: int, samples: int) -> Finding:
    """The corners and `samples` random elements of C against long double; all of them where there are fewer."""

def mixed(arrays: Arrays, fma: int, isa: str) -> Kernel: ...
def chase(lines: int, line_bytes: int, cpu: int, seed: int) -> Kernel: ...
def launch(cpus: list[int]) -> Kernel: ...
def usable_isas() -> list[str]:
    """Instruction sets that this build and this CPU share, best first."""

def dot_recipe(dtype: str, isa: str) -> str | None:
    """The instructions of peak.dot, None where this CPU has none."""

def cpuid_hypervisor() -> str:
    """The hypervisor's signature, empty on bare metal."""

def cpuid_caches() -> list[CpuidCache]: ...
def clock_hz(cpu: int = -1, span_s: float = 2e-4, spans: int = 20) -> float:
    """Clock of that core (-1: of whichever runs this) in Hz: the best of `spans` timed chains of dependent adds.

    0 where the architecture has no such chain here.
    """
