"""`gpumicro list`: kernels, backends, devices."""

from __future__ import annotations

import click


@click.command("list")
def command() -> None:
    """Show the kernels, the backends and the devices."""
    from rich.console import Console
    from rich.table import Table

    from .. import backends
    from ..kernels import CATALOGUE

    console = Console()
    kernels = Table("kernel", "what it does", "dtypes", "variants", title="Kernels", title_justify="left", box=None)
    for spec in CATALOGUE:
        kernels.add_row(spec.name, spec.summary, " ".join(spec.dtypes), " ".join(spec.variants), style=None)
    console.print(kernels, "")
    engines = Table(
        "backend", "usable", "why not", title="Backends, first that can run first", title_justify="left", box=None
    )
    devices = Table("device", "backend", "name", title="Devices", title_justify="left", box=None)
    for backend in map(backends.get, backends.BACKENDS):
        able = backend.availability()
        engines.add_row(backend.name, "yes" if able else "no", able.reason)
        for device in backend.devices() if able else ():
            devices.add_row(device.id, backend.name, device.name)
    console.print(engines, "", devices)
