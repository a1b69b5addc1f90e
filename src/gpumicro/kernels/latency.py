"""Latencies: of memory, by a pointer chase, and of a parallel region.

On the CPU a run is one hop. On a GPU a run is one launch of `hops` hops (csrc/kernels/latency.cuh): `hops(problem)` is
what its time is to be divided by, and `last_hop` reads what the kernel's own clocks found.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..errors import VerificationError
from ..spec import Check, Execution, GpuForm, KernelSpec, Launch, Operand, Problem

LINE_WORDS = 8  # a line of 64 bytes holds one pointer and 7 unused words

_Array = npt.NDArray[np.generic]


def _nothing(_: Problem) -> int:
    return 0


def _lap(lines: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Line numbers in the order of the walk; `lines[i, 0]` is the address that line i points to, line 0 lies first."""
    if len(lines) == 0:
        return np.zeros(0, np.int64)
    addresses = lines[:, 0].astype(np.int64)
    follow = (addresses - addresses.min()) // (8 * lines.shape[1])
    order = np.zeros(len(lines), np.int64)
    for hop in range(1, len(lines)):
        order[hop] = follow[order[hop - 1]]
    return order


# --- on a GPU ------------------------------------------------------------------------------------------------------

BLOCK = 256  # threads, kChaseBlock
GPU_LINE_BYTES = 128
GPU_LINE_WORDS = GPU_LINE_BYTES // 8
WORD_BYTES = 4  # of the chase in shared memory
POSITION, HOPS, CYCLES, NANOSECONDS, STATE_WORDS = 1, 2, 3, 4, 8  # of `state`, as csrc/kernels/latency.cuh has them
_LARGEST_L1_BYTES = 256 * 1024  # of any GPU so far; a launch finds L1 empty, so what may fit is walked once before
PAST_L1 = "past-l1"


def hops(problem: Problem) -> int:
    """Timed loads of one run: 1 on the CPU."""
    return dict(problem.sizes).get("hops", 1)


def last_hop(problem: Problem, state: _Array) -> tuple[float, float]:
    """(cycles of the SM, seconds of the device's timer) of one hop of the last run, from the operand `state`."""
    words, count = state.astype(np.int64), max(hops(problem), 1)
    return float(words[CYCLES]) / count, float(words[NANOSECONDS]) * 1e-9 / count


def _warm(problem: Problem) -> int:
    return problem["n"] if problem["n"] * GPU_LINE_BYTES <= _LARGEST_L1_BYTES else 0


def chase_order(lines: int) -> npt.NDArray[np.int64]:
    """Lines in the order in which the GPU's chase visits them: a Feistel network over the least 4^b >= lines, walked on
    from numbers that are no line (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002)."""
    bits = 1
    while 4**bits < lines:
        bits += 1
    mask = np.uint32((1 << bits) - 1)
    at = np.arange(lines, dtype=np.int64)
    open_ = np.arange(lines)
    while len(open_):
        left, right = (at[open_] >> bits).astype(np.uint32), at[open_].astype(np.uint32) & mask
        for turn in range(1, 5):
            key = np.uint32(0x9E3779B9 * turn & 0xFFFFFFFF)
            left, right = right, left ^ (_scramble(right + key) & mask)
        at[open_] = (left.astype(np.int64) << bits) | right
        open_ = open_[at[open_] >= lines]
    return at


def _scramble(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    scrambled: npt.NDArray[np.uint32] = x ^ (x >> np.uint32(16))
    return scrambled


def gpu_sizes(spec: KernelSpec, device: Device) -> tuple[tuple[str, dict[str, int]], ...]:
    """(memory level, sizes) of each measurement of a chase: well within L1, a quarter of L2, four times L2 for DRAM.

    Hops make a launch some milliseconds long, so that the launch and the first lap through L1 are below a percent.
    """
    emulated = bool(device.facts.get("emulated"))
    if spec.name == "latency.gpu_shared":
        return (("shared", {"n": 256 if emulated else 4096, "hops": 512 if emulated else 1 << 17}),)
    found = device.cache("l2")
    l2 = found.size_bytes if found else 4 << 20
    footprints = {"l1": (16 << 10, 1 << 18), "l2": (l2 // 4, 1 << 14), "dram": (4 * l2, 1 << 13)}
    if emulated:
        footprints = {"l1": (4 << 10, 256), "l2": (8 << 10, 256), "dram": (16 << 10, 256)}
    return tuple((level, {"n": size // GPU_LINE_BYTES, "hops": count}) for level, (size, count) in footprints.items())


def sweep_lines(device: Device, per_octave: int = 2) -> tuple[int, ...]:
    """Numbers of lines for a sweep of footprints from 4 KiB to eight times L2: the knee of a cache is no sharp one."""
    found = device.cache("l2")
    most = 8 * (found.size_bytes if found else 4 << 20)
    steps = range(int(per_octave * np.log2(most / 4096)) + 1)
    return tuple(sorted({int(4096 * 2 ** (step / per_octave)) // GPU_LINE_BYTES for step in steps}))


def _launch_chase(problem: Problem, execution: Execution, device: Device) -> Launch:  # noqa: ARG001
    cached = "false" if execution.variant == PAST_L1 else "true"
    sizes = (problem["n"], _warm(problem), problem["hops"])
    return Launch(f"gm::chase<{cached}>", (1, 1, 1), (BLOCK, 1, 1), ("next", "state", *map(np.int64, sizes)))


def _launch_shared(problem: Problem, execution: Execution, device: Device) -> Launch:  # noqa: ARG001
    arguments = ("state", np.int64(problem["n"]), np.int64(problem["hops"]))
    return Launch("gm::chase_shared", (1, 1, 1), (BLOCK, 1, 1), arguments, WORD_BYTES * problem["n"])


def _must_be(spec: KernelSpec, index: int, expected: int, got: int) -> None:
    if expected != got:
        raise VerificationError(spec.name, index, expected, got, 0.0)


def _check_chase(spec: KernelSpec, problem: Problem, arrays: Mapping[str, _Array]) -> Check:
    """One cycle over all lines in the intended order, and the walk stands where its hops must have brought it."""
    lines, state = problem["n"], arrays["state"].astype(np.int64)
    addresses = arrays["next"].astype(np.int64).reshape(lines, GPU_LINE_WORDS)[:, 0]
    order = chase_order(lines)
    follow = np.empty(lines, np.int64)
    follow[order] = np.roll(order, -1)
    expected = addresses.min() + GPU_LINE_BYTES * follow
    wrong = np.flatnonzero(addresses != expected)
    if len(wrong):
        _must_be(spec, int(wrong[0]), int(expected[wrong[0]]), int(addresses[wrong[0]]))
    run = _warm(problem) + problem["hops"]
    _must_be(spec, HOPS, 0, int(state[HOPS]) % run if run else int(state[HOPS]))
    at = addresses.min() + GPU_LINE_BYTES * order[int(state[HOPS]) % lines]
    _must_be(spec, POSITION, int(at), int(state[POSITION]))
    return Check(True, 0.0, 0.0, "the intended cycle", lines)


def _check_shared(spec: KernelSpec, problem: Problem, arrays: Mapping[str, _Array]) -> Check:
    state = arrays["state"].astype(np.int64)
    _must_be(spec, HOPS, problem["hops"], int(state[HOPS]))
    at = WORD_BYTES * int(chase_order(problem["n"])[problem["hops"] % problem["n"]])
    _must_be(spec, POSITION, at, int(state[POSITION]))
    return Check(True, 0.0, 0.0, "the intended cycle", 1)


_STATE = Operand("state", "out", lambda _: STATE_WORDS)

# --- the records ---------------------------------------------------------------------------------------------------

SPECS = (
    KernelSpec(
        name="latency.chase",
        summary="p = *p over a random cycle of n lines; one run is one hop",
        dtypes=("int64",),
        sizes=("n",),
        operands=(Operand("next", "in", lambda p: LINE_WORDS * p["n"]),),
        bytes_moved=_nothing,
        traffic="none",
        flops=_nothing,
        reference=_lap,
        unit="s",
    ),
    KernelSpec(
        name="latency.gpu_chase",
        summary="p = *p by one thread over a random cycle of n lines of 128 bytes; one run is `hops` hops",
        dtypes=("int64",),
        sizes=("n", "hops"),
        operands=(Operand("next", "out", lambda p: GPU_LINE_WORDS * p["n"]), _STATE),
        bytes_moved=_nothing,
        traffic="none",
        flops=_nothing,
        unit="s",
        on_cpu=False,
        gpu=GpuForm(
            source="latency.cuh",
            launch=_launch_chase,
            dtypes=("int64",),
            variants=lambda _dtype, _device: ("", PAST_L1),
            check=_check_chase,
        ),
    ),
    KernelSpec(
        name="latency.gpu_shared",
        summary="p = *p by one thread over a random cycle of n words of shared memory; one run is `hops` hops",
        dtypes=("int64",),
        sizes=("n", "hops"),
        operands=(_STATE,),
        bytes_moved=_nothing,
        traffic="none",
        flops=_nothing,
        unit="s",
        on_cpu=False,
        gpu=GpuForm(source="latency.cuh", launch=_launch_shared, dtypes=("int64",), check=_check_shared),
    ),
    KernelSpec(
        name="launch.empty",
        summary="an empty parallel region",
        dtypes=("int64",),
        sizes=(),
        operands=(),
        bytes_moved=_nothing,
        traffic="none",
        flops=_nothing,
        unit="s",
    ),
)
