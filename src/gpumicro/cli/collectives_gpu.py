"""`gpumicro collectives --device cuda`: the part of the command that is about GPUs."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..collectives.job import Output
    from ..collectives.settings import Settings

ONLY = {"transport": "auto", "graph": 0, "aggregate": 1, "algorithms": False}  # options of GPUs, and their defaults


def is_gpu(device: str) -> bool:
    """Whether --device means GPUs. UsageError for what it cannot mean."""
    if device == "cpu":
        return False
    if device != "cuda" and not device.startswith("cuda:"):
        raise UsageError(f"--device is cpu, cuda, or cuda:0,1 ..., not {device!r}")
    chosen(device)
    return True


def chosen(device: str) -> tuple[int, ...] | None:
    """The indices of "cuda:0,1"; None for "cuda", which is all of them, or one a rank."""
    if device == "cuda":
        return None
    found = [part.strip().removeprefix("cuda:") for part in device.removeprefix("cuda:").split(",")]
    if not all(part.isascii() and part.isdigit() for part in found):
        raise UsageError(f"--device {device}: the devices are numbers, as in cuda:0,1")
    if len(set(found)) < len(found):
        raise UsageError(f"--device {device} names a device twice")
    return tuple(int(part) for part in found)


def settings_of(wished: dict[str, Any]) -> dict[str, Any]:
    """Fields of Settings that are GPUs' alone."""
    from ..collectives.nccl_transports import parse

    for name, least in (("graph", 0), ("aggregate", 1)):
        if not least <= wished[name] <= 1024:
            raise UsageError(f"--{name} must be from {least} to 1024, not {wished[name]}")
    return {
        "library": "nccl", "graph": wished["graph"], "aggregate": wished["aggregate"],
        "transport": parse(wished["transport"])[0], "tuning": wished["algorithms"],
    }  # fmt: skip


def refuse_on_cpu(wished: dict[str, Any]) -> None:
    """UsageError where an option is given that only GPUs have."""
    for name, default in ONLY.items():
        if wished[name] != default:
            raise UsageError(f"--{name} is of NCCL: take it with --device cuda")


def run(settings: Settings, device: str, output: Output, expect: int | None, wished: dict[str, Any]) -> int:
    """Be one process of the job; the exit code."""
    from ..collectives import job, rendezvous
    from ..collectives.nccl_side import NcclSide
    from ..collectives.nccl_transports import parse
    from ..collectives.started import started

    devices, transports = chosen(device), parse(wished["transport"])
    alone = started().kind == "alone"
    control = rendezvous.control(wished["timeout"])
    place = None if alone else rendezvous.place(control)
    if len(transports) > 1:
        return _several(transports, control, place, devices, output)
    side = NcclSide(
        control, rendezvous.carry, chosen=devices, local_rank=None if place is None else place.local_rank,
        timeout_s=wished["timeout"],
    )  # fmt: skip
    return job.run_on(side, settings, output, expect=expect, timeout_s=wished["timeout"])


def _several(transports: tuple[str, ...], control: Any, place: Any, devices: Any, output: Output) -> int:
    """Each in a process tree of its own, then all of them side by side."""
    import os

    from ..collectives import nccl_sweeps, rendezvous

    host = socket.gethostname()
    hosts = 1 if place is None else len(place.hosts)
    at = os.environ.get("MASTER_ADDR") or (host if place is None or hosts == 1 else place.hosts[0])
    here = nccl_sweeps.Place(control.size, hosts, host, at)
    # a launcher's only rank keeps to one device, as it does without this
    more = ["--device", f"cuda:{(devices or (0,))[0]}"] if place is not None and control.size == 1 else []
    sweeps = nccl_sweeps.Sweeps(control, here, rendezvous.carry, _lines(output.line), _progress, more)
    last = sweeps.run(
        transports, lambda swept, going: nccl_sweeps.keep(swept, transports, output.file, interrupted=going)
    )
    if control.rank == 0 and output.format == "table":
        _side_by_side(nccl_sweeps.merged(last, transports, interrupted=False), output.line)
    for name, why in last.reasons.items() if control.rank == 0 else ():
        mark = "# " if output.format == "nccl-tests" else ""
        output.line(f"{mark}transport {name} could not be had: {why}")
    return last.code


def _lines(line: Callable[[str], None]) -> Callable[[str], None]:
    def write(text: str) -> None:
        for one in text.splitlines():
            line(one)

    return write


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _side_by_side(document: Any, line: Callable[[str], None]) -> None:
    from ..collectives.sweeps import sweeps_of
    from ..report.console import as_text, rich_table
    from ..report.transports import transport_tables

    for table in transport_tables(document, sweeps_of(document)) if document else ():
        line("")
        line(table.title)
        for one in as_text(rich_table(table), 100).splitlines():
            line(one.rstrip())
        for remark in table.remarks:
            line(remark)
