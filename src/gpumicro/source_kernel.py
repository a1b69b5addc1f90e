"""A user's own kernel: CUDA C++ compiled by NVRTC for the GPU at hand, launched and timed like the catalogue's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import cuda_native, nvrtc
from .backends import cuda_reasons, engine
from .backends.cuda import CudaBackend
from .device import Device
from .device_timers import EventTimer
from .errors import BackendUnavailable, CompileError, CudaError, UsageError, unknown
from .kernel_arguments import Argument, argument, parameters_of
from .kernels.gpu import capability

Extent = int | tuple[int, ...]

SYMBOL_NOT_FOUND = 500  # cudaErrorSymbolNotFound
BAD_IMAGE = (200, 209, 218, 222)  # invalid image, none for this device, invalid PTX, PTX of a newer toolkit
# CUDA programming guide, "Technical specifications per compute capability": the same for all.
MOST_BLOCKS, MOST_THREADS, MOST_IN_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024


class Kernel:
    """A kernel made from source, bound to its arguments. Make one by `Kernel.from_source`; a context manager.

    `gm.time_kernel(kernel)` and `roofline.place(kernel, flops=, bytes=)` take it: one run is one launch.
    """

    backend = "cuda"

    def __init__(
        self, name: str, device: Device, program: nvrtc.Program, arch: str, launch: Any, arguments: Sequence[Argument],
        facts: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.name, self.device, self.arch = name, device, arch
        self.log = program.log  # the compiler's warnings
        self._launch, self._arguments, self._facts = launch, arguments, dict(facts)

    @classmethod
    def from_source(
        cls, code: str, name: str, args: Sequence[Any], grid: Extent, block: Extent, *, shared_bytes: int = 0,
        options: Sequence[str] = (), device: int | str = 0,
    ) -> Kernel:  # fmt: skip
        """Compile `code` and bind the kernel `name` to its arguments.

        code: CUDA C++17, one translation unit; CUDA's headers and gpumicro's device code can be included. name: as
        "saxpy", or "saxpy<float>" of a template. args, in the kernel's order: NumPy scalars; Python's int, float and
        bool where the kernel's type is known (not extern "C"); NumPy arrays, which are copied to the device (`read`
        gives them back); arrays of CuPy, Numba, PyTorch, JAX, ..., used where they lie; bytes, for a struct.
        grid, block: up to three extents. shared_bytes: dynamic shared memory of a block. options: NVRTC's. device:
        its index, or "cuda:0".

        Raises CompileError with the compiler's words, UsageError for a kernel, arguments or a shape that cannot be,
        BackendUnavailable without a GPU, `_cuda` or NVRTC, CudaError where the device refuses.
        """
        if not isinstance(code, str) or not isinstance(name, str) or not name.strip():
            raise UsageError("code and name are strings: the source, and the kernel's name in it")
        shape = _extents("grid", grid, MOST_BLOCKS), _extents("block", block, MOST_THREADS)
        if not isinstance(args, (list, tuple)):
            raise UsageError(f"args is a list or a tuple, an argument each, not a {type(args).__name__}")
        found = find_device(device)
        arch = _arch(found)
        program = compile_kernel(code, name, arch, options)
        kernel = _load(program, name, found.index, nvrtc.kernel_names(code))
        made = kernel.attributes(found.index)
        _check_shape(name, shape[1], shared_bytes, made, found)
        bound = _bind_arguments(name, program.lowered[name], args, found.index)
        launch = _launch(kernel, shape, shared_bytes, bound, found.index)
        threads = int(np.prod(shape[1]))
        facts = {
            "compiler": "NVRTC {}.{}".format(*nvrtc.version()),
            "architecture": arch,
            "compile_s": program.seconds,
            "symbol": name,
            "grid": list(shape[0]),
            "block": list(shape[1]),
            "shared_bytes": shared_bytes + made["shared_bytes"],
            "registers": made["registers"],
            "local_bytes": made["local_bytes"],
            "occupancy_blocks_per_sm": kernel.occupancy(found.index, threads, shared_bytes),
            "emulated": bool(found.facts.get("emulated")),
        }
        return cls(name, found, program, arch, launch, bound, facts)

    @property
    def _live(self) -> Any:
        if self._launch is None:
            raise UsageError(f"{self.name} is closed")
        return self._launch

    @property
    def work(self) -> Any:
        """A `_core.timing.Work` that enqueues and returns; it keeps the code and the memory."""
        return self._live.work

    @property
    def timer(self) -> EventTimer:
        """The device's own clock."""
        return engine.native().timer(self.device.index)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Registers, occupancy, shape, architecture, compiler and the seconds it took; JSON-ready."""
        return dict(self._facts)

    def run(self, n: int = 1) -> None:
        """Launch n times and wait. Raises CudaError where it fails or does not end within two minutes."""
        self._live.run(n)

    def read(self, i: int) -> npt.NDArray[Any]:
        """A copy of what argument i, given as a NumPy array, holds on the device now; of its shape and type."""
        _ = self._live
        arrays = [k for k, one in enumerate(self._arguments) if one.shape is not None]
        if i not in arrays:
            raise UsageError(
                f"argument {i} of {self.name} was not given as a NumPy array; those are {arrays or 'none'}"
            )
        one = self._arguments[i]
        copy: npt.NDArray[Any] = one.keep.download().view(one.dtype).reshape(one.shape)
        return copy

    def close(self) -> None:
        """Let go of the code and of the arrays' copies."""
        self._launch, self._arguments = None, ()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {self.device.id}, {self.arch}, grid {self._facts['grid']})"


def find_device(device: int | str) -> Device:
    """The GPU with that index or id. Raises BackendUnavailable without one, UsageError for one that is not there."""
    backend = CudaBackend()
    can = backend.availability()
    if not can:
        raise BackendUnavailable(f"a kernel from source needs a GPU, and {can.reason}", can.remedy)
    wanted = f"cuda:{device}" if isinstance(device, int) else device
    known = {one.id: one for one in backend.devices()}
    if wanted not in known:
        raise UsageError(unknown("device", wanted, known))
    return known[wanted]


def _arch(device: Device) -> str:
    """The device's own machine code; an emulated one runs PTX."""
    major, minor = capability(device)
    return f"compute_{major}{minor}" if device.facts.get("emulated") else nvrtc.arch_for((major, minor))


def compile_kernel(code: str, name: str, arch: str, options: Sequence[str]) -> nvrtc.Program:
    """As nvrtc.compile, gpumicro's device code on the include path; a name that is no kernel gets its own message."""
    own = f"--include-path={nvrtc.kernel_folder()}"
    try:
        return nvrtc.compile(code, [name], arch, [*options, own] if not isinstance(options, str) else options)
    except CompileError as error:
        wrong = [line for line in error.log.splitlines() if ": error" in line or ": catastrophic" in line]
        if not wrong or not all(line.startswith("__nv_name_map") for line in wrong):
            raise
        names = nvrtc.kernel_names(code)
        if re.split(r"[<(]", name)[0].rsplit("::", 1)[-1].strip() not in names:
            raise UsageError(_no_kernel(name, names)) from error
        cure = "a template's name needs its arguments, as 'saxpy<float>', and a namespace its own, as 'mine::saxpy'"
        raise CompileError(f"{name!r} names no kernel of the source; {cure}", error.log) from error


def _no_kernel(name: str, names: Sequence[str]) -> str:
    return unknown("kernel", name, names) if names else f"the source has no __global__ function, so no {name!r}"


def _load(program: nvrtc.Program, name: str, index: int, names: Sequence[str]) -> Any:
    cuda = cuda_native.load()
    try:
        module = cuda.Module(program.image, index)
        return module.kernel(program.lowered[name], name)
    except CudaError as error:
        if error.code == SYMBOL_NOT_FOUND:
            raise UsageError(f"{name!r} is no __global__ function; {_no_kernel(name, names)}") from error
        made, driver = nvrtc.version(), cuda.probe()["driver"]
        if error.code not in BAD_IMAGE or made[0] <= driver // 1000:
            raise
        reason = "the driver, of CUDA {}, cannot load what NVRTC {}.{} makes".format(
            cuda_reasons.version(driver), *made
        )
        remedy = f"Update the driver, or pip install nvidia-cuda-nvrtc-cu{driver // 1000} in its place"
        raise BackendUnavailable(reason, remedy) from error
    except RuntimeError as error:  # the driver, or the CUDA of this build, is too old
        raise BackendUnavailable(str(error)) from error


def _extents(what: str, given: Any, most: tuple[int, int, int]) -> tuple[int, int, int]:
    sizes: tuple[Any, ...] = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(s, (int, np.integer)) and not isinstance(s, bool) for s in sizes):
        raise UsageError(f"{what} is a whole number or up to three, as (64, 64), not {given!r}")
    extents = (*map(int, sizes), 1, 1)[:3]
    for axis, size, limit in zip("xyz", extents, most, strict=True):
        if not 1 <= size <= limit:
            raise UsageError(f"{what} is {given!r}: {what}.{axis} must be from 1 to {limit}")
    return extents[0], extents[1], extents[2]


def _check_shape(
    name: str, block: tuple[int, int, int], shared_bytes: int, made: Mapping[str, int], device: Device
) -> None:
    threads = block[0] * block[1] * block[2]
    if threads > MOST_IN_BLOCK:
        raise UsageError(f"a block has at most {MOST_IN_BLOCK} threads; {block} are {threads}")
    if threads > made["max_threads"]:
        why = f"it uses {made['registers']} registers a thread, or has __launch_bounds__"
        raise UsageError(f"{name} runs with at most {made['max_threads']} threads a block, not {threads}: {why}")
    if isinstance(shared_bytes, bool) or not isinstance(shared_bytes, int) or shared_bytes < 0:
        raise UsageError(f"shared_bytes is a whole number of bytes, not {shared_bytes!r}")
    most = int(str(device.facts["shared_bytes_per_block"])) - made["shared_bytes"]
    if shared_bytes > most:
        used = f", besides the {made['shared_bytes']} that it declares" if made["shared_bytes"] else ""
        raise UsageError(f"{name} may have at most {most} bytes of dynamic shared memory{used}, not {shared_bytes}")


def _bind_arguments(name: str, symbol: str, args: Sequence[Any], index: int) -> list[Argument]:
    cuda, known = cuda_native.load(), parameters_of(symbol)
    if known is not None and len(known) != len(args):
        takes = ", ".join(one.text for one in known) or "none"
        raise UsageError(f"{name} takes {len(known)} arguments ({takes}), not {len(args)}")
    bound = [
        argument(value, known[i] if known else None, f"argument {i} of {name}", index, lambda n: cuda.Buffer(index, n))
        for i, value in enumerate(args)
    ]
    if any(one.keep is not None and one.shape is None for one in bound):
        cuda.synchronize_device(index)  # another library may still be filling its arrays, on a stream of its own
    return bound


def _launch(kernel: Any, shape: tuple[Any, Any], shared_bytes: int, bound: Sequence[Argument], index: int) -> Any:
    try:
        keep = tuple(one.keep for one in bound)
        return cuda_native.load().Launch(kernel, *shape, shared_bytes, [one.raw for one in bound], index, keep)
    except ValueError as error:  # what the driver says of the kernel's parameters
        raise UsageError(str(error)) from error
