"""The formulas of all_reduce against SimGrid's simulation of the algorithms; bench/simgrid.py has it at full size."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

RECORDED = Path(__file__).parent / "data" / "scaling" / "simgrid.json"
BENCH = Path(__file__).parents[1] / "bench" / "simgrid.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simgrid_bench", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("hosts", [64, 100, 128, 256, 512, 1024])
def test_the_formulas_agree_with_what_smpi_gave_beyond_one_machine(bench: ModuleType, hosts: int) -> None:
    table = json.loads(RECORDED.read_text("utf-8"))
    rows = [row for row in table["rows"] if row[1] == hosts]
    assert {name for name, *_ in rows} == set(bench.ALGORITHMS)
    for name, _, size, seconds in rows:
        allowed = 0.005 if hosts & (hosts - 1) == 0 else 0.07  # SMPI's ring pads what does not divide
        assert bench.formula(name, hosts, size) == pytest.approx(seconds, rel=allowed), (name, size)


def test_the_hierarchy_agrees_with_what_smpi_gave_for_nodes_of_eight(bench: ModuleType) -> None:
    rows = json.loads(RECORDED.read_text("utf-8"))["nodes"]["rows"]
    assert {(ports, hosts) for ports, hosts, *_ in rows} == {(p, h) for p in (1, 8) for h in (64, 128, 1024)}
    for ports, hosts, size, seconds in rows:
        assert bench.hierarchy(hosts, size, ports) == pytest.approx(seconds, rel=0.02), (ports, hosts, size)


@pytest.mark.parametrize("hosts", [6, 16])
def test_the_formulas_agree_with_smpi_itself(bench: ModuleType, tmp_path: Path, hosts: int) -> None:
    if not (shutil.which("smpicc") and shutil.which("smpirun")):
        pytest.skip("SimGrid is not installed (Debian: simgrid, libsimgrid-dev)")
    program = tmp_path / "all_reduce"
    Path(f"{program}.c").write_text(bench.PROGRAM)
    subprocess.run(["smpicc", f"{program}.c", "-o", str(program)], check=True, cwd=tmp_path, capture_output=True)
    for name, options in bench.ALGORITHMS.items():
        for size, seconds in bench.simulate(program, hosts, options, [6 << 12, 6 << 15]).items():
            assert bench.formula(name, hosts, size) == pytest.approx(seconds, rel=0.05), (name, size)


def test_the_platform_has_half_the_latency_on_each_of_a_routes_two_links(bench: ModuleType) -> None:
    text = bench.platform(64)
    assert 'radical="0-63"' in text
    assert f'lat="{bench.ALPHA_S / 2}s"' in text
