"""CUDA C++ as nvcc compiles it, with the compiler's own registration code, run on the double."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from emulator.conftest import HERE

CHECKS = ["symbols", "functions", "choices", "grid barrier", "fragments", "block sum", "mathematics"]


@pytest.fixture(scope="module")
def program(toolkit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("programs") / "language"
    nvcc = str(toolkit / "bin" / "nvcc")
    flags = ["-std=c++17", "-O2", "-cudart", "shared", "-gencode", "arch=compute_90,code=compute_90"]
    done = subprocess.run(
        [nvcc, *flags, str(HERE / "programs" / "language.cu"), "-o", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def run(program: Path, double: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    search = {"LD_LIBRARY_PATH": str(double.parent), "PTXEMU_LOG": "stderr"}
    return subprocess.run(
        [str(program)],
        env=dict(os.environ) | search | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def printed(program: Path, double: Path) -> Mapping[str, str]:
    done = run(program, double)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", CHECKS)
def test_program(printed: Mapping[str, str], name: str) -> None:
    assert printed[name] == "ok"


def test_every_check_is_listed(printed: Mapping[str, str]) -> None:
    assert sorted(printed) == sorted(CHECKS)


def test_ptx_that_is_too_new_for_the_device_is_no_image(program: Path, double: Path) -> None:
    done = run(program, double, PTXEMU_CC="8.0")
    assert done.returncode == 1
    assert "no PTX that compute capability 8.0 can use" in done.stderr
