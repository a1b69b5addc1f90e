"""The arguments of a user's own kernel: from Python's values to the bytes that a launch passes.

The parameters' types stand in the kernel's mangled name (Itanium C++ ABI, 5.1.5), so a wrong one is found before
anything runs. An extern "C" kernel has no such name: its scalars must be NumPy's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import UsageError
from .sass.names import demangle

_DTYPES = {
    "float": "float32", "double": "float64", "bool": "bool", "int": "int32", "unsigned int": "uint32",
    "long": "int64", "unsigned long": "uint64", "long long": "int64", "unsigned long long": "uint64",
    "short": "int16", "unsigned short": "uint16", "char": "int8", "signed char": "int8", "unsigned char": "uint8",
}  # fmt: skip
_ANY_BYTES = ("void", "char", "unsigned char", "signed char")  # a pointer to these may point to anything
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged of DLPack


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a kernel takes at one place: "float const*" is a pointer to float, "float" no pointer."""

    text: str
    pointer: bool
    dtype: str | None  # NumPy's name of the scalar or of what is pointed to; None for a type that NumPy has not


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its bytes, and for an array the device memory with the host's shape and type."""

    raw: bytes
    keep: Any = None
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None


def parameters_of(symbol: str) -> tuple[Parameter, ...] | None:
    """What the kernel of that mangled name takes; None where the name does not tell."""
    text = demangle(symbol)
    if text == symbol or not text.endswith(")"):
        return None
    inside = _last_parentheses(text)
    return tuple(_parameter(part) for part in _split(inside)) if inside not in ("", "void") else ()


def _last_parentheses(text: str) -> str:
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == ")") - (text[i] == "(")
        if depth == 0:
            return text[i + 1 : -1].strip()
    return ""


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _parameter(text: str) -> Parameter:
    pointer = text.endswith("*")
    plain = text.removesuffix("*").replace("const", "").replace("volatile", "").strip()
    known = None if pointer and plain in _ANY_BYTES else _DTYPES.get(plain)
    return Parameter(text, pointer, known)


def argument(
    value: Any, parameter: Parameter | None, where: str, device: int, new_buffer: Callable[[int], Any]
) -> Argument:
    """`value` as the kernel gets it. where: what messages call it; new_buffer(bytes): device memory with `upload`.

    Raises UsageError for what is no argument or not of the parameter's type.
    """
    if isinstance(value, np.ndarray):
        return _array(value, parameter, where, new_buffer)
    if isinstance(value, (np.generic, bytes, bool, int, float)) or value is None:
        return Argument(_scalar(value, parameter, where))
    if hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack_device__"):
        return _foreign(value, parameter, where, device)
    raise UsageError(
        f"{where} is a {type(value).__name__}; a kernel takes NumPy scalars and arrays, and arrays of any library that "
        "has __cuda_array_interface__ or DLPack"
    )


# --- scalars ----------------------------------------------------------------------------------------------------------


def _scalar(value: Any, parameter: Parameter | None, where: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.generic):
        _check_scalar(value, parameter, where)
        return value.tobytes()
    if parameter is None or (parameter.dtype is None and not parameter.pointer):
        kind = "np.float32(...) or np.float64(...)" if isinstance(value, float) else "np.int32(...) or np.int64(...)"
        why = 'extern "C" hides its type' if parameter is None else f"the kernel takes {parameter.text}"
        raise UsageError(f"{where} is the Python value {value!r}, and {why}; say which type it has, as {kind}")
    if parameter.pointer:
        if value is not None and type(value) is not int:
            raise UsageError(f"{where} is {value!r}; the kernel takes {parameter.text}: an array, or an address")
        return _fit(0 if value is None else value, np.dtype("uint64"), parameter, where)
    return _fit(value, np.dtype(parameter.dtype), parameter, where)


def _fit(value: Any, dtype: np.dtype[Any], parameter: Parameter, where: str) -> bytes:
    whole = dtype.kind in "iu"
    if value is None or (whole and isinstance(value, float)) or (dtype.kind == "b" and not isinstance(value, bool)):
        raise UsageError(f"{where} is {value!r}; the kernel takes {parameter.text}")
    if whole and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise UsageError(f"{where} is {value!r}, which does not fit into the kernel's {parameter.text}")
    return np.array(value, dtype).tobytes()


def _check_scalar(value: np.generic, parameter: Parameter | None, where: str) -> None:
    if parameter is None or (parameter.dtype is None and not parameter.pointer):
        return
    wanted = np.dtype("uint64") if parameter.pointer else np.dtype(parameter.dtype)
    if not _alike(value.dtype, wanted):
        raise UsageError(f"{where} is a NumPy {value.dtype}; the kernel takes {parameter.text}")


def _alike(have: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """The same type; the sign of a whole number is the caller's business."""
    return have == wanted or (have.kind in "iu" and wanted.kind in "iu" and have.itemsize == wanted.itemsize)


# --- arrays -----------------------------------------------------------------------------------------------------------


def _check_array(dtype: np.dtype[Any], parameter: Parameter | None, where: str) -> None:
    if parameter is not None and not parameter.pointer:
        raise UsageError(f"{where} is an array; the kernel takes {parameter.text}")
    if parameter is not None and parameter.dtype is not None and not _alike(dtype, np.dtype(parameter.dtype)):
        raise UsageError(f"{where} is an array of {dtype}; the kernel takes {parameter.text}")


def _array(
    value: npt.NDArray[Any], parameter: Parameter | None, where: str, new_buffer: Callable[[int], Any]
) -> Argument:
    if value.dtype.hasobject or not value.dtype.isnative:
        raise UsageError(f"{where} is an array of {value.dtype!r}, which a GPU cannot read")
    _check_array(value.dtype, parameter, where)
    buffer = new_buffer(value.nbytes)
    if value.nbytes:
        buffer.upload(np.ascontiguousarray(value))
    return Argument(buffer.address.to_bytes(8, "little"), buffer, value.shape, value.dtype)


def _foreign(value: Any, parameter: Parameter | None, where: str, device: int) -> Argument:
    """Another library's array, which stays where it is and is kept alive."""
    if hasattr(value, "__dlpack_device__"):
        kind, index = value.__dlpack_device__()
        if kind not in CUDA_DEVICES:
            raise UsageError(f"{where} lies in the host's memory; give it as a NumPy array, or move it to the GPU")
        if index != device:
            raise UsageError(f"{where} lies on cuda:{index}, and the kernel runs on cuda:{device}")
    try:
        if hasattr(value, "__cuda_array_interface__"):
            found = value.__cuda_array_interface__
            address, keep = int(found["data"][0] or 0), value
            _check_array(np.dtype(found["typestr"]), parameter, where)
        else:
            address, keep = _dlpack(value)
            if parameter is not None and not parameter.pointer:
                raise UsageError(f"{where} is an array; the kernel takes {parameter.text}")
    except (RuntimeError, TypeError, BufferError) as error:  # a tensor that needs its gradient, a sparse one
        raise UsageError(f"{where} gives no address: {error}") from error
    return Argument(address.to_bytes(8, "little"), keep)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int), ("ndim", ctypes.c_int),
        ("dtype", ctypes.c_uint32), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def _dlpack(value: Any) -> tuple[int, Any]:
    """Address of its first element, and what keeps it: DLPack's DLManagedTensor begins with the tensor."""
    capsule = value.__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    return int(tensor.data or 0) + int(tensor.byte_offset), (value, capsule)
