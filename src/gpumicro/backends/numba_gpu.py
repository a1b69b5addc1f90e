"""What the Numba backend hands out on a GPU: a launch of numba-cuda with its operands, checked as the cuda backend's.

Nothing here has run on a GPU yet: the kernels run in Numba's simulator and are compiled to PTX.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import cuda_native
from ..device import Device
from ..device_timers import EventTimer
from ..errors import BackendUnavailable, CudaError, OutOfMemory, UsageError
from ..numba_kernels import bodies, gpu, imported, load_cuda, simulated
from ..spec import Check, Execution, GpuForm, KernelSpec, Launch, Problem
from .cuda_operands import SPARE_BYTES, operands_of
from .cuda_prepared import compare
from .numba_clock import NumbaClock
from .numba_launch import Shape, own_variants, shape_of
from .numba_operands import DeviceArray, acquire, scratch

_Arrays = dict[str, npt.NDArray[np.generic]]


class NumbaGpuPrepared:
    """A kernel with its operands, bound to one device."""

    backend = "numba"

    def __init__(self, spec: KernelSpec, form: GpuForm, problem: Problem, execution: Execution, device: Device) -> None:
        self.spec, self.problem, self.execution, self.device = spec, problem, execution, device
        self._form = form
        self._launch: Launch = form.launch(problem, execution, device)  # it refuses sizes that it does not know
        self._shape: Shape = shape_of(spec, problem, execution, device, self._launch)
        self._compiled = gpu.compiled(spec.name, problem.dtype, device.index)
        self._operands: dict[str, DeviceArray] = acquire(spec, form, problem, device.index)
        self._arguments: tuple[Any, ...] | None = self._bind()

    def _bind(self) -> tuple[Any, ...]:
        """The kernel's arguments in order. What a map's body does not use is given as `a`, and never loaded."""
        held = {name: one.array for name, one in self._operands.items()}
        scalars = self._shape.scalars
        short = self.spec.name.partition(".")[2]
        if short in bodies.MAPS:
            a = held["a"]
            return (a, held.get("b", a), held.get("c", a), *scalars)
        if short in bodies.FOLDS:
            partials = scratch(self._shape.grid[0], self.problem.dtype, self.device.index)
            ticket = scratch(1, "int32", self.device.index)
            return (held["sum"], held["b"], held.get("c", held["b"]), partials, ticket, *scalars)
        return (*(held[one.name] for one in operands_of(self.spec, self._form)), *scalars)

    @property
    def _live(self) -> tuple[Any, ...]:
        if self._arguments is None:
            raise UsageError(f"{self.spec.name} is closed")
        return self._arguments

    @property
    def work(self) -> Any:
        """A callable that enqueues one run and returns: only a device's timer can read it. It keeps the memory."""
        stream = _stream(self.device.index)
        configured = self._compiled.launch[self._shape.grid, self._shape.block, stream]
        return partial(_enqueue, self.spec.name, configured, self._live)

    @property
    def timer(self) -> EventTimer:
        """The device's own clock: the native one, CuPy's, or Numba's events."""
        return event_timer(self.device.index)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Shape, compiler, time to compile, who reads the clock."""
        _ = self._live
        facts = {
            "compiler": f"numba-cuda {imported('numba_cuda').__version__}",
            "compile_s": self._compiled.compile_s,
            "grid": list(self._shape.grid),
            "block": list(self._shape.block),
            "loop": "python",
            "recipe": self._shape.recipe,
            "emulated": bool(self.device.facts.get("emulated")),
        }
        if self.execution.variant:
            facts["variant"] = self.execution.variant
        if self._form.unit:
            facts["unit"] = self._form.unit
        return facts

    def verify(self) -> Check:
        """Poison the outputs, run once, compare every element with a reference in higher precision.

        Raises VerificationError for a wrong output, CudaError where the run fails.
        """
        _ = self._live
        before: _Arrays = {}
        for one in operands_of(self.spec, self._form):
            held = self._operands[one.name]
            if one.role == "in":
                before[one.name] = held.contents
            elif held.contents is not None:  # the chase's cycle and where it begins
                held.array.copy_to_device(held.contents)
            else:
                held.poison()
        self.run()
        after = before | self.outputs()
        if self._form.check is not None:
            return self._form.check(self.spec, self.problem, after)
        return compare(self.spec, self._form, self.problem, before, after)

    def run(self) -> None:
        """Do the work once and wait for it. Raises CudaError."""
        with _gpu(self.device.index):
            self.work()
            try:
                load_cuda().synchronize()
            except Exception as error:  # the driver's own
                raise _failed("cuCtxSynchronize", error, self.spec.name) from error

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """Copies of what the last run wrote, as stored."""
        _ = self._live
        names = [one.name for one in operands_of(self.spec, self._form) if one.role != "in"]
        return {name: self._operands[name].array.copy_to_host() for name in names}

    def close(self) -> None:
        """Let go of the memory; another kernel that shares it keeps it."""
        self._arguments = None
        self._operands = {}

    def __enter__(self) -> NumbaGpuPrepared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _enqueue(name: str, configured: Any, arguments: tuple[Any, ...]) -> None:
    try:
        configured(*arguments)
    except Exception as error:  # Numba's and the driver's own
        raise _failed("a launch through Numba", error, name) from error


def _failed(call: str, error: Exception, kernel: str) -> CudaError:
    code = getattr(error, "code", None)
    number = int(code) if isinstance(code, int) else -1
    return CudaError(call, number, type(error).__name__, str(error), kernel, "numba")


def _gpu(device: int) -> Any:
    return load_cuda().gpus[device]


@lru_cache(maxsize=16)
def event_timer(device: int) -> EventTimer:
    """One timer a device: its events and its probe serve all kernels."""
    if simulated():
        raise BackendUnavailable("Numba's simulator has no clock: its kernels can be checked, not timed")
    if not cuda_native.missing() and device < cuda_native.load().probe()["count"]:
        return EventTimer(device)
    package = __package__.partition(".")[0]
    if find_spec("cupy") is not None and find_spec(f"{package}.cupy_clock") is not None:
        try:
            return EventTimer(device, clock=import_module(f"{package}.cupy_clock").CupyClock(device))
        except BackendUnavailable:
            pass  # CuPy is there and cannot be used: Numba's own events can
    clock = NumbaClock(device)
    return EventTimer(device, clock=clock, spin=clock.spin(0))


@lru_cache(maxsize=16)
def _stream(device: int) -> Any:
    """Numba's name for the stream that the timer measures on."""
    if simulated():
        return 0
    timer = event_timer(device)
    own = getattr(timer._clock, "numba_stream", None)
    return own if own is not None else load_cuda().external_stream(timer.stream)


def prepare(spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> NumbaGpuPrepared:
    """A kernel of `gpu.NAMES`. UsageError for what does not exist, BackendUnavailable for what Numba has not."""
    form = spec.gpu
    assert form is not None
    if execution.variant not in (known := form.variants(problem.dtype, device)):
        raise UsageError(f"{spec.name} has no variant {execution.variant!r}, only {', '.join(map(repr, known))}")
    if execution.variant not in (own := own_variants(spec, problem.dtype, device)):
        raise BackendUnavailable(
            f"{spec.name} cannot run so, because the numba backend has of its variants only {', '.join(map(repr, own))}"
        )
    _check_room(spec, form, problem, device)
    return NumbaGpuPrepared(spec, form, problem, execution, device)


def _check_room(spec: KernelSpec, form: GpuForm, problem: Problem, device: Device) -> None:
    needed = sum(one.size(problem) * problem.itemsize for one in operands_of(spec, form))
    with _gpu(device.index):
        free = load_cuda().current_context().get_memory_info().free
    if needed + SPARE_BYTES > free:
        raise OutOfMemory(
            f"{spec.name}: needs {needed / 2**20:.0f} MiB and {free / 2**20:.0f} MiB of {device.id} are free; "
            "choose a smaller problem"
        )
