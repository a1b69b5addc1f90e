"""The extension's stubs name what the extension has, no more and no less."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import TypedDict

import pytest

from gpumicro import cuda_native
from gpumicro._core import cpu, timing

CUDA_PARTS = sorted(p.name[: -len(".pyi")] for p in (files("gpumicro") / "_cuda").iterdir() if p.name.endswith(".pyi"))


def member_name(node: ast.stmt) -> str:
    """Of a method or attribute in a class, "" for what is neither."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""


def stubbed(name: str, package: str = "_core") -> dict[str, set[str]]:
    """Top-level names of a stub, each with its public members; typed dictionaries exist in the stub only."""
    tree = ast.parse((files("gpumicro") / package / f"{name}.pyi").read_text(encoding="utf-8"))
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = set()
        elif isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] != [TypedDict.__name__]:
            found[node.name] = {name for name in map(member_name, node.body) if name and name[0] != "_"}
    return found


def assert_same_names(stub: dict[str, set[str]], module: ModuleType) -> None:
    assert set(stub) == {name for name in dir(module) if not name.startswith("_")}
    for name, members in stub.items():
        real = getattr(module, name)
        if isinstance(real, type):
            assert members == {member for member in dir(real) if not member.startswith("_")}


@pytest.mark.parametrize("module", [cpu, timing], ids=["cpu", "timing"])
def test_stub_and_extension_have_the_same_names(module: ModuleType) -> None:
    assert_same_names(stubbed(module.__name__.rpartition(".")[2]), module)


@pytest.mark.skipif(bool(cuda_native.missing()), reason=f"no CUDA module: {cuda_native.missing()}")
@pytest.mark.parametrize("part", CUDA_PARTS)
def test_stub_and_cuda_module_have_the_same_names(part: str) -> None:
    module = import_module("gpumicro._cuda")
    if part == "__init__":
        stub = stubbed(part, "_cuda")
        parts = {name for name in CUDA_PARTS if name != part}
        assert_same_names(stub | {name: set() for name in parts}, module)
    else:
        assert_same_names(stubbed(part, "_cuda"), getattr(module, part))


def test_the_core_says_why_there_is_no_cuda_module() -> None:
    why = import_module("gpumicro._core").cuda_why
    assert isinstance(why, str)
    assert bool(why) == bool(cuda_native.missing())
