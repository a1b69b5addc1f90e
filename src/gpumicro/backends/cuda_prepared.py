"""What a GPU backend hands out: a launch (or other native work) with its operands and its check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..device_timers import EventTimer
from ..errors import BackendUnavailable, UsageError, VerificationError
from ..kernels import formats
from ..kernels.parts import each_part
from ..spec import Check, Execution, GpuForm, KernelSpec, Launch, Operand, Problem, TensorMap
from . import cuda_operands
from .cuda_operands import OperandBuffer
from .engine import Engine, native

Arrays = Mapping[str, npt.NDArray[np.generic]]

POISON = 0xFF  # a NaN in every float format that is stored, -1 in every integer


class CudaPrepared:
    """A kernel with its operands, bound to one device; `engine` is what drives it, by default the CUDA module."""

    def __init__(
        self, spec: KernelSpec, form: GpuForm, problem: Problem, execution: Execution, device: Device,
        engine: Engine | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.problem, self.execution, self.device = spec, problem, execution, device
        self._form, self._engine = form, engine or native()
        self.backend = self._engine.backend
        self._index = device.index
        # Before any memory is taken: a launch that cannot be made, for sizes it does not know, takes none.
        self._launch = None if form.bind else form.launch(problem, execution, device)
        self._operands: dict[str, OperandBuffer] = cuda_operands.acquire(
            spec, form, problem, self._index, self._engine.cuda
        )
        self._bound: Any = self._bind()

    def _bind(self) -> Any:
        addresses = {name: one.buffer.address for name, one in self._operands.items()}
        if self._form.bind:
            return self._form.bind(self.problem, self.execution, self.device, addresses)
        assert self._launch is not None
        return bind(self._launch, self._operands, self._index, self._engine.cuda)

    @property
    def _live(self) -> Any:
        if self._bound is None:
            raise UsageError(f"{self.spec.name} is closed")
        return self._bound

    @property
    def work(self) -> Any:
        """What enqueues and returns: only a device's timer can read it. It keeps the memory."""
        return self._live.work

    @property
    def timer(self) -> EventTimer:
        """The device's own clock."""
        return self._engine.timer(self._index)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Symbol, shape, registers, occupancy, what the code was compiled for and by what."""
        build = self._engine.cuda.build
        facts: dict[str, Any] = {"compiler": build["compiler"], "emulated": bool(self.device.facts.get("emulated"))}
        if self.execution.variant:
            facts["variant"] = self.execution.variant
        if self._form.unit:
            facts["unit"] = self._form.unit
        bound = self._live
        if self._launch is None:
            return facts | dict(bound.facts)
        return facts | launch_facts(self._launch, self._index, self._engine.cuda) | dict(getattr(bound, "facts", {}))

    def verify(self) -> Check:
        """Poison the outputs, run once, compare every element with a reference in higher precision.

        Raises VerificationError for a wrong output, CudaError where the run fails.
        """
        _ = self._live
        before = {}
        for one in cuda_operands.operands_of(self.spec, self._form):
            held = self._operands[one.name]
            if one.role == "out":
                held.buffer.fill(POISON)
                continue
            if one.role == "inout":
                cuda_operands.fill(one, self._form, self.problem, held, self._index, self._engine.cuda)
            before[one.name] = held.read() if one.role == "inout" else held.keep()
        self.run()
        return self._check(before, before | self.outputs())

    def run(self, n: int = 1) -> None:
        """Do the work n times and wait for it. Raises CudaError."""
        if self._launch is not None:
            self._live.run(n)
            return
        from .._core import timing

        timing.WallClock().sample(self._live.work, np.array([n], np.int64))
        self._engine.cuda.synchronize(self._index)

    def _check(self, before: Arrays, after: Arrays) -> Check:
        if self._form.check is not None:
            return self._form.check(self.spec, self.problem, after)
        return compare(self.spec, self._form, self.problem, before, after)

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """Copies of what the last run wrote, as stored."""
        _ = self._live
        names = [o.name for o in cuda_operands.operands_of(self.spec, self._form) if o.role != "in"]
        return {name: self._operands[name].read() for name in names}

    def close(self) -> None:
        """Let go of the memory; another kernel that shares it keeps it."""
        self._bound = None
        self._operands = {}

    def __enter__(self) -> CudaPrepared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def bind(launch: Launch, operands: Mapping[str, OperandBuffer], device: int, cuda: Any) -> Any:
    """A launch of the module `cuda`: names become addresses, tensor maps become descriptors, scalars their bytes.

    Raises CudaError, and BackendUnavailable where the driver has no descriptors.
    """
    arguments = [_bytes_of(argument, operands, cuda) for argument in launch.arguments]
    keep = tuple(operands.values())
    return cuda.Launch(launch.symbol, launch.grid, launch.block, launch.shared_bytes, arguments, device, keep)


def _bytes_of(argument: str | np.generic | TensorMap, operands: Mapping[str, OperandBuffer], cuda: Any) -> bytes:
    if isinstance(argument, str):
        return operands[argument].buffer.address.to_bytes(8, "little")
    if not isinstance(argument, TensorMap):
        return argument.tobytes()
    held = operands[argument.operand]
    itemsize = formats.stored(held.dtype).itemsize
    strides = [int(s) for s in itemsize * np.cumprod(argument.sizes[:-1], dtype=np.int64)]
    try:
        descriptor = cuda.tensor_map(
            held.buffer.address, held.dtype, argument.sizes, strides, argument.box, argument.swizzle_bytes
        )
    except RuntimeError as error:  # the driver has no TMA
        raise BackendUnavailable(f"{argument.operand} gets no TMA descriptor: {error}") from error
    return bytes(descriptor)


def launch_facts(launch: Launch, device: int, cuda: Any) -> dict[str, Any]:
    """What the compiler and the device make of a launch; JSON-ready."""
    made = cuda.attributes(launch.symbol, device)
    threads = int(np.prod(launch.block))
    return {
        "symbol": launch.symbol,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared_bytes": launch.shared_bytes + made["shared_bytes"],
        "registers": made["registers"],
        "local_bytes": made["local_bytes"],
        "occupancy_blocks_per_sm": cuda.occupancy(launch.symbol, device, threads, launch.shared_bytes),
        "architecture": f"sm_{made['binary_version']}",
        "ptx": f"compute_{made['ptx_version']}",
    }


def compare(spec: KernelSpec, form: GpuForm, problem: Problem, before: Arrays, after: Arrays) -> Check:
    """Every element of the output against the spec's reference in float64.

    `before` holds inputs and what operands that are changed in place held, `after` outputs. The bound of an element:
    `form.growth(problem)` roundoffs of the output's type times reference(|operands|). Raises VerificationError for the
    element furthest beyond its bound; a NaN is beyond any.
    """
    if spec.reference is None:
        raise UsageError(f"{spec.name} has neither a reference nor a check of its own")
    operands = cuda_operands.operands_of(spec, form)
    outputs = [one for one in operands if one.role != "in"]
    if len(outputs) != 1:
        raise UsageError(f"{spec.name} has {len(outputs)} outputs and no check of its own")
    comparison = _Comparison(spec, form, problem, operands, outputs[0], before, after)
    size = outputs[0].size(problem)
    parts = each_part(size, comparison.of) if form.elementwise else [comparison.of(slice(None))]
    if not parts:
        return Check(True, 0.0, 0.0, "float64", 0)
    beyond = max(parts, key=lambda part: part.over)
    if not beyond.over <= 0:
        raise VerificationError(spec.name, beyond.at, beyond.expected, beyond.got, beyond.allowed)
    worst = max(parts, key=lambda part: part.error)
    return Check(True, worst.error, worst.bound, "float64", size)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part's largest error and that element's bound; and the element furthest beyond its bound."""

    error: float
    bound: float
    over: float  # its error less its bound
    at: int
    expected: float
    got: float
    allowed: float


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The comparison of one output, for any part of it."""

    spec: KernelSpec
    form: GpuForm
    problem: Problem
    operands: Sequence[Operand]
    output: Operand
    before: Arrays
    after: Arrays

    def of(self, part: slice) -> _Part:
        """Of these elements of the output, and of the operands with it."""
        reference, dtype = self.spec.reference, self.output.dtype(self.problem)
        assert reference is not None
        sources = [self._source(one, part) for one in self.operands]
        expected = np.asarray(reference(*sources), np.float64).reshape(-1)
        size = np.abs(np.asarray(reference(*map(np.abs, sources)), np.float64).reshape(-1))
        got = formats.decode(self.after[self.output.name][part], dtype).reshape(-1)
        if got.shape != expected.shape:
            return _Part(np.inf, 0.0, np.inf, 0, float(expected.size), float(got.size), 0.0)
        if got.size == 0:
            return _Part(0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)
        bound = self.form.growth(self.problem) * formats.roundoff(dtype) * size
        error = np.abs(got - expected)
        error[np.isnan(error)] = np.inf  # also what was never written: the poison is a NaN
        over = error - bound
        over[np.isnan(over)] = np.inf
        most, worst = int(np.argmax(error)), int(np.argmax(over))
        at = (part.start or 0) + worst
        return _Part(
            float(error[most]), float(bound[most]),
            float(over[worst]), at, float(expected[worst]), float(got[worst]), float(bound[worst]),
        )  # fmt: skip

    def _source(self, one: Operand, part: slice) -> npt.NDArray[np.float64]:
        """What an operand held before the run; of an output zeros, since its elements must not matter."""
        if one.role == "out":
            return np.zeros(len(self.after[one.name][part]))
        return formats.decode(self.before[one.name][part], one.dtype(self.problem))
