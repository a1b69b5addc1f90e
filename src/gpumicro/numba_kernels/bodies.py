"""What one element of a STREAM kernel is: the same function for the CPU and for GPUs, compiled for each by Numba.

A map's body takes b[i], c[i] and s, a fold's b[i] and c[i]. What a body does not use is not loaded: the compiler drops
the load, and a test looks for it in the machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def write(b: Any, c: Any, s: Any) -> Any:  # noqa: ARG001
    """a[i] = s"""
    return s


def copy(b: Any, c: Any, s: Any) -> Any:  # noqa: ARG001
    """a[i] = b[i]"""
    return b


def scale(b: Any, c: Any, s: Any) -> Any:  # noqa: ARG001
    """a[i] = s * b[i]"""
    return s * b


def add(b: Any, c: Any, s: Any) -> Any:  # noqa: ARG001
    """a[i] = b[i] + c[i]"""
    return b + c


def triad(b: Any, c: Any, s: Any) -> Any:
    """a[i] = b[i] + s * c[i]"""
    return b + s * c


def read(b: Any, c: Any) -> Any:  # noqa: ARG001
    """sum of b[i]"""
    return b


def dot(b: Any, c: Any) -> Any:
    """sum of b[i] * c[i]"""
    return b * c


MAPS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "write": write, "copy": copy, "scale": scale, "add": add, "triad": triad,
}  # fmt: skip
FOLDS: Mapping[str, Callable[[Any, Any], Any]] = {"read": read, "dot": dot}
