"""Kernels written in Python for Numba: one set for the CPU (njit, parallel), one for GPUs (numba-cuda).

`bodies` is what both have in common: what one element of a STREAM kernel is. Nothing here imports Numba before `load`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..errors import BackendUnavailable

REMEDY = "pip install 'gpumicro[numba]'"


def missing() -> str:
    """ "" where Numba is among the installed packages, else why it cannot be used. Imports nothing."""
    return "" if find_spec("numba") is not None else "Numba is not installed"


def cuda_missing() -> str:
    """As `missing`, of numba-cuda."""
    if missing():
        return missing()
    return "" if find_spec("numba_cuda") is not None else "numba-cuda is not installed"


@lru_cache(maxsize=1)
def load() -> Any:
    """The module numba. Raises BackendUnavailable where it cannot be imported."""
    return imported("numba")


@lru_cache(maxsize=1)
def load_cuda() -> Any:
    """The module numba.cuda of the package numba-cuda, or its simulator where NUMBA_ENABLE_CUDASIM is set.

    Raises BackendUnavailable where it cannot be imported.
    """
    if cuda_missing():
        raise BackendUnavailable(f"there is no numba.cuda, because {cuda_missing()}", REMEDY)
    _mend_numpy()
    return imported("numba.cuda")


def simulated() -> bool:
    """Whether numba.cuda is its simulator: asked of the environment, before anything is imported."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")


def imported(name: str) -> Any:
    """A module of Numba's, numba-cuda's or llvmlite's. Raises BackendUnavailable where it cannot be imported."""
    try:
        return import_module(name)
    except Exception as error:  # a NumPy that is too new is an ImportError, a broken llvmlite an OSError
        raise BackendUnavailable(f"{name} cannot be imported ({error})", REMEDY) from error


def _mend_numpy() -> None:
    """numba-cuda up to 0.30.4 asks NumPy for `row_stack`, which 2.5 has no more; it was a name of `vstack`."""
    import numpy as np

    if not hasattr(np, "row_stack"):
        vars(np)["row_stack"] = np.vstack
