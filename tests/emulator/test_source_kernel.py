"""Kernels that NVRTC compiles, on the test double: the cases in a process each, and what ends a process's CUDA."""

from __future__ import annotations

import re

import pytest
from emulator.conftest import HERE, Emulated

from gpumicro import nvrtc

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=nvrtc.missing() or "NVRTC is here")

PROGRAM = """
import numpy as np, gpumicro as gm
code = "__global__ void beyond(int* p) { p[1 << 28] = 1; }"
try:
    with gm.Kernel.from_source(code, "beyond", [np.zeros(4, np.int32)], 2, 1) as kernel:
        kernel.run()
except gm.GpumicroError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(("file", "least"), [("source_cases.py", 41), ("nvrtc_cases.py", 8)])
def test_cases(emulated: Emulated, file: str, least: int) -> None:
    done = emulated.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file))
    assert done.returncode == 0, done.stdout[-8000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= least, done.stdout[-2000:]


def test_an_illegal_access_names_the_kernel_and_its_launch(emulated: Emulated) -> None:
    done = emulated.python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "cudaErrorIllegalAddress (700)" in done.stdout
    assert "in beyond (grid 2x1x1, block 1x1x1" in done.stdout
    assert "start a new process" in done.stdout
    assert "out of bounds" in done.stderr


def test_a_machine_without_a_gpu_says_so(emulated: Emulated) -> None:
    done = emulated.python("-c", PROGRAM, env={"CUDA_VISIBLE_DEVICES": "", "PTXEMU_DEVICES": "0"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("BackendUnavailable a kernel from source needs a GPU, and")
