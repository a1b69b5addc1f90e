"""What the Numba backend hands out on a CPU: Numba's kernel on the cpu backend's operands, held to the same checks.

A native kernel stands by: it owns the operands, poisons outputs and judges them. It is not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core import timing
from ..device import Device
from ..errors import BackendUnavailable, VerificationError
from ..kernels import peak_gpu
from ..kernels.peak import FMA_FLOP
from ..kernels.peak_check import CHAINS, UNROLL, Known, fma_chains, judge
from ..kernels.stream import check_sum
from ..numba_kernels import cpu, cpu_slices, imported, load
from ..spec import Check, Execution, KernelSpec, Problem
from .cpu import CpuBackend, validate
from .cpu_prepared import CpuPrepared

NO_STREAMING_STORES = "Numba has no word for stores that bypass the caches"
_RECIPES = {
    "stream": "a loop made of vectors by LLVM",
    "peak": "FMA only, 16 of them for a load and a store in L1",
    "gemm": "two rows of C by four of B at a time, B in blocks",
    "latency": "one pointer a line, one random cycle",
}

_Array = npt.NDArray[Any]


class NumbaCpuPrepared(CpuPrepared):
    """A kernel whose output is one of the operands: maps and GEMM. The others say what else they need."""

    backend = "numba"

    def __init__(
        self, host: CpuBackend, spec: KernelSpec, problem: Problem, execution: Execution, device: Device
    ) -> None:
        validate(spec, problem, execution, device)
        if execution.variant == "nontemporal":
            raise BackendUnavailable(NO_STREAMING_STORES)  # no name in it: a report says it once for all kernels
        self._need_threads(execution)
        self._compiled, self._team = cpu.compiled(spec.name, problem.dtype), cpu.team()
        # The least ISA's check allows two roundings for a multiply and an add, as Numba may or may not fuse them.
        isa = _native().usable_isas()[-1]
        super().__init__(spec, problem, execution, device, *host.bind(spec, problem, execution, device, isa), isa)
        arrays = self._arrays()
        self._keep = (*arrays, *[arrays[0]] * (cpu.OPERANDS - len(arrays)))
        self._sizes = np.zeros(cpu.SIZES, np.int64)
        own = self._own_sizes()
        self._sizes[: len(own)] = own
        self._sizes[cpu.LENGTHS_AT : cpu.LENGTHS_AT + cpu.OPERANDS] = [array.size for array in self._keep]
        self._sizes[cpu.THREADS_AT] = execution.threads
        addresses = [array.ctypes.data for array in (*self._keep, self._sizes)]
        self._pointers = np.array([*addresses, self._compiled.address], np.uintp)

    @staticmethod
    def _need_threads(execution: Execution) -> None:
        most = int(load().config.NUMBA_NUM_THREADS)
        if execution.threads > most:
            raise BackendUnavailable(
                f"of Numba's threads there are {most}, not {execution.threads}",
                "Set NUMBA_NUM_THREADS before the start",
            )

    def _arrays(self) -> list[_Array]:
        """The operands in the kernel's order."""
        return [self._view(i) for i in range(3)]

    def _own_sizes(self) -> list[int]:
        return [self.problem[name] for name in self.spec.sizes]

    @property
    def work(self) -> Any:
        """A `_core.timing.Work`; it keeps the memory alive for as long as it is held."""
        _ = self._live
        load().set_num_threads(load().get_num_threads())  # starts them, which compiled code does not
        keep = (self._pointers, self._sizes, self._keep, self._kernel, self._operands)
        return timing.native_work(self._team.address, "void (void *, int64_t)", self._pointers.ctypes.data, keep)

    @property
    def facts(self) -> Mapping[str, Any]:
        """How it runs: compiler, time to compile, threading layer, threads that nobody pins."""
        return {
            **super().facts,
            "isa": load().config.CPU_NAME or _host_cpu(),
            "compiler": f"Numba {load().__version__}, LLVM {_llvm()}",
            "compile_s": self._compiled.compile_s,
            "threading_layer": _layer() if self.execution.threads > 1 else None,
            "cpus": None,
            "pinned": False,
            "recipe": _RECIPES[self.spec.family],
        }

    def verify(self) -> Check:
        """Poison the outputs, run once, compare with a reference in higher precision."""
        self._poison()
        self.run()
        return self._check()

    def run(self) -> None:
        """Do the work once."""
        timing.WallClock().sample(self.work, np.ones(1, np.int64))

    def _poison(self) -> None:
        self._live.poison()


class FoldPrepared(NumbaCpuPrepared):
    """read and dot: one sum a thread, in lines of their own."""

    def _arrays(self) -> list[_Array]:
        self._sums = np.zeros(cpu_slices.PAD * self.execution.threads, self.problem.dtype)
        return [self._sums, self._view(1), self._view(2)]

    def _poison(self) -> None:
        self._sums[:] = np.nan

    def _check(self) -> Check:
        b, c = self._view(1), self._view(2)
        inputs = {"b": b, "c": c} if self.spec.name == "stream.dot" else {"b": b}
        (sums,) = self.outputs().values()
        lanes = 16 // self.problem.itemsize  # of the narrowest vectors
        total = sums.astype(np.float64).sum(keepdims=True)
        return check_sum(self.spec, self.problem, {**inputs, "sum": total}, lanes * self.execution.threads)

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """One sum a thread; their sum is the kernel's result."""
        _ = self._live
        return {"sum": self._sums[:: cpu_slices.PAD].copy()}


class PeakPrepared(NumbaCpuPrepared):
    """The chains of csrc/kernels/peak.cuh, a set for each thread, so that one closed form checks both."""

    def _arrays(self) -> list[_Array]:
        dtype = self.problem.dtype
        seeds = peak_gpu.seeds("seeds", self.problem)
        assert seeds is not None
        pairs: _Array = seeds.reshape(cpu_slices.PAIRS, 2)
        self._seeds, self._chains = seeds, CHAINS.get(dtype, 16)
        taken = [np.roll(pairs, -32 * (1 + chain), axis=0) for chain in range(self._chains)]
        a = np.clip(pairs[:, 0] * pairs.dtype.type(0.25), -0.875, 0.875).astype(dtype)
        self._start, b = (np.ascontiguousarray([pair[:, i] for pair in taken]) for i in range(2))
        self._x = np.tile(self._start, (self.execution.threads, 1, 1))
        return [self._x.reshape(-1), a, b.reshape(-1)]

    def _own_sizes(self) -> list[int]:
        return [self._chains, self._steps]

    @property
    def _steps(self) -> int:
        """Of all threads together, in one run."""
        return FMA_FLOP // (2 * UNROLL * cpu_slices.PAIRS * self._chains)

    def _poison(self) -> None:
        self._x[...] = self._start  # a run goes on from where the last one ended

    def _check(self) -> Check:
        threads, steps = self.execution.threads, self._steps
        known: dict[int, Known] = {}
        checks = []
        for thread, sums in enumerate(self.outputs()["out"]):
            mine = steps * (thread + 1) // threads - steps * thread // threads
            if mine not in known:
                known[mine] = fma_chains(self._seeds, self.problem.dtype, mine)
            checks.append(judge(self.spec.name, sums, known[mine]))
        worst = max(checks, key=lambda check: check.worst)
        return Check(True, worst.worst, worst.bound, worst.reference, sum(check.elements for check in checks))

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """(threads, PAIRS): the sum of the chains that a thread of a GPU would have."""
        _ = self._live
        return {"out": self._x.sum(axis=1)}


class ChasePrepared(NumbaCpuPrepared):
    """A walk over the native chase's lines."""

    def _arrays(self) -> list[_Array]:
        self._lines = self._live.outputs()["next"]
        self._at = np.zeros(1, np.int64)
        self._poison()
        return [self._at]

    def _poison(self) -> None:
        self._at[0] = self._lines.ctypes.data

    def _check(self) -> Check:
        expected = int(self._lines[0, 0])
        if int(self._at[0]) != expected:
            raise VerificationError(self.spec.name, 0, float(expected), float(self._at[0]), 0.0)
        return super()._check()


KINDS: Mapping[str, type[NumbaCpuPrepared]] = {
    "stream.read": FoldPrepared, "stream.dot": FoldPrepared, "peak.fma": PeakPrepared, "latency.chase": ChasePrepared,
}  # fmt: skip


def prepare(
    host: CpuBackend, spec: KernelSpec, problem: Problem, execution: Execution, device: Device
) -> NumbaCpuPrepared:
    """A kernel of `cpu.NAMES`. UsageError, BackendUnavailable and OutOfMemory as the cpu backend's."""
    return KINDS.get(spec.name, NumbaCpuPrepared)(host, spec, problem, execution, device)


def _native() -> Any:
    from .._core import cpu as native

    return native


def _layer() -> str:
    """What Numba's threads are made of: "omp", "tbb" or "workqueue"."""
    try:
        return str(load().threading_layer())
    except ValueError:  # none has been started
        return "not started"


def _llvm() -> str:
    return ".".join(map(str, imported("llvmlite.binding").llvm_version_info))


def _host_cpu() -> str:
    return str(imported("llvmlite.binding").get_host_cpu_name())
