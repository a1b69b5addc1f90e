"""STREAM's kernels, and read, write and dot. Always a = f(b, c): inputs are never written, so any run can be checked.

Bytes as STREAM counts them: each load and each store once. A temporal store also reads the line it writes to
(write-allocate): a temporal triad really moves 4/3 of what is counted, copy and scale 3/2, write twice. On a GPU no
line that a store fills is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..errors import VerificationError
from ..spec import Check, Execution, GpuForm, KernelSpec, Launch, Operand, Problem, Role
from .formats import roundoff
from .gpu import capability, ceil_div
from .parts import each_part

SCALAR = 0.4  # the s of scale and triad; write stores it too
DTYPES = ("float64", "float32")

_Array = npt.NDArray[np.generic]


def _n(problem: Problem) -> int:
    return problem["n"]


# --- on a GPU: csrc/kernels/stream.cuh -----------------------------------------------------------------------------

BLOCK = 256  # threads, kStreamBlock
BLOCKS_PER_SM = 4  # that surely fit at once (GM_STREAM_BOUNDS)
FOLD_WAVES = 16  # of a fold's wide grid: every block of it costs a partial sum
MOST_PARTIALS = 32768  # kMostPartials
KIB = 1024

# KiB that must be under way in an SM to fill DRAM's bandwidth, by compute capability: published tuning for V100 (12),
# A100 (16), H100 (32), H200 (48) and B200 (64); the others take their nearest neighbour's. No figure of ours.
_IN_FLIGHT_KIB = {(7, 0): 12, (8, 0): 16, (9, 0): 32, (10, 0): 64, (12, 0): 32}
_H200_KIB, _H200_MEMORY_BYTES = 48, 100 * 10**9  # an H200 is told from an H100 by its memory


def bytes_in_flight(device: Device) -> int:
    """Bytes of loads that an SM of this device should have under way."""
    have = capability(device)
    if have[0] == 9 and (device.memory_bytes or 0) > _H200_MEMORY_BYTES:
        return _H200_KIB * KIB
    known = [arch for arch in _IN_FLIGHT_KIB if arch <= have] or [min(_IN_FLIGHT_KIB)]
    return _IN_FLIGHT_KIB[max(known)] * KIB


def batch(inputs: int, device: Device) -> tuple[int, int]:
    """(bytes of one access, accesses of a thread to one array in a batch).

    The least batch of those compiled whose loads are twice `bytes_in_flight`: between the stores of one batch and the
    loads of the next a thread has none under way.
    """
    access = 32 if capability(device) >= (10, 0) else 16
    arrays = max(inputs, 1)
    compiled = (2, 4, 8) if (access, arrays) == (16, 1) else (2,) if (access, arrays) == (32, 2) else (2, 4)
    threads = BLOCKS_PER_SM * BLOCK
    enough = [u for u in compiled if threads * u * access * arrays >= 2 * bytes_in_flight(device)]
    return access, min(enough, default=compiled[-1])


def _gpu_launch(name: str, roles: Mapping[str, Role]) -> Callable[[Problem, Execution, Device], Launch]:
    inputs = sum(role == "in" for role in roles.values())
    scalar = name in ("write", "scale", "triad")

    def launch(problem: Problem, execution: Execution, device: Device) -> Launch:
        access, unroll = batch(inputs, device)
        lanes = access // problem.itemsize
        tiles = max(1, ceil_div(problem["n"] // lanes, BLOCK * unroll))
        resident = BLOCKS_PER_SM * (device.cores or 1)
        if "sum" in roles:
            most = min(resident * (FOLD_WAVES if execution.variant == "wide" else 1), MOST_PARTIALS)
        else:
            most = 2**31 - 1 if execution.variant == "wide" else resident
        real = np.dtype(problem.dtype).type
        element = "double" if problem.dtype == "float64" else "float"
        return Launch(
            symbol=f"gm::{name}<{element}, {lanes}, {unroll}>",
            grid=(min(tiles, most), 1, 1),
            block=(BLOCK, 1, 1),
            arguments=(*roles, *((real(SCALAR),) if scalar else ()), np.int64(problem["n"])),
        )

    return launch


def extra_bytes(problem: Problem, launch: Launch) -> int:
    """Bytes of global memory that a launch loads and stores beside `bytes_moved`, exactly; 0 for all but read and dot.

    Each block stores a partial sum and loads and stores nothing else; the last one loads all partial sums, stores the
    sum and sets the ticket (4 bytes) to zero. The ticket's atomic additions, one a block, are not among them.
    """
    if not launch.symbol.startswith(("gm::read<", "gm::dot<")):
        return 0
    return 2 * launch.grid[0] * problem.itemsize + problem.itemsize + 4


def _check_gpu_sum(spec: KernelSpec, problem: Problem, arrays: Mapping[str, _Array]) -> Check:
    """At least one SM, and at least the lanes of 16 bytes in a thread."""
    return check_sum(spec, problem, arrays, BLOCKS_PER_SM * BLOCK * 16 // problem.itemsize)


def check_sum(spec: KernelSpec, problem: Problem, arrays: Mapping[str, _Array], chains: int) -> Check:
    """The sum of read or dot against float64, within ten standard deviations of what random roundings make.

    `chains`: how many sums were made side by side, at least. Raises VerificationError.

    A bound from worst cases grows with n and would let whole blocks be missing. A chain of L additions of terms with
    mean square q has partial sums of mean square up to L q, each rounded by up to a roundoff: n terms in chains of L,
    then some 30 levels of adding those up, give a variance of roundoff^2 n q (L / 6 + 30).
    """
    inputs = [arrays[name] for name in "bc" if name in arrays]

    def sums(part: slice) -> tuple[float, float]:
        terms = inputs[0][part].astype(np.float64)
        if len(inputs) == 2:
            terms *= inputs[1][part].astype(np.float64)
        return float(np.sum(terms)), float(np.sum(np.square(terms, out=terms)))

    found = each_part(problem["n"], sums)
    expected, squares = math.fsum(one for one, _ in found), math.fsum(two for _, two in found)
    bound = 10 * roundoff(problem.dtype) * math.sqrt(squares * (problem["n"] / chains / 6 + 30))
    got = float(arrays["sum"].reshape(-1)[0].astype(np.float64))
    if not abs(got - expected) <= bound:
        raise VerificationError(spec.name, 0, expected, got, bound)
    return Check(True, abs(got - expected), bound, "float64", 1)


def _gpu_form(name: str, roles: dict[str, Role]) -> GpuForm:
    fold = "sum" in roles
    variants = ("persistent", "wide") if fold else ("wide", "persistent")
    return GpuForm(
        source="stream.cuh",
        launch=_gpu_launch(name, roles),
        dtypes=DTYPES,
        variants=lambda _dtype, _device: variants,
        elementwise=not fold,
        check=_check_gpu_sum if fold else None,
    )


# --- the records ---------------------------------------------------------------------------------------------------


def _spec(
    name: str, summary: str, roles: dict[str, Role], flops_each: int, reference: Callable[..., _Array]
) -> KernelSpec:
    operands = tuple(Operand(operand, role, _n if operand != "sum" else lambda _: 1) for operand, role in roles.items())
    arrays = sum(operand != "sum" for operand in roles)
    stores = "a" in roles
    return KernelSpec(
        name=f"stream.{name}",
        summary=summary,
        dtypes=DTYPES,
        sizes=("n",),
        operands=operands,
        bytes_moved=lambda problem: arrays * problem["n"] * problem.itemsize,
        traffic="exact",
        flops=lambda problem: flops_each * problem["n"],
        reference=reference,
        variants=("temporal", "nontemporal") if stores else ("",),
        gpu=_gpu_form(name, roles),
    )


def _scalar(like: _Array) -> np.generic:
    scalar: np.generic = like.dtype.type(SCALAR)
    return scalar


# A reference takes every operand in order; what the output holds before does not matter.
SPECS = (
    _spec("read", "sum of b[i]", {"b": "in", "sum": "out"}, 1, lambda b, _: np.sum(b, keepdims=True)),
    _spec("write", "a[i] = s", {"a": "out"}, 0, lambda a: np.full_like(a, SCALAR)),
    _spec("copy", "a[i] = b[i]", {"a": "out", "b": "in"}, 0, lambda _, b: b.copy()),
    _spec("scale", "a[i] = s * b[i]", {"a": "out", "b": "in"}, 1, lambda _, b: _scalar(b) * b),
    _spec("add", "a[i] = b[i] + c[i]", {"a": "out", "b": "in", "c": "in"}, 1, lambda _, b, c: b + c),
    _spec("triad", "a[i] = b[i] + s * c[i]", {"a": "out", "b": "in", "c": "in"}, 2, lambda _, b, c: b + _scalar(c) * c),
    _spec(
        "dot", "sum of b[i] * c[i]", {"b": "in", "c": "in", "sum": "out"}, 2,
        lambda b, c, _: np.sum(b * c, keepdims=True),
    ),
)  # fmt: skip
