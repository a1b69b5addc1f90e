"""A GPU backend's works that are no kernel: launches, copies, allocations. Each is made and checked here.

`ACTIONS` maps a record's name to what makes its work; a backend asks here first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .._core import timing as core
from ..device import Device
from ..errors import BackendUnavailable, UsageError, VerificationError
from ..kernels.copy import PAGE_BYTES
from ..spec import Check, Execution, KernelSpec, Problem
from ..timers import Timer
from .cuda_operands import SEED
from .engine import Engine, native

# Some works wait once at a span's end for what they enqueued; spans this long make that a small part.
LEAST_SPAN_S = 1e-3

Bytes = npt.NDArray[np.uint8]
Maker: TypeAlias = "Callable[[Any, int, Problem, str], Action]"  # (module _cuda, device, problem, variant)


@dataclass(slots=True)
class Action:
    """A host action, ready: its work, who times it, what must stay alive, and how to tell that it worked."""

    work: Any
    by_events: bool  # else by the host's clock: it returns when done
    keep: tuple[Any, ...] = ()
    reset: Callable[[], None] = lambda: None
    found: Callable[[], tuple[Bytes, Bytes]] | None = None  # (what should be there, what is there)
    facts: dict[str, Any] = field(default_factory=dict)


class HostActionPrepared:
    """A copy, a launch or an allocation as a backend hands it out."""

    def __init__(
        self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device, action: Action, engine: Engine
    ) -> None:
        self.spec, self.problem, self.execution, self.device = spec, problem, execution, device
        self._action: Action | None = action
        self._engine, self.backend = engine, engine.backend
        self._index = device.index

    @property
    def _live(self) -> Action:
        if self._action is None:
            raise UsageError(f"{self.spec.name} is closed")
        return self._action

    @property
    def work(self) -> Any:
        """What a timer runs."""
        return self._live.work

    @property
    def timer(self) -> Timer | None:
        """The device's clock; where the host's is the one to read the engine's, None for the default one."""
        return self._engine.timer(self._index) if self._live.by_events else self._engine.host_timer

    @property
    def facts(self) -> Mapping[str, Any]:
        """Who times it and in what form it runs."""
        return {
            "variant": self.execution.variant,
            "timed_by": "device events" if self._live.by_events else "host",
            "emulated": bool(self.device.facts.get("emulated")),
            **self._live.facts,
        }

    def verify(self) -> Check:
        """Run once and compare every byte. VerificationError for the first wrong one, CudaError for a failure."""
        action = self._live
        action.reset()
        core.WallClock().sample(action.work, np.ones(1, np.int64))
        self._engine.cuda.synchronize(self._index)
        if action.found is None:
            return Check(True, 0.0, 0.0, "none: it has no output", 0)
        wanted, got = action.found()
        wrong = np.flatnonzero(wanted != got)
        if len(wrong):
            at = int(wrong[0])
            raise VerificationError(self.spec.name, at, float(wanted[at]), float(got[at]), 0.0)
        return Check(True, 0.0, 0.0, "the bytes that were copied", len(wanted))

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """What the last run wrote, for copies."""
        found = self._live.found
        return {} if found is None else {"to": found()[1]}

    def close(self) -> None:
        """Let go of the memory."""
        self._action = None

    def __enter__(self) -> HostActionPrepared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def prepare(
    spec: KernelSpec, problem: Problem, execution: Execution, device: Device, engine: Engine | None = None
) -> HostActionPrepared:
    """The work of a record in `ACTIONS`; `engine` is what does it, by default the CUDA module.

    UsageError, OutOfMemory, CudaError, BackendUnavailable where it cannot be.
    """
    engine = engine or native()
    for name, size in problem.sizes:
        if name != "to" and size < 1:
            raise UsageError(f"{spec.name} needs {name} of at least 1, not {size}")
    action = ACTIONS[spec.name](engine.cuda, device.index, problem, execution.variant)
    return HostActionPrepared(spec, problem, execution, device, action, engine)


# --- launches -------------------------------------------------------------------------------------------------------


def _empty(cuda: Any, device: int) -> Any:
    return cuda.Launch("gm::empty", (1, 1, 1), (32, 1, 1), 0, [], device, None).work


def _awaited(cuda: Any, device: int, work: Any, variant: str) -> Action:
    queued = variant == "queued"
    facts = {"least_span_s": LEAST_SPAN_S} if queued else {}
    return Action(cuda.timing.synced(device, work, each=not queued), by_events=False, facts=facts)


def _launch_stream(cuda: Any, device: int, _problem: Problem, variant: str) -> Action:
    return _awaited(cuda, device, _empty(cuda, device), variant)


def _launch_graph(cuda: Any, device: int, problem: Problem, variant: str) -> Action:
    graphs = cuda.timing.Graphs(device, _empty(cuda, device))
    action = _awaited(cuda, device, graphs.replay(problem["nodes"]), variant)
    action.facts["nodes"] = graphs.nodes(problem["nodes"])
    return action


def _launch_sync(cuda: Any, device: int, _problem: Problem, _variant: str) -> Action:
    return Action(cuda.timing.synced(device, None), by_events=False)


def _launch_event(cuda: Any, device: int, _problem: Problem, _variant: str) -> Action:
    return Action(cuda.timing.event_trip(device), by_events=False)


# --- copies ---------------------------------------------------------------------------------------------------------


def _random(n: int) -> Bytes:
    return np.random.default_rng(SEED).integers(0, 256, n, dtype=np.uint8)


def _checked(work: Any, pairs: list[tuple[Any, Any]], by_events: bool, keep: tuple[Any, ...] = ()) -> Action:
    """A copy of each pair's second buffer to its first."""
    wanted = _random(pairs[0][0].size_bytes)

    def reset() -> None:
        for to, source in pairs:
            source.upload(wanted)
            to.upload(~wanted)

    def found() -> tuple[Bytes, Bytes]:
        return np.tile(wanted, len(pairs)), np.concatenate([to.download() for to, _ in pairs])

    return Action(work, by_events, keep=(*keep, *pairs), reset=reset, found=found)


def _host_copy(direction: str) -> Maker:
    def make(cuda: Any, device: int, problem: Problem, variant: str) -> Action:
        n, pinned = problem["n"], variant == "pinned"
        host = cuda.Buffer(device, n, "pinned" if pinned else "host")
        there = cuda.Buffer(device, n, "device")
        to, source = (there, host) if direction == "h2d" else (host, there)
        work = cuda.timing.copy(device, to.address, source.address, n, direction, (to, source))
        # A pageable copy is staged by the host: events would miss a part of it.
        return _checked(work if pinned else cuda.timing.synced(device, work), [(to, source)], by_events=pinned)

    return make


def _d2d(cuda: Any, device: int, problem: Problem, _variant: str) -> Action:
    n = problem["n"]
    to, source = (cuda.Buffer(device, n, "device") for _ in range(2))
    work = cuda.timing.copy(device, to.address, source.address, n, "d2d", (to, source))
    return _checked(work, [(to, source)], by_events=True)


def _bidirectional(cuda: Any, device: int, problem: Problem, _variant: str) -> Action:
    n = problem["n"]
    host_in, host_out = (cuda.Buffer(device, n, "pinned") for _ in range(2))
    device_in, device_out = (cuda.Buffer(device, n, "device") for _ in range(2))
    pairs = [(device_in, host_in), (host_out, device_out)]
    ways = [(to.address, source.address) for to, source in pairs]
    return _checked(cuda.timing.copy_both(device, ways[0], ways[1], n, pairs), pairs, by_events=True)


def _peer(cuda: Any, device: int, problem: Problem, variant: str) -> Action:
    n, other = problem["n"], problem["to"]
    count = cuda.probe()["count"]
    if not 0 <= other < count or other == device:
        raise UsageError(f"copy.peer needs `to`, the number of another device below {count}, not {other}")
    access = variant == "access"
    if access and not cuda.timing.PeerAccess.possible(device, other):
        raise BackendUnavailable(f"cuda:{device} and cuda:{other} cannot reach each other's memory")
    link = cuda.timing.PeerAccess(device, other, access)
    source, to = cuda.Buffer(device, n, "device"), cuda.Buffer(other, n, "device")
    work = cuda.timing.copy_peer(device, other, to.address, source.address, n, (to, source, link))
    return _checked(work, [(to, source)], by_events=True, keep=(link,))


def _managed(cuda: Any, device: int, problem: Problem, variant: str) -> Action:
    n = problem["n"]
    memory = cuda.Buffer(device, n, "managed")
    if variant == "prefetch":
        wanted = _random(n)
        work = cuda.timing.prefetch(device, memory.address, n, memory)
        return Action(
            work, by_events=True, keep=(memory,), reset=lambda: memory.upload(wanted),
            found=lambda: (wanted, memory.download()),
        )  # fmt: skip
    if n % PAGE_BYTES:
        raise UsageError(f"copy.managed by touch needs n in whole pages of {PAGE_BYTES} bytes, not {n}")
    touched = np.zeros(n, np.uint8)
    touched[::PAGE_BYTES] = 2  # once by the device, once by the host
    work = cuda.timing.touch(device, memory.address, n, PAGE_BYTES, memory)
    return Action(
        work, by_events=False, keep=(memory,), reset=lambda: memory.fill(0),
        found=lambda: (touched, memory.download()),
    )  # fmt: skip


# --- allocations ----------------------------------------------------------------------------------------------------


def _malloc(cuda: Any, device: int, problem: Problem, _variant: str) -> Action:
    return Action(cuda.timing.malloc_free(device, problem["n"]), by_events=False)


def _pool(cuda: Any, device: int, problem: Problem, _variant: str) -> Action:
    try:
        pool = cuda.timing.Pool(device, problem["n"])
    except ValueError as error:
        raise BackendUnavailable(f"alloc.pool: {error}") from error
    work = cuda.timing.synced(device, pool.work, each=False)
    return Action(work, by_events=False, keep=(pool,), facts={"least_span_s": LEAST_SPAN_S})


ACTIONS: Mapping[str, Maker] = {
    "launch.stream": _launch_stream,
    "launch.graph": _launch_graph,
    "launch.sync": _launch_sync,
    "launch.event": _launch_event,
    "copy.h2d": _host_copy("h2d"),
    "copy.d2h": _host_copy("d2h"),
    "copy.d2d": _d2d,
    "copy.bidirectional": _bidirectional,
    "copy.peer": _peer,
    "copy.managed": _managed,
    "alloc.malloc": _malloc,
    "alloc.pool": _pool,
}
