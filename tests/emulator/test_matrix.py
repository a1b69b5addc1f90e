"""Tensor-core instructions of the double: each shape and type against NumPy, through the fragments that PTX describes.

Fragments are laid out here from the tables of the PTX ISA ("Matrix Fragments for mma.m16n8k16" and so on), element by
element, independent of the double's own loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from emulator.ptx_machine import Machine

from gpumicro.kernels import formats

Array = npt.NDArray[Any]
DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f64": "float64", "s8": "int8", "u8": "uint8",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip
SHAPES = [
    ("f16", "f32", 16, 8), ("f16", "f32", 16, 16), ("f16", "f16", 16, 16),
    ("bf16", "f32", 16, 8), ("bf16", "f32", 16, 16),
    ("tf32", "f32", 16, 4), ("tf32", "f32", 16, 8), ("s8", "s32", 16, 16), ("s8", "s32", 16, 32), ("u8", "s32", 16, 32),
    ("e4m3", "f32", 16, 32), ("e5m2", "f32", 16, 32), ("f64", "f64", 8, 4), ("f64", "f64", 16, 4),
    ("f64", "f64", 16, 8), ("f64", "f64", 16, 16),
]  # fmt: skip


def place_a(lane: int, i: int, m: int, per: int) -> tuple[int, int]:
    """Row and column of element i of A in a lane; `per` elements stand in a register."""
    group, thread = lane // 4, lane % 4
    register, part = divmod(i, per)
    if m == 8:
        return group, thread
    return group + 8 * (register % 2), thread * per + part + 4 * per * (register // 2)


def place_b(lane: int, i: int, per: int) -> tuple[int, int]:
    register, part = divmod(i, per)
    return lane % 4 * per + part + 4 * per * register, lane // 4


def place_c(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2


def random(kind: str, shape: tuple[int, int], seed: int) -> tuple[Array, Array]:
    """(values, as they are stored): small ones, so that every sum is exact in the accumulator."""
    rng = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        whole = rng.integers(-128 if kind == "s8" else 0, 128, shape).astype(DTYPES[kind])
        return whole.astype(np.float64), whole
    values = rng.integers(-8, 9, shape) / 4
    if kind in ("tf32", "f64"):
        stored = values.astype(DTYPES[kind])
        return stored.astype(np.float64), stored
    return values, formats.encode(values, DTYPES[kind])


def gathered(stored: Array, place: Any, count: int) -> Array:
    """The fragment: 32 rows of `count` elements, as words."""
    lanes = np.array([[stored[place(lane, i)] for i in range(count)] for lane in range(32)], stored.dtype)
    return lanes.view(np.uint64 if stored.dtype == np.float64 else np.uint32)


def registers(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


def kernel(shape: str, kinds: str, counts: tuple[int, int, int], wide: bool) -> str:
    """Loads each lane's fragments, multiplies, stores D over C."""
    size, kind = (8, "b64") if wide else (4, "b32")
    moves = ""
    for name, count in zip("abc", counts, strict=True):
        moves += f"ld.param.u64 %x1, [p_{name}]; mul.lo.u64 %x2, %l, {count * size}; add.u64 %x{3}, %x1, %x2;\n"
        moves += "".join(f"ld.global.{kind} %{name}{i}, [%x3+{i * size}]; " for i in range(count)) + "\n"
    stores = "".join(f"st.global.{kind} [%x3+{i * size}], %d{i}; " for i in range(counts[2]))
    declared = " ".join(f".reg .{kind} %{name}<9>;" for name in "abcd")
    a, b, c = counts
    return f""".visible .entry k(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c) {{
{declared} .reg .b64 %x<4>, %l; .reg .b32 %t; mov.u32 %t, %tid.x; cvt.u64.u32 %l, %t;
{moves}
mma.sync.aligned.{shape}.row.col.{kinds} {registers("d", c)},
 {registers("a", a)}, {registers("b", b)}, {registers("c", c)};
{stores} ret; }}"""


@pytest.mark.parametrize(("kind", "sums", "m", "k"), SHAPES, ids=["-".join(map(str, row)) for row in SHAPES])
def test_mma(machine: Machine, kind: str, sums: str, m: int, k: int) -> None:
    a, stored_a = random(kind, (m, k), 1)
    b, stored_b = random(kind, (k, 8), 2)
    c = (
        np.random.default_rng(3)
        .integers(-20, 20, (m, 8))
        .astype({"s32": "i4", "f64": "f8", "f16": "f2"}.get(sums, "f4"))
    )
    per = max(4 // stored_a.itemsize, 1)
    fragments = [
        gathered(stored_a, lambda lane, i: place_a(lane, i, m, per), m * k // 32),
        gathered(stored_b, lambda lane, i: place_b(lane, i, per), k * 8 // 32),
        gathered(c, place_c, m * 8 // 32),
    ]
    counts = (fragments[0].shape[1], fragments[1].shape[1], fragments[2].shape[1])
    machine.load(kernel(f"m{m}n8k{k}", f"{sums}.{kind}.{kind}.{sums}", counts, kind == "f64"))
    addresses = [machine.upload(one) for one in fragments]
    machine.run("k", 1, 32, *addresses)
    got = machine.download(addresses[2], fragments[2]).view(c.dtype)
    wanted = a @ b + c
    for lane in range(32):
        for i in range(m * 8 // 32):
            assert got[lane, i] == wanted[place_c(lane, i)], (lane, i)
    counted = machine.counts()["k"]
    addressing = 6 * 32  # a multiplication and an addition for each of three addresses
    operations = counted["integer_ops"] - addressing if sums == "s32" else counted["flops"]
    assert operations == 2 * m * 8 * k
    assert counted["instructions"][f"mma.m{m}n8k{k}.{sums}.{kind}.{kind}.{sums}"] == 32


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(machine: Machine, count: int, trans: bool) -> None:
    rows = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    listed = registers("r", count)
    stores = "".join(f"st.global.u32 [%x3+{4 * i}], %r{i}; " for i in range(count))
    machine.load(f""".visible .entry k(.param .u64 p_a, .param .u64 p_b) {{
.reg .b32 %r<8>, %t, %s, %u; .reg .b64 %x<6>, %l; .reg .pred %p; .shared .align 16 .b8 tile[{count * 128}];
mov.u32 %t, %tid.x; cvt.u64.u32 %l, %t; ld.param.u64 %x1, [p_a]; mov.u32 %s, tile; shl.b32 %u, %t, 4;
add.u32 %s, %s, %u;
setp.ge.u32 %p, %t, {8 * count}; shl.b64 %x2, %l, 4; add.u64 %x1, %x1, %x2;
@!%p ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%x1]; @!%p st.shared.v4.u32 [%s], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
ldmatrix.sync.aligned.m8n8.x{count}{".trans" if trans else ""}.shared.b16 {listed}, [%s];
ld.param.u64 %x3, [p_b]; mul.lo.u64 %x4, %l, {4 * count}; add.u64 %x3, %x3, %x4; {stores} ret; }}""")
    out = np.zeros((32, count), np.uint32)
    a, b = machine.upload(rows), machine.upload(out)
    machine.run("k", 1, 32, a, b)
    got = machine.download(b, out).view(np.uint16).reshape(32, count, 2)
    source = rows.transpose(0, 2, 1) if trans else rows
    for lane in range(32):
        assert np.array_equal(got[lane], source[:, lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2])
    assert machine.counts()["k"]["bytes"]["shared"]["loaded"] == count * 128


ASYNC = """.visible .entry k(.param .u64 p_a, .param .u64 p_b) {
.reg .b32 %r<8>, %t, %s; .reg .b64 %x<6>, %l; .shared .align 16 .b8 tile[1024];
mov.u32 %t, %tid.x; cvt.u64.u32 %l, %t; ld.param.u64 %x1, [p_a]; shl.b64 %x2, %l, 4; add.u64 %x1, %x1, %x2;
mov.u32 %s, tile; shl.b32 %r1, %t, 4; add.u32 %s, %s, %r1;
cp.async.cg.shared.global [%s], [%x1], 16; cp.async.commit_group;
cp.async.ca.shared.global [%s+512], [%x1+512], 16, 8; cp.async.commit_group; WAIT
ld.shared.u32 %r2, [%s+12]; ld.shared.u32 %r3, [%s+516]; ld.shared.u32 %r4, [%s+524];
ld.param.u64 %x3, [p_b]; mul.lo.u64 %x4, %l, 12; add.u64 %x3, %x3, %x4;
st.global.u32 [%x3], %r2; st.global.u32 [%x3+4], %r3; st.global.u32 [%x3+8], %r4; ret; }"""


@pytest.mark.parametrize(("wait", "first", "second"), [
    ("cp.async.wait_group 0;", True, True), ("cp.async.wait_group 1;", True, False), ("cp.async.wait_all;", True, True),
    ("", False, False),
])  # fmt: skip
def test_asynchronous_copies_arrive_when_they_are_waited_for(
    machine: Machine, wait: str, first: bool, second: bool
) -> None:
    """What is not waited for reads as ones; the part beyond the source's size is zero."""
    machine.load(ASYNC.replace("WAIT", wait))
    data = np.arange(256, dtype=np.uint32)
    out = np.zeros((32, 3), np.uint32)
    a, b = machine.upload(data), machine.upload(out)
    machine.run("k", 1, 32, a, b)
    got, ones = machine.download(b, out), np.uint32(0xFFFFFFFF)
    lanes = np.arange(32, dtype=np.uint32)
    assert np.array_equal(got[:, 0], lanes * 4 + 3 if first else np.full(32, ones))
    assert np.array_equal(got[:, 1], lanes * 4 + 129 if second else np.full(32, ones))
    assert np.array_equal(got[:, 2], np.zeros(32) if second else np.full(32, ones))
    counted = machine.counts()["k"]["bytes"]
    assert counted["global"]["loaded"] == 32 * 24
    assert counted["shared"]["stored"] == 32 * 32
