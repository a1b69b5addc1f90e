"""The extension's stubs name what the extension has, no more and no less."""

from __future__ import annotations

import ast
from importlib.resources import files
from types import ModuleType
from typing import TypedDict

import pytest

from gpumicro._core import cpu, timing


def stubbed(name: str) -> dict[str, set[str]]:
    """Top-level names of a stub, each with its public members; typed dictionaries exist in the stub only."""
    tree = ast.parse((files("gpumicro") / "_core" / f"{name}.pyi").read_text(encoding="utf-8"))
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = set()
        elif isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] != [TypedDict.__name__]:
            found[node.name] = {n.name for n in node.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"}
    return found


@pytest.mark.parametrize("module", [cpu, timing], ids=["cpu", "timing"])
def test_stub_and_extension_have_the_same_names(module: ModuleType) -> None:
    stub = stubbed(module.__name__.rpartition(".")[2])
    assert set(stub) == {name for name in dir(module) if not name.startswith("_")}
    for name, members in stub.items():
        real = getattr(module, name)
        if isinstance(real, type):
            assert members == {member for member in dir(real) if not member.startswith("_")}
