"""The examples run as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
RESULT = str(ROOT / "tests" / "data" / "roofline-cpu.json")
FRAMEWORKS = ("torch", "jax", "numba", "numba_cuda", "cupy", "triton", "cuda_core", "cuda_source")
ARGUMENTS = {"read_a_result": [RESULT], "own_function_on_the_roofline": ["out.svg"]}
ARGUMENTS |= {
    f"with_{name}": [RESULT] for name in ("torch", "jax", "numba")
}  # the others measure a GPU, or are skipped
SAYS = {
    "time_a_function": "95% interval",
    "compare_two": "verdict:",
    "compare_in_processes": "each process:",
    "own_function_on_the_roofline": "of attainable, held by",
    "read_a_result": "meets",
    "time_a_kernel": "GB/s",
} | {f"with_{name}": "of attainable, held by" for name in FRAMEWORKS}

RUN_ELSEWHERE = {"kernels_to_run", "test_with_pytest"}  # by test_run.py and test_pytest_plugin.py


def test_every_example_is_listed() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS) | RUN_ELSEWHERE


@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *ARGUMENTS.get(name, [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    if name.startswith("with_") and done.stdout.startswith("skipped: "):
        pytest.skip(done.stdout.removeprefix("skipped: ").strip())
    assert SAYS[name] in done.stdout
    if name == "own_function_on_the_roofline":
        assert (tmp_path / "out.svg").read_text(encoding="utf-8").startswith("<?xml")
