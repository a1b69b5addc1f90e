"""Throughput of atomic additions that return nothing (csrc/kernels/atomics.cuh); an addition is one operation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..errors import VerificationError
from ..spec import Check, Execution, GpuForm, KernelSpec, Launch, Operand, Problem

BLOCK = 256  # threads, kAtomicsBlock
DTYPES = ("float32", "int32")
_ELEMENT = {"float32": "float", "int32": "int"}
_EXACT = 1 << 24  # where counting in float32 ends: 2^24 + 1 is rounded back to 2^24

_Array = npt.NDArray[np.generic]


# Additions of a thread. All on one address stay below 2^24 up to 256 SMs, where float32 counts. Where nobody waits for
# anybody more are needed, lest the start of the launch be a good part of its time.
_REPS = {"one": 32, "spread": 512, "shared_one": 32, "shared_spread": 2048}


def gpu_sizes(spec: KernelSpec, device: Device) -> dict[str, int]:
    """blocks and reps that fill the device for some tens of microseconds at least."""
    emulated = bool(device.facts.get("emulated"))
    reps = _REPS[spec.name.partition(".")[2]]
    return {"blocks": 2 if emulated else 8 * (device.cores or 1), "reps": 3 if emulated else reps}


def _additions(problem: Problem) -> int:
    return problem["blocks"] * BLOCK * problem["reps"]


def _expected(name: str, problem: Problem) -> npt.NDArray[np.int64]:
    """Totals after one run, before the element type's limits."""
    if name == "one":
        return np.array([_additions(problem)])
    if name == "shared_one":
        totals = np.zeros((problem["blocks"], BLOCK), np.int64)
        totals[:, 0] = BLOCK * problem["reps"]
        return totals.reshape(-1)
    return np.full(problem["blocks"] * BLOCK, problem["reps"], np.int64)


def _check(spec: KernelSpec, problem: Problem, arrays: Mapping[str, _Array]) -> Check:
    expected = _expected(spec.name.partition(".")[2], problem)
    if problem.dtype == "float32":
        expected = np.minimum(expected, _EXACT)
    else:
        expected = expected.astype(np.int32).astype(np.int64)  # modulo 2^32, as the device adds
    got = arrays["totals"].reshape(-1)
    wrong = np.flatnonzero(~(got == expected))
    if len(wrong):
        at = int(wrong[0])
        raise VerificationError(spec.name, at, float(expected[at]), float(got[at].astype(np.float64)), 0.0)
    return Check(True, 0.0, 0.0, "counted", len(expected))


def _spec(name: str, summary: str, symbol: str, spread: int | None) -> KernelSpec:
    def launch(problem: Problem, execution: Execution, device: Device) -> Launch:  # noqa: ARG001
        one = np.dtype(problem.dtype).type(1)
        mask = () if spread is None else (np.uint32(spread),)
        return Launch(
            symbol=f"gm::{symbol}<{_ELEMENT[problem.dtype]}>",
            grid=(problem["blocks"], 1, 1),
            block=(BLOCK, 1, 1),
            arguments=("totals", np.int64(problem["reps"]), one, *mask),
        )

    return KernelSpec(
        name=f"atomics.{name}",
        summary=summary,
        dtypes=DTYPES,
        sizes=("blocks", "reps"),
        operands=(Operand("totals", "out", lambda p: 1 if name == "one" else p["blocks"] * BLOCK),),
        bytes_moved=lambda _: 0,
        traffic="none",
        flops=_additions,
        unit="FLOP/s",
        on_cpu=False,
        gpu=GpuForm(source="atomics.cuh", launch=launch, dtypes=DTYPES, check=_check),
    )


SPECS = (
    _spec("one", "atomic additions of all threads to one address", "atomics_one", 0),
    _spec("spread", "atomic additions of each thread to its own address", "atomics_spread", None),
    _spec("shared_one", "atomic additions of a block to one address of shared memory", "atomics_shared", 0),
    _spec("shared_spread", "atomic additions of each thread to its own shared address", "atomics_shared", BLOCK - 1),
)
