"""Compiles the CPU's kernels to C functions, and the one parallel region that runs them on Numba's threads.

A kernel is `void (void **pointers, int64_t thread, int64_t threads, int64_t runs)`. The team is
`void (void **pointers, int64_t runs)`: what a native timer calls, without Python's lock and without a call of Python in
the span. Of `pointers` the first three are the operands, then the sizes (`SIZES` whole numbers) and the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from ..errors import BackendUnavailable
from . import bodies, cpu_slices, imported, load

# Of `pointers`, and of the sizes in it: the kernel's own sizes, the elements of each operand, the threads.
OPERANDS, SIZES_AT, KERNEL_AT, POINTERS = 3, 3, 4, 5
LENGTHS_AT, THREADS_AT, SIZES = 4, 7, 8

_COMPILER = Lock()

Maker = Callable[[Callable[..., Any], Any], Callable[..., Any]]

# Maps, sums and products of matrices in whatever order is fastest; peak's chains as they are written, but fused.
_ANY_ORDER: Any = True
_FUSED: Any = {"contract"}
_MAKERS: Mapping[str, tuple[Maker, Any]] = {
    **{f"stream.{name}": (cpu_slices.make_map, _ANY_ORDER) for name in bodies.MAPS},
    **{f"stream.{name}": (cpu_slices.make_fold, _ANY_ORDER) for name in bodies.FOLDS},
    "peak.fma": (cpu_slices.make_peak, _FUSED),
    "gemm.tiled": (cpu_slices.make_gemm, _ANY_ORDER),
    "latency.chase": (cpu_slices.make_chase, False),
}
NAMES = tuple(_MAKERS)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel: Numba's C callback, and the seconds that compiling took."""

    callback: Any
    compile_s: float

    @property
    def address(self) -> int:
        return int(self.callback.address)

    def assembly(self) -> str:
        """Its machine code as text."""
        return str(self.callback._library.get_asm_str())


def compiled(name: str, dtype: str) -> Kernel:
    """The kernel of that name for operands of a type, compiled at the first call and kept.

    BackendUnavailable where Numba cannot be imported or does not compile it.
    """
    with _COMPILER:  # else two threads would do the same work
        return _compiled(name, dtype)


def team() -> Kernel:
    """What runs a kernel on Numba's threads; one for all kernels."""
    with _COMPILER:
        return _team()


def _timed(what: str, build: Callable[[Any], Any]) -> Kernel:
    numba = load()
    before = time.perf_counter()
    try:
        callback = build(numba)
    except numba.core.errors.NumbaError as error:
        raise BackendUnavailable(f"Numba {numba.__version__} does not compile {what}: {error}") from error
    return Kernel(callback, time.perf_counter() - before)


@lru_cache(maxsize=64)
def _compiled(name: str, dtype: str) -> Kernel:
    return _timed(name, lambda numba: _build(numba, name, dtype))


def _build(numba: Any, name: str, dtype: str) -> Any:
    types = numba.types
    make, fast = _MAKERS[name]
    short = name.partition(".")[2]
    inline = numba.njit(inline="always")
    body: Any = None
    if name == "latency.chase":
        body = _load_word()
    elif name.startswith("stream."):
        body = inline({**bodies.MAPS, **bodies.FOLDS}[short])
    inner, carray, element = inline(make(inline, body)), numba.carray, getattr(types, dtype)

    def kernel(pointers: Any, thread: Any, threads: Any, runs: Any) -> None:
        sizes = carray(pointers[SIZES_AT], (SIZES,), types.int64)
        x = carray(pointers[0], (sizes[LENGTHS_AT],), element)
        y = carray(pointers[1], (sizes[LENGTHS_AT + 1],), element)
        z = carray(pointers[2], (sizes[LENGTHS_AT + 2],), element)
        inner(x, y, z, sizes, thread, threads, runs)

    number = types.int64
    signature = types.void(types.CPointer(types.voidptr), number, number, number)
    return numba.cfunc(signature, fastmath=fast, error_model="numpy")(kernel)


@lru_cache(maxsize=1)
def _team() -> Kernel:
    return _timed("a parallel region", _build_team)


def _build_team(numba: Any) -> Any:
    types, prange, carray = numba.types, numba.prange, numba.carray
    get_threads, set_threads, run_kernel = numba.get_num_threads, numba.set_num_threads, _call_kernel()

    def region(pointers: Any, threads: Any, runs: Any) -> None:
        for thread in prange(threads):
            run_kernel(pointers, thread, threads, runs)

    parallel = numba.njit(parallel=True, nogil=True)(region)

    def work(pointers: Any, runs: Any) -> None:
        threads = carray(pointers[SIZES_AT], (SIZES,), types.int64)[THREADS_AT]
        if threads == 1:
            run_kernel(pointers, 0, 1, runs)
        else:  # the number of threads is this Python thread's, and others may have set it since
            before = get_threads()
            set_threads(threads)
            parallel(pointers, threads, runs)
            set_threads(before)

    return numba.cfunc(types.void(types.CPointer(types.voidptr), types.int64))(work)


# --- what Numba has no word for -----------------------------------------------------------------------------------


def _load_word() -> Any:
    """A function of an address: the word that stands there. One load, as C's `*p`."""
    ir, types = imported("llvmlite.ir"), load().types

    def word(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

        return types.int64(types.int64), codegen

    return imported("numba.extending").intrinsic(word)


def _call_kernel() -> Any:
    """A function (pointers, thread, threads, runs) that calls the kernel that stands in `pointers`."""
    ir, types = imported("llvmlite.ir"), load().types

    def call(typingctx: Any, pointers: Any, thread: Any, threads: Any, runs: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            at = builder.gep(args[0], [ir.IntType(64)(KERNEL_AT)])
            number = ir.IntType(64)
            kind = ir.FunctionType(ir.VoidType(), [args[0].type, number, number, number])
            builder.call(builder.bitcast(builder.load(at), kind.as_pointer()), args)
            return context.get_dummy_value()

        number = types.int64
        return types.void(types.CPointer(types.voidptr), number, number, number), codegen

    return imported("numba.extending").intrinsic(call)
