"""Where a value lives: the word that frameworks, streams and clocks here share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import Any

DEPTH = 4  # of containers that are looked into
MOST = 1000  # values at each depth that are looked at
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


@dataclass(frozen=True, slots=True)
class Place:
    """A device, as a framework names it. kind: "cpu", "cuda" (a stream of ours can be used), or what it is else."""

    framework: str
    kind: str
    index: int = 0


CPU = Place("", "cpu")


def leaves(value: Any, most: int = MOST) -> Iterator[Any]:
    """The values in tuples, lists, dictionaries and dataclasses, the outer ones first; other values as they are.

    Of more than `most` at one depth the first so many: a matrix of lists has millions.
    """
    level = [value]
    for _ in range(DEPTH + 1):
        inner: list[Any] = []
        for one in level:
            held = _held(one)
            if held is None:
                yield one
            else:
                inner.extend(islice(held, most - len(inner)))
        level = inner


def _held(value: Any) -> Iterable[Any] | None:
    """What a container holds, None for what is none."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (tuple, list)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return (getattr(value, field.name, None) for field in fields(value))
    return None


def array_place(value: Any) -> Place | None:
    """Of any array that tells by DLPack or by CUDA's array interface; None where it tells nothing."""
    if isinstance(value, type):
        return None
    try:
        kind, index = value.__dlpack_device__()
        return Place("array", "cuda", int(index)) if int(kind) in _DLPACK_CUDA else None
    except Exception:  # whatever a foreign class does there
        pass
    return Place("array", "cuda") if getattr(value, "__cuda_array_interface__", None) is not None else None
