"""What `gpumicro info` shows of devices and timers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from ..device import Device
from ..libraries import Library
from ..timers import Probe
from ..units import format_quantity, format_size


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def device_table(device: Device) -> Table:
    """Facts of one device; what is not known is said with its reason."""
    table = _table(f"Device {device.id}: {device.name}")
    if device.kind == "cuda":
        return _gpu_rows(table, device)
    table.add_row("cores", f"{device.cores} ({len(device.cpus)} logical CPUs may be used)")
    for cache in device.caches:
        shared = f", shared by {len(cache.shared_by)} CPUs" if len(cache.shared_by) > 1 else ""
        table.add_row(cache.level.upper(), f"{format_size(cache.size_bytes)} x {cache.count}{shared}")
    if device.memory_bytes is not None:
        table.add_row("memory", format_size(device.memory_bytes))
    table.add_row("NUMA nodes", str(max(1, len(device.numa_nodes))))
    table.add_row("instruction sets", " ".join(device.isa) or "unknown")
    if device.clock_max_hz is not None:
        table.add_row("maximum clock", format_quantity(device.clock_max_hz, "Hz"))
    table.add_row("machine", f"virtual ({device.virtual})" if device.virtual else "bare metal, as far as can be seen")
    for key, why in device.why.items():
        table.add_row(
            {"clock_max_hz": "maximum clock", "cgroup_cpus": "CPU limit"}.get(key, key.replace("_", " ")), why
        )
    return table


def _gpu_rows(table: Table, device: Device) -> Table:
    facts = device.facts
    table.add_row("compute capability", f"{facts['compute_capability']}, {device.cores} SMs")
    for cache in device.caches:
        table.add_row(cache.level.upper(), f"{format_size(cache.size_bytes)} x {cache.count}")
    shared = (format_size(int(str(facts[f"shared_bytes_per_{what}"]))) for what in ("sm", "block"))
    table.add_row("shared memory", "{} an SM, {} a block".format(*shared))
    if device.memory_bytes is not None:
        ecc = "with ECC" if facts["ecc"] else "no ECC"
        bus = f", {facts['memory_bus_bits']}-bit bus" if facts["memory_bus_bits"] else ""
        table.add_row("memory", f"{format_size(device.memory_bytes)}, {ecc}{bus}")
    if device.clock_max_hz is not None:
        table.add_row("maximum clock", format_quantity(device.clock_max_hz, "Hz"))
    table.add_row("bus, uuid", f"{facts['pci_bus_id']}, {device.uuid}")
    for key, why in device.why.items():
        table.add_row({"clock_max_hz": "maximum clock"}.get(key, key.replace("_", " ")), why)
    return table


def cuda_table(build: Mapping[str, Any], driver: str, libraries: Iterable[Library]) -> Table:
    """How the CUDA module was built, what the driver serves, and which libraries are at hand for it."""
    table = _table("CUDA")
    table.add_row("built with", f"{build['compiler']} and {build['host_compiler']}, {build['cudart']} runtime")
    table.add_row("for", " ".join(build["architectures"]))
    table.add_row("driver", driver)
    for library in libraries:
        table.add_row(library.name, library.path or f"not found: {library.reason}")
    return table


def timer_table(probe: Probe) -> Table:
    """Tick and overhead of the host's timers."""
    table = _table("Timers")
    for timer in probe.timers:
        if not timer.usable or timer.tick is None or timer.empty_p50_s is None or timer.empty_net_p50_s is None:
            table.add_row(timer.name, f"cannot be used: {timer.reason}")
            continue
        step, gross, net = (
            format_quantity(s, "s") for s in (timer.tick.seconds, timer.empty_p50_s, timer.empty_net_p50_s)
        )
        table.add_row(timer.name, f"step {step}, an empty region reads {gross} ({net} net)")
    table.add_row("Python call", f"{format_quantity(probe.python_call_s, 's')} for an empty function")
    return table
