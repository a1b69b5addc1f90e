"""`gpumicro info`: what can run here, and why the rest cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from ..backends.base import Backend
    from ..device import Device


@click.command("info", short_help="Say what can run here, and why the rest cannot.")
def command() -> None:
    """Say what can run here and why the rest cannot, with the device's facts and the timers' ticks."""
    from rich.console import Console, Group

    from .. import __version__, backends, gpu_pairs, timers
    from ..report.console import bullets, print_parts, rich_table
    from ..report.facts import device_table, timer_table
    from ..report.gpus import topology_table

    console = Console()
    console.print(f"gpumicro {__version__}", highlight=False, markup=False)
    seen: list[Device] = []
    shown: set[str] = set()  # devices that more than one backend can run are described once
    for backend in map(backends.get, backends.BACKENDS):
        able = backend.availability()
        if able:
            console.print(f"Backend {backend.name} can run{_through(backend)}.", highlight=False, markup=False)
        else:
            remedy = f" {able.remedy}." if able.remedy else ""
            console.print(f"Backend {backend.name} cannot run: {able.reason}.{remedy}", highlight=False, markup=False)
        if backend.name == "cuda":
            _print_cuda(console)
            _print_nccl(console)
        else:
            for note in getattr(backend, "notes", list)():
                console.print(note, highlight=False, markup=False)
        for device in backend.devices() if able else ():
            # A CPU's own backend knows most of it.
            if device.id not in shown and (device.kind != "cpu" or backend.name == "cpu"):
                console.print(device_table(device))
                shown.add(device.id)
            seen.append(device)
    joined = gpu_pairs.of_devices(seen)
    if joined:
        table = topology_table(joined)
        print_parts(Group(table.title, rich_table(table), *bullets(table.remarks)), console)
    console.print(timer_table(timers.probe()))


def _through(backend: Backend) -> str:
    """What it compiles kernels with as it runs, where it does."""
    versions = getattr(backend, "versions", None)
    return f" (kernels compiled by {versions()['build']['compiler']})" if versions else ""


def _print_cuda(console: Console) -> None:
    """How the CUDA module was built and what it finds, where there is one."""
    from .. import backends, cuda_native, libraries
    from ..report.facts import cuda_table

    if cuda_native.missing():
        return
    for note in getattr(backends.get("cuda"), "notes", list)():
        console.print(note, highlight=False, markup=False)
    cuda = cuda_native.load()
    number = cuda.probe()["driver"]
    driver = f"serves CUDA {number // 1000}.{number % 1000 // 10}" if number else "none"
    found = [libraries.find(name) for name in libraries.KNOWN]
    console.print(cuda_table(cuda.build, driver, found))


def _print_nccl(console: Console) -> None:
    """NCCL's version, where the library is here; it needs no GPU to say."""
    from .. import libraries

    library = libraries.find("nccl")
    if library:
        version = libraries.nccl_version(library.path) or "of a version that it does not tell"
        console.print(f"NCCL {version} is at {library.path}.", highlight=False, markup=False, soft_wrap=True)
