"""Where a value lives: the word that frameworks, streams and clocks here share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

DEPTH = 4  # of containers that are looked into
MOST = 1000  # values that are looked at
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


@dataclass(frozen=True, slots=True)
class Place:
    """A device, as a framework names it. kind: "cpu", "cuda" (a stream of ours can be used), or what it is else."""

    framework: str
    kind: str
    index: int = 0


CPU = Place("", "cpu")


def leaves(value: Any, depth: int = DEPTH) -> Iterator[Any]:
    """The values in tuples, lists, dictionaries and dataclasses; other values as they are."""
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, (tuple, list)):
        inner = value
    elif is_dataclass(value) and not isinstance(value, type):
        inner = (getattr(value, field.name, None) for field in fields(value))
    else:
        yield value
    if depth > 0:
        for count, one in enumerate(inner):
            if count >= MOST:
                return
            yield from leaves(one, depth - 1)


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
