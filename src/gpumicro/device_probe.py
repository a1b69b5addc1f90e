"""What a GPU's clock and the host's way to it are like: tick, empty spans, launch, replay and wait, and whether
evicting works. Found once for each device, driver and process; timing rules use the tick, the rest is for the reader.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import cuda_native, stats
from .device_timers import EventTimer
from .timers import FloatArray, Tick, Timer, WallTimer

SPANS = 256  # of each empty region
TRIPS = 200  # of each host action
CHASE_SPANS = 21
CHASE_HOPS = 2048  # of one span: above a millisecond from DRAM
LINE_BYTES = 128
EVICTED = 0.95  # of DRAM's latency: after a good eviction the first load of a line takes this long at least


@dataclass(frozen=True, slots=True)
class Found:
    """A location with its interval, in seconds."""

    estimate_s: float
    ci95_s: tuple[float, float]
    n: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """Seconds of a load from a buffer of a quarter of L2: after it was used, after eviction, and from DRAM."""

    hot_s: float
    evicted_s: float
    dram_s: float

    @property
    def works(self) -> bool:
        """Whether an evicted line comes from DRAM, to 5%."""
        return self.evicted_s >= EVICTED * self.dram_s


@dataclass(frozen=True, slots=True)
class DeviceProbe:
    """One device's clock. Spans are gross, as events give them; costs are the host's, each with its wait."""

    device: int
    uuid: str
    tick: Tick
    empty_pair: Found  # two events with nothing between
    empty_kernel: Found  # two events around an empty kernel
    release: Found  # from opening the gate to the host seeing the end, less the span
    launch: Found  # of an empty kernel, queued
    replay: Found  # of a graph of one empty kernel, queued
    launch_and_wait: Found
    wait: Found  # for an idle stream
    gated: bool
    eviction: Eviction | None
    eviction_why: str  # why it was not looked at

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        record = asdict(self)
        if self.eviction is not None:
            record["eviction"]["works"] = self.eviction.works
        return record


_probes: dict[tuple[str, int], DeviceProbe] = {}


def probe(device: int = 0) -> DeviceProbe:
    """Probe a device's clock, once for each device and driver. BackendUnavailable where there is no CUDA."""
    cuda = cuda_native.load()
    facts = cuda.device_facts(device)
    key = (str(facts["uuid"]), int(cuda.probe()["driver"]))
    if key not in _probes:
        _probes[key] = _probe(cuda, device, facts)
    return _probes[key]


def _probe(cuda: Any, device: int, facts: dict[str, Any]) -> DeviceProbe:
    events = EventTimer(device)
    tick = events.tick()
    pair = events.overhead(SPANS)
    kernel = cuda.Launch("gm::empty", (1, 1, 1), (32, 1, 1), 0, [], device, None).work
    spans = events.sample(kernel, np.ones(SPANS, np.int64))
    timing, wall = cuda.timing, WallTimer()
    graphs = timing.Graphs(device, kernel)
    eviction, why = None, "an emulated device has no caches"
    if not facts["emulated"]:
        eviction, why = evictions(cuda, device, int(facts["l2_bytes"]), events), ""
    return DeviceProbe(
        device=device,
        uuid=str(facts["uuid"]),
        tick=tick,
        empty_pair=located(pair, tick.seconds),
        empty_kernel=located(spans, tick.seconds),
        release=located(events.host_gaps(SPANS), 0.0),
        launch=_cost(wall, timing.synced(device, kernel, each=False), 100),
        replay=_cost(wall, timing.synced(device, graphs.replay(1), each=False), 100),
        launch_and_wait=_cost(wall, timing.synced(device, kernel), 1),
        wait=_cost(wall, timing.synced(device, None), 1),
        gated=events.gates,
        eviction=eviction,
        eviction_why=why,
    )


def located(spans: FloatArray, tick_s: float) -> Found:
    """Clipped mean and interval: empty regions are a few ticks long."""
    location = stats.clipped_mean_location(spans, tick_s)
    return Found(location.estimate, (location.low, location.high), len(spans))


def _cost(timer: Timer, work: Any, runs: int) -> Found:
    spans = timer.sample(work, np.full(TRIPS // 4 if runs > 1 else TRIPS, runs)) / runs
    location = stats.median_location(spans)
    return Found(location.estimate, (location.low, location.high), len(spans))


def evictions(cuda: Any, device: int, l2_bytes: int, events: EventTimer) -> Eviction:
    """Chase pointers through a quarter of L2, hot and after eviction, and through four times L2."""
    near = _chase(cuda, device, max(l2_bytes // 4, 4 * CHASE_HOPS * LINE_BYTES))
    far = _chase(cuda, device, 4 * l2_bytes)
    return Eviction(hot_s=_hop(events, near), evicted_s=_hop(events.with_cache("cold"), near), dram_s=_hop(events, far))


def _chase(cuda: Any, device: int, footprint_bytes: int) -> Any:
    """A launch that walks on by CHASE_HOPS lines; the same line comes round only after all others."""
    lines = footprint_bytes // LINE_BYTES
    chain, state = cuda.Buffer(device, lines * LINE_BYTES), cuda.Buffer(device, 64)
    state.fill(0)
    arguments = [np.uint64(chain.address), np.uint64(state.address), *map(np.int64, (lines, 0, CHASE_HOPS))]
    launch = cuda.Launch(
        "gm::chase<false>", (1, 1, 1), (256, 1, 1), 0, [a.tobytes() for a in arguments], device, (chain, state)
    )
    launch.run(1 + -(-lines // CHASE_HOPS))  # builds the cycle, then one lap: all of it has been used
    return launch.work


def _hop(timer: EventTimer, work: Any) -> float:
    spans = timer.sample(work, np.ones(CHASE_SPANS, np.int64))
    return (stats.median(spans) - stats.median(timer.overhead(64))) / CHASE_HOPS
