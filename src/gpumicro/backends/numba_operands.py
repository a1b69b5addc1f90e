"""The operands of Numba's kernels on a GPU: made on the host, and shared by the kernels of a family while they live."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.latency import GPU_LINE_BYTES, GPU_LINE_WORDS, POSITION, STATE_WORDS, chase_order
from ..kernels.operands import operand as numbers
from ..kernels.parts import each_part
from ..numba_kernels import load_cuda, simulated
from ..spec import GpuForm, KernelSpec, Operand, Problem
from .cuda_operands import SEED, index_of, operands_of


class DeviceArray:
    """One operand on a device; `contents` is what it holds before a run, None for an output."""

    def __init__(self, array: Any, contents: Any) -> None:
        self.array, self.contents = array, contents

    def poison(self) -> None:
        """Make every element wrong."""
        dtype = np.dtype(self.array.dtype)
        self.array.copy_to_device(np.full(self.array.shape, np.nan if dtype.kind == "f" else -1, dtype))


_shared: weakref.WeakValueDictionary[tuple[object, ...], DeviceArray] = weakref.WeakValueDictionary()


def acquire(spec: KernelSpec, form: GpuForm, problem: Problem, device: int) -> dict[str, DeviceArray]:
    """The operands by name, allocated and filled, outputs with zeros."""
    with load_cuda().gpus[device]:
        if spec.family == "latency":
            return _cycle(problem)
        return {one.name: _operand(spec, form, problem, one, device) for one in operands_of(spec, form)}


def scratch(count: int, dtype: str, device: int) -> Any:
    """Zeros on a device."""
    with load_cuda().gpus[device]:
        return load_cuda().to_device(np.zeros(count, dtype))


def _operand(spec: KernelSpec, form: GpuForm, problem: Problem, one: Operand, device: int) -> DeviceArray:
    key = (device, spec.family, one.name, one.role, one.dtype(problem), one.size(problem), problem.operands)
    found = _shared.get(key)
    if found is None:
        contents = _contents(form, problem, one) if one.role == "in" else None
        host = contents if contents is not None else np.zeros(one.size(problem), one.dtype(problem))
        found = _shared[key] = DeviceArray(load_cuda().to_device(host), contents)
    return found


def _contents(form: GpuForm, problem: Problem, one: Operand) -> npt.NDArray[np.generic]:
    """The form's own contents, else the problem's operand class: the numbers of the other backends."""
    made = form.contents(one.name, problem)
    if made is None:
        made = np.empty(one.size(problem), one.dtype(problem))

        def make(part: slice) -> None:
            made[part] = numbers(
                part.stop - part.start, one.dtype(problem), operands=problem.operands, seed=SEED,
                index=index_of(one.name), first=part.start,
            )  # fmt: skip

        each_part(one.size(problem), make)
    made.setflags(write=False)
    return made


def _cycle(problem: Problem) -> dict[str, DeviceArray]:
    """The lines of a chase in the order of csrc/kernels/latency.cuh, as addresses; bytes from 0 in the simulator."""
    cuda, lines = load_cuda(), problem["n"]
    words = np.zeros(lines * GPU_LINE_WORDS, np.int64)
    array = cuda.to_device(words)
    first = 0 if simulated() else int(array.__cuda_array_interface__["data"][0])
    order = chase_order(lines)
    words[order * GPU_LINE_WORDS] = first + GPU_LINE_BYTES * np.roll(order, -1)
    array.copy_to_device(words)
    state = np.zeros(STATE_WORDS, np.int64)
    state[POSITION] = first + GPU_LINE_BYTES * order[0]
    return {"next": DeviceArray(array, words), "state": DeviceArray(cuda.to_device(state), state)}
