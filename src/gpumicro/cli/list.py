"""`gpumicro list`: kernels, backends, devices; with --proof what the compiler made of the device kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .. import sass


@click.command("list")
@click.option("--proof", is_flag=True, help="Disassemble the device kernels and hold each hot loop to its claim.")
@click.option("--arch", "archs", multiple=True, metavar="SM", help="With --proof: only this one, such as sm_90a.")
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="With --proof: a cubin instead."
)
@click.option("--json", "form", flag_value="json", help="With --proof: all that was found, as JSON.")
@click.option("--markdown", "form", flag_value="markdown", help="With --proof: the table for a page.")
def command(proof: bool, archs: tuple[str, ...], file: Path | None, form: str | None) -> None:
    """Show the kernels, the backends and the devices.

    --proof needs no GPU, only cuobjdump and nvdisasm: pip install 'gpumicro[proof]'. Exit code 1: a claim fails.
    """
    if proof:
        _proof(archs, file, form or "table")
        return
    if archs or file or form:
        raise click.UsageError("--arch, --file, --json and --markdown belong to --proof")
    from rich.console import Console
    from rich.table import Table

    from .. import backends
    from ..kernels import CATALOGUE

    console = Console()
    kernels = Table("kernel", "what it does", "dtypes", "variants", title="Kernels", title_justify="left", box=None)
    for spec in CATALOGUE:
        dtypes = dict.fromkeys((*spec.dtypes, *(spec.gpu.dtypes if spec.gpu else ())))
        kernels.add_row(spec.name, spec.summary, " ".join(dtypes), " ".join(spec.variants), style=None)
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


def _proof(archs: tuple[str, ...], file: Path | None, form: str) -> None:
    """Print what was found; exit 1 where a claim fails, 3 (BackendUnavailable) where there is nothing to look at."""
    import json
    import sys

    from .. import sass
    from ..errors import UsageError

    tool = sass.Disassembler()
    target = file or sass.installed_module()
    there = tool.architectures(target)
    for arch in archs:
        if arch not in there:
            raise UsageError(f"{target.name} holds no code for {arch!r}, only {', '.join(there) or 'none at all'}")
    proofs = [proof for arch in archs or there for proof in sass.prove_file(tool, target, arch)]
    if form == "json":
        click.echo(json.dumps(sass.as_json(proofs), indent=1))
    elif form == "markdown":
        click.echo(sass.as_markdown(proofs), nl=False)
    else:
        _print(proofs)
    if sass.failed(proofs):
        sys.exit(1)


def _print(proofs: list[sass.Proof]) -> None:
    """A table for each architecture; kernels that it has not are left out."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from .. import sass

    console = Console()
    for arch in dict.fromkeys(proof.arch for proof in proofs):
        table = Table(title=f"What the compiler made of the kernels: {arch}", title_justify="left", box=None)
        for name in ("kernel", "registers", "claimed instruction, of those in the hot loop", "verdict"):
            table.add_column(name, overflow="fold", justify="right" if name == "registers" else "left")
        for proof in proofs:
            if proof.arch == arch and (proof.faults or not proof.absent):
                verdict = "; ".join(proof.faults) or ("holds" if proof.share is not None else "no spills")
                kernel = escape(proof.kernel.replace("gm::", ""))
                table.add_row(kernel, str(proof.registers), sass.cell(proof), escape(verdict))
        console.print(table, "")
    bad = len(sass.failed(proofs))
    console.print(f"{len(proofs) - bad} of {len(proofs)} hold. The share leaves NOPs out.", highlight=False)
