"""Device code on the CPU, under sanitizers: no access out of bounds, no undefined behaviour, no race within a block.

Every tests/cpusim/FAMILY_test.cpp is compiled with the shim tests/cpusim/cuda_cpu.hpp, once for ASan and UBSan and once
for TSan, and run. Errors planted into copies of the real kernels must be found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpumicro.kernels import formats
from gpumicro.kernels.latency import chase_order
from gpumicro.kernels.operands import operand

ROOT = Path(__file__).parent.parent
KERNELS = ROOT / "csrc" / "kernels"
SHIM = ROOT / "tests" / "cpusim"
FAMILIES = sorted(path.name.removesuffix("_test.cpp") for path in SHIM.glob("*_test.cpp"))
FILES = sorted(KERNELS.glob("*.cuh"))
GXX = shutil.which(os.environ.get("CXX", "g++")) or ""
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc") or ""
STANDARD = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
MODES = {
    "asan": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "tsan": ("-fsanitize=thread", "-DGPUMICRO_SIM_THREADS"),
}
SANITIZER_SETTINGS = {"UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}

needs_gxx = pytest.mark.skipif(not GXX, reason="no g++ to compile the simulation with")


@dataclass(frozen=True)
class Plant:
    """An error put into a copy of a kernel file: `old` becomes `new`, and a run must say `found`."""

    what: str
    family: str
    mode: str
    file: str
    old: str
    new: str
    found: str


BARRIER = "__syncthreads();\n    T sum = 0;"
PLANTS = (
    Plant("an access past the end", "stream", "asan", "stream.cuh", "if (single < n)", "if (single <= n)",
          "heap-buffer-overflow"),
    Plant("a shared array too short", "stream", "asan", "stream.cuh", "warps[kStreamBlock / 32];",
          "warps[kStreamBlock / 32 - 1];", "out of bounds|global-buffer-overflow"),
    Plant("a divergent barrier", "stream", "asan", "stream.cuh", BARRIER, f"if (threadIdx.x < 64) {BARRIER}",
          "divergent barrier"),
    Plant("a missing barrier", "stream", "tsan", "stream.cuh", BARRIER, "T sum = 0;", "data race"),
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    family: str
    mode: str
    plant: Plant | None = None

    def build(self, folder: Path) -> Path:
        """Compiles the program into `folder` and returns its path."""
        folder.mkdir()
        includes = [ROOT / "csrc", SHIM]
        if self.plant is not None:
            shutil.copytree(KERNELS, folder / "kernels")
            includes.insert(0, folder)
            path = folder / "kernels" / self.plant.file
            text = path.read_text(encoding="utf-8")
            assert self.plant.old in text, f"{self.plant.file} no longer has the text that the error is planted at"
            path.write_text(text.replace(self.plant.old, self.plant.new), encoding="utf-8")
        output = folder / "program"
        command = [
            GXX, *STANDARD, "-O1", "-g1", "-fno-omit-frame-pointer", *MODES[self.mode],
            *(f"-I{include}" for include in includes), "-include", "cuda_cpu.hpp",
            str(SHIM / f"{self.family}_test.cpp"), "-o", str(output),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        return output


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **SANITIZER_SETTINGS}
    command = [str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if "unexpected memory mapping" in done.stderr and shutil.which("setarch"):  # TSan and much address randomisation
        command = ["setarch", "-R", *command]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done


class Builds:
    """All programs that the selected tests need, compiled side by side from the start."""

    def __init__(self, folder: Path, programs: list[Program]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=os.cpu_count())
        self._futures: dict[Program, Future[Path]] = {}
        for number, program in enumerate(dict.fromkeys(programs)):
            self._futures[program] = self._pool.submit(program.build, folder / str(number))

    def __getitem__(self, program: Program) -> Path:
        return self._futures[program].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def builds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    wanted = []
    for item in request.session.items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        wanted += [value for value in parameters.values() if isinstance(value, Program)]
    built = Builds(tmp_path_factory.mktemp("cpusim"), wanted)
    yield built
    built.close()


CLEAN = [Program(family, mode) for family in FAMILIES for mode in MODES]
PLANTED = [Program(plant.family, plant.mode, plant) for plant in PLANTS]


@needs_gxx
@pytest.mark.parametrize("program", CLEAN, ids=lambda p: f"{p.family}-{p.mode}")
def test_kernels_run_clean(builds: Builds, program: Program) -> None:
    done = run(builds[program])
    assert done.returncode == 0, done.stdout + done.stderr[:4000]
    assert re.search(r"^[1-9]\d* checks, 0 failed$", done.stdout, re.MULTILINE)


@needs_gxx
@pytest.mark.parametrize("program", PLANTED, ids=lambda p: p.plant.what)
def test_a_planted_error_is_found(builds: Builds, program: Program) -> None:
    assert program.plant is not None
    done = run(builds[program])
    assert done.returncode != 0
    assert re.search(program.plant.found, done.stderr), done.stdout + done.stderr[:4000]


# --- numbers: the device's against NumPy's ---


def equal(got: np.ndarray, expected: np.ndarray) -> bool:
    """Bit by bit, but for NaN, of which any will do."""
    if got.dtype.kind == "f":
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(got), nan)
        got, expected = got[~nan], expected[~nan]
    return got.dtype == expected.dtype and got.tobytes() == expected.tobytes()


@needs_gxx
@np.errstate(all="ignore")  # overflows and signalling NaN are among the inputs
@pytest.mark.parametrize("program", [Program("fill", "asan")], ids=["fill"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "tf32"])
def test_conversions_and_operands_equal_numpys(builds: Builds, program: Program, dtype: str, tmp_path: Path) -> None:
    done = run(builds[program], str(tmp_path))
    assert done.returncode == 0, done.stderr[:4000]

    def load(kind: str, of: np.dtype[np.generic]) -> np.ndarray:
        return np.fromfile(tmp_path / f"{dtype}.{kind}", of)

    stored = formats.stored(dtype)
    filled = load("fill", stored)
    assert equal(filled, formats.encode(operand(len(filled), "float32", seed=0x67756D69, index=2), dtype))
    inputs = load("inputs", np.dtype(np.float32))
    number = ~np.isnan(inputs)  # one NaN is as good as another
    assert equal(load("narrow", stored)[number], formats.encode(inputs[number], dtype))
    assert np.isnan(formats.decode(load("narrow", stored)[~number], dtype)).all()
    patterns = np.arange(len(load("wide", np.dtype(np.float32)))).astype(f"u{stored.itemsize}").view(stored)
    assert equal(load("wide", np.dtype(np.float32)), formats.decode(patterns, dtype).astype(np.float32))


@needs_gxx
@pytest.mark.parametrize("program", [Program("latency", "asan")], ids=["latency"])
@pytest.mark.parametrize("lines", [1, 2, 5, 64, 1003])
def test_the_chase_takes_the_order_that_its_check_expects(builds: Builds, program: Program, lines: int) -> None:
    printed = run(builds[program], str(lines)).stdout.split()
    assert [int(line) for line in printed] == chase_order(lines).tolist()


# --- the NVRTC subset ---


def foreign_includes(text: str) -> list[str]:
    """#include lines that name anything but a file of csrc/kernels."""
    lines = [line.strip() for line in text.splitlines() if line.lstrip().startswith("#include")]
    own = {f'#include "{path.name}"' for path in FILES}
    return [line for line in lines if line not in own]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_device_code_includes_device_code_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert foreign_includes(text) == []
    assert "<<<" not in text
    if not path.name.startswith("ptx"):
        assert not re.search(r"\basm\b", text), "inline PTX stands in ptx*.cuh only"


def test_a_host_header_would_be_seen() -> None:
    assert foreign_includes('#include "types.cuh"\n  #include <cstdint>\n') == ["#include <cstdint>"]


@needs_gxx
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_device_code_compiles_for_the_simulation(path: Path, tmp_path: Path) -> None:
    source = tmp_path / "alone.cpp"
    source.write_text(f'#include "kernels/{path.name}"\n', encoding="utf-8")
    command = [GXX, *STANDARD, "-fsyntax-only", f"-I{ROOT / 'csrc'}", f"-I{SHIM}", "-include", "cuda_cpu.hpp"]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


ARCHITECTURES = ("compute_75", "compute_90a", "compute_100a", "compute_120")  # the build compiles for all of them


@pytest.mark.skipif(not NVCC, reason="no nvcc")
@pytest.mark.parametrize("number", range(len(FILES)), ids=[path.name for path in FILES])
def test_device_code_compiles_alone(number: int, tmp_path: Path) -> None:
    source = tmp_path / "alone.cu"
    source.write_text(f'#include "kernels/{FILES[number].name}"\n', encoding="utf-8")
    arch = ARCHITECTURES[number % len(ARCHITECTURES)]
    command = [NVCC, "-std=c++17", "-ptx", f"-arch={arch}", f"-I{ROOT / 'csrc'}", str(source), "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert "warning" not in done.stderr
