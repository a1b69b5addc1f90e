"""CuPy itself, or the reason why it cannot be used. Importing it takes half a second: it is not, without a driver."""

from __future__ import annotations

import ctypes
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..errors import BackendUnavailable

INSTALL = "pip install 'gpumicro[cupy-cuda13]', or [cupy-cuda12] for a driver of CUDA 12"
NVRTC = "pip install 'gpumicro[cupy-cuda13]' brings it; by itself: nvidia-cuda-nvrtc, of CuPy's CUDA version"
DRIVER = "Install NVIDIA's driver; in a container, start it with its GPUs (--gpus all)"


def missing() -> tuple[str, str]:
    """("", "") where CuPy can be imported and has a driver and NVRTC, else (reason, remedy). It never prints."""
    try:
        installed = "cupy" in sys.modules or find_spec("cupy") is not None
    except ValueError:  # something without a spec bears its name
        installed = False
    if not installed:
        return "CuPy is not installed", INSTALL
    if "cupy" not in sys.modules and not _driver():
        return "this machine has no NVIDIA driver (libcuda.so.1 cannot be opened)", DRIVER
    try:
        cupy()
    except BackendUnavailable as error:
        return error.reason, error.remedy
    try:
        nvrtc().getVersion()
    except Exception as error:  # CuPy's own kinds, by version: RuntimeError, ImportError, NVRTCError
        return f"CuPy finds no NVRTC to compile kernels with ({first_line(error)})", NVRTC
    return "", ""


def cupy() -> Any:
    """The module `cupy`. Raises BackendUnavailable with the reason where it cannot be imported."""
    if (loaded := sys.modules.get("cupy")) is not None:  # timing loops come by here
        return loaded
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of several CuPy packages, of a CUDA_PATH: no measurement hangs on it
            return import_module("cupy")
    except Exception as error:  # an ImportError as a rule, but its native parts raise what they like
        raise BackendUnavailable(f"CuPy cannot be imported ({first_line(error)})", INSTALL) from error


def nvrtc() -> Any:
    """CuPy's face of NVRTC."""
    return cupy().cuda.nvrtc


def runtime() -> Any:
    """CuPy's face of the CUDA runtime."""
    return cupy().cuda.runtime


def driver() -> Any:
    """CuPy's face of the CUDA driver."""
    return cupy().cuda.driver


def first_line(error: BaseException) -> str:
    """What an error says, without the pages that may follow."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__


def _driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
