"""What the module _cuda has, through CuPy: the same names and calls, so that one backend's code runs on either.

For machines that have CuPy and no nvcc: kernels are compiled by NVRTC, everything else is the CUDA runtime as CuPy
offers it. Loops are Python's; what a device's own events time does not feel that, what the host's clock times does.
"""

from __future__ import annotations

from .found import missing
from .module import CupyCuda, load

__all__ = ["CupyCuda", "load", "missing"]
