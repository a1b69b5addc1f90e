"""The operands of kernels on a GPU: allocated, filled, and shared by the kernels of a family while they live."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import OutOfMemory
from ..kernels import formats
from ..kernels.operands import operand as numbers
from ..kernels.parts import each_part
from ..spec import ITEMSIZE, GpuForm, KernelSpec, Operand, Problem

if TYPE_CHECKING:
    from .. import _cuda as native

SEED = 0x67756D69  # of all operands: the same numbers in every run, the CPU backend's too
SPARE_BYTES = 64 << 20  # left for the context, the timers' buffers and whoever else uses the GPU
FILL_BLOCK = 256  # kFillBlock of csrc/kernels/fill.cuh
FILL_FROM = 1 << 16  # elements; below that the host makes them sooner than a launch is bound

_INT8_SCALE = {"uniform": 127.0, "normal": 32.0}  # normal: 4 sigma fill the range, as in the peak kernels
_C_NAMES = {
    "float64": "double", "float32": "float", "float16": "gm::half", "bfloat16": "gm::bfloat16", "tf32": "gm::tf32",
    "float8_e4m3fn": "gm::e4m3", "float8_e5m2": "gm::e5m2",
}  # fmt: skip


class OperandBuffer:
    """One operand in the memory of a device."""

    def __init__(self, buffer: native.Buffer, dtype: str, count: int) -> None:
        self.buffer, self.dtype, self.count = buffer, dtype, count
        self._kept: npt.NDArray[np.generic] | None = None

    def read(self) -> npt.NDArray[np.generic]:
        """A host copy, as stored."""
        raw: npt.NDArray[np.generic] = self.buffer.download().view(formats.stored(self.dtype))
        return raw

    def keep(self) -> npt.NDArray[np.generic]:
        """The host copy of an input, read once and kept: read-only, the same array for as long as the buffer lives.

        All kernels of a group are checked against it, so one that spoils an input shows in the next one's output.
        """
        if self._kept is None:
            self._kept = self.read()
            self._kept.setflags(write=False)
        return self._kept


# Inputs and outputs of the same name, size, type and contents are one buffer; what a kernel changes in place is not.
_shared: weakref.WeakValueDictionary[tuple[object, ...], OperandBuffer] = weakref.WeakValueDictionary()


def operands_of(spec: KernelSpec, form: GpuForm) -> tuple[Operand, ...]:
    """The operands of a kernel's GPU form."""
    return spec.operands if form.operands is None else form.operands


def acquire(spec: KernelSpec, form: GpuForm, problem: Problem, device: int, cuda: Any) -> dict[str, OperandBuffer]:
    """The operands by name, allocated and filled, outputs with zeros. Raises OutOfMemory before any is taken.

    cuda: the module `_cuda`, or what stands for it.
    """
    wanted = operands_of(spec, form)
    keys = {
        one.name: (id(cuda), device, spec.family, one.name, one.role, one.dtype(problem), one.size(problem), problem)
        for one in wanted
    }
    found = {one.name: _shared.get(keys[one.name]) for one in wanted if one.role != "inout"}
    missing = [one for one in wanted if found.get(one.name) is None]
    _check_room(cuda, spec, problem, missing, device)
    held: dict[str, OperandBuffer] = {name: one for name, one in found.items() if one is not None}
    for one in missing:
        dtype, count = one.dtype(problem), one.size(problem)
        fresh = OperandBuffer(cuda.Buffer(device, count * ITEMSIZE[dtype]), dtype, count)
        if one.role == "out":
            # CUDA hands out the same address again with what it held: a chase would know its signature in there and
            # follow pointers that others have overwritten since.
            fresh.buffer.fill(0)
        else:
            fill(one, form, problem, fresh, device, cuda)
        if one.role != "inout":
            _shared[keys[one.name]] = fresh
        held[one.name] = fresh
    return held


def _check_room(cuda: Any, spec: KernelSpec, problem: Problem, missing: Sequence[Operand], device: int) -> None:
    needed = sum(one.size(problem) * ITEMSIZE[one.dtype(problem)] for one in missing)
    free, total = cuda.free_memory(device)
    if needed > max(0, free - min(SPARE_BYTES, total // 16)):
        raise OutOfMemory(
            f"{spec.name}: needs {needed / 2**20:.0f} MiB and {free / 2**20:.0f} MiB of the {total / 2**20:.0f} MiB of "
            f"cuda:{device} are free; choose a smaller problem"
        )


def index_of(name: str) -> int:
    """Which stream of random numbers an operand gets: 0 for "a", 1 for "b"; of longer names another each."""
    return int.from_bytes(name.encode()[:7], "little") - ord("a")


def fill(one: Operand, form: GpuForm, problem: Problem, held: OperandBuffer, device: int, cuda: Any) -> None:
    """Write what the operand holds before a run: the form's own contents, else the problem's operand class."""
    own = form.contents(one.name, problem)
    if own is not None:
        held.buffer.upload(np.ascontiguousarray(own, formats.stored(held.dtype)))
    elif problem.operands == "zeros" or held.count == 0:
        held.buffer.fill(0)
    elif not _filled_on_device(one, problem, held, device, cuda):
        held.buffer.upload(_made_by_host(one.name, problem, held))


def _made_by_host(name: str, problem: Problem, held: OperandBuffer) -> npt.NDArray[np.generic]:
    base = "float64" if held.dtype == "float64" else "float32"
    made = np.empty(held.count, formats.stored(held.dtype))

    def make(part: slice) -> None:
        values = numbers(
            part.stop - part.start, base, operands=problem.operands, seed=SEED, index=index_of(name), first=part.start
        )
        if held.dtype == "int8":  # all of its range: products of -1, 0 and 1 alone need little power, and clocks rise
            values = np.clip(values * _INT8_SCALE[problem.operands], -127, 127)
        made[part] = formats.encode(values, held.dtype)

    each_part(held.count, make)
    return made


def _filled_on_device(one: Operand, problem: Problem, held: OperandBuffer, device: int, cuda: Any) -> bool:
    """The same numbers from fill.cuh: a large array would take the host a second a gigabyte and more."""
    symbol = f"gm::fill_uniform<{_C_NAMES.get(held.dtype, '')}>"
    if problem.operands != "uniform" or held.count < FILL_FROM or symbol not in cuda.symbols():
        return False
    address = np.uint64(held.buffer.address)
    arguments = (address, np.uint64(SEED), np.uint64(index_of(one.name)), np.int64(held.count))
    blocks = min(-(-held.count // FILL_BLOCK), 1 << 14)
    launch = cuda.Launch(
        symbol, (blocks, 1, 1), (FILL_BLOCK, 1, 1), 0, [argument.tobytes() for argument in arguments], device, held
    )
    launch.run()
    return True
