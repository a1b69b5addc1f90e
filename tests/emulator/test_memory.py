"""Loads, stores, atomics, state spaces and the faults of the double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator.ptx_machine import EmulatedError, Machine

ILLEGAL, MISALIGNED, FAILURE, NOT_SUPPORTED = 700, 716, 719, 801


def kernel(body: str, declarations: str = "", module: str = "") -> str:
    """The kernel `k(a, b)`: %a and %b are addresses, %t the thread, %l its number as 64 bits."""
    return f"""{module}
.visible .entry k(.param .u64 p_a, .param .u64 p_b)
{{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>, %t; .reg .f32 %f<8>; .reg .f64 %d<8>; .reg .b64 %x<16>, %a, %b, %l;
{declarations}
ld.param.u64 %a, [p_a]; ld.param.u64 %b, [p_b]; mov.u32 %t, %tid.x; cvt.u64.u32 %l, %t;
{body}
ret;
}}
"""


@pytest.mark.parametrize("width", [1, 2, 4])
def test_vectors(machine: Machine, width: int) -> None:
    data = np.random.default_rng(1).integers(0, 1 << 32, 64 * width, np.uint32)
    registers = ", ".join(f"%r{i}" for i in range(width))
    vector = f".v{width}" if width > 1 else ""
    listed = f"{{{registers}}}" if width > 1 else registers
    machine.load(
        kernel(
            f"""mul.lo.u64 %x1, %l, {4 * width}; add.u64 %x2, %a, %x1; add.u64 %x3, %b, %x1;
ld.global.nc{vector}.u32 {listed}, [%x2]; st.global{vector}.u32 [%x3], {listed};"""
        )
    )
    a, b = machine.upload(data), machine.upload(np.zeros_like(data))
    machine.run("k", 1, 64, a, b)
    assert np.array_equal(machine.download(b, data), data)
    counted = machine.counts()["k"]["bytes"]["global"]
    assert counted == {"loaded": data.nbytes, "stored": data.nbytes}


@pytest.mark.parametrize(("kind", "dtype"), [("s8", np.int8), ("u8", np.uint8), ("s16", np.int16), ("u16", np.uint16)])
def test_narrow_loads_extend(machine: Machine, kind: str, dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    machine.load(
        kernel(
            f"""mul.lo.u64 %x1, %l, {size}; add.u64 %x1, %a, %x1; ld.global.{kind} %r1, [%x1];
shl.b64 %x2, %l, 2; add.u64 %x2, %b, %x2; st.global.u32 [%x2], %r1;"""
        )
    )
    data = np.random.default_rng(2).integers(0, 256, 32 * size, np.uint8).view(dtype)
    out = np.zeros(32, np.int32)
    a, b = machine.upload(data), machine.upload(out)
    machine.run("k", 1, 32, a, b)
    assert np.array_equal(machine.download(b, out), data.astype(np.int32))


def test_shared_local_constant_and_parameter_memory(machine: Machine) -> None:
    """Through each space once, with generic addresses to shared and local memory."""
    body = """shl.b64 %x1, %l, 2; add.u64 %x2, %a, %x1; ld.global.u32 %r1, [%x2];
mov.u32 %r2, buffer; shl.b32 %r3, %t, 2; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], %r1; bar.sync 0;
xor.b32 %r4, %t, 63; shl.b32 %r4, %r4, 2; mov.u32 %r5, buffer; add.u32 %r4, %r4, %r5;
cvt.u64.u32 %x3, %r4; cvta.shared.u64 %x3, %x3; ld.u32 %r6, [%x3];
mov.u64 %x4, stack; st.local.u32 [%x4+4], %r6; cvta.local.u64 %x5, %x4; ld.u32 %r7, [%x5+4];
and.b32 %r8, %t, 3; mul.wide.u32 %x6, %r8, 4; mov.u64 %x7, table; add.u64 %x7, %x7, %x6; ld.const.u32 %r9, [%x7];
add.u32 %r7, %r7, %r9; add.u64 %x8, %b, %x1; st.global.u32 [%x8], %r7;"""
    module = ".const .align 4 .b32 table[4] = {10, 20, 30, 40};"
    declared = """.shared .align 4 .b8 buffer[256];
\t.local .align 8 .b8 \tstack[16];
\t.loc\t1 17 3, function_name $L__info_string0, inlined_at 1 20 5
"""
    machine.load(kernel(body, declared, module))  # with a line of debug information, which has no semicolon
    data = np.arange(64, dtype=np.uint32) * 3
    a, b = machine.upload(data), machine.upload(np.zeros_like(data))
    machine.run("k", 1, 64, a, b)
    wanted = data[np.arange(64) ^ 63] + np.array([10, 20, 30, 40], np.uint32)[np.arange(64) & 3]
    assert np.array_equal(machine.download(b, data), wanted)
    counted = machine.counts()["k"]["bytes"]
    assert counted["shared"] == {"loaded": 256, "stored": 256}
    assert counted["local"] == {"loaded": 256, "stored": 256}
    assert counted["const"]["loaded"] == 256


def test_dynamic_shared_memory_follows_static(machine: Machine) -> None:
    body = """mov.u32 %r1, 7; mov.u32 %r2, fixed; mov.u32 %r3, dynamic; st.shared.u32 [%r2], %r1;
mov.u32 %r4, %dynamic_smem_size;
mov.u32 %r5, %total_smem_size; st.shared.u32 [%r3+60], %r5; ld.shared.u32 %r6, [%r3+60];
st.global.v4.u32 [%b], {%r2, %r3, %r4, %r6};"""
    machine.load(kernel(body, ".shared .align 4 .b8 fixed[20];", ".extern .shared .align 16 .b8 dynamic[];"))
    out = np.zeros(4, np.uint32)
    b = machine.upload(out)
    machine.run("k", 1, 1, 0, b, shared=64)
    assert machine.download(b, out).tolist() == [0, 32, 64, 96]


ATOMICS: list[tuple[str, Any, Any, Any]] = [
    ("red.global.add.u32 [%a], 3", np.uint32, 5, 5 + 3 * 256),
    ("mov.f32 %f1, 0f3F000000; red.global.add.f32 [%a], %f1", np.float32, 1.0, 129.0),
    ("mov.f64 %d1, 0d3FE0000000000000; red.global.add.f64 [%a], %d1", np.float64, 1.0, 129.0),
    ("atom.global.max.s32 %r1, [%a], %t", np.int32, -9, 63),
    ("atom.global.min.u32 %r1, [%a], %t", np.uint32, 99, 0),
    ("atom.global.inc.u32 %r1, [%a], 9", np.uint32, 0, 256 % 10),
    ("atom.global.dec.u32 %r1, [%a], 9", np.uint32, 0, -256 % 10),
    ("atom.global.xor.b32 %r1, [%a], %t", np.uint32, 6, 6),
    ("mov.u64 %x1, 4294967297; atom.global.add.u64 %x2, [%a], %x1", np.uint64, 1, 1 + 256 * 4294967297),
    ("atom.add.u32 %r1, [%a], 1", np.uint32, 0, 256),
    ("mov.b32 %r2, 0x3c003800; atom.global.add.noftz.f16x2 %r1, [%a], %r2", np.uint32, 0, 0x5C005800),
]


@pytest.mark.parametrize(("body", "dtype", "start", "wanted"), ATOMICS, ids=[row[0] for row in ATOMICS])
def test_atomics(machine: Machine, body: str, dtype: Any, start: Any, wanted: Any) -> None:
    machine.load(kernel(body + ";"))
    data = np.array([start], dtype)
    a = machine.upload(data)
    machine.run("k", 4, 64, a, 0)
    assert machine.download(a, data)[0] == wanted
    assert machine.counts()["k"]["atomics"] == 256


def test_compare_and_swap_makes_a_lock_free_maximum(machine: Machine) -> None:
    """Lanes that lose the exchange turn once more: divergence and reconvergence around an atomic."""
    body = """ld.global.u32 %r1, [%a];
again: setp.ge.u32 %p1, %r1, %t; @%p1 bra done; mov.u32 %r2, %r1; atom.global.cas.b32 %r1, [%a], %r2, %t;
setp.ne.u32 %p2, %r1, %r2; @%p2 bra again;
done: bar.warp.sync -1; atom.global.exch.b32 %r3, [%b], %t;"""
    machine.load(kernel(body))
    zero = np.zeros(1, np.uint32)
    a, b = machine.upload(zero), machine.upload(zero)
    machine.run("k", 2, 64, a, b)
    assert machine.download(a, zero)[0] == 63


# --- faults ---------------------------------------------------------------------------------------------------------

FAULTS = [
    ("ld.global.u32 %r1, [%a+32]", ILLEGAL, "load of 4 bytes"),
    ("st.global.u32 [%a+-4], %t", ILLEGAL, "store of 4 bytes"),
    ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a+8]", MISALIGNED, "misaligned"),
    ("ld.global.v2.u32 {%r1, %r2}, [%a+28]", MISALIGNED, "misaligned"),
    ("ld.global.u16 %h1, [%a+31]", MISALIGNED, "misaligned"),
    ("mov.u64 %x1, 0; ld.u32 %r1, [%x1]", ILLEGAL, "0x0 in generic memory"),
    ("atom.global.add.u32 %r1, [%a+32], 1", ILLEGAL, "atomic of 4 bytes"),
    ("st.shared.u32 [64], %t", ILLEGAL, "in shared memory"),
    ("mov.u64 %x1, stack; ld.local.u64 %x2, [%x1+16]", ILLEGAL, "in local memory"),
    ("mov.u32 %r1, 60; cp.async.ca.shared.global [%r1], [%a], 8", MISALIGNED, "misaligned"),
    ("trap", FAILURE, "trap"),
]


@pytest.mark.parametrize(("body", "code", "words"), FAULTS, ids=[row[0] for row in FAULTS])
def test_faults_are_sticky_and_say_where(machine: Machine, body: str, code: int, words: str) -> None:
    machine.load(kernel(body + ";", ".shared .align 16 .b8 buffer[64]; .local .align 8 .b8 stack[16];"))
    a = machine.upload(np.zeros(8, np.uint32))
    with pytest.raises(EmulatedError) as caught:
        machine.run("k", 1, 1, a, 0)
    assert caught.value.code == code
    assert words in machine.message()
    assert "kernel k" in machine.message()
    assert "line " in machine.message()
    for call in (lambda: machine.allocate(8), lambda: machine.run("k", 1, 1, a, 0), lambda: machine.free(a)):
        with pytest.raises(EmulatedError) as later:
            call()
        assert later.value.code == code
    assert machine.cuda.cudaGetLastError() == code
    machine.call("cudaDeviceReset")
    assert machine.cuda.cudaGetLastError() == 0
    machine.allocate(8)


def test_memory_that_was_freed_is_out_of_bounds(machine: Machine) -> None:
    machine.load(kernel("ld.global.u32 %r1, [%a];"))
    a = machine.upload(np.zeros(8, np.uint32))
    machine.run("k", 1, 1, a, 0)
    machine.free(a)
    with pytest.raises(EmulatedError, match="700"):
        machine.run("k", 1, 1, a, 0)


def test_an_unknown_instruction_is_named(machine: Machine) -> None:
    machine.load(kernel("mbarrier.init.shared.b64 [%x1], 1;"))
    with pytest.raises(EmulatedError) as caught:
        machine.run("k", 1, 1, 0, 0)
    assert caught.value.code == NOT_SUPPORTED
    assert "mbarrier.init.shared.b64" in str(caught.value)
    assert "line" in str(caught.value)
    assert "kernel k" in str(caught.value)
    machine.allocate(8)  # the process can go on


def test_a_call_of_what_is_not_there_fails_only_when_reached(machine: Machine) -> None:
    module = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);"
    body = """setp.eq.u64 %p1, %a, 0; @%p1 bra skip;
{ .param .b64 x; st.param.b64 [x+0], %a; .param .b64 y; st.param.b64 [y+0], %a; .param .b32 z;
call.uni (z), vprintf, (x, y); }
skip: st.global.u32 [%b], 5;"""
    machine.load(kernel(body, module=module))
    out = np.zeros(1, np.uint32)
    b = machine.upload(out)
    machine.run("k", 1, 1, 0, b)
    assert machine.download(b, out)[0] == 5
    with pytest.raises(EmulatedError, match="801"):
        machine.run("k", 1, 1, b, b)
