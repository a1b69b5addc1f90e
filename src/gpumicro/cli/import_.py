"""`gpumicro import FILE...`: results of other tools as a result file, or shown at once."""

from __future__ import annotations

import click

from ..imports import FORMATS


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", metavar="FILE", help="Write the result (JSON) here; - is stdout.")
@click.option("--format", "format_name", metavar="NAME", help=f"Instead of telling it: {', '.join(FORMATS)}.")
@click.option("--device", metavar="NAME", help="What to call a device that a file does not name.")
def command(files: tuple[str, ...], output: str | None, format_name: str | None, device: str | None) -> None:
    """Read results of other tools into one result file.

    Reads what nvbench, nccl-tests, nvbandwidth, BabelStream, mixbench, fio, OSU, google-benchmark and pytest-benchmark
    write; the format is told from the content. Without -o the report is shown. - is stdin.
    """
    from ..imports import import_results
    from ..result import check_outputs, write

    if output is not None:
        for file in files:
            check_outputs([output], source=file)
    doc = import_results(files, format=format_name, device=device)
    if output is not None:
        write(output, doc)
    else:
        from rich.console import Console

        from ..report.console import print_report

        print_report(doc, Console())
    states = [item["status"] for item in doc["measurements"]]
    counts = [f"{states.count(state)} {state}" for state in ("ok", "skipped", "failed") if state in states]
    where = f"; wrote {output}" if output not in (None, "-") else ""
    click.echo(f"{doc['imported']['tool']}: {', '.join(counts)}{where}", err=True)
