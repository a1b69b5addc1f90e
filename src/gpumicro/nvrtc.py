"""CUDA C++ compiled at run time by NVRTC, on any machine: neither a driver nor a GPU is needed.

NVRTC user's guide, "Basic Usage" and "Supported Compile Options".
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from . import libraries
from .errors import BackendUnavailable, CompileError, UsageError, unknown

COMPILATION = 6  # NVRTC_ERROR_COMPILATION
_ARCH = re.compile(r"(sm|compute)_(\d{2,3})[af]?")
_OWN_OPTIONS = ("--gpu-architecture", "-arch")  # `arch` is theirs


@dataclass(frozen=True, slots=True)
class Program:
    """What NVRTC made: machine code ("cubin") or NUL-terminated PTX, and the names that its kernels have in there."""

    image: bytes
    kind: Literal["cubin", "ptx"]
    lowered: Mapping[str, str]  # name expression -> name in the image
    log: str  # the compiler's warnings
    seconds: float  # that it took


def compile(
    code: str, name_expressions: Sequence[str], arch: str, options: Sequence[str] = (), name: str = "kernel.cu"
) -> Program:
    """Compile one translation unit of CUDA C++.

    name_expressions: the kernels wanted, as "triad" or "gm::triad<float, 4>"; templates are instantiated by it.
    arch: "sm_90a" for machine code, "compute_90" for PTX. options: NVRTC's; C++17 unless they say otherwise. The
    folders of CUDA's own headers are looked in last. name: what the compiler's messages call the file.

    Raises CompileError, with the compiler's words, where the code is wrong; BackendUnavailable where there is no NVRTC
    or it cannot make code for `arch`; UsageError for options that are none.
    """
    made = _ARCH.fullmatch(arch)
    if made is None:
        raise UsageError(f"arch is as 'sm_90a' (machine code) or 'compute_90' (PTX), not {arch!r}")
    library = load()
    flags = [f"--gpu-architecture={arch}", *_checked(options), *(f"--include-path={f}" for f in cuda_include_folders())]
    if not any(flag.startswith(("-std", "--std")) for flag in flags):
        flags.append("--std=c++17")
    started = perf_counter()
    with _program(library, code, name) as program:
        for expression in name_expressions:
            _check(library, "nvrtcAddNameExpression", program, expression.encode())
        raw = [flag.encode() for flag in flags]
        status = library.nvrtcCompileProgram(program, len(raw), (ctypes.c_char_p * len(raw))(*raw))
        log = _read(library, "ProgramLog", program).rstrip(b"\0").decode(errors="replace").strip()
        _judge(library, status, log, name, arch)
        kind: Literal["cubin", "ptx"] = "cubin" if made[1] == "sm" else "ptx"
        image = _read(library, kind.upper(), program)
        lowered = {expression: _lowered(library, program, expression) for expression in name_expressions}
    return Program(image, kind, lowered, log, perf_counter() - started)


def _checked(options: Sequence[str]) -> list[str]:
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise UsageError(f"options are a sequence of strings, as ['-use_fast_math'], not {options!r}")
    for option in options:
        if option.startswith(_OWN_OPTIONS):
            raise UsageError(f"option {option!r} is chosen by the device that the code is for; leave it out")
    return list(options)


def _judge(library: Any, status: int, log: str, name: str, arch: str) -> None:
    """Raise what a status of nvrtcCompileProgram means."""
    if status == 0:
        return
    if status == COMPILATION:
        raise CompileError(f"{name} does not compile for {arch}", log)
    known = supported()
    if int(_number(arch)) not in known:
        shown = ", ".join(map(str, known))
        raise BackendUnavailable(f"NVRTC {_shown(version())} makes no code for {arch}, only for {shown}", NEWER)
    raise UsageError(f"NVRTC cannot compile {name}: {_text(library, status)}" + (f"\n{log}" if log else ""))


def _number(arch: str) -> str:
    return re.sub(r"\D", "", arch)


def kernel_names(code: str) -> list[str]:
    """The __global__ functions that stand in a source, in order; what macros and headers make is not seen."""
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL)
    plain = re.sub(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", " ", plain)
    return list(dict.fromkeys(re.findall(r"__global__[^;{}(]*?(\w+)\s*\(", plain)))


# --- the library ------------------------------------------------------------------------------------------------------

NEWER = "A newer nvidia-cuda-nvrtc may know it"


def load() -> Any:
    """NVRTC as a ctypes library. Raises BackendUnavailable where there is none."""
    found = libraries.find("nvrtc")
    if not found:
        reason, _, remedy = found.reason.partition("; ")
        raise BackendUnavailable(f"NVRTC, CUDA's compiler at run time, is not here: {reason}", remedy)
    try:
        return _opened(found.path)
    except (OSError, AttributeError) as error:
        raise BackendUnavailable(
            f"NVRTC at {found.path} cannot be used: {error}", libraries.KNOWN["nvrtc"].package
        ) from error


@lru_cache(maxsize=8)
def _opened(path: str) -> Any:
    library = ctypes.CDLL(path)
    program, text = ctypes.c_void_p, ctypes.c_char_p
    texts = ctypes.POINTER(text)
    for name, arguments in {
        "nvrtcCreateProgram": (ctypes.POINTER(program), text, text, ctypes.c_int, texts, texts),
        "nvrtcDestroyProgram": (ctypes.POINTER(program),),
        "nvrtcAddNameExpression": (program, text),
        "nvrtcCompileProgram": (program, ctypes.c_int, texts),
        "nvrtcGetLoweredName": (program, text, ctypes.POINTER(text)),
        **{
            f"nvrtcGet{what}Size": (program, ctypes.POINTER(ctypes.c_size_t)) for what in ("ProgramLog", "PTX", "CUBIN")
        },
        **{f"nvrtcGet{what}": (program, ctypes.c_void_p) for what in ("ProgramLog", "PTX", "CUBIN")},
    }.items():
        getattr(library, name).argtypes = arguments
    library.nvrtcGetErrorString.restype = text
    return library


def missing() -> str:
    """ "" where NVRTC can be used, else why not."""
    try:
        load()
    except BackendUnavailable as error:
        return str(error)
    return ""


def version() -> tuple[int, int]:
    """Of the library: (13, 0). Raises BackendUnavailable."""
    library, major, minor = load(), ctypes.c_int(), ctypes.c_int()
    _check(library, "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def supported() -> tuple[int, ...]:
    """Compute capabilities that it makes code for, as 90 for 9.0, in order. Raises BackendUnavailable."""
    library, count = load(), ctypes.c_int()
    _check(library, "nvrtcGetNumSupportedArchs", ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    _check(library, "nvrtcGetSupportedArchs", numbers)
    return tuple(sorted(numbers))


def arch_for(capability: tuple[int, int]) -> str:
    """What to compile for, for a device of that compute capability: its own machine code with all its instructions.

    PTX of the newest that NVRTC knows where the device is newer still. Raises BackendUnavailable for one that is older
    than all.
    """
    number, known = 10 * capability[0] + capability[1], supported()
    if number in known:
        return f"sm_{number}a" if number >= 90 else f"sm_{number}"
    older = [one for one in known if one < number]
    if not older:
        raise BackendUnavailable(
            f"NVRTC {_shown(version())} makes no code for compute capability {capability[0]}.{capability[1]}",
            "An older one does: pip install nvidia-cuda-nvrtc-cu12",
        )
    return f"compute_{older[-1]}"


def _shown(number: tuple[int, int]) -> str:
    return ".".join(map(str, number))


def cuda_include_folders() -> list[str]:
    """Folders of CUDA's own headers (cuda_fp16.h, ...) beside the library or the toolkit; none is no error."""
    path = Path(libraries.find("nvrtc").path)
    homes = [path.parent.parent, path.parent.parent.parent / "cuda_runtime"] if path.is_absolute() else []
    homes += [Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)] + [Path("/usr/local/cuda")]
    for home in homes:
        if (home / "include" / "cuda_runtime.h").is_file():
            both = (home / "include", home / "include" / "cccl")
            return [str(folder) for folder in both if folder.is_dir()]
    return []


# --- calls ------------------------------------------------------------------------------------------------------------


@contextmanager
def _program(library: Any, code: str, name: str) -> Iterator[Any]:
    if "\0" in code:
        raise UsageError(f"the source of {name} holds a NUL character")
    program = ctypes.c_void_p()
    _check(library, "nvrtcCreateProgram", ctypes.byref(program), code.encode(), name.encode(), 0, None, None)
    try:
        yield program
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: Any, what: str, program: Any) -> bytes:
    size = ctypes.c_size_t()
    _check(library, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    _check(library, f"nvrtcGet{what}", program, data)
    return data.raw


def _lowered(library: Any, program: Any, expression: str) -> str:
    name = ctypes.c_char_p()
    _check(library, "nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(name))
    return (name.value or b"").decode()


def _check(library: Any, call: str, *arguments: Any) -> None:
    status = getattr(library, call)(*arguments)
    if status:
        raise UsageError(f"{call} failed: {_text(library, status)}")


def _text(library: Any, status: int) -> str:
    return str(library.nvrtcGetErrorString(status).decode())


# --- the kernels of the package ---------------------------------------------------------------------------------------


def kernel_folder() -> Path:
    """The folder of gpumicro's own device code, to be put on the include path. Raises BackendUnavailable."""
    from importlib.util import find_spec

    spec = find_spec("gpumicro")  # an editable install has two places
    places = [Path(place, "kernels_src") for place in (spec.submodule_search_locations or () if spec else ())]
    places.append(Path(__file__).parents[2] / "csrc" / "kernels")  # a checkout
    for place in places:
        if (place / "types.cuh").is_file():
            return place
    raise BackendUnavailable("gpumicro's device code (kernels_src) is not among the installed files", "Install it anew")


def kernel_file(name: str) -> Path:
    """A file of it, as "stream.cuh". Raises UsageError for one that is not there, BackendUnavailable without any."""
    folder = kernel_folder()
    names = sorted(path.name for path in folder.glob("*.cuh"))
    if name not in names:
        raise UsageError(unknown("file of device code", name, names))
    return folder / name
