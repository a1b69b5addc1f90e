"""What the CPU backend hands out: a native kernel or NumPy's matmul, with its operands and its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..errors import UsageError, VerificationError
from ..spec import Check, Execution, KernelSpec, Problem
from . import blas

if TYPE_CHECKING:
    from .._core import cpu as native

# Pinning, a parallel region and restoring cost 7 to 9 us here, once for a span of runs, however many it has: a span
# this long makes that 0.3 %.
LEAST_SPAN_S = 3e-3


class CpuPrepared:
    """A native kernel with its operands."""

    backend = "cpu"
    timer: Any = None  # the host's default

    def __init__(
        self,
        spec: KernelSpec,
        problem: Problem,
        execution: Execution,
        device: Device,
        kernel: native.Kernel,
        arrays: native.Arrays | None,
        isa: str,
    ) -> None:
        self.spec, self.problem, self.execution, self.device = spec, problem, execution, device
        self._kernel: native.Kernel | None = kernel
        self._operands = arrays
        self._isa = isa

    @property
    def _live(self) -> native.Kernel:
        if self._kernel is None:
            raise UsageError(f"{self.spec.name} is closed")
        return self._kernel

    @property
    def work(self) -> Any:
        """A `_core.timing.Work`; it keeps the memory alive for as long as it is held."""
        return self._live.work

    @property
    def facts(self) -> Mapping[str, Any]:
        """How it runs: ISA, threads and CPUs, recipe, pages, stores."""
        kernel = self._live
        facts: dict[str, Any] = {
            "isa": self._isa,
            "compiler": compiler(),
            "threads": self.execution.threads,
            "cpus": list(kernel.cpus) if kernel.pinned else None,
            "pinned": kernel.pinned,
            "recipe": kernel.recipe,
            "least_span_s": LEAST_SPAN_S,
            "pages": _pages(kernel.pages()),
        }
        if self.execution.variant:
            facts["store"] = self.execution.variant
        if self.execution.variant == "temporal":
            arrays = len([operand for operand in self.spec.operands if operand.name != "sum"])
            facts["write_allocate_factor"] = (arrays + 1) / arrays  # bytes a cache may really move over those counted
        return facts

    def verify(self) -> Check:
        """Poison the outputs, run once, compare with a reference in higher precision."""
        kernel = self._live
        kernel.poison()
        kernel.run(1)
        return self._check()

    def _check(self) -> Check:
        """The comparison alone: a test tampers with `_view` between a run and this."""
        check = _judge(self.spec.name, self._live.check(), "long double")
        if self.spec.family == "gemm" and self._operands is not None:
            c, a, b = (_matrix(self._operands, self.problem, i) for i in range(3))
            return blas.check_all(self.spec.name, c, a, b, sampled=check)
        return check

    def _view(self, index: int) -> npt.NDArray[np.floating[Any]]:
        """Operand number `index` itself."""
        if self._operands is None:
            raise UsageError(f"{self.spec.name} has no operands in memory")
        return self._operands.view(index)

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """Copies of what the last run wrote."""
        return {name: array.copy() for name, array in self._live.outputs().items()}

    def close(self) -> None:
        """Let go of the memory."""
        self._kernel = self._operands = None

    def __enter__(self) -> CpuPrepared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def compiler() -> str:
    """What compiled the kernels."""
    from .._core import cpu

    return str(cpu.compiler)


def _judge(kernel: str, found: native.Finding, reference: str) -> Check:
    if not found["passed"]:
        raise VerificationError(kernel, found["index"], found["expected"], found["got"], found["bound"])
    return Check(True, found["worst"], found["bound"], reference, found["elements"])


def _pages(pages: native.Pages | None) -> dict[str, Any] | None:
    if pages is None:
        return None
    resident, huge = pages["resident_bytes"], pages["huge_bytes"]
    if resident is None or huge is None:
        return {"huge_fraction": None, "huge_fraction_why": "/proc/self/smaps cannot be read", "resident_bytes": None}
    return {"huge_fraction": huge / resident if resident else 0.0, "resident_bytes": resident}


def _matrix(arrays: native.Arrays, problem: Problem, index: int) -> npt.NDArray[np.floating[Any]]:
    m, n, k = problem["m"], problem["n"], problem["k"]
    return arrays.view(index).reshape(((m, n), (m, k), (k, n))[index])


class VendorPrepared(CpuPrepared):
    """NumPy's matmul on the same operands as our own GEMM; that one stands by to check it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert self._operands is not None
        self._c, self._a, self._b = (_matrix(self._operands, self.problem, i) for i in range(3))
        self._library = blas.library()

    @property
    def work(self) -> Callable[[], None]:
        """A Python callable: one matmul on `threads` threads."""
        a, b, c, threads, library = self._a, self._b, self._c, self.execution.threads, self._library

        def multiply() -> None:
            library.use(threads)
            np.matmul(a, b, out=c)

        return multiply

    @property
    def facts(self) -> Mapping[str, Any]:
        """Which BLAS, and how it runs."""
        return {
            "threads": self.execution.threads,
            "pinned": False,
            "recipe": self._library.title,
            "blas": dict(self._library.facts),
            "least_span_s": 0.0,
            "pages": _pages(self._live.pages()),
        }

    def verify(self) -> Check:
        self._live.poison()
        self.work()
        return self._check()

    def _check(self) -> Check:
        check = _judge(self.spec.name, self._live.check(), "long double")
        if self.problem.dtype != "float64":
            return blas.check_all(self.spec.name, self._c, self._a, self._b, sampled=check)
        ours = self._c.copy()  # ours in float64: against the vendor it would be compared with itself
        theirs, self._c[...] = self._c.copy(), 0
        self._live.run(1)
        ours[...], self._c[...] = self._c, theirs
        return blas.check_all(self.spec.name, self._c, self._a, self._b, sampled=check, reference=ours)

    def close(self) -> None:
        self._library.restore()
        self._c = self._a = self._b = np.empty((0, 0))
        super().close()
