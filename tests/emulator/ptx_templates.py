"""PTX kernels made from one line, d = f(a, b, c), operands that reach the corners, and a few kernels more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from emulator.ptx_machine import EmulatedError, Machine

COUNT = 128
DECLARED = """.reg .pred p, q; .reg .b16 h, h2, h3; .reg .b32 x, y, z, w, r, t, i, n; .reg .f32 f, g, e;
.reg .f64 u, v; .reg .b64 l, at, base;"""


def elementwise(body: str, bits: int, arity: int) -> str:
    """The kernel `k`: operands a, b, c and result d are registers of `bits`; DECLARED are spare ones."""
    names = "abc"[:arity]
    parameters = "".join(f".param .u64 p_{name}, " for name in names)
    loads = "".join(
        f"ld.param.u64 base, [p_{name}]; add.u64 at, base, l; ld.global.b{bits} {name}, [at];\n" for name in names
    )
    return f""".visible .entry k({parameters}.param .u64 p_d, .param .u32 p_n)
{{
.reg .b{bits} a, b, c, d;
{DECLARED}
mov.u32 i, %ctaid.x; mov.u32 x, %ntid.x; mov.u32 y, %tid.x; mad.lo.u32 i, i, x, y;
ld.param.u32 n, [p_n]; setp.ge.u32 p, i, n; @p bra done;
mul.wide.u32 l, i, {bits // 8};
{loads}{body};
ld.param.u64 base, [p_d]; add.u64 at, base, l; st.global.b{bits} [at], d;
done: ret;
}}
"""


def run_elementwise(
    machine: Machine, ptx: str, bits: int, operands: list[npt.NDArray[Any]]
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """The results, as unsigned words; a block that is not full and one more."""
    machine.load(ptx)
    count = len(operands[0])
    out = np.zeros(count, f"u{bits // 8}")
    addresses = [machine.upload(one) for one in (*operands, out)]
    block = 96
    machine.run("k", -(-count // block), block, *addresses, np.uint32(count))
    return machine.download(addresses[-1], out)


def words(bits: int, seed: int, nonzero: bool = False) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Random words with the corners in front: 0, 1, all ones, the sign bit and its neighbours."""
    corners = [0, 1, 2, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, (1 << bits - 1) + 1, 255, 0x8000]
    random = np.random.default_rng(seed).integers(0, 1 << bits, COUNT, dtype=f"u{bits // 8}", endpoint=False)
    pairs = len(corners) ** 2
    front = [corners[i % len(corners) if seed % 2 else i // len(corners)] for i in range(pairs)]
    values = np.concatenate([np.array(front, f"u{bits // 8}"), random])
    values[values == 0] = 3 if nonzero else 0
    return values


ADD_ONE = """.visible .entry add_one(.param .u64 p_a) { .reg .b32 %r<4>; .reg .b64 %x<4>;
mov.u32 %r1, %tid.x; ld.param.u64 %x1, [p_a]; mul.wide.u32 %x2, %r1, 4; add.u64 %x1, %x1, %x2;
ld.global.u32 %r2, [%x1]; add.u32 %r2, %r2, 1; st.global.u32 [%x1], %r2; ret; }"""
# Waits until the host writes something else than 0 to the flag.
GATE = """.visible .entry gate(.param .u64 p_flag) { .reg .b32 %r<4>; .reg .b64 %x<2>; .reg .pred %p;
ld.param.u64 %x1, [p_flag]; again: nanosleep.u32 20000; ld.relaxed.sys.u32 %r1, [%x1]; setp.eq.u32 %p, %r1, 0;
@%p bra again; ret; }"""
SPIN = ".visible .entry spin() { again: bra again; }"


def code_of(call: Callable[[], Any]) -> int:
    with pytest.raises(EmulatedError) as caught:
        call()
    return caught.value.code
