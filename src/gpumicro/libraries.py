"""Where the libraries opened at run time are: cuBLASLt, NCCL, NVRTC and NVML. A missing one is a reason in words."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError, unknown


@dataclass(frozen=True, slots=True)
class Library:
    """One library as found: `path` is what dlopen takes, "" where there is none and `reason` says why."""

    name: str
    path: str
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.path)


@dataclass(frozen=True, slots=True)
class _Known:
    sonames: tuple[str, ...]  # best first
    folders: tuple[str, ...]  # of the wheels, in site-packages
    package: str  # what brings it


KNOWN = {
    "cublasLt": _Known(
        ("libcublasLt.so.13", "libcublasLt.so.12"), ("nvidia/cu13/lib", "nvidia/cublas/lib"),
        "pip install 'nvidia-cublas>=13,<14'",
    ),
    "nccl": _Known(("libnccl.so.2",), ("nvidia/nccl/lib",), "pip install nvidia-nccl-cu13"),
    "nvrtc": _Known(
        ("libnvrtc.so.13", "libnvrtc.so.12"), ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"),
        "pip install 'nvidia-cuda-nvrtc>=13,<14'",
    ),
    "nvml": _Known(("libnvidia-ml.so.1",), (), "NVIDIA's driver brings it"),
}  # fmt: skip


def find(name: str, environment: Mapping[str, str] = os.environ) -> Library:
    """The library called "cublasLt", "nccl", "nvrtc" or "nvml". Raises UsageError for another name.

    In this order: the file that GPUMICRO_NCCL (or _CUBLASLT, ...) names, what cuda-pathfinder finds where it is
    installed, Python's own packages, what the system's linker finds, /usr/local/cuda.
    """
    if name not in KNOWN:
        raise UsageError(unknown("library", name, KNOWN))
    known = KNOWN[name]
    variable = f"GPUMICRO_{name.upper()}"
    if named := environment.get(variable, ""):
        there = Path(named).is_file()
        return Library(name, named if there else "", "" if there else f"{variable} names {named}, which is no file")
    path = _by_pathfinder(name) or _in_packages(known, sys.path) or _by_linker(known) or _in_toolkit(known)
    if path:
        return Library(name, path)
    return Library(
        name, "", f"{known.sonames[0]} is neither among Python's packages nor on the system; {known.package}"
    )


def _by_pathfinder(name: str) -> str:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return ""
    try:
        return str(load_nvidia_dynamic_lib(name).abs_path or "")
    except Exception:  # it has its own errors for a library that is not there, and for names it does not know
        return ""


def _in_packages(known: _Known, folders: Iterable[str]) -> str:
    """Among the wheels of CUDA, in any folder that Python imports from."""
    for folder in folders:
        for below in known.folders:
            for soname in known.sonames:
                path = Path(folder or ".", below, soname)
                if path.is_file():
                    return str(path)
    return ""


def _by_linker(known: _Known) -> str:
    """By name alone: LD_LIBRARY_PATH and the system's folders. It is loaded by that, and stays so."""
    from ctypes import CDLL

    for soname in known.sonames:
        try:
            CDLL(soname)
        except OSError:
            continue
        return soname
    return ""


def _in_toolkit(known: _Known, root: Path = Path("/usr/local/cuda")) -> str:
    return next((str(path) for s in known.sonames if (path := root / "lib64" / s).is_file()), "")


def nccl_version(path: str) -> str:
    """ "2.28.9" of the library at `path`, "" where it does not say. Needs no GPU.

    Source: ncclGetVersion; 2.9 and later are major * 10000 + minor * 100 + patch, earlier ones major * 1000.
    """
    from ctypes import CDLL, byref, c_int

    number = c_int()
    try:
        code = CDLL(path).ncclGetVersion(byref(number))
    except (OSError, AttributeError):
        return ""
    major = 10000 if number.value >= 10000 else 1000
    found = number.value
    return f"{found // major}.{found % major // 100}.{found % 100}" if code == 0 and found > 0 else ""
