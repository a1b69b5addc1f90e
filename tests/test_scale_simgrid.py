"""The formulas of all_reduce against SimGrid's simulation of the algorithms; bench/simgrid.py has it at full size."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[1] / "bench" / "simgrid.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simgrid_bench", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_formulas_agree_with_smpi_at_16_hosts(bench: ModuleType, tmp_path: Path) -> None:
    if not (shutil.which("smpicc") and shutil.which("smpirun")):
        pytest.skip("SimGrid is not installed (Debian: simgrid, libsimgrid-dev)")
    program = tmp_path / "all_reduce"
    Path(f"{program}.c").write_text(bench.PROGRAM)
    subprocess.run(["smpicc", f"{program}.c", "-o", str(program)], check=True, cwd=tmp_path, capture_output=True)
    for name, options in bench.ALGORITHMS.items():
        for size, seconds in bench.simulate(program, 16, options, [4096, 1 << 18]).items():
            assert bench.formula(name, 16, size) == pytest.approx(seconds, rel=0.02), (name, size)


def test_the_platform_has_half_the_latency_on_each_of_a_routes_two_links(bench: ModuleType) -> None:
    text = bench.platform(64)
    assert 'radical="0-63"' in text
    assert f'lat="{bench.ALPHA_S / 2}s"' in text
