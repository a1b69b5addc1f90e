"""The examples run as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ARGUMENTS = {"read_a_result": [str(ROOT / "tests" / "data" / "roofline-cpu.json")]}
SAYS = {
    "time_a_function": "95% interval",
    "compare_two": "verdict:",
    "own_function_on_the_roofline": "of attainable, held by",
    "read_a_result": "meets",
    "time_a_kernel": "GB/s",
}

RUN_ELSEWHERE = {"kernels_to_run", "test_with_pytest"}  # by test_run.py and test_pytest_plugin.py


def test_every_example_is_listed() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS) | RUN_ELSEWHERE


@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name: str, tmp_path: Path) -> None:
    arguments = ARGUMENTS.get(name, ["out.svg"] if name == "own_function_on_the_roofline" else [])
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    if name == "own_function_on_the_roofline":
        assert (tmp_path / "out.svg").read_text(encoding="utf-8").startswith("<?xml")
