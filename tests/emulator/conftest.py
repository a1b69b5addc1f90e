"""Builds the test double of the CUDA runtime and an extension against it, once a session, and runs code on them.

GPUMICRO_EMULATOR_BUILD names a folder to build in and to keep; else it is build/emulator of the checkout.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from emulator.cases import Case, as_json, cases
from emulator.ptx_machine import Machine

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = Path(os.environ.get("GPUMICRO_EMULATOR_BUILD") or ROOT / "build" / "emulator")
TIMEOUT_S = 1800.0  # on a crowded machine
DOUBLES = ("PTXEMU_", "NCCLEMU_", "NCCL_")  # variables that the doubles read


def cuda_home() -> Path | None:
    """The toolkit with the headers and nvcc."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = shutil.which("nvcc")
    beside = [str(Path(found).resolve().parent.parent)] if found else []
    for home in map(Path, [*named, *beside, "/usr/local/cuda"]):
        if (home / "include" / "cuda_runtime_api.h").is_file() and (home / "bin" / "nvcc").is_file():
            return home
    return None


def compile_with_cmake(source: Path, build: Path, target: str, *options: str) -> None:
    """Configure and build one target, one test process at a time. Skips where there is no CMake, fails with the
    compiler's words."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake on PATH")
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not (build / "Makefile").exists() else []
    build.mkdir(parents=True, exist_ok=True)
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        for command in (
            [cmake, "-S", str(source), "-B", str(build), *generator, *options],
            [cmake, "--build", str(build), "--target", target, "--parallel", str(len(os.sched_getaffinity(0)))],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.fail(f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}", pytrace=False)


@pytest.fixture(scope="session")
def toolkit() -> Path:
    """The CUDA toolkit, or a skip."""
    home = cuda_home()
    if home is None:
        pytest.skip("no CUDA toolkit: its headers and nvcc are needed to build the test double")
    return home


@pytest.fixture(scope="session")
def double(toolkit: Path) -> Path:
    """The test double, libcudart.so.13."""
    compile_with_cmake(HERE, BUILD / "cudart", "cudart", f"-DCUDA_HOME={toolkit}", "-DPTXEMU_WERROR=ON")
    return BUILD / "cudart" / "libcudart.so.13"


@pytest.fixture(scope="session")
def loaded(double: Path) -> Machine:
    """The double in this process, for PTX and calls through ctypes."""
    return Machine(double)


@pytest.fixture
def machine(loaded: Machine) -> Iterator[Machine]:
    """The same, as new for each test."""
    loaded.reset()
    yield loaded
    loaded.reset()


@dataclass(frozen=True)
class Completed:
    """What a run left."""

    returncode: int
    stdout: str
    stderr: str
    counts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Emulated:
    """Python and the command line with the extension built against the double."""

    double: Path
    module: Path
    env: Mapping[str, str] = field(default_factory=dict)  # of every run

    def python(self, *arguments: str, env: Mapping[str, str] | None = None, text: str = "") -> Completed:
        """`python ARGUMENTS` in a process of its own: -c CODE, -m MODULE or a script, each with arguments.

        `text` is its standard input.
        """
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "counts.json"
            command = [sys.executable, str(HERE / "run.py"), str(self.double), str(self.module), str(counts)]
            clean = {key: value for key, value in os.environ.items() if not key.startswith(DOUBLES)}
            search = os.pathsep.join([str(self.double.parent), *filter(None, [clean.get("LD_LIBRARY_PATH")])])
            done = subprocess.run(
                [*command, *arguments],
                env=clean | {"LD_LIBRARY_PATH": search, "PTXEMU_LOG": "stderr"}  # gpumicro is there before its plugin:
                | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | self.env | dict(env or {}),
                capture_output=True, text=True, check=False, input=text, timeout=TIMEOUT_S,
            )  # fmt: skip
            found = json.loads(counts.read_text()) if counts.exists() else {}
        return Completed(done.returncode, done.stdout, done.stderr, found)

    def cli(self, *arguments: str, env: Mapping[str, str] | None = None) -> Completed:
        """`gpumicro ARGUMENTS`."""
        return self.python("-m", "gpumicro", *arguments, env=env)

    def json(self, *arguments: str, env: Mapping[str, str] | None = None) -> Any:
        """What a run that must succeed printed, as JSON."""
        done = self.python(*arguments, env=env)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def emulated(toolkit: Path, double: Path) -> Emulated:
    """The extension `_cuda`, built with PTX alone and the runtime as a shared library, on the double."""
    pybind11 = pytest.importorskip("pybind11", reason="pybind11 is needed to build the extension")
    build = BUILD / "extension"
    compile_with_cmake(
        ROOT, build, "_cuda", "-DGPUMICRO_CUDA=ON", "-DGPUMICRO_CUDART=shared", "-DGPUMICRO_CUDA_ARCHS=90-virtual",
        f"-DCMAKE_CUDA_COMPILER={toolkit / 'bin' / 'nvcc'}", f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
    )  # fmt: skip
    modules = list(build.rglob("_cuda.*.so"))
    assert len(modules) == 1, modules
    return Emulated(double, modules[0])


@pytest.fixture(scope="session")
def emulated_nccl(toolkit: Path, emulated: Emulated) -> Emulated:
    """The same with four devices and the test double of NCCL, libnccl.so.2."""
    compile_with_cmake(HERE, BUILD / "cudart", "nccl", f"-DCUDA_HOME={toolkit}", "-DPTXEMU_WERROR=ON")
    env = {"PTXEMU_DEVICES": "4", "GPUMICRO_NCCL": str(BUILD / "cudart" / "libnccl.so.2")}
    return Emulated(emulated.double, emulated.module, env)


@pytest.fixture(scope="session")
def case_results(emulated: Emulated) -> Mapping[str, Mapping[str, Any]]:
    """What became of each case of the catalogue; as few processes as there are lost contexts and one."""
    results: dict[str, Mapping[str, Any]] = {}
    left = list(cases())
    while left:
        done = emulated.python(str(HERE / "cases.py"), env={"PTXEMU_DEVICES": "2"}, text=as_json(left))
        results |= dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
        if done.returncode:
            died = next((case for case in left if str(case) not in results), left[-1])
            results[str(died)] = {"error": f"the process ended with {done.returncode}: {done.stderr[-2000:]}"}
        left = rest(left, results)
    return results


def rest(wanted: list[Case], results: Mapping[str, Any]) -> list[Case]:
    """Those without a result. Fails where a run brought none at all, rather than try for ever."""
    left = [case for case in wanted if str(case) not in results]
    assert len(left) < len(wanted), "no case ran"
    return left
