"""Where a work runs, as far as its arguments, what it closes over and its result tell."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from . import cupy, jax, numba, pytorch
from .place import Place, array_place, leaves


def place_of(value: Any) -> Place | None:
    """Where one value lives; None where nothing tells."""
    for framework in (pytorch, jax, cupy, numba):
        found: Place | None = framework.place_of(value)
        if found is not None:
            return found
    return array_place(value)


def place_among(*values: Any) -> Place | None:
    """The first place that is not the CPU in these values and the containers among them; else the first there is."""
    found = [place for value in values for leaf in leaves(value) if (place := place_of(leaf)) is not None]
    return next((place for place in found if place.kind != "cpu"), None)


def place_of_call(work: Any, args: Sequence[Any]) -> Place | None:
    """Where the work with these arguments runs, unless that is the CPU or nothing tells."""
    return place_among(work, *args, *captured(work))


def captured(work: Any) -> Iterator[Any]:
    """What a callable brings along: bound arguments, the object of a method, variables of the function around it and
    globals that it names."""
    if isinstance(work, functools.partial):
        yield from (*work.args, *work.keywords.values(), *captured(work.func))
    elif inspect.ismethod(work):
        yield from (work.__self__, *captured(work.__func__))
    elif inspect.isfunction(work):
        for cell in work.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        yield from (work.__globals__[name] for name in work.__code__.co_names if name in work.__globals__)
