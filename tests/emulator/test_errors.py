"""Every error path of the host code: what a failing call of the CUDA runtime becomes, and what the process can do then.

The names of the calls are read from the sources of the extension: one that is added is tested or listed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from emulator.conftest import HERE, ROOT, Emulated

INVALID_VALUE, OUT_OF_MEMORY, LAUNCH_FAILURE = 1, 2, 719
SOURCES = [*(ROOT / "csrc/cuda").glob("*.?pp"), *(ROOT / "csrc/bind").glob("*.?pp")]
CALLS = sorted({name for path in SOURCES for name in re.findall(r"\b(cuda[A-Z]\w+)\(", path.read_text())})
NOT_THERE = {
    "cudaGetErrorName": "cannot fail",
    "cudaGetErrorString": "cannot fail",
    "cudaGetLastError": "returns the failures of others",
    "cudaGetDriverEntryPoint": "for CUDA 12.0 to 12.4 in place of ...ByVersion",
}
QUIET = {  # failures that no error follows from
    "cudaEventDestroy": "nobody can do anything about it",
    "cudaStreamDestroy": "nobody can do anything about it",
    "cudaFree": "nobody can do anything about it",
    "cudaFreeHost": "nobody can do anything about it",
    "cudaGraphDestroy": "nobody can do anything about it",
    "cudaGraphExecDestroy": "nobody can do anything about it",
    "cudaMemPoolDestroy": "nobody can do anything about it",
    "cudaDeviceGetAttribute": "the fact is unknown",
    "cudaDeviceGetPCIBusId": "the fact is unknown",
    "cudaFuncGetParamInfo": "the arguments are not checked",
    "cudaGetDeviceCount": "told by probe()",
    "cudaDriverGetVersion": "told by probe()",
    "cudaRuntimeGetVersion": "told by probe()",
    "cudaGetDeviceProperties": "the backend is not available, and says why",
}
# Which call of them; 0: all, since the first ones only undo what was done.
NUMBER = {"cudaDeviceDisablePeerAccess": 0}
ALLOCATIONS = ["cudaMalloc", "cudaHostAlloc", "cudaMallocManaged", "cudaMallocFromPoolAsync"]
ENDS_THE_CONTEXT = ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamQuery", "cudaEventRecord", "cudaEventQuery"]
RAISING = [name for name in CALLS if name not in NOT_THERE and name not in QUIET]


def failure(call: str, code: int) -> str:
    return f"{call}:{NUMBER.get(call, 1)}:{code}"


WANTED = [
    "",
    *(failure(call, INVALID_VALUE) for call in CALLS if call not in NOT_THERE),
    *(failure(call, OUT_OF_MEMORY) for call in ALLOCATIONS),
    *(failure(call, LAUNCH_FAILURE) for call in ENDS_THE_CONTEXT),
]


@pytest.fixture(scope="module")
def outcomes(emulated: Emulated) -> Mapping[str, Any]:
    done = emulated.python(str(HERE / "failures.py"), env={"PTXEMU_DEVICES": "2"}, text=json.dumps(WANTED))
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


def raised(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """By step; but for the tensor map, which no double of the runtime can make without a driver."""
    assert "died" not in outcome, outcome
    return {step: error for step, error in outcome["raised"].items() if step != "tensor map" or "call" in error}


def test_without_a_failure_all_is_well(outcomes: Mapping[str, Any]) -> None:
    assert raised(outcomes[""]) == {}
    assert outcomes[""]["after"] is None
    assert outcomes[""]["available"]


def test_every_call_is_made(outcomes: Mapping[str, Any]) -> None:
    """Else its failure would prove nothing."""
    missed = [name for name in CALLS if name not in outcomes[""]["calls"] and name not in NOT_THERE]
    assert missed == []


@pytest.mark.parametrize("call", RAISING)
def test_a_failing_call_is_named_and_leaves_a_usable_process(outcomes: Mapping[str, Any], call: str) -> None:
    outcome = outcomes[failure(call, INVALID_VALUE)]
    errors = raised(outcome)
    assert errors, "nothing was raised"
    for error in errors.values():
        assert error["type"] == "CudaError", error
        assert (error["call"], error["code"], error["lost"]) == (call, INVALID_VALUE, False), error
        assert call in error["text"]
        assert "cudaErrorInvalidValue" in error["text"]
        assert "invalid argument" in error["text"]
    assert outcome["after"] is None


@pytest.mark.parametrize("call", QUIET)
def test_a_failure_that_nobody_can_act_on_is_passed_over(outcomes: Mapping[str, Any], call: str) -> None:
    outcome = outcomes[failure(call, INVALID_VALUE)]
    assert raised(outcome) == {}
    assert outcome["after"] is None
    assert outcome["available"] is (QUIET[call] != "the backend is not available, and says why")
    if not outcome["available"]:
        assert call in outcome["reason"]


def test_a_failing_count_is_told_by_the_probe(outcomes: Mapping[str, Any]) -> None:
    probe = outcomes[failure("cudaGetDeviceCount", INVALID_VALUE)]["probe"]
    assert probe["code"] == INVALID_VALUE
    assert "invalid argument" in probe["text"]


@pytest.mark.parametrize("call", ALLOCATIONS)
def test_memory_that_is_refused_is_out_of_memory(outcomes: Mapping[str, Any], call: str) -> None:
    outcome = outcomes[failure(call, OUT_OF_MEMORY)]
    assert {error["type"] for error in raised(outcome).values()} == {"OutOfMemory"}, raised(outcome)
    assert outcome["after"] is None


@pytest.mark.parametrize("call", ENDS_THE_CONTEXT)
def test_an_error_that_ends_the_context_says_so(outcomes: Mapping[str, Any], call: str) -> None:
    outcome = outcomes[failure(call, LAUNCH_FAILURE)]
    first, *later = raised(outcome).values()
    assert (first["type"], first["code"], first["lost"]) == ("CudaError", LAUNCH_FAILURE, True)
    assert first["call"] == call
    assert "start a new process" in first["text"]
    assert all(error["lost"] for error in later if error["type"] == "CudaError")
    assert outcome["after"]["lost"]


# --- errors that come from the device ---------------------------------------------------------------------------------

PREPARED = """
import json, numpy as np
from gpumicro import cuda_native
from gpumicro.errors import CudaError, GpumicroError
cuda = cuda_native.load()
def launch(symbol, grid, block, shared, *arguments):
    return cuda.Launch(symbol, grid, block, shared, [a.tobytes() for a in arguments], 0, None)
def caught(call):
    try:
        call()
    except CudaError as error:
        return [error.call, error.code, error.kernel, error.launch, error.lost, str(error)]
    except (GpumicroError, ValueError) as error:
        return [type(error).__name__, str(error)]
usable = lambda: launch("gm::empty", (1, 1, 1), (32, 1, 1), 0).run()
copy = next(name for name in cuda.symbols() if name.startswith("gm::copy<float"))
address = lambda value: np.uint64(value)
"""


def answers(emulated: Emulated, expression: str) -> Any:
    return emulated.json("-c", f"{PREPARED}\nprint(json.dumps({expression}))")


def test_an_illegal_address_names_kernel_and_shape(emulated: Emulated) -> None:
    first, second = answers(
        emulated,
        "[caught(launch(copy, (2, 1, 1), (256, 1, 1), 0, address(4096), address(8192), np.int64(1000)).run),"
        " caught(usable)]",
    )
    _, code, kernel, shape, lost, text = first
    assert code == 700
    assert kernel.startswith("gm::copy<float")
    assert "2x1x1" in shape
    assert "256x1x1" in shape
    assert lost
    assert "an illegal memory access was encountered" in text
    assert "start a new process" in text
    assert second[1] == 700
    assert second[4]


def test_a_misaligned_address_is_told_apart(emulated: Emulated) -> None:
    code = f"""{PREPARED}
memory = cuda.Buffer(0, 4096, "device")
at = address(memory.address + 4)
print(json.dumps(caught(launch(copy, (1, 1, 1), (256, 1, 1), 0, at, at, np.int64(64)).run)))
"""
    assert emulated.json("-c", code)[1] == 716


@pytest.mark.parametrize(
    ("shape", "code"),
    [("(0, 1, 1), (32, 1, 1), 0", 9), ("(1, 1, 1), (1025, 1, 1), 0", 9), ("(1, 1, 1), (32, 1, 1), 1 << 20", 1)],
)
def test_a_launch_that_cannot_be_is_refused_and_forgotten(emulated: Emulated, shape: str, code: int) -> None:
    refused, after = answers(emulated, f'[caught(lambda: launch("gm::empty", {shape}).run()), caught(usable)]')
    assert refused[1] == code, refused
    assert refused[4] is False, refused
    assert "gm::empty" in refused[5] or refused[0] == "cudaFuncSetAttribute"
    assert after is None


def test_wrong_arguments_never_reach_the_device(emulated: Emulated) -> None:
    few, unknown, after = answers(
        emulated,
        "[caught(lambda: launch(copy, (1, 1, 1), (32, 1, 1), 0, address(0))),"
        ' caught(lambda: launch("gm::none", (1, 1, 1), (32, 1, 1), 0)), caught(usable)]',
    )
    assert few[0] in ("ValueError", "UsageError")
    assert unknown[0] in ("ValueError", "UsageError")
    assert after is None


def test_a_kernel_that_hangs_is_given_up(emulated: Emulated) -> None:
    hung, _after, marked = answers(
        emulated,
        '[caught(lambda: launch("gm::spin_ns", (1, 1, 1), (32, 1, 1), 0, np.uint64(1 << 50)).run(limit_s=0.3)),'
        " caught(lambda: cuda.Buffer(0, 64, 'device').fill(0)), cuda.timing.is_hung(0)]",
    )
    assert hung[1] == 702
    assert hung[4]
    assert "not done after" in hung[5]
    assert marked is True


def test_more_memory_than_there_is(emulated: Emulated) -> None:
    code = f"""{PREPARED}
from gpumicro import kernels
from gpumicro.backends.cuda import CudaBackend
from gpumicro.spec import Execution, Problem
triad, problem = kernels.find("stream.triad"), Problem.of("float64", n=1 << 26)
backend = CudaBackend()
much = caught(lambda: backend.prepare(triad, problem, Execution(variant="wide"), backend.devices()[0]))
print(json.dumps([much, caught(usable)]))
"""
    refused, after = emulated.json("-c", code)
    assert refused[0] == "OutOfMemory"
    assert after is None


def test_no_device_is_a_sentence(emulated: Emulated) -> None:
    done = emulated.cli("info", env={"PTXEMU_DEVICES": "0"})
    assert done.returncode == 0, done.stderr
    assert "no" in done.stdout.lower()
    assert "cuda" in done.stdout.lower()


def test_info_says_that_the_device_is_emulated(emulated: Emulated) -> None:
    done = emulated.cli("info")
    assert done.returncode == 0, done.stderr
    assert "emulated" in done.stdout
