"""Branches, calls, barriers and the exchange between lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from emulator.ptx_machine import EmulatedError, Machine

Words = npt.NDArray[np.uint32]


def kernel(body: str, declarations: str = "", module: str = "") -> str:
    """The kernel `k(a)`: word t of `a` becomes %r0, computed from itself by thread t of the grid's one block."""
    return f"""{module}
.visible .entry k(.param .u64 p_a)
{{
.reg .pred %p<16>; .reg .b32 %r<40>, %t, %lane; .reg .b64 %x<8>, %a;
{declarations}
ld.param.u64 %a, [p_a]; mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; mul.wide.u32 %x1, %t, 4; add.u64 %x2, %a, %x1;
ld.global.u32 %r0, [%x2];
{body}
st.global.u32 [%x2], %r0;
ret;
}}
"""


def run(machine: Machine, ptx: str, data: Words) -> Words:
    machine.load(ptx)
    address = machine.upload(data)
    machine.run("k", 1, len(data), address)
    out: Words = machine.download(address, data)
    return out


def numbers(count: int = 64) -> Words:
    return np.random.default_rng(count).integers(0, 1000, count, np.uint32)


def test_lanes_take_their_own_number_of_turns(machine: Machine) -> None:
    body = """mov.u32 %r1, 0; and.b32 %r2, %r0, 15;
loop: setp.eq.u32 %p1, %r2, 0; @%p1 bra out; add.u32 %r1, %r1, %r2; sub.u32 %r2, %r2, 1; bra loop;
out: mov.u32 %r0, %r1;"""
    data = numbers(45)  # the last warp is not full
    n = data & 15
    assert np.array_equal(run(machine, kernel(body), data), n * (n + 1) // 2)


def test_lanes_meet_again_behind_a_branch(machine: Machine) -> None:
    """A shuffle of all lanes behind an if with a loop on one side finds all of them."""
    body = """and.b32 %r1, %lane, 3; setp.ne.u32 %p1, %r1, 0; @%p1 bra other;
mov.u32 %r2, %lane; loop: add.u32 %r0, %r0, 1; sub.u32 %r2, %r2, 4; setp.gt.s32 %p2, %r2, 0; @%p2 bra loop;
bra both; other: add.u32 %r0, %r0, 100;
both: shfl.sync.idx.b32 %r0|%p3, %r0, 5, 0x1f, 0xffffffff;"""
    data = numbers(32)
    assert np.all(run(machine, kernel(body), data) == data[5] + 100)


def test_guarded_exit(machine: Machine) -> None:
    body = "setp.gt.u32 %p1, %r0, 500; @%p1 exit; add.u32 %r0, %r0, 1;"
    data = numbers()
    assert np.array_equal(run(machine, kernel(body), data), np.where(data > 500, data, data + 1))


def test_branch_table(machine: Machine) -> None:
    body = """and.b32 %r1, %r0, 3; table: .branchtargets zero, one, two, two; brx.idx %r1, table;
zero: mov.u32 %r0, 10; bra end; one: mov.u32 %r0, 11; bra end; two: add.u32 %r0, %r1, 20;
end: add.u32 %r0, %r0, 1000;"""
    data = numbers()
    wanted = np.array([1010, 1011, 1022, 1023], np.uint32)[data & 3]
    assert np.array_equal(run(machine, kernel(body), data), wanted)


FUNCTIONS = """
.func (.param .b32 r) twice(.param .b32 v) { .reg .b32 %r<4>; ld.param.u32 %r1, [v+0]; add.u32 %r1, %r1, %r1;
st.param.b32 [r+0], %r1; ret; }
.func (.param .b64 r) mixed(.param .b32 v, .param .b64 w)
{ .reg .b32 %r<4>; .reg .b64 %x<4>; .reg .pred %p;
ld.param.u32 %r1, [v+0]; ld.param.u64 %x1, [w+0]; setp.lt.u32 %p, %r1, 300; @%p bra small;
{ .param .b32 x; st.param.b32 [x+0], %r1; .param .b32 y; call.uni (y), twice, (x); ld.param.b32 %r1, [y+0]; }
small: cvt.u64.u32 %x2, %r1; add.u64 %x2, %x2, %x1; st.param.b64 [r+0], %x2; ret; }
"""


def test_calls_of_device_functions(machine: Machine) -> None:
    """Lanes come from two call sites and return from two places; one function calls another."""
    body = """setp.lt.u32 %p1, %t, 20; @%p1 bra first;
{ .param .b32 x; st.param.b32 [x+0], %r0; .param .b64 y; mov.u64 %x3, 5; st.param.b64 [y+0], %x3; .param .b64 z;
call.uni (z), mixed, (x, y); ld.param.b64 %x4, [z+0]; cvt.u32.u64 %r0, %x4; } bra end;
first: { .param .b32 x; st.param.b32 [x+0], %t; .param .b64 y; mov.u64 %x3, 7; st.param.b64 [y+0], %x3; .param .b64 z;
call.uni (z), mixed, (x, y); ld.param.b64 %x4, [z+0]; cvt.u32.u64 %r0, %x4; }
end: add.u32 %r0, %r0, 1;"""
    data = numbers(50)
    threads = np.arange(50, dtype=np.uint32)
    wanted = np.where(threads < 20, threads + 8, np.where(data < 300, data, 2 * data) + 6)
    assert np.array_equal(run(machine, kernel(body, module=FUNCTIONS), data), wanted)


def test_registers_of_inner_scopes_hide_outer_ones(machine: Machine) -> None:
    body = """{ .reg .b32 v; .reg .pred q; mov.u32 v, 3; setp.ne.u32 q, v, 3; @q bra L; add.u32 %r0, %r0, v; L: }
{ .reg .b64 v; .reg .pred q; mov.u64 v, 4; setp.eq.u64 q, v, 4; @q bra L; add.u32 %r0, %r0, 1000; L: }"""
    data = numbers()
    assert np.array_equal(run(machine, kernel(body), data), data + 3)


# --- barriers -------------------------------------------------------------------------------------------------------

REVERSE = """mov.u32 %r1, buffer; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %r0; {barrier}
mov.u32 %r4, %ntid.x; sub.u32 %r4, %r4, 1; sub.u32 %r4, %r4, %t; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r1;
ld.shared.u32 %r0, [%r4];"""


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync.aligned 3;", "mov.u32 %r9, 150; bar.sync 1, %r9;"])
def test_block_barrier(machine: Machine, barrier: str) -> None:
    data = numbers(150)
    ptx = kernel(REVERSE.replace("{barrier}", barrier), ".shared .align 4 .b8 buffer[600];")
    assert np.array_equal(run(machine, ptx, data), data[::-1])


def test_barrier_reductions(machine: Machine) -> None:
    body = """setp.gt.u32 %p1, %r0, 500; barrier.red.popc.aligned.u32 %r1, 0, %p1; bar.red.or.pred %p2, 0, %p1;
bar.red.and.pred %p3, 0, %p1; selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 5000, 0, %p3; add.u32 %r0, %r1, %r2;
add.u32 %r0, %r0, %r3;"""
    data = numbers(150)
    assert np.all(run(machine, kernel(body), data) == np.count_nonzero(data > 500) + 1000)


def test_arrive_and_wait(machine: Machine) -> None:
    """One warp makes what the other takes; only the taker waits."""
    body = """mov.u32 %r1, cell; setp.ge.u32 %p1, %t, 32; @%p1 bra take; st.shared.u32 [%r1], 77; bar.arrive 2, 64;
bra end;
take: bar.sync 2, 64; ld.shared.u32 %r0, [%r1]; end:"""
    data = numbers()
    got = run(machine, kernel(body, ".shared .align 4 .b32 cell;"), data)
    assert np.array_equal(got, np.where(np.arange(64) < 32, data, 77))


def test_a_barrier_that_not_all_reach_is_found(machine: Machine) -> None:
    machine.load(kernel("setp.lt.u32 %p1, %t, 32; @%p1 bra out; bar.sync 0, 64; out:"))
    address = machine.upload(numbers())
    with pytest.raises(EmulatedError, match="never reach"):
        machine.run("k", 1, 64, address)


def test_a_shuffle_that_not_all_reach_is_found(machine: Machine) -> None:
    machine.load(
        kernel("setp.lt.u32 %p1, %t, 16; @%p1 bra low; bar.warp.sync 0xffffffff; bra out; low: bar.sync 0; out:")
    )
    address = machine.upload(numbers(32))
    with pytest.raises(EmulatedError, match="never reach"):
        machine.run("k", 1, 32, address)


# --- between lanes --------------------------------------------------------------------------------------------------

LANES = np.arange(32)
SHUFFLES = [
    ("shfl.sync.idx.b32 %r0, %r0, 7, 0x1f, -1", np.full(32, 7)),
    ("shfl.sync.up.b32 %r0, %r0, 3, 0, -1", np.where(LANES >= 3, LANES - 3, LANES)),
    ("shfl.sync.down.b32 %r0, %r0, 5, 0x1f, -1", np.where(LANES + 5 < 32, LANES + 5, LANES)),
    ("shfl.sync.bfly.b32 %r0, %r0, 17, 0x1f, -1", LANES ^ 17),
    ("shfl.sync.idx.b32 %r0, %r0, 2, 0x181f, -1", LANES // 8 * 8 + 2),  # in segments of 8
    ("shfl.sync.down.b32 %r0, %r0, 1, 0x1c03, -1", np.where(LANES % 4 == 3, LANES, LANES + 1)),  # of 4
]


@pytest.mark.parametrize(("body", "origin"), SHUFFLES, ids=[row[0] for row in SHUFFLES])
def test_shuffles(machine: Machine, body: str, origin: npt.NDArray[np.int64]) -> None:
    data = numbers(32)
    assert np.array_equal(run(machine, kernel(body + ";"), data), data[origin])


def test_shuffle_predicate_says_whether_it_was_in_range(machine: Machine) -> None:
    body = "shfl.sync.up.b32 %r1|%p1, %r0, 4, 0, -1; selp.u32 %r0, 1, 0, %p1;"
    assert np.array_equal(run(machine, kernel(body), numbers(32)), LANES >= 4)


def test_halves_of_a_warp_shuffle_by_themselves(machine: Machine) -> None:
    body = """setp.lt.u32 %p1, %lane, 16; @%p1 bra low; shfl.sync.bfly.b32 %r0, %r0, 1, 0x1f, 0xffff0000; bra end;
low: shfl.sync.bfly.b32 %r0, %r0, 2, 0x1f, 0x0000ffff; end:"""
    data = numbers(32)
    assert np.array_equal(run(machine, kernel(body), data), data[np.where(LANES < 16, LANES ^ 2, LANES ^ 1)])


def test_votes_matches_and_reductions(machine: Machine) -> None:
    body = """setp.gt.u32 %p1, %r0, 500; vote.sync.ballot.b32 %r1, %p1, -1; vote.sync.any.pred %p2, %p1, -1;
vote.sync.all.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p2, -1; and.b32 %r2, %r0, 3; match.any.sync.b32 %r3, %r2, -1;
redux.sync.add.u32 %r4, %r0, -1; redux.sync.max.s32 %r5, %r0, -1; redux.sync.min.u32 %r6, %r0, -1;
redux.sync.xor.b32 %r7, %r0, -1;
selp.u32 %r8, 1, 0, %p2; selp.u32 %r9, 1, 0, %p3; selp.u32 %r10, 1, 0, %p4; match.all.sync.b32 %r11|%p5, %r8, -1;
activemask.b32 %r12;
xor.b32 %r0, %r1, %r3; xor.b32 %r0, %r0, %r4; xor.b32 %r0, %r0, %r5; xor.b32 %r0, %r0, %r6; xor.b32 %r0, %r0, %r7;
add.u32 %r0, %r0, %r8; add.u32 %r0, %r0, %r9; add.u32 %r0, %r0, %r10; xor.b32 %r0, %r0, %r11; sub.u32 %r0, %r0, %r12;"""
    data = numbers(32)
    ballot = sum(int(x > 500) << i for i, x in enumerate(data))
    for_lane = []
    for x in data:
        match = sum(int((y & 3) == (x & 3)) << i for i, y in enumerate(data))
        value = ballot ^ match ^ int(data.sum()) ^ int(data.max()) ^ int(data.min()) ^ int(np.bitwise_xor.reduce(data))
        for_lane.append(((value + 1 + 0 + 1) ^ 0xFFFFFFFF) - 0xFFFFFFFF & 0xFFFFFFFF)
    assert run(machine, kernel(body), data).tolist() == for_lane


def test_elect_and_lane_masks(machine: Machine) -> None:
    body = """elect.sync %r1|%p1, -1; selp.u32 %r2, 1, 0, %p1; mov.u32 %r3, %lanemask_lt; mov.u32 %r4, %lanemask_ge;
xor.b32 %r5, %r3, %r4; mov.u32 %r6, %laneid; add.u32 %r0, %r2, %r6; @!%p1 add.u32 %r0, %r0, %r5;"""
    wanted = [1] + [(lane + 0xFFFFFFFF) & 0xFFFFFFFF for lane in range(1, 32)]
    assert run(machine, kernel(body), numbers(32)).tolist() == wanted


def test_special_registers_of_three_dimensions(machine: Machine) -> None:
    ptx = """.visible .entry k(.param .u64 p_a) { .reg .b32 %r<20>; .reg .b64 %x<4>;
mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
mov.u32 %r6, %ctaid.z;
mov.u32 %r7, %ntid.x; mov.u32 %r8, %ntid.y; mov.u32 %r9, %ntid.z; mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y;
mad.lo.u32 %r12, %r6, %r11, %r5; mad.lo.u32 %r12, %r12, %r10, %r4; mad.lo.u32 %r12, %r12, %r9, %r3;
mad.lo.u32 %r12, %r12, %r8, %r2; mad.lo.u32 %r12, %r12, %r7, %r1;
ld.param.u64 %x1, [p_a]; mul.wide.u32 %x2, %r12, 4; add.u64 %x1, %x1, %x2; st.global.u32 [%x1], %r12; ret; }"""
    machine.load(ptx)
    out = np.zeros(2 * 3 * 4 * 5 * 2 * 3, np.uint32)
    address = machine.upload(out)
    machine.run("k", (2, 3, 4), (5, 2, 3), address)
    assert np.array_equal(machine.download(address, out), np.arange(len(out)))
