"""The module _cuda, or the reason why there is none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .errors import BackendUnavailable

REMEDY = "Install gpumicro where nvcc 12.0 or newer is, or with GPUMICRO_CUDA_WHEELS=13 (the compiler from PyPI)"


def load() -> Any:
    """The module `_cuda`. Raises BackendUnavailable with the reason where it was not built."""
    reason = missing()
    if reason:
        raise BackendUnavailable(f"gpumicro has no CUDA module, because {reason}", REMEDY)
    return import_module("gpumicro._cuda")


def missing() -> str:
    """ "" where the module can be loaded, else why not."""
    try:
        # Without the extension the folder of its stubs is what Python finds.
        found = hasattr(import_module("gpumicro._cuda"), "build")
        why = getattr(import_module("gpumicro._core"), "cuda_why", "")
    except ImportError as error:
        return f"it cannot be loaded ({error})"
    return "" if found else why or "it is not among the installed files"
