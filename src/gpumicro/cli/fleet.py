"""`gpumicro fleet RESULTS_DIR`: who among many nodes is out of line, and whether the fleet is accepted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .compare import as_fraction


@click.command("fleet", short_help="Who among many nodes is slow, by which ceiling, and what do they share?")
@click.argument("folder", metavar="RESULTS_DIR")
@click.option("--accept", metavar="FILE", help="Thresholds (TOML, docs/fleet.md); exit with 1 where one is not met.")
@click.option("--node", metavar="REGEX", help="What of a file's name is the node's. [default: all of it]")
@click.option("--rack", metavar="REGEX", help="What of a node's name is its rack's. [default: r12, rack-12 ...]")
@click.option("--margin", default="3%", metavar="SHARE", help="A distance that does not matter. [default: 3%]")
@click.option("--fdr", default="5%", metavar="SHARE", help="False ones among those named. [default: 5%]")
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes that read. [default: as many as CPUs]")
@click.option("-o", "--output", metavar="FILE", help="Write the judgement as JSON; - is standard output.")
@click.option("--html", metavar="FILE", help="Write the page with the map.")
def command(
    folder: str, accept: str | None, node: str | None, rack: str | None, margin: str, fdr: str, jobs: int | None,
    output: str | None, html: str | None,
) -> int:  # fmt: skip
    """Judge all result files in or below RESULTS_DIR: each node's ceilings against the others of its kind.

    \b
    gpumicro fleet results/ --html fleet.html
    gpumicro fleet results/ --accept accept.toml || echo "not accepted"
    gpumicro fleet results/ --node '^[^_]+' --rack 'row[0-9]+'

    A file is a node, by its name; files of one node in a folder of its own need --node. Exit code 1: a threshold is not
    met; without --accept the command only informs.
    """
    from ..cluster.fleet import fleet
    from ..errors import UsageError
    from ..result import check_outputs, replace_file, write

    if html == "-":
        raise UsageError("--html takes a file's name")
    check_outputs([path for path in (output, html) if path is not None])
    shares = as_fraction(margin, "--margin"), as_fraction(fdr, "--fdr")
    with _Progress() as shown:
        found = fleet(folder, accept=accept, node=node, rack=rack, margin=shares[0], fdr=shares[1], processes=jobs,
                      progress=shown.more)  # fmt: skip
    record = found.to_json()
    if output:
        write(output, record)
    if html:
        from ..report.fleet_page import fleet_bytes

        replace_file(html, fleet_bytes(record))
    for path in (output, html):
        if path and path != "-":
            click.echo(f"wrote {path}", err=True)
    if output != "-":
        _show(record)
    if not found.files:
        click.echo(f"gpumicro: none of the files in {Path(folder)} is a result file", err=True)
        return 2
    return 1 if found.acceptance is not None and not found.acceptance.passed else 0


class _Progress:
    """A line on standard error that counts the files read, on a terminal only."""

    def __init__(self) -> None:
        self.done = 0

    def __enter__(self) -> _Progress:
        self.shown = sys.stderr.isatty()
        return self

    def more(self, count: int) -> None:
        self.done += count
        if self.shown and self.done % 100 == 0:
            click.echo(f"\r{self.done:,} files read", nl=False, err=True)

    def __exit__(self, *error: object) -> None:
        if self.shown and self.done >= 100:
            click.echo("\r" + " " * 24 + "\r", nl=False, err=True)


def _show(record: dict[str, Any]) -> None:
    from rich.console import Console

    from ..report.fleet import print_fleet

    print_fleet(record, Console())
