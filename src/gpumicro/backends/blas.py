"""The BLAS under NumPy: which one it is, its threads, and the check of a whole matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BackendUnavailable, VerificationError
from ..kernels.gemm import growth
from ..spec import Check
from .base import Availability

_Matrix = npt.NDArray[np.floating[Any]]
_ROWS = 256  # of a product that are compared at a time: bounds the memory that the check takes


class Library:
    """One BLAS that this process has loaded."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self._before: int | None = None
        found = controller.info()
        keys = ("internal_api", "version", "architecture", "threading_layer", "filepath")
        self.facts: Mapping[str, object] = {key: found.get(key) for key in keys}
        kernels = f", {found['architecture']} kernels" if found.get("architecture") else ""
        self.title = f"{found.get('internal_api')} {found.get('version')}{kernels}"

    def use(self, threads: int) -> None:
        """Run on this many threads from now on."""
        now = self._controller.get_num_threads()
        if now == threads:
            return
        if self._before is None:
            self._before = now
        self._controller.set_num_threads(threads)

    def restore(self) -> None:
        """Back to the number of threads that `use` found."""
        if self._before is not None:
            self._controller.set_num_threads(self._before)
            self._before = None


@lru_cache(maxsize=1)
def _controllers() -> tuple[Any, ...]:
    from threadpoolctl import ThreadpoolController

    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def availability() -> Availability:
    """Whether a BLAS that NumPy uses can be found and steered."""
    try:
        found = _controllers()
    except ImportError as error:
        return Availability(False, f"threadpoolctl cannot be imported ({error})", "pip install threadpoolctl")
    if not found:
        return Availability(False, "threadpoolctl finds no BLAS in this process: NumPy was built without one it knows")
    return Availability(True)


@lru_cache(maxsize=1)
def library() -> Library:
    """NumPy's own BLAS; where SciPy or others brought one too, the one that lies with NumPy."""
    can = availability()
    if not can:
        raise BackendUnavailable(can.reason, can.remedy)
    found = _controllers()
    return Library(next((one for one in found if "numpy" in (one.filepath or "")), found[0]))


def check_all(
    kernel: str, c: _Matrix, a: _Matrix, b: _Matrix, *, sampled: Check, reference: _Matrix | None = None
) -> Check:
    """Every element of `c` against a product in float64 (or `reference`), beside the elements `sampled` natively.

    The bound of an element is gamma_(k+1) times the norms of its row and column, twice where the reference is no more
    exact than `c` is. Raises VerificationError.
    """
    same = c.dtype == np.float64
    rows, columns = np.linalg.norm(a.astype(np.float64), axis=1), np.linalg.norm(b.astype(np.float64), axis=0)
    factor = growth(a.shape[1], c.dtype.name) * (2 if same else 1) * (1 + 1e-6)
    wide_b = b.astype(np.float64, copy=False)
    for start in range(0, c.shape[0], _ROWS):
        part = slice(start, start + _ROWS)
        want = a[part].astype(np.float64, copy=False) @ wide_b if reference is None else reference[part]
        bound = factor * np.outer(rows[part], columns) + np.finfo(c.dtype).tiny
        wrong = ~(np.abs(c[part] - want) <= bound)  # NaN is wrong
        if wrong.any():
            at = int(np.argmax(wrong))
            place = np.unravel_index(at, wrong.shape)
            raise VerificationError(
                kernel, start * c.shape[1] + at, float(want[place]), float(c[part][place]), float(bound[place])
            )
    against = "float64 (all) and long double (sampled)" if c.size > sampled.elements else "float64 and long double"
    return Check(True, sampled.worst, sampled.bound, against, c.size)
