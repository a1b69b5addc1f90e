"""`gpumicro info`: what can run here, and why the rest cannot."""

from __future__ import annotations

import click


@click.command("info", short_help="Say what can run here, and why the rest cannot.")
def command() -> None:
    """Say what can run here and why the rest cannot, with the device's facts and the timers' ticks."""
    from rich.console import Console

    from .. import __version__, backends
    from ..report.facts import device_table, timer_table

    console = Console()
    console.print(f"gpumicro {__version__}", highlight=False)
    for backend in map(backends.get, backends.BACKENDS):
        able = backend.availability()
        if not able:
            console.print(f"Backend {backend.name} cannot run: {able.reason}. {able.remedy}", highlight=False)
            continue
        console.print(f"Backend {backend.name} can run.", highlight=False)
        for device in backend.devices():
            console.print(device_table(device))
    from .. import timers

    console.print(timer_table(timers.probe()))
