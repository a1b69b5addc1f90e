"""The house's order: a room may import only what stands above it in this list, at whatever depth of the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpumicro

ROOMS = (
    "errors", "units", "interrupts", "children", "reach", "device", "knees", "spec", "_core", "_cuda", "cuda_native",
    "libraries", "limits", "topology", "nvrtc", "notebook", "counts", "own_file", "environment", "peaks", "kernels",
    "numba_kernels",
    "sass", "stats", "slopes", "timers", "device_clock", "cupy_cuda", "cupy_clock", "device_timers", "works",
    "device_probe", "measurement", "agreement", "baselines", "sampling", "measure", "ratios", "replicates",
    "comparison", "worker", "command_pairs", "schema", "result", "result_sources", "result_pairs", "result_diff",
    "nvml", "gpu_pairs", "telemetry", "watch_gpu", "watch", "recording", "faults", "backends", "recorder", "model",
    "imports", "collectives", "verdicts", "kernel_arguments", "source_kernel", "placing", "placed", "calls",
    "measuring", "explain", "sustain", "plan", "lock", "taking", "survey", "report", "chart", "pytest_plugin",
    "cluster", "cli",
    "__main__",
)  # fmt: skip
PACKAGE = Path(gpumicro.__file__).parent
# A type-only import makes no dependency at run time.
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imported_rooms(path: Path, tree: ast.AST) -> set[str]:
    """Rooms of this package that a file imports, relative or absolute."""
    package = ["gpumicro", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            if module[:1] == ["gpumicro"]:
                found |= {module[1]} if len(module) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("gpumicro.")}
    return {name for name in found if name != "__version__"}


def wrong_imports(path: Path, text: str) -> set[str]:
    room = room_of(path)
    above = set(ROOMS[: ROOMS.index(room) + 1])
    return imported_rooms(path, ast.parse(text)) - above


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_upwards_only(path: Path) -> None:
    assert wrong_imports(path, path.read_text(encoding="utf-8")) == set()


def test_a_planted_violation_is_found() -> None:
    path = PACKAGE / "kernels" / "planted.py"
    assert wrong_imports(path, "from ..report.plot import draw_roofline") == {"report"}
    assert wrong_imports(path, "from .. import survey") == {"survey"}
    assert wrong_imports(path, "from ..spec import Problem") == set()


def test_every_public_name_is_there_and_shadowed_by_no_module() -> None:
    for name in gpumicro.__all__:
        assert hasattr(gpumicro, name)
    modules = {p.stem for p in PACKAGE.glob("*.py")} | {p.name for p in PACKAGE.iterdir() if p.is_dir()}
    assert modules.isdisjoint(set(gpumicro.__all__) - {"__version__", *gpumicro._ROOMS})
