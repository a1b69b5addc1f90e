"""Which part is to blame for a slow device: what the pattern of its ceilings and its state while measured say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .fleet_nodes import DeviceOfFleet
from .fleet_records import Departure


def hints_of(device: DeviceOfFleet, out: Sequence[Departure], usual: frozenset[str]) -> tuple[str, ...]:
    """Short sentences, none where the pattern says nothing. `out`: the ceilings that are out of line; `usual`: verdicts
    whose failure is nothing special in this fleet."""
    return tuple(_pattern(device, {d.ceiling for d in out if d.ratio < 1})) + tuple(_state(device, usual))


def usual_failures(devices: Sequence[DeviceOfFleet]) -> frozenset[str]:
    """Verdicts that failed for more than a quarter of the devices."""
    counts = Counter(name for device in devices for name in device.state.failed)
    return frozenset(name for name, count in counts.items() if 4 * count > len(devices))


def _pattern(device: DeviceOfFleet, slow: set[str]) -> Iterator[str]:
    names = {name for name in device.readings if " of " not in name}
    links = {name for name in device.readings if " of " in name}
    memory = {name for name in names if name.split()[0] == "dram"}
    core = {name for name in names - memory if not name.startswith("gemm")}  # arithmetic and caches go with the clock
    if not slow:
        return
    if slow <= links:
        yield "collectives alone: links or network"
    elif memory and slow & names <= memory:
        yield "memory alone: its clock, ECC or remapped rows"
    elif core and len(slow & core) >= 0.8 * len(core) and not slow & memory and memory:
        yield "all but memory: the core clock, held by power, heat or a lower limit"
    elif core and len(slow & core) >= 0.8 * len(core):
        yield "everything: another process, a partition, or a clock held down"
    elif all(name.startswith("gemm") for name in slow):
        yield "GEMM alone: library, or the power limit under the heaviest load"


def _state(device: DeviceOfFleet, usual: frozenset[str]) -> Iterator[str]:
    state = device.state
    yield from state.trouble[:3]
    if state.ecc_uncorrected:
        yield f"{state.ecc_uncorrected} uncorrected ECC errors"
    failed = [name for name in state.failed if name not in usual]
    if failed:
        yield f"failed: {', '.join(failed[:3])}"
