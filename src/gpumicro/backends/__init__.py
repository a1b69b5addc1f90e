"""Ways to run kernels, in priority order. A new backend is one file and one entry here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import TypeAlias, get_args

from ..device import Device
from ..errors import BackendUnavailable, UsageError, nearest, unknown
from ..kernels import find
from ..spec import Check, Execution, OperandClass, Problem
from .base import Availability, Backend, Prepared, variants_of

__all__ = ["BACKENDS", "Availability", "Backend", "Check", "Prepared", "get", "prepare", "resolve", "select"]

# name -> module and class, loaded on first use; the first usable one is the default
_ENTRIES = {
    "cuda": ("cuda", "CudaBackend"),
    "cupy": ("cupy_backend", "CupyBackend"),
    "numba": ("numba_backend", "NumbaBackend"),
    "cpu": ("cpu", "CpuBackend"),
}
BACKENDS = tuple(_ENTRIES)

# Why `auto` passes over a backend that finds no other device than the CPU.
LEFT_TO_CPU = "it finds no GPU, and `auto` leaves the CPU to the cpu backend; ask for it by name"

Skipped: TypeAlias = "list[tuple[str, str]]"  # backends that were passed over, each with its reason

_loaded: dict[str, Backend] = {}


def get(name: str) -> Backend:
    """The backend of that name, usable or not. Raises UsageError for an unknown one."""
    if name not in _ENTRIES:
        raise UsageError(f"no backend is named {name!r}{nearest(name, ('auto', *BACKENDS))}")
    if name not in _loaded:
        module, symbol = _ENTRIES[name]
        backend: Backend = getattr(import_module(f".{module}", __name__), symbol)()
        _loaded[name] = backend
    return _loaded[name]


def select(name: str = "auto") -> tuple[Backend, Skipped]:
    """The backend to use and what was passed over, each with its reason.

    "auto" is $GPUMICRO_BACKEND, else the first usable one. Raises BackendUnavailable where the one asked for, or
    any, cannot run here.
    """
    skipped: Skipped = []
    for backend, can, _ in _candidates(name):
        if can:
            return backend, skipped
        if _asked(name) != "auto":
            raise BackendUnavailable(f"backend {backend.name!r} cannot run here because {can.reason}", can.remedy)
        skipped.append((backend.name, can.reason))
    raise _none("no backend can", skipped)


def resolve(device: str = "auto", backend: str = "auto") -> tuple[list[tuple[Backend, Device]], Skipped]:
    """What `--device` and `--backend` mean here: (backend, device) pairs, and the backends passed over with reasons.

    `device` is "auto" (the chosen backend's first), "all" (every device once, by the first backend that can run it),
    or a device's id: "cpu", "cuda:1". Raises UsageError for what does not exist, BackendUnavailable for what is known
    but cannot run here.
    """
    if device == "all":
        return _all_devices(backend)
    kind, _, index = device.partition(":")
    if device != "auto" and not (device == "cpu" or (kind == "cuda" and (not index or index.isdigit()))):
        raise UsageError(f"no device is named {device!r}; there are auto, cpu, cuda:0, cuda:1 ..., all")
    skipped: Skipped = []
    for candidate, can, offered in _candidates(backend):
        found = [one for one in offered if device in ("auto", one.id, one.kind)]
        if found:
            return [(candidate, found[0])], skipped
        skipped.append((candidate.name, can.reason or " ".join([f"it has no device {device!r}", *_notes(candidate)])))
    raise _none("no device can" if device == "auto" else f"device {device!r} cannot", skipped)


def _all_devices(backend: str) -> tuple[list[tuple[Backend, Device]], Skipped]:
    skipped: Skipped = []
    chosen: dict[str, tuple[Backend, Device]] = {}
    for candidate, can, offered in _candidates(backend):
        if not can:
            skipped.append((candidate.name, can.reason))
        for one in offered:
            chosen.setdefault(one.id, (candidate, one))
    if not chosen:
        raise _none("no device can", skipped)
    return list(chosen.values()), skipped


def _candidates(name: str) -> Iterator[tuple[Backend, Availability, tuple[Device, ...]]]:
    """The backends that a name admits, in priority order, each with whether it can run and on what.

    Under "auto" a CPU is the cpu backend's: others that can run there too (Numba's) measure it less well.
    """
    asked = _asked(name)
    for backend in map(get, BACKENDS if asked == "auto" else (asked,)):
        can = backend.availability()
        devices = backend.devices() if can else ()
        if can and asked == "auto" and backend.name != "cpu":
            devices = tuple(one for one in devices if one.kind != "cpu" and not one.facts.get("simulator"))
            can = can if devices else Availability(False, LEFT_TO_CPU)
        yield backend, can, devices


def _notes(backend: Backend) -> list[str]:
    """What it says of its devices, to stand in a sentence."""
    return [f"({note.rstrip('.')})" for note in getattr(backend, "notes", list)()]


def _none(what: str, skipped: Skipped) -> BackendUnavailable:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped)
    return BackendUnavailable(f"{what} run here ({reasons})")


def _asked(name: str) -> str:
    """ "auto" may be decided by the environment; UsageError where that names no backend."""
    chosen = os.environ.get("GPUMICRO_BACKEND") or "auto"
    if name != "auto" or chosen == "auto":
        return name
    if chosen not in BACKENDS:
        raise UsageError(f"GPUMICRO_BACKEND={chosen}: no such backend{nearest(chosen, ('auto', *BACKENDS))}")
    return chosen


def prepare(
    kernel: str,
    *,
    device: str = "cpu",
    backend: str = "auto",
    threads: int | None = None,
    variant: str | None = None,
    dtype: str | None = None,
    operands: OperandClass = "uniform",
    **sizes: int,
) -> Prepared:
    """A kernel of the catalogue, ready to run: `prepare("stream.triad", n=1 << 20, threads=1)`.

    Parameters
    ----------
    device : "cpu", or a GPU: "cuda:0".
    threads : how many, None for all that may be used (one on a GPU, and for what only one thread can run).
    variant, dtype : None for the first that the kernel lists.
    sizes : the kernel's sizes by name.

    Raises UsageError for what does not exist, BackendUnavailable for what cannot run here, OutOfMemory before any
    page is touched.
    """
    spec = find(kernel)
    if operands not in get_args(OperandClass):
        raise UsageError(unknown("operand class", operands, get_args(OperandClass)))
    for name, size in sizes.items():
        if not hasattr(size, "__index__"):
            raise UsageError(f"{kernel}: {name} must be a whole number, not {size!r}")
    chosen, where = resolve(device, backend)[0][0]
    if threads is None:
        threads = 1 if spec.name == "latency.chase" else max(1, len(where.cpus))
    on_gpu = where.kind == "cuda" and spec.gpu is not None
    dtypes = spec.gpu.dtypes if on_gpu and spec.gpu else spec.dtypes
    problem = Problem.of(dtype or dtypes[0], operands, **sizes)
    if variant is None:
        variant = variants_of(chosen, spec, problem.dtype, where)[0]
    return chosen.prepare(spec, problem, Execution(threads, variant), where)
