"""`gpumicro allreduce`: `collectives all_reduce`, in short."""

from __future__ import annotations

import click

from . import collectives

command = click.Command(
    "allreduce",
    params=[param for param in collectives.command.params if param.name != "names"],
    callback=lambda **wished: collectives.run(("all_reduce",), **wished),
    help="Time all_reduce between ranks: short for `collectives all_reduce`.",
    short_help="Short for `collectives all_reduce`.",
)
