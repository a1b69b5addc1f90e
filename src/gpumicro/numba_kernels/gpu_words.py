"""Loads and stores for which numba-cuda has no word: 16 bytes at once, and a word at an address.

Each is an instruction on a GPU, and a line of Python in Numba's simulator, which knows no instructions. This module and
those of the kernels need numba.cuda to be imported.
"""

from __future__ import annotations

from typing import Any

from . import imported, load_cuda, simulated

cuda: Any = load_cuda()  # a global of each module of kernels: the simulator puts its own in its place


def device_function(function: Any) -> Any:
    """What kernels may call. Put in their place, since numba-cuda compiles a call for a device that must be there."""
    return cuda.jit(device=True, inline="always")(function)


def wide(lanes: int) -> tuple[Any, Any]:
    """(load, store) of `lanes` elements, a tuple, at an index of an array: 16 bytes, at a multiple of 16."""
    return _simulated_wide(lanes) if simulated() else _native_wide(lanes)


def load_word() -> Any:
    """A function (words, address): the 64-bit word at that address of global memory; in the simulator at that byte of
    `words`."""
    if simulated():
        return device_function(lambda words, address: words[address >> 3])
    ir, types = imported("llvmlite.ir"), imported("numba.cuda.types")

    def word(typingctx: Any, words: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[1], ir.IntType(64).as_pointer(1)))  # 1: global memory

        return types.int64(words, types.int64), codegen

    return imported("numba.cuda.extending").intrinsic(word)


def _simulated_wide(lanes: int) -> tuple[Any, Any]:
    def load(array: Any, index: Any) -> Any:
        return tuple(array[index + lane] for lane in range(lanes))

    def store(array: Any, index: Any, values: Any) -> None:
        for lane in range(lanes):
            array[index + lane] = values[lane]

    return device_function(load), device_function(store)


def _native_wide(lanes: int) -> tuple[Any, Any]:
    ir, types = imported("llvmlite.ir"), imported("numba.cuda.types")

    number = ir.IntType(32)

    def vector_at(context: Any, builder: Any, array: Any, args: Any) -> tuple[Any, Any]:
        kind = ir.VectorType(context.get_data_type(array.dtype), lanes)
        first = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        return kind, builder.bitcast(first, kind.as_pointer())

    def load(typingctx: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, at = vector_at(context, builder, array, args)
            vector = builder.load(at, align=16)
            parts = [builder.extract_element(vector, number(lane)) for lane in range(lanes)]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(array.dtype, lanes)(array, types.int64), codegen

    def store(typingctx: Any, array: Any, index: Any, values: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            kind, at = vector_at(context, builder, array, args)
            vector = kind(ir.Undefined)
            for lane in range(lanes):
                vector = builder.insert_element(vector, builder.extract_value(args[2], lane), number(lane))
            builder.store(vector, at, align=16)
            return context.get_dummy_value()

        return types.void(array, types.int64, types.UniTuple(array.dtype, lanes)), codegen

    intrinsic = imported("numba.cuda.extending").intrinsic
    return intrinsic(load), intrinsic(store)
