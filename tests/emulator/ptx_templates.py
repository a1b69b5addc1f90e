"""PTX kernels made from one line: d = f(a, b, c), element by element, and operands that reach the corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from emulator.ptx_machine import Machine

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
