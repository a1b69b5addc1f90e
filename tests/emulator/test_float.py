"""Floating point of the double: float, double, half, bfloat16, conversions between all; against NumPy and fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from emulator.ptx_machine import Machine
from emulator.ptx_templates import elementwise, run_elementwise, words

from gpumicro.kernels import formats

Array = npt.NDArray[Any]
COUNT = 500


def floats(bits: int, seed: int) -> Array:
    """Random numbers of moderate size behind the corners: zeros, infinities, NaN, subnormals, the largest."""
    kind = np.dtype(f"f{bits // 8}").type
    info = np.finfo(kind)
    corners = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal]
    grid = [corners[(i // 10 ** (seed % 2)) % 10] for i in range(100)]
    random = np.random.default_rng(seed).standard_normal(COUNT) * 10.0 ** (seed - 1)
    return np.concatenate([np.array(grid, kind), random.astype(kind)])


def check(machine: Machine, body: str, bits: int, operands: list[Array], wanted: Array) -> None:
    """Bit by bit, but that any NaN is as good as another."""
    stored = [one.view(f"u{bits // 8}") for one in operands]
    got = run_elementwise(machine, elementwise(body, bits, len(operands)), bits, stored).view(wanted.dtype)
    nans = np.isnan(wanted)
    assert np.array_equal(np.isnan(got), nans)
    assert got[~nans].tobytes() == wanted[~nans].tobytes()


def smaller(a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):
        low = np.fmin(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a) | np.signbit(b), -0.0, 0.0).astype(a.dtype), low)


ARITHMETIC: list[tuple[str, int, Callable[..., Any]]] = [
    ("add.{t} d, a, b", 2, lambda a, b: a + b),
    ("sub.rn.{t} d, a, b", 2, lambda a, b: a - b),
    ("mul.{t} d, a, b", 2, lambda a, b: a * b),
    ("div.rn.{t} d, a, b", 2, lambda a, b: a / b),
    ("min.{t} d, a, b", 2, smaller),
    ("max.{t} d, a, b", 2, lambda a, b: -smaller(-a, -b)),
    ("sqrt.rn.{t} d, a", 1, np.sqrt),
    ("rcp.rn.{t} d, a", 1, lambda a: (1 / a).astype(a.dtype)),
    ("abs.{t} d, a", 1, np.abs),
    ("neg.{t} d, a", 1, lambda a: -a),
    ("copysign.{t} d, a, b", 2, lambda a, b: np.copysign(b, a)),
]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("body", "arity", "reference"), ARITHMETIC, ids=[row[0] for row in ARITHMETIC])
def test_arithmetic(machine: Machine, body: str, arity: int, reference: Callable[..., Any], bits: int) -> None:
    operands = [floats(bits, seed) for seed in range(arity)]
    with np.errstate(all="ignore"):
        check(machine, body.format(t=f"f{bits}"), bits, operands, reference(*operands).astype(operands[0].dtype))


def test_fma_rounds_once(machine: Machine) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(COUNT).astype(np.float32) for _ in range(2))
    c = -(a * b)  # what is left is the product's rounding error
    wanted = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)
    assert np.any(wanted != 0)
    check(machine, "fma.rn.f32 d, a, b, c", 32, [a, b, c], wanted)


def test_double_fma_rounds_once(machine: Machine) -> None:
    a = 1 + np.arange(1, 200) * 2.0**-40
    c = -(a * a)
    wanted = np.array([float(Fraction(x) * Fraction(x) + Fraction(z)) for x, z in zip(a, c, strict=True)])
    assert np.any(wanted != 0)
    check(machine, "fma.rn.f64 d, a, b, c", 64, [a, a, c], wanted)


@pytest.mark.parametrize(("mode", "toward"), [("rz", None), ("rm", -np.inf), ("rp", np.inf)])
def test_directed_rounding(machine: Machine, mode: str, toward: float | None) -> None:
    a, b = (np.random.default_rng(s).standard_normal(COUNT).astype(np.float32) for s in (1, 2))
    exact = a.astype(np.float64) + b.astype(np.float64)
    near = exact.astype(np.float32)
    goal = np.where(exact > 0, -np.inf, np.inf) if toward is None else np.full(COUNT, toward)
    wrong = np.where(goal > 0, near < exact, near > exact)
    wanted = np.where(wrong, np.nextafter(near, goal.astype(np.float32)), near)
    check(machine, f"add.{mode}.f32 d, a, b", 32, [a, b], wanted)


def test_flush_to_zero(machine: Machine) -> None:
    a = np.array([1e-40, -1e-40, 1.0, 2e-38], np.float32)
    check(machine, "mul.ftz.f32 d, a, 0f3F000000", 32, [a], np.array([0, -0.0, 0.5, 0.0], np.float32))


APPROXIMATE: list[tuple[str, Callable[..., Any]]] = [
    ("sin", np.sin), ("cos", np.cos), ("ex2", np.exp2), ("lg2", np.log2), ("tanh", np.tanh),
    ("rsqrt", lambda x: 1 / np.sqrt(x)), ("sqrt", np.sqrt), ("rcp", lambda x: 1 / x),
]  # fmt: skip


@pytest.mark.parametrize(("op", "reference"), APPROXIMATE, ids=[row[0] for row in APPROXIMATE])
def test_approximations(machine: Machine, op: str, reference: Callable[..., Any]) -> None:
    a = np.random.default_rng(3).uniform(0.1, 3, COUNT).astype(np.float32)
    check(machine, f"{op}.approx.f32 d, a", 32, [a], reference(a.astype(np.float64)).astype(np.float32))


COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b)), "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "equ": lambda a, b: ~((a < b) | (a > b)), "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b), "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip


@pytest.mark.parametrize("relation", COMPARISONS)
def test_comparisons(machine: Machine, relation: str) -> None:
    a, b = floats(32, 0), floats(32, 1)
    body = f"setp.{relation}.f32 p|q, a, b; selp.b32 x, 1, 0, p; selp.b32 y, 2, 0, q; add.u32 d, x, y"
    wanted = np.where(COMPARISONS[relation](a, b), 1, 2).astype(np.uint32)
    got = run_elementwise(machine, elementwise(body, 32, 2), 32, [a.view(np.uint32), b.view(np.uint32)])
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize(("how", "combine"), [("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)])
def test_comparisons_combined(machine: Machine, how: str, combine: Callable[..., Any]) -> None:
    a, b = words(32, 0), words(32, 1)
    body = f"setp.ge.u32 q, b, 200; setp.lt.{how}.s32 p, a, b, !q; selp.b32 d, 1, 0, p"
    wanted = combine(a.view(np.int32) < b.view(np.int32), b < 200)
    got = run_elementwise(machine, elementwise(body, 32, 2), 32, [a, b])
    assert np.array_equal(got, wanted)


# --- narrow formats -------------------------------------------------------------------------------------------------

NARROW = {"f16": "float16", "bf16": "bfloat16"}


def every_code(seed: int) -> Array:
    """All 65536 16-bit words, shuffled, two in a word."""
    codes = np.random.default_rng(seed).permutation(1 << 16).astype(np.uint16)
    return codes.view(np.uint32)


def opened(packed: Array, dtype: str) -> Array:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.asarray(formats.decode(packed.view(formats.stored(dtype)), dtype), np.float64)


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize(("op", "reference"), [("add", np.add), ("mul", np.multiply), ("sub", np.subtract)])
def test_packed_arithmetic(machine: Machine, op: str, reference: Callable[..., Any], kind: str) -> None:
    a, b = every_code(1), every_code(2)
    got = run_elementwise(machine, elementwise(f"{op}.{kind}x2 d, a, b", 32, 2), 32, [a, b])
    with np.errstate(all="ignore"):
        exact = reference(opened(a, NARROW[kind]), opened(b, NARROW[kind]))
    compare_narrow(got, exact, NARROW[kind])


@pytest.mark.parametrize("kind", NARROW)
def test_packed_fma(machine: Machine, kind: str) -> None:
    a, b, c = (every_code(seed) for seed in range(3))
    got = run_elementwise(machine, elementwise(f"fma.rn.{kind}x2 d, a, b, c", 32, 3), 32, [a, b, c])
    with np.errstate(invalid="ignore"):
        x, y, z = (opened(one, NARROW[kind]).astype(np.longdouble) for one in (a, b, c))
    with np.errstate(all="ignore"):
        exact = x * y + z
    compare_narrow(got, exact, NARROW[kind])


def compare_narrow(got: Array, exact: Array, dtype: str) -> None:
    """Nearest, ties to even: what encoding the exact value gives; infinities beyond the largest."""
    values = opened(got, dtype)
    nans = np.isnan(exact)
    assert np.array_equal(np.isnan(values), nans)
    with np.errstate(all="ignore"):
        step = np.float64(formats.roundoff(dtype)) * np.abs(exact)
        close = np.abs(values - exact) <= np.maximum(step, 2.0**-25 if dtype == "float16" else 2.0**-134)
    finite = np.isfinite(values) & ~nans
    assert np.all(close[finite])
    largest = 65504.0 if dtype == "float16" else float(np.float32(3.3895314e38))
    assert np.all(np.abs(exact[np.isinf(values)]) > largest)


def test_half_fma_ties(machine: Machine) -> None:
    """1 + 2**-11 is a tie and goes to even; a little more goes up, which a rounding in between would lose."""
    a = np.array([1.0, 1.0], np.float16).view(np.uint32)
    b = np.array([2.0**-11, 2.0**-11 + 2.0**-21], np.float16).view(np.uint32)
    one = np.array([1.0, 1.0], np.float16).view(np.uint32)
    got = run_elementwise(machine, elementwise("fma.rn.f16x2 d, a, b, c", 32, 3), 32, [a, b, one])
    assert got.view(np.float16).tolist() == [1.0, 1.0 + 2.0**-10]


@pytest.mark.parametrize("kind", NARROW)
def test_narrow_to_float_and_back(machine: Machine, kind: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    got = run_elementwise(machine, elementwise(f"cvt.u16.u32 h, a; cvt.f32.{kind} d, h", 32, 1), 32, [codes])
    wanted = opened(codes.astype(np.uint16), NARROW[kind])
    assert np.array_equal(got.view(np.float32), wanted, equal_nan=True)
    back = run_elementwise(machine, elementwise(f"cvt.rn.{kind}.f32 h, a; cvt.u32.u16 d, h", 32, 1), 32, [got])
    numbers = ~np.isnan(wanted)
    assert np.array_equal(back[numbers], codes[numbers])


@pytest.mark.parametrize("kind", NARROW)
def test_float_to_narrow_rounds_to_even(machine: Machine, kind: str) -> None:
    values = np.concatenate([floats(32, 0), floats(32, 2), np.float32(2.0) ** np.arange(-30, 18)]).astype(np.float32)
    body = f"cvt.rn.{kind}x2.f32 d, a, b"  # the first in the upper half
    got = run_elementwise(machine, elementwise(body, 32, 2), 32, [values.view(np.uint32)] * 2)
    assert np.array_equal(got >> 16, got & 0xFFFF)
    compare_narrow(got, np.repeat(values.astype(np.float64), 2), NARROW[kind])


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_eight_bit_floats(machine: Machine, kind: str) -> None:
    dtype = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[kind]
    codes = np.arange(256, dtype=np.uint32)
    got = run_elementwise(machine, elementwise(f"cvt.u16.u32 h, a; cvt.rn.f16x2.{kind}x2 d, h", 32, 1), 32, [codes])
    wanted = np.asarray(formats.decode(codes.astype(np.uint8).view(formats.stored(dtype)), dtype), np.float32)
    assert np.array_equal(got.view(np.float16)[::2].astype(np.float32), wanted, equal_nan=True)
    finite = np.isfinite(wanted)
    body = f"cvt.rn.satfinite.{kind}x2.f32 h, a, a; cvt.u32.u16 d, h"
    back = run_elementwise(machine, elementwise(body, 32, 1), 32, [wanted[finite].view(np.uint32)])
    assert np.array_equal(back & 0xFF, codes[finite])
    large = run_elementwise(machine, elementwise(body, 32, 1), 32, [np.array([1e9, -1e9], np.float32).view(np.uint32)])
    assert (large & 0xFF).tolist() == {"e4m3": [0x7E, 0xFE], "e5m2": [0x7B, 0xFB]}[kind]


def test_tf32(machine: Machine) -> None:
    values = floats(32, 1)
    got = run_elementwise(machine, elementwise("cvt.rna.tf32.f32 d, a", 32, 1), 32, [values.view(np.uint32)])
    finite = np.isfinite(values)
    assert np.all(got[finite] & 0x1FFF == 0)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(got.view(np.float32)[finite].astype(np.float64) - values[finite])
    assert np.all((error <= np.abs(values[finite]) * 2.0**-11 + 2.0**-137) | (np.abs(values[finite]) > 3.4e38))


# --- numbers to whole numbers and back ------------------------------------------------------------------------------

WHOLE: list[tuple[str, Callable[..., Any]]] = [
    ("cvt.rni.s32.f32 d, a", np.rint), ("cvt.rzi.s32.f32 d, a", np.trunc), ("cvt.rmi.s32.f32 d, a", np.floor),
    ("cvt.rpi.s32.f32 d, a", np.ceil),
]  # fmt: skip


@pytest.mark.parametrize(("body", "reference"), WHOLE, ids=[row[0] for row in WHOLE])
def test_float_to_integer_saturates(machine: Machine, body: str, reference: Callable[..., Any]) -> None:
    values = np.concatenate([floats(32, 2), np.array([2.5, -2.5, 3e9, -3e9, 0.5], np.float32)])
    got = run_elementwise(machine, elementwise(body, 32, 1), 32, [values.view(np.uint32)])
    whole = np.clip(reference(values.astype(np.float64)), -(2**31), 2**31 - 1)
    wanted = np.where(np.isnan(values), 0, whole).astype(np.int64)
    assert np.array_equal(got.view(np.int32), wanted)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("cvt.rn.f32.s64 f, a; mov.b32 x, f; cvt.u64.u32 d, x", np.int64),
        ("cvt.rn.f32.u64 f, a; mov.b32 x, f; cvt.u64.u32 d, x", np.uint64),
    ],
)
def test_integer_to_float(machine: Machine, body: str, kind: Any) -> None:
    values = words(64, 3)
    got = run_elementwise(machine, elementwise(body, 64, 1), 64, [values])
    assert np.array_equal(got.astype(np.uint32).view(np.float32), values.view(kind).astype(np.float32))


def test_narrowing_integers(machine: Machine) -> None:
    values = words(32, 0)
    body = "cvt.s8.s32 x, a; cvt.u16.u32 h, a; cvt.s32.s16 y, h; cvt.sat.s8.s32 z, a; add.u32 x, x, y; add.u32 d, x, z"
    got = run_elementwise(machine, elementwise(body, 32, 1), 32, [values])
    signed = values.view(np.int32).astype(np.int64)
    wanted = values.astype(np.int8).astype(np.int64) + values.astype(np.int16) + np.clip(signed, -128, 127)
    assert np.array_equal(got, wanted.astype(np.uint32))
