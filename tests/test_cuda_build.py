"""Finding nvcc, or saying why not: cmake/GpumicroCuda.cmake in CMake's script mode, and one real configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpumicro.peaks.toml import tomllib

ROOT = Path(__file__).parent.parent
CMAKE = shutil.which("cmake")
SCRIPT = """
set(Python_EXECUTABLE "@python@")
set(GPUMICRO_CUDA_ARCHS 90-real)
include("@module@")
message(STATUS "have: ${GPUMICRO_HAVE_CUDA}; why: ${GPUMICRO_CUDA_WHY}")
@more@
"""

pytestmark = pytest.mark.skipif(CMAKE is None, reason="no cmake on PATH")


def environment(tmp_path: Path, programs: Path | None = None, **more: str) -> dict[str, str]:
    """This process's, with CUDA nowhere and no program but those in a folder on PATH."""
    kept = {k: v for k, v in os.environ.items() if k not in ("CUDACXX", "CUDA_PATH", "CUDA_HOME", "CUDAHOSTCXX")}
    path = str(programs or tmp_path / "nothing")
    return {**kept, "PATH": path, "CUDA_HOME": str(tmp_path / "toolkit"), **more}


def all_but_nvcc(folder: Path) -> Path:
    """The folder, with links to every program on PATH but nvcc."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            if not program.name.startswith("nvcc") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


def script(tmp_path: Path, *defines: str, more: str = "", **variables: str) -> tuple[int, str]:
    """Exit code and words of the module run by itself, without a project."""
    module = ROOT / "cmake/GpumicroCuda.cmake"
    text = SCRIPT.replace("@python@", sys.executable).replace("@module@", str(module)).replace("@more@", more)
    (tmp_path / "script.cmake").write_text(text)
    command = [str(CMAKE), *(f"-D{define}" for define in defines), "-P", str(tmp_path / "script.cmake")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path, **variables), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())  # CMake breaks long lines


def make_nvcc(folder: Path, version: str = "13.0", compiles: bool = True) -> Path:
    """A stand-in that logs how it was called and compiles nothing."""
    folder.mkdir(parents=True)
    nvcc = folder / "nvcc"
    outcome = "exit 0" if compiles else 'echo "nvcc fatal : no host compiler is good enough" >&2; exit 1'
    nvcc.write_text(
        f'#!/bin/sh\necho "$@" >> "{folder}/log"\ncase "$1" in\n'
        f'--version) echo "Cuda compilation tools, release {version}, V{version}.88";;\n'
        f"--list-gpu-code) echo sm_75; echo sm_90;;\n*) {outcome};;\nesac\n"
    )
    nvcc.chmod(0o755)
    return nvcc


def test_auto_without_nvcc_goes_on_and_says_why(tmp_path: Path) -> None:
    code, words = script(tmp_path, "GPUMICRO_CUDA=AUTO")
    if "site-packages/nvidia" in words:
        pytest.skip("the compiler is among this Python's packages")
    assert code == 0
    assert (
        "have: OFF; why: no nvcc was found when gpumicro was built (on PATH, in CUDA_HOME or /usr/local/cuda" in words
    )


def test_on_without_nvcc_fails_with_the_reason(tmp_path: Path) -> None:
    code, words = script(tmp_path, "GPUMICRO_CUDA=ON")
    assert code != 0
    assert "GPUMICRO_CUDA=ON, but no nvcc was found" in words


def test_off_does_not_look(tmp_path: Path) -> None:
    make_nvcc(tmp_path / "toolkit/bin")
    code, words = script(tmp_path, "GPUMICRO_CUDA=OFF")
    assert code == 0
    assert "have: OFF; why: it was switched off" in words
    assert not (tmp_path / "toolkit/bin/log").exists()


def test_another_word_is_refused(tmp_path: Path) -> None:
    code, words = script(tmp_path, "GPUMICRO_CUDA=MAYBE")
    assert code != 0
    assert "AUTO, ON or OFF, not 'MAYBE'" in words


@pytest.mark.parametrize(
    ("version", "compiles", "reason"),
    [
        ("13.0", False, r"nvcc does not work \(1: nvcc fatal : no host compiler is good enough\)"),
        ("11.8", True, r"nvcc is 11\.8 and 12\.0 or newer is needed"),
        ("none", True, r"nvcc does not work \(it says no version"),
    ],
)
def test_auto_goes_on_with_a_useless_nvcc(tmp_path: Path, version: str, compiles: bool, reason: str) -> None:
    make_nvcc(tmp_path / "toolkit/bin", version, compiles)
    code, words = script(tmp_path, "GPUMICRO_CUDA=AUTO")
    assert code == 0
    assert re.search(reason, words)
    code, words = script(tmp_path, "GPUMICRO_CUDA=ON")
    assert code != 0


def test_the_wheel_s_nvcc_is_told_where_its_libraries_are(tmp_path: Path) -> None:
    root = tmp_path / "site-packages/nvidia/cu13"
    nvcc = make_nvcc(root / "bin", compiles=False)
    (root / "lib").mkdir()
    (root / "lib/libcudart_static.a").touch()
    make_nvcc(tmp_path / "toolkit/bin")  # the machine's own, which is not to be taken
    prefix = f"CMAKE_PREFIX_PATH={tmp_path / 'site-packages'}"
    _, words = script(tmp_path, "GPUMICRO_CUDA=AUTO", "GPUMICRO_CUDA_FROM_WHEELS=ON", prefix)
    assert str(nvcc) in words
    assert f"-L{root / 'lib'}" in (root / "bin/log").read_text()


def test_architectures_that_nvcc_has_not_are_left_out(tmp_path: Path) -> None:
    nvcc = make_nvcc(tmp_path / "toolkit/bin")
    wanted = "75-real;90a-real;9-real;100a-real;120-virtual"
    more = f'gpumicro_known_archs("{nvcc}" "{wanted}" known)\nmessage("known: ${{known}}")'
    code, words = script(tmp_path, "GPUMICRO_CUDA=OFF", more=more)
    assert code == 0
    assert "known: 75-real;90a-real" in words
    assert "cannot make code for 100a-real" in words


@pytest.mark.skipif(find_spec("pybind11") is None or shutil.which("c++") is None, reason="no pybind11 or no compiler")
def test_the_project_configures_without_nvcc(tmp_path: Path) -> None:
    import pybind11

    command = [
        str(CMAKE), "-S", str(ROOT), "-B", str(tmp_path / "build"), f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        f"-DPython_EXECUTABLE={sys.executable}", "-DGPUMICRO_CUDA=AUTO",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        env=environment(tmp_path, all_but_nvcc(tmp_path / "programs")),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if "nvcc was found" not in done.stdout:
        pytest.skip("the compiler is among this Python's packages")
    header = (tmp_path / "build/generated/cuda_why.hpp").read_text()
    assert "no nvcc was found" in header


def test_the_wheels_setting_pins_one_release_and_switches_cuda_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert not [r for r in project["build-system"]["requires"] if "nvidia" in r or "cuda" in r]
    settings = project["tool"]["scikit-build"]
    [override] = [o for o in settings["overrides"] if "GPUMICRO_CUDA_WHEELS" in o["if"]["env"]]
    assert re.search(override["if"]["env"]["GPUMICRO_CUDA_WHEELS"], "13")
    assert not re.search(override["if"]["env"]["GPUMICRO_CUDA_WHEELS"], "newest13")
    # nvidia-cuda-nvcc alone does not pin nvvm, crt and runtime; the metapackage does.
    assert override["build"]["requires"] == ["cuda-toolkit[nvcc,cccl]==13.0.*"]
    assert override["inherit"]["cmake"]["define"] == "append"  # or GPUMICRO_CUDA_ARCHS would be lost
    assert override["cmake"]["define"] == {"GPUMICRO_CUDA": "ON", "GPUMICRO_CUDA_FROM_WHEELS": "ON"}
    defined = settings["cmake"]["define"]
    assert defined["GPUMICRO_CUDA"] == {"env": "GPUMICRO_CUDA", "default": "AUTO"}
    declared = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    for name in {**defined, **override["cmake"]["define"]}:
        assert re.search(rf"\b{name}\b", declared)
