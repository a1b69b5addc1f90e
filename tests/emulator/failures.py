"""As a script, under the test double: uses the whole CUDA backend once with each failure that standard input asks for.

Input: a list of what ptxemu_fail takes ("cudaMalloc:1:2"). Output: for each a line of JSON, [failure, what became of
it]. Each runs in a child of its own, forked before CUDA is touched, so that the first call of each kind is the first.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpumicro import cuda_native, kernels
from gpumicro.backends.cuda import CudaBackend
from gpumicro.device_timers import EventTimer, GraphTimer
from gpumicro.errors import CudaError, GpumicroError
from gpumicro.spec import Execution, Problem

TWICE = np.array([1, 1], np.int64)


def verified(name: str, variant: str = "", dtype: str = "", **sizes: int) -> Callable[[], Any]:
    def run() -> None:
        spec = kernels.find(name)
        assert spec.gpu is not None
        device = CudaBackend().devices()[0]
        kind = dtype or spec.gpu.dtypes[0]
        chosen = variant or spec.gpu.variants(kind, device)[0]
        with CudaBackend().prepare(spec, Problem.of(kind, **sizes), Execution(variant=chosen), device) as prepared:
            assert prepared.verify().passed

    return run


def timed_by_events() -> None:
    cuda = cuda_native.load()
    work = cuda.Launch("gm::empty", (1, 1, 1), (32, 1, 1), 0, [], 0, None).work
    timer = EventTimer(0)
    timer.sample(work, TWICE)
    timer.with_cache("cold").sample(work, TWICE)
    timer.overhead(4)


def timed_by_graphs() -> None:
    cuda = cuda_native.load()
    work = cuda.Launch("gm::empty", (1, 1, 1), (32, 1, 1), 0, [], 0, None).work
    GraphTimer(0).sample(work, TWICE * 3)


def memory() -> None:
    cuda = cuda_native.load()
    for kind in ("device", "pinned", "managed", "host"):
        buffer = cuda.Buffer(0, 1000, kind)
        buffer.upload(np.arange(1000, dtype=np.uint8))
        buffer.download()
        buffer.fill(1)
        buffer.close()
    cuda.synchronize(0)
    cuda.synchronize_device(0)


def described() -> None:
    cuda = cuda_native.load()
    cuda.device_facts(0)
    name = next(name for name in cuda.symbols() if "gemm_tiled" in name)
    cuda.attributes(name, 0)
    cuda.occupancy(name, 0, 64, 100_000)
    cuda.Launch("gm::empty", (1, 1, 1), (32, 1, 1), 100_000, [], 0, None).run()


STEPS: dict[str, Callable[[], Any]] = {
    "described": described,
    "memory": memory,
    "triad": verified("stream.triad", n=33),
    "gemm": verified("gemm.mma", m=17, n=33, k=65),
    "tensor map": lambda: cuda_native.load().tensor_map(1 << 20, "bfloat16", (64, 64), (128,), (64, 64), 128),
    "h2d": verified("copy.h2d", "pinned", n=31),
    "d2h": verified("copy.d2h", "pageable", n=31),
    "both": verified("copy.bidirectional", n=31),
    "peer": verified("copy.peer", "access", n=31, to=1),
    "staged": verified("copy.peer", "staged", n=31, to=1),
    "prefetch": verified("copy.managed", "prefetch", n=4096),
    "touch": verified("copy.managed", "touch", n=4096),
    "malloc": verified("alloc.malloc", n=4096),
    "pool": verified("alloc.pool", n=4096),
    "pool's size": lambda: cuda_native.load().timing.Pool(0, 4096).reserved_bytes,
    "launch": verified("launch.stream"),
    "graph": verified("launch.graph", nodes=3),
    "sync": verified("launch.sync"),
    "event": verified("launch.event"),
    "event timer": timed_by_events,
    "graph timer": timed_by_graphs,
}


def attempt(step: Callable[[], Any]) -> dict[str, Any] | None:
    """What it raised, None for nothing."""
    try:
        step()
    except CudaError as error:
        return {"type": "CudaError", "call": error.call, "code": error.code, "lost": error.lost, "text": str(error)}
    except GpumicroError as error:
        return {"type": type(error).__name__, "text": str(error)}
    except Exception as error:  # nothing else may come out of the backend: the test says so
        return {"type": type(error).__name__, "text": str(error), "foreign": True}
    return None


def outcome(double: ctypes.CDLL, failure: str) -> dict[str, Any]:
    """All steps under the failure, then one without it."""
    double.ptxemu_fail(failure.encode())
    probe = cuda_native.load().probe()
    availability = CudaBackend().availability()
    raised = {name: error for name, step in STEPS.items() if (error := attempt(step)) is not None}
    double.ptxemu_calls_json.restype = ctypes.c_char_p
    calls = json.loads(double.ptxemu_calls_json())
    double.ptxemu_fail(b"")
    after = attempt(STEPS["triad"])
    return {
        "raised": raised, "after": after, "calls": calls, "probe": {"code": probe["code"], "text": probe["text"]},
        "available": bool(availability), "reason": availability.reason,
    }  # fmt: skip


def say(line: list[Any]) -> None:
    """One line of JSON, at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    double = ctypes.CDLL("libcudart.so.13")  # loaded already: by its name
    for failure in json.load(sys.stdin):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            say([failure, outcome(double, failure)])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            say([failure, {"died": status}])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main()
