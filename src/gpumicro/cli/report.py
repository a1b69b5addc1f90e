"""`gpumicro report RESULT.json`: every format from the file alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError

if TYPE_CHECKING:
    from ..report import Format
    from ..result import Document


@click.command("report")
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True),
                metavar="RESULT.json...")  # fmt: skip
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    metavar="FORMAT",
    help="console, md, csv, png, svg, html, action-smaller, action-bigger or bencher (default: console).",
)
@click.option(
    "-o", "--output", metavar="FILE", help="Write here; the extension says the format unless -f does. - is stdout."
)
@click.option("--html", metavar="FILE", help="Also write the page.")
@click.option("--plot", metavar="FILE", help="Also write the picture, .png or .svg.")
@click.option("--md", metavar="FILE", help="Also write Markdown.")
@click.option("--csv", metavar="FILE", help="Also write CSV.")
@click.option("--link", metavar="NAME", help="Set busbw of collectives against this link: nvlink4, ib-ndr, 46GB/s, ...")
@click.option("--work", "works", multiple=True, metavar="NAME=...",
              help="NAME=FLOP,BYTES,WIRE_BYTES[,DTYPE]: what binds a work that does so much a call: compute, memory "
                   "or network?")  # fmt: skip
@click.option("--wire", "wires", multiple=True, metavar="POINT=BYTES",
              help="As --work, of a point of the roofline with so many bytes over the wire a call.")  # fmt: skip
def command(
    results: tuple[Path, ...],
    formats: tuple[str, ...],
    output: str | None,
    html: str | None,
    plot: str | None,
    md: str | None,
    csv: str | None,
    link: str | None,
    works: tuple[str, ...],
    wires: tuple[str, ...],
) -> None:
    """Show RESULT.json, or write it as a report. - is stdin.

    A roofline and results of collectives together: the network becomes one more ceiling. Several results of collectives
    stand side by side.

    \b
    gpumicro report roofline.json allreduce.json --work step=6e12,40G,2.8G
    """
    from .. import report
    from ..peaks.links import find_link
    from ..report.together import together
    from ..result import check_outputs, read, replace_file

    if len(formats) > 1 and output:
        raise UsageError("-o takes one format; give the others their own options")
    if plot and report.format_for(plot) not in (report.FORMATS["png"], report.FORMATS["svg"]):
        raise UsageError(f"--plot takes a .png or .svg file, not {plot!r}")
    named = ((html, "html"), (md, "md"), (csv, "csv"))
    for path, name in named:
        if path == "-":
            raise UsageError(f"--{name} takes a file's name; -f {name} writes to standard output")
    targets = [(path, report.find_format(name)) for path, name in named if path is not None]
    targets += [(plot, report.format_for(plot))] if plot is not None else []
    if output is not None and output != "-":
        targets.append((output, report.find_format(formats[0]) if formats else report.format_for(output)))
    for source in results:
        check_outputs([path for path, _ in targets], source=str(source))
    if link is not None:
        find_link(link)
    doc = together([(str(source), read(source)) for source in results], link, works, wires)
    for path, chosen in targets:
        replace_file(path, chosen.render(doc))
        click.echo(f"wrote {path}", err=True)
    if not targets or output == "-" or (formats and not output):
        for name in formats or ("console",):
            _show(report.find_format(name), name, doc)


def _show(chosen: Format, name: str, doc: Document) -> None:
    if name == "console":
        from rich.console import Console

        from ..report.console import print_report

        print_report(doc, Console())
        return
    sys.stdout.buffer.write(chosen.render(doc))
