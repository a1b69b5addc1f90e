"""Compiles kernels of csrc/kernels by the NVRTC that CuPy loads, for the device at hand; keeps them where CuPy does.

CuPy's own way from code to kernel (RawModule(code=...)) is not taken: it adds -ftz=true, which the CUDA module is not
built with, names an architecture without the "a" that wgmma and tcgen05 need (which NVRTC 12 lets nobody name beside
it), and up to version 13 caches no templates. So NVRTC is called here, and RawModule loads the file.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import BackendUnavailable, UsageError
from ..nvrtc import kernel_folder
from .found import cupy, first_line, nvrtc

STANDARD = "-std=c++17"
# Virtual architectures to fall back on where NVRTC does not know a newer GPU: its driver compiles their PTX.
_VIRTUAL = (121, 120, 103, 100, 90, 89, 86, 80, 75)
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*|GM_\w+\s+)?(\w+)\s*\(")
_SYMBOL = re.compile(r"\bX\((gm::[^()]+)\)")
_TARGET = re.compile(r"__CUDA_ARCH_FEAT_SM(\d+)_ALL")
_HEADER = b"gpumicro 1\n"


@lru_cache(maxsize=4)
def _index(folder: Path) -> tuple[dict[str, str], dict[str, str], str]:
    """(file of each kernel's name, "90a" of each file that is for one target, digest of all)."""
    files: dict[str, str] = {}
    targets: dict[str, str] = {}
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.cuh")):
        text = path.read_text(encoding="utf-8")
        digest.update(f"{path.name}\0{text}\0".encode())
        files |= dict.fromkeys(_KERNEL.findall(text), path.name)
        if found := _TARGET.search(text):
            targets[path.name] = f"{found[1]}a"
    return files, targets, digest.hexdigest()


@lru_cache(maxsize=1)
def spelled_out() -> frozenset[str]:
    """Symbols that stand in the tables at the files' ends."""
    return frozenset(
        name for path in kernel_folder().glob("*.cuh") for name in _SYMBOL.findall(path.read_text("utf-8"))
    )


def source_of(symbol: str) -> str:
    """The file that a symbol's kernel stands in: "gm::triad<double, 2, 4>" is in stream.cuh. UsageError if in none."""
    name = symbol.partition("<")[0].rpartition("::")[2]
    files = _index(kernel_folder())[0]
    if name not in files:
        raise UsageError(f"no kernel of csrc/kernels is named {symbol!r}")
    return files[name]


@dataclass(frozen=True, slots=True)
class Image:
    """A kernel for one architecture: machine code, or PTX; `seconds` is what compiling took, 0.0 if it was kept."""

    path: Path
    lowered: str
    architecture: str  # "sm_90a", "compute_90"
    options: tuple[str, ...]
    seconds: float


def compile_symbol(symbol: str, capability: tuple[int, int]) -> Image:
    """The kernel of that name for a device of this compute capability, from the cache where it was compiled before.

    Raises BackendUnavailable with the compiler's first line where it cannot be compiled.
    """
    folder = kernel_folder()
    _, targets, digest = _index(folder)
    source = source_of(symbol)
    options = (STANDARD, f"-I{folder}")
    failures = []
    for architecture in _architectures(capability, targets.get(source, "")):
        key = f"{nvrtc().getVersion()} {STANDARD} {architecture} {source} {symbol} {digest}"
        kept = _cache_folder() / f"gpumicro-{hashlib.sha256(key.encode()).hexdigest()[:40]}.bin"
        flags = (*options, f"-arch={architecture}")
        if (found := _read(kept)) is not None:
            return Image(found[1], found[0], architecture, flags, 0.0)
        began = time.perf_counter()
        try:
            lowered, image = _compile(f'#include "{source}"\n', source, symbol, flags)
        except BackendUnavailable as error:
            failures.append(error)
            if "architecture" not in error.reason:
                break
            continue
        path = _write(kept, lowered, image)
        return Image(path, lowered, architecture, flags, time.perf_counter() - began)
    raise failures[0]


def _architectures(capability: tuple[int, int], target: str) -> list[str]:
    """What to compile for, best first: this device's code, then PTX of what is older."""
    number = 10 * capability[0] + capability[1]
    if target:
        return [f"sm_{target}"]
    known: tuple[int, ...] = getattr(nvrtc(), "getSupportedArchs", tuple)()  # not before CuPy 12
    exact = [] if known and number not in known else [f"sm_{number}"]
    return exact + [f"compute_{one}" for one in _VIRTUAL if one < number and (not known or one in known)]


def _compile(code: str, name: str, symbol: str, options: tuple[str, ...]) -> tuple[str, bytes]:
    rtc = nvrtc()
    program = rtc.createProgram(code, f"{name}.cu", (), ())
    try:
        rtc.addNameExpression(program, symbol)
        rtc.compileProgram(program, options)
        image = rtc.getCUBIN(program) if options[-1].startswith("-arch=sm_") else rtc.getPTX(program)
        return str(rtc.getLoweredName(program, symbol)), bytes(image)
    except RuntimeError as error:
        log = str(rtc.getProgramLog(program)).strip()
        why = next((line.strip() for line in log.splitlines() if "error" in line), "") or first_line(error)
        raise BackendUnavailable(f"NVRTC cannot compile {symbol}: {why}") from error
    finally:
        rtc.destroyProgram(program)


# --- the cache ------------------------------------------------------------------------------------------------------


def _cache_folder() -> Path:
    """CuPy's: $CUPY_CACHE_DIR, else ~/.cupy/kernel_cache; this process's own for a user without a home."""
    try:
        return Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    except RuntimeError:
        return Path(_own_folder().name)


def _read(kept: Path) -> tuple[str, Path] | None:
    """(lowered name, file of the image) as `_write` left them; None for what is not whole."""
    image = kept.with_suffix(".cubin")
    try:
        header, _, lowered = kept.read_bytes().partition(b"\n")
        size, _, name = lowered.partition(b" ")
        whole = header + b"\n" == _HEADER and image.stat().st_size == int(size)
    except (OSError, ValueError):
        return None
    return (name.decode(), image) if whole else None


def _write(kept: Path, lowered: str, image: bytes) -> Path:
    """Keep an image and its name. Where the cache cannot be written, the image goes to a folder of this process."""
    path = kept.with_suffix(".cubin")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, image)
        _replace(kept, _HEADER + f"{len(image)} {lowered}".encode())
    except OSError:
        path = Path(_own_folder().name) / path.name
        path.write_bytes(image)
    return path


def _replace(path: Path, content: bytes) -> None:
    """Written whole or not at all: another process may read it now."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        written = Path(file.name)
        try:
            file.write(content)
            file.flush()
            written.replace(path)
        except BaseException:
            written.unlink(missing_ok=True)
            raise


@lru_cache(maxsize=1)
def _own_folder() -> Any:
    return tempfile.TemporaryDirectory(prefix="gpumicro-")


def load_image(image: Image) -> Any:
    """CuPy's kernel of an image, on the current device."""
    return cupy().RawModule(path=str(image.path)).get_function(image.lowered)
