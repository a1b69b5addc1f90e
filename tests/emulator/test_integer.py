"""Integer arithmetic, carries, logic and bit fields of the double, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator.ptx_machine import Machine
from emulator.ptx_templates import elementwise, run_elementwise, words

S32 = lambda x: ((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000  # noqa: E731 (reads as the type it makes)
S64 = lambda x: ((x & (1 << 64) - 1) ^ 1 << 63) - (1 << 63)  # noqa: E731
S16 = lambda x: ((x & 0xFFFF) ^ 0x8000) - 0x8000  # noqa: E731
M32, M64 = (1 << 32) - 1, (1 << 64) - 1
Reference = Callable[..., int]


def quotient(a: int, b: int) -> int:
    """Division that truncates, as C's."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a - quotient(a, b) * b


def field(value: int, start: int, length: int, bits: int, signed: bool) -> int:
    """bfe."""
    start, length = start & 255, length & 255
    if length == 0:
        return 0
    sign = value >> min(start + length - 1, bits - 1) & 1 if signed else 0
    taken = [value >> (start + i) & 1 if i < length and start + i < bits else sign for i in range(bits)]
    return sum(bit << i for i, bit in enumerate(taken))


def inserted(a: int, b: int, start: int, length: int) -> int:
    """bfi, 32 bits."""
    start, length = start & 255, length & 255
    out = b
    for i in range(length):
        if start + i < 32:
            out = out & ~(1 << (start + i)) | (a >> i & 1) << (start + i)
    return out


def permuted(a: int, b: int, c: int) -> int:
    """prmt."""
    source = (b << 32 | a).to_bytes(8, "little")
    out = bytearray()
    for i in range(4):
        selector = c >> 4 * i & 15
        byte = source[selector & 7]
        out.append((0xFF if byte & 0x80 else 0) if selector & 8 else byte)
    return int.from_bytes(out, "little")


def dot(a: int, b: int, c: int, signed: bool) -> int:
    def pick(x: int, i: int) -> int:
        byte = x >> 8 * i & 255
        return (byte ^ 128) - 128 if signed else byte

    return c + sum(pick(a, i) * pick(b, i) for i in range(4))


def lop3(a: int, b: int, c: int) -> int:
    return sum(
        (0xE8 >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
    )  # 0xe8: the majority of three


def leading(value: int, bits: int) -> int:
    return bits - value.bit_length()


THIRTY_TWO: list[tuple[str, int, Reference]] = [
    ("add.u32 d, a, b", 2, lambda a, b: a + b),
    ("sub.s32 d, a, b", 2, lambda a, b: a - b),
    ("mul.lo.s32 d, a, b", 2, lambda a, b: a * b),
    ("mul.hi.s32 d, a, b", 2, lambda a, b: S32(a) * S32(b) >> 32),
    ("mul.hi.u32 d, a, b", 2, lambda a, b: a * b >> 32),
    ("mad.lo.s32 d, a, b, c", 3, lambda a, b, c: a * b + c),
    ("mad.hi.u32 d, a, b, c", 3, lambda a, b, c: (a * b >> 32) + c),
    ("mul24.lo.u32 d, a, b", 2, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ("sad.s32 d, a, b, c", 3, lambda a, b, c: abs(S32(a) - S32(b)) + c),
    ("div.s32 d, a, b", 2, lambda a, b: quotient(S32(a), S32(b))),
    ("rem.s32 d, a, b", 2, lambda a, b: remainder(S32(a), S32(b))),
    ("div.u32 d, a, b", 2, lambda a, b: a // b),
    ("rem.u32 d, a, b", 2, lambda a, b: a % b),
    ("min.s32 d, a, b", 2, lambda a, b: min(S32(a), S32(b))),
    ("max.u32 d, a, b", 2, max),
    ("abs.s32 d, a", 1, lambda a: abs(S32(a))),
    ("neg.s32 d, a", 1, lambda a: -a),
    ("add.sat.s32 d, a, b", 2, lambda a, b: max(-(1 << 31), min((1 << 31) - 1, S32(a) + S32(b)))),
    ("dp4a.s32.s32 d, a, b, c", 3, lambda a, b, c: dot(a, b, c, True)),
    ("dp4a.u32.u32 d, a, b, c", 3, lambda a, b, c: dot(a, b, c, False)),
    ("and.b32 d, a, b", 2, lambda a, b: a & b),
    ("or.b32 d, a, b", 2, lambda a, b: a | b),
    ("xor.b32 d, a, b", 2, lambda a, b: a ^ b),
    ("not.b32 d, a", 1, lambda a: ~a),
    ("cnot.b32 d, a", 1, lambda a: int(a == 0)),
    ("lop3.b32 d, a, b, c, 0xe8", 3, lop3),
    ("prmt.b32 d, a, b, c", 3, permuted),
    ("popc.b32 d, a", 1, lambda a: bin(a).count("1")),
    ("clz.b32 d, a", 1, lambda a: leading(a, 32)),
    ("brev.b32 d, a", 1, lambda a: int(f"{a:032b}"[::-1], 2)),
    ("bfind.u32 d, a", 1, lambda a: a.bit_length() - 1),
    ("bfind.s32 d, a", 1, lambda a: (a if a < 1 << 31 else ~a & M32).bit_length() - 1),
    ("shf.l.wrap.b32 d, a, b, c", 3, lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32),
    ("shf.r.clamp.b32 d, a, b, c", 3, lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    ("set.lt.u32.s32 d, a, b", 2, lambda a, b: M32 if S32(a) < S32(b) else 0),
    ("slct.u32.s32 d, a, b, c", 3, lambda a, b, c: a if S32(c) >= 0 else b),
]
SMALL_SHIFTS: list[tuple[str, int, Reference]] = [  # with the last operand in 0..40
    ("shl.b32 d, a, b", 2, lambda a, b: a << b if b < 32 else 0),
    ("shr.u32 d, a, b", 2, lambda a, b: a >> b),
    ("shr.s32 d, a, b", 2, lambda a, b: S32(a) >> b),
    ("bfe.u32 d, a, 5, b", 2, lambda a, b: field(a, 5, b, 32, False)),
    ("bfe.s32 d, a, b, 7", 2, lambda a, b: field(a, b, 7, 32, True)),
    ("bfi.b32 d, a, 0x12345678, 9, b", 2, lambda a, b: inserted(a, 0x12345678, 9, b)),
]
SIXTY_FOUR: list[tuple[str, int, Reference]] = [
    ("add.s64 d, a, b", 2, lambda a, b: a + b),
    ("mul.lo.u64 d, a, b", 2, lambda a, b: a * b),
    ("mul.hi.s64 d, a, b", 2, lambda a, b: S64(a) * S64(b) >> 64),
    ("mad.lo.s64 d, a, b, c", 3, lambda a, b, c: a * b + c),
    ("div.s64 d, a, b", 2, lambda a, b: quotient(S64(a), S64(b))),
    ("rem.u64 d, a, b", 2, lambda a, b: a % b),
    ("min.u64 d, a, b", 2, min),
    ("max.s64 d, a, b", 2, lambda a, b: max(S64(a), S64(b))),
    ("xor.b64 d, a, b", 2, lambda a, b: a ^ b),
    ("brev.b64 d, a", 1, lambda a: int(f"{a:064b}"[::-1], 2)),
    ("not.b64 d, a", 1, lambda a: ~a),
]


def check(machine: Machine, body: str, arity: int, reference: Reference, bits: int, operands: list[Any]) -> None:
    got = run_elementwise(machine, elementwise(body, bits, arity), bits, operands)
    mask = (1 << bits) - 1
    wanted = [reference(*(int(one[i]) for one in operands)) & mask for i in range(len(operands[0]))]
    assert [int(x) for x in got] == wanted


@pytest.mark.parametrize(("body", "arity", "reference"), THIRTY_TWO, ids=[row[0] for row in THIRTY_TWO])
def test_32_bits(machine: Machine, body: str, arity: int, reference: Reference) -> None:
    check(machine, body, arity, reference, 32, [words(32, seed, nonzero=seed == 1) for seed in range(arity)])


@pytest.mark.parametrize(("body", "arity", "reference"), SMALL_SHIFTS, ids=[row[0] for row in SMALL_SHIFTS])
def test_shifts_and_fields(machine: Machine, body: str, arity: int, reference: Reference) -> None:
    values = words(32, 0)
    check(machine, body, arity, reference, 32, [values, (np.arange(len(values)) % 41).astype(np.uint32)])


@pytest.mark.parametrize(("body", "arity", "reference"), SIXTY_FOUR, ids=[row[0] for row in SIXTY_FOUR])
def test_64_bits(machine: Machine, body: str, arity: int, reference: Reference) -> None:
    check(machine, body, arity, reference, 64, [words(64, seed, nonzero=seed == 1) for seed in range(arity)])


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("cvt.u32.u64 x, a; cvt.u32.u64 y, b; mul.wide.s32 d, x, y", lambda a, b: S32(a) * S32(b)),
        ("cvt.u32.u64 x, a; cvt.u32.u64 y, b; mad.wide.u32 d, x, y, a", lambda a, b: (a & M32) * (b & M32) + a),
        ("cvt.u32.u64 x, b; and.b32 x, x, 63; shl.b64 d, a, x", lambda a, b: a << (b & 63)),
        ("cvt.u32.u64 x, b; and.b32 x, x, 127; shr.s64 d, a, x", lambda a, b: S64(a) >> (b & 127)),
        ("popc.b64 x, a; cvt.u64.u32 d, x", lambda a, _: bin(a).count("1")),
        ("clz.b64 x, a; cvt.u64.u32 d, x", lambda a, _: leading(a, 64)),
        ("mov.b64 {x, y}, a; mov.b64 d, {y, x}", lambda a, _: a >> 32 | a << 32),
        ("cvt.u16.u64 h, a; mul.wide.s16 x, h, h; cvt.s64.s32 d, x", lambda a, _: S16(a) * S16(a)),
        ("cvt.u16.u64 h, a; add.s16 h, h, 77; cvt.u64.u16 d, h", lambda a, _: (a + 77) & 0xFFFF),
        ("bfe.u64 d, a, 13, 40", lambda a, _: field(a, 13, 40, 64, False)),
        ("bfe.s64 d, a, 30, 50", lambda a, _: field(a, 30, 50, 64, True)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mixed_widths(machine: Machine, body: str, reference: Reference) -> None:
    check(machine, body, 2, reference, 64, [words(64, 0), words(64, 1)])


CHAIN = """mov.b64 {x, y}, a; mov.b64 {z, w}, b;
add.cc.u32 x, x, z; addc.cc.u32 y, y, w; addc.u32 z, 0, 0; cvt.u64.u32 d, z; mov.b64 a, {x, y}; add.u64 d, d, a"""
SUBTRACT = "mov.b64 {x, y}, a; mov.b64 {z, w}, b; sub.cc.u32 x, x, z; subc.u32 y, y, w; mov.b64 d, {x, y}"
# The middle words of a 64 by 64 bit product, as compilers make them.
PRODUCT = """mov.b64 {x, y}, a; mov.b64 {z, w}, b; mul.hi.u32 r, x, z;
mad.lo.cc.u32 r, x, w, r; madc.hi.u32 t, x, w, 0; mad.lo.cc.u32 r, y, z, r; madc.hi.cc.u32 t, y, z, t;
mov.b64 d, {r, t}"""


def middle(a: int, b: int) -> int:
    x, y, z, w = a & M32, a >> 32, b & M32, b >> 32
    return ((x * z >> 32) + x * w + y * z) & M64


@pytest.mark.parametrize(
    ("body", "reference"),
    [(CHAIN, lambda a, b: a + b + (a + b >> 64)), (SUBTRACT, lambda a, b: a - b), (PRODUCT, middle)],
    ids=["add", "sub", "mad"],
)
def test_carry_chains(machine: Machine, body: str, reference: Reference) -> None:
    check(machine, body, 2, reference, 64, [words(64, 0), words(64, 1)])
