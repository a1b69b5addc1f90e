"""A work and its arguments: whether they fit, what is bound, and what a run changes of them."""

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import UsageError
from . import numba, pytorch
from .place import leaves

HASHED_BYTES = 64 << 20  # of all arrays; a larger one is looked at in even steps
_FREE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def name_of(work: Any) -> str:
    """What to call a work in a message."""
    inner = work.func if isinstance(work, functools.partial) else getattr(work, "dispatcher", work)
    inner = getattr(inner, "py_func", inner)
    return str(getattr(inner, "__name__", None) or type(work).__name__)


def signature_of(work: Any) -> inspect.Signature | None:
    """None where Python does not know it, as of many builtins."""
    try:
        kernel = numba.is_kernel(work)
        return inspect.signature(work.dispatcher.py_func if kernel else work)
    except (TypeError, ValueError, AttributeError):
        return None


def wants_stream(work: Any, args: Sequence[Any], given: bool) -> Literal["", "may", "must"]:
    """Whether the work takes the stream as a parameter beyond its arguments: "may" where it has a default.

    That is the parameter named `stream`; where a stream was given also the only one that is left over.
    """
    signature = signature_of(work)
    if signature is None or numba.is_kernel(work):
        return ""
    left = _left_over(signature, len(args))
    for parameter in left:
        if parameter.name == "stream":
            return "must" if parameter.default is parameter.empty else "may"
    needed = [parameter for parameter in left if parameter.default is parameter.empty]
    return "must" if given and len(needed) == 1 else ""


def bind(work: Callable[..., Any], args: Sequence[Any], stream: int | None = None) -> Callable[[], Any]:
    """The work with its arguments and, unless None, the stream. UsageError where they do not fit it."""
    signature = signature_of(work)
    keywords: dict[str, Any] = {}
    if stream is not None and signature is not None:
        args, keywords = _with_stream(signature, args, stream)
    if signature is not None:
        _check(work, signature, args, keywords)
    return functools.partial(work, *args, **keywords) if args or keywords else work


def _left_over(signature: inspect.Signature, given: int) -> list[inspect.Parameter]:
    """Parameters that so many positional arguments leave unfilled."""
    free = [p for p in signature.parameters.values() if p.kind in _FREE]
    return free[given:] + [p for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]


def _with_stream(
    signature: inspect.Signature, args: Sequence[Any], stream: int
) -> tuple[Sequence[Any], dict[str, Any]]:
    left = _left_over(signature, len(args))
    named = next((p for p in left if p.name == "stream"), None)
    target = named or next((p for p in left if p.default is p.empty), None)
    if target is None:
        return args, {}
    if target.kind is inspect.Parameter.POSITIONAL_ONLY:
        return (*args, stream), {}
    return args, {target.name: stream}


def _check(work: Any, signature: inspect.Signature, args: Sequence[Any], keywords: dict[str, Any]) -> None:
    name = name_of(work)
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        filled = len(args)
        left = [p for p in _left_over(signature, filled) if p.default is p.empty and p.name not in keywords]
        if not left:
            raise UsageError(f"{name}{signature} does not take these {filled} arguments: {error}") from None
        names = ", ".join(p.name for p in left)
        cure = f"give them after the work, time_kernel({', '.join([name, *('...' for _ in args), names])})"
        if any(p.kind is p.KEYWORD_ONLY for p in left):
            cure = f"bind them: functools.partial({name}, {', '.join(f'{p.name}=...' for p in left)})"
        raise UsageError(f"{name}{signature} needs {names}: {cure}") from None


# --- what a run changes -----------------------------------------------------------------------------------------


class Inputs:
    """What the inputs were when this was made. Arguments that are there to be written, named `out` or beyond a ufunc's
    inputs, are none."""

    def __init__(self, work: Any, args: Sequence[Any]) -> None:
        signature = signature_of(work)
        names = [p.name for p in signature.parameters.values() if p.kind in _FREE] if signature else []
        count = int(getattr(work, "nin", len(args)))
        self._values = [
            leaf for i, arg in enumerate(args[:count]) if names[i : i + 1] != ["out"] for leaf in leaves(arg)
        ]
        self._before = self._states()

    def changed(self) -> bool:
        """Whether any of them is another by now: NumPy arrays by checksum, PyTorch tensors by their version."""
        return self._before != self._states()

    def _states(self) -> list[int | None]:
        most = HASHED_BYTES // max(len(self._values), 1)
        return [_state(value, most) for value in self._values]


def _state(value: Any, most_bytes: int) -> int | None:
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        return pytorch.version_of(value)
    if value.nbytes > most_bytes:
        step = int(np.ceil((value.nbytes / most_bytes) ** (1 / value.ndim)))
        value = value[tuple(slice(None, None, step) for _ in value.shape)]
    return zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data) if value.size else 0
