"""What the compiler made of the kernels: the instructions in the module's own file, as objdump shows them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import gpumicro._core as core
from gpumicro._core import cpu as native

pytestmark = [
    pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed (Debian: binutils)"),
    pytest.mark.skipif("avx2" not in native.usable_isas(), reason="the loops looked at are those for AVX2"),
]

LINE = re.compile(r"^\s*([0-9a-f]+):\s+([a-z]\S*)\s*(.*)$")


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def file_address(address: int) -> int:
    """The address in the module's file of code at `address` in this process (the file is linked to start at 0)."""
    symbol = _Symbol()
    assert ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(symbol))
    return address - int(symbol.base or 0)


@lru_cache
def instructions(address: int) -> tuple[tuple[int, str, str], ...]:
    """(address, mnemonic, operands) of the function there: up to the return that no earlier jump passes over."""
    start = file_address(address)
    command = ["objdump", "-d", "--no-show-raw-insn", f"--start-address={start}", f"--stop-address={start + 20_000}"]
    text = subprocess.run([*command, str(core.__file__)], capture_output=True, text=True, check=True).stdout
    found, furthest = [], start
    for line in text.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        at, mnemonic, operands = int(match[1], 16), match[2], match[3]
        found.append((at, mnemonic, operands))
        if mnemonic.startswith("j") and (target := re.match(r"([0-9a-f]+)", operands)):
            furthest = max(furthest, int(target[1], 16))
        if mnemonic.startswith("ret") and at >= furthest:
            break
    return tuple(found)


def loops(kernel: native.Kernel) -> list[list[tuple[str, str]]]:
    """Innermost loops: from a backward jump's target to the jump, with no other backward jump inside."""
    code = instructions(kernel.code_address)
    spans = []
    for at, mnemonic, operands in code:
        target = re.match(r"([0-9a-f]+)", operands)
        if mnemonic.startswith("j") and target and code[0][0] <= int(target[1], 16) <= at:
            spans.append((int(target[1], 16), at))
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [[(m, o) for at, m, o in code if low <= at <= high] for low, high in inner]


def vector_loop(kernel: native.Kernel) -> list[tuple[str, str]]:
    """The innermost loop with the most 256-bit instructions."""
    return max(loops(kernel), key=lambda body: sum("ymm" in operands for _, operands in body))


def stream(name: str, *, nontemporal: bool = False, dtype: str = "float64") -> native.Kernel:
    return native.stream(native.Arrays(dtype, [64] * 3, [-1]), name, nontemporal, "avx2")


def reads_memory(operands: str) -> bool:
    """Whether memory is read into a vector register; AT&T order, so the register comes last."""
    return re.search(r"\(.*%ymm\d+$", operands) is not None


@pytest.mark.parametrize(("dtype", "suffix"), [("float64", "pd"), ("float32", "ps")])
def test_the_triad_s_loop_is_full_vectors_and_fma(dtype: str, suffix: str) -> None:
    body = vector_loop(stream("triad", dtype=dtype))
    fmas = [operands for mnemonic, operands in body if re.fullmatch(rf"vfmadd\d+{suffix}", mnemonic)]
    stores = [o for m, o in body if m.startswith("vmov") and o.endswith(")")]
    loads = [o for _, o in body if reads_memory(o)]
    assert len(fmas) == len(stores) == 4
    assert len(loads) == 8
    assert all("ymm" in operands for operands in (*fmas, *stores, *loads))
    assert len(body) <= 4 + 4 + 8 + 4  # the loop's own cost stays small


@pytest.mark.parametrize(("dtype", "suffix"), [("float64", "pd"), ("float32", "ps")])
@pytest.mark.parametrize("name", ["write", "copy", "scale", "add", "triad"])
def test_nontemporal_kernels_store_past_the_cache(name: str, dtype: str, suffix: str) -> None:
    kernel = stream(name, nontemporal=True, dtype=dtype)
    counts = Counter(mnemonic for mnemonic, _ in vector_loop(kernel))
    assert counts[f"vmovnt{suffix}"] == 4
    assert any(mnemonic == "sfence" for _, mnemonic, _ in instructions(kernel.code_address))


@pytest.mark.parametrize("name", ["write", "copy", "scale", "add", "triad"])
def test_temporal_kernels_do_not_and_call_no_library(name: str) -> None:
    code = instructions(stream(name).code_address)
    assert not any(mnemonic.startswith(("vmovnt", "call")) for _, mnemonic, _ in code)


@pytest.mark.parametrize("name", ["read", "dot"])
def test_folds_keep_eight_sums(name: str) -> None:
    body = vector_loop(stream(name))
    sums = {o.rpartition(",")[2] for m, o in body if m.startswith(("vadd", "vfmadd"))}
    assert len(sums) == 8
    assert sum(reads_memory(o) for _, o in body) == (16 if name == "dot" else 8)


def chains(dtype: str, *, with_adds: bool) -> native.Kernel:
    return native.chains(dtype, with_adds, [-1], "uniform", 1, "avx2")


def arithmetic(body: list[tuple[str, str]]) -> Counter[str]:
    return Counter(re.sub(r"\d", "", mnemonic)[:7] for mnemonic, operands in body if "ymm" in operands)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_peak_s_loop_is_fmas_in_registers(dtype: str) -> None:
    body = vector_loop(chains(dtype, with_adds=False))
    suffix = "pd" if dtype == "float64" else "ps"
    assert arithmetic(body) == {f"vfmadd{suffix}"[:7]: 12}
    assert len({operands.rpartition(",")[2] for mnemonic, operands in body if mnemonic.startswith("vfm")}) == 12
    assert not any("(" in operands for _, operands in body)


def test_the_mixed_peak_s_loop_is_as_many_adds_as_fmas() -> None:
    body = vector_loop(chains("float64", with_adds=True))
    counts: Any = Counter(mnemonic[:5] for mnemonic, operands in body if "ymm" in operands)
    assert counts == {"vfmad": 24, "vsubp": 24}
    assert not any("(" in operands for _, operands in body)


def test_the_gemm_s_loop_is_twelve_fmas_for_eight_loads() -> None:
    arrays = native.Arrays("float64", [64 * 64] * 3, [-1])
    kernel = native.gemm(arrays, 64, 64, 64, 1 << 15, 1 << 19, 1 << 22, "avx2")
    body = vector_loop(kernel)
    fmas = sum(mnemonic.startswith("vfmadd") for mnemonic, _ in body)
    assert fmas % 12 == 0
    assert sum(reads_memory(o) for _, o in body) == fmas // 12 * 8
    assert not any(m.startswith("vmov") and o.endswith(")") for m, o in body)  # no sum is spilled


def test_the_baseline_uses_no_wider_registers_than_it_may() -> None:
    if "sse2" not in native.usable_isas():
        pytest.skip("SSE2 is x86's baseline")
    kernel = native.stream(native.Arrays("float64", [64] * 3, [-1]), "triad", False, "sse2")
    code = instructions(kernel.code_address)
    assert any("xmm" in operands for _, _, operands in code)
    assert not any("ymm" in operands or mnemonic.startswith("v") for _, mnemonic, operands in code)


@pytest.mark.parametrize("family", ["stream", "peak", "gemm", "mixed"])
def test_no_code_of_one_isa_can_replace_another_s(family: str, tmp_path: Path) -> None:
    """A weak symbol compiled with AVX2 could be the copy that the linker keeps for all: there must be none."""
    source = Path(__file__).parents[1] / "csrc/cpu/isa" / f"{family}.cpp"
    compiler = shutil.which("g++")
    if not source.exists() or compiler is None or shutil.which("nm") is None:
        pytest.skip("needs the source tree, g++ and nm")
    built = tmp_path / "isa.o"
    flags = [
        "-std=c++17",
        "-O1",
        "-mavx2",
        "-mfma",
        "-DGM_ISA=isa_avx2",
        "-DGM_VECTOR_BYTES=32",
        f"-I{source.parents[2]}",
    ]
    subprocess.run([compiler, *flags, "-c", str(source), "-o", str(built)], check=True, capture_output=True)
    listed = subprocess.run(["nm", "-C", "--defined-only", str(built)], capture_output=True, text=True, check=True)
    symbols = [line.split(maxsplit=2)[1:] for line in listed.stdout.splitlines()]
    assert not [name for kind, name in symbols if kind in "VWu"]
    outside = [name for kind, name in symbols if kind.isupper()]
    assert outside
    assert all(name.startswith("gm::cpu::isa_avx2::") for name in outside)
