"""Storage in a report: what fio and the loader measured, what that feeds, and what lies under the directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..units import format_count, format_quantity, format_size
from .tables import Doc, Table, clean, columns_of, interval, quantity

_PARTS = columns_of("part", ">block", ">depth", ">rate", ">I/O a second", ">latency", ">99% of them")
_SUPPLIES = columns_of("samples from", ">samples/s", ">rate", ">needed", ">share")


def storage_tables(doc: Doc) -> Iterator[Table]:
    """Parts, loader and supplies of a document with the key "storage"."""
    storage = doc.get("storage")
    if not storage:
        return
    yield Table("storage", _title(storage), _PARTS, tuple(_rows(storage)), tuple(_facts(storage)))
    yield _supplies(storage)


def _title(storage: Doc) -> str:
    place = storage["place"]
    how = {True: "direct I/O", False: "through the page cache", None: "loader only"}[storage["direct"]]
    return f"Storage: {clean(place['directory'])} ({clean(place['file_system'] or 'unknown file system')}, {how})"


def _rows(storage: Doc) -> Iterator[tuple[str, ...]]:
    for part in storage["parts"]:
        yield (
            clean(part["name"]), format_size(part["block_bytes"]), str(part["depth"]),
            quantity(part["bytes_per_s"], "B/s"), _count(part["operations_per_s"]), _seconds(part["latency_s"]),
            _seconds(part["latency_p99_s"]),
        )  # fmt: skip
    read = storage["loader"]
    if read:
        yield (
            "loader", format_size(read["size_bytes"]), str(read["workers"]), quantity(read["bytes_per_s"], "B/s"),
            _count(read["samples_per_s"]), _seconds(read["latency_p50_s"]), _seconds(read["latency_p99_s"]),
        )  # fmt: skip


def _supplies(storage: Doc) -> Table:
    need, size = storage["need"], storage["sample_bytes"]
    total = need["gpus"] * need["samples_per_s"] if need else None
    rows = []
    for one in storage["supplies"]:
        rate, judged = one["samples_per_s"], one["judged_samples_per_s"]
        share = [_count(total), f"{judged / total:.3g}"] if total else ["", ""]
        rows.append((clean(one["what"]), _count(rate), quantity(rate * size, "B/s"), *share))
    remarks = []
    if need:
        remarks.append(
            f"Needed: {format_count(need['gpus'])} GPUs x {need['samples_per_s']:g} samples/s x "
            f"{format_size(need['sample_bytes'])} = {format_quantity(need['bytes_per_s'], 'B/s')} "
            f"({clean(need['origin'])}: {clean(need['source'])}); share is what was measured over it, of an interval "
            "its lower end."
        )
    read = storage["loader"]
    if read and read["ci95"]:
        remarks.append(f"Loader: 95% interval {interval(read['samples_per_s'], read['ci95'], '')} samples/s.")
    title = f"What it feeds, in samples of {format_size(size)}"
    return Table("storage-supplies", title, _SUPPLIES, tuple(rows), tuple(remarks)).without_empty()


def _facts(storage: Doc) -> Iterator[str]:
    place, read = storage["place"], storage["loader"]
    uses = [f"{clean(part['name'])}: {clean(part['use'])}" for part in storage["parts"]]
    if read:
        uses.append(
            f"loader: {read['workers']} Python processes read {format_count(read['files'])} files, shuffled, "
            f"{format_count(read['reads'])} reads in {read['duration_s']:.3g} s"
        )
    yield f"{'; '.join(uses)}."
    free = f"{format_size(place['free_bytes'])} free of {format_size(place['size_bytes'])}"
    yield f"{clean(place['source'] or 'unknown source')} at {clean(place['mount'] or 'unknown mount')}, {free}."
    for disk in place["disks"]:
        yield _disk(disk)
    gds = place["cufile"]
    if gds.get("library") or gds.get("nvidia_fs"):
        module = (
            f"nvidia-fs {clean(gds.get('nvidia_fs_version') or '')}".strip() if gds["nvidia_fs"] else "no nvidia-fs"
        )
        yield f"cuFile (GPUDirect Storage): {clean(gds.get('library') or 'no library')}, {module}."


def _disk(disk: Doc) -> str:
    kind = {True: "rotational, says the kernel", False: "not rotational", None: ""}[disk["rotational"]]
    size = format_size(disk["size_bytes"]) if disk["size_bytes"] else ""
    words = [clean(disk["model"] or "model not told"), kind, size]
    nvme: dict[str, Any] = disk["nvme"] or {}
    if nvme.get("pcie_speed"):
        words.append(f"PCIe {clean(nvme['pcie_speed'])} x{clean(nvme.get('pcie_width', '?'))}")
        if (nvme["pcie_speed"], nvme.get("pcie_width")) != (nvme.get("pcie_speed_max"), nvme.get("pcie_width_max")):
            words.append(
                f"of at most {clean(nvme.get('pcie_speed_max', '?'))} x{clean(nvme.get('pcie_width_max', '?'))}"
            )
    if nvme.get("numa_node") is not None:
        words.append(f"NUMA node {clean(nvme['numa_node'])}")
    return f"{clean(disk['name'])}: {', '.join(word for word in words if word)}."


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else quantity(value, "s")
