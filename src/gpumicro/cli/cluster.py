"""`gpumicro cluster FILE...`: all that is known of a cluster on one page, and what to do next."""

from __future__ import annotations

import click


@click.command("cluster", short_help="A cluster on one page: facts, rooflines, scaling, cost, and what to do next.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--html", metavar="FILE", help="Write the page.")
@click.option("-o", "--output", metavar="FILE", help="Write verdicts and advice as JSON; - is standard output.")
def command(files: tuple[str, ...], html: str | None, output: str | None) -> int:
    """Put the files of roofline, collectives, scale, io, monitor, cost, precision, memory and fleet together.

    \b
    gpumicro cluster results/*.json --html cluster.html
    gpumicro cluster roofline.json fleet.json

    A folder stands for every *.json in it. What no file says is named with the command that brings it. Exit code 1: a
    verdict of a file failed.
    """
    from ..cluster.overview import cluster_overview
    from ..errors import UsageError
    from ..result import check_outputs, replace_file, write

    if html == "-":
        raise UsageError("--html takes a file's name")
    written = [path for path in (output, html) if path is not None]
    for file in files:
        check_outputs(written, source=file)
    overview = cluster_overview(files)
    if output:
        write(output, overview.to_json())
    if html:
        from ..cluster.overview_page import cluster_bytes

        replace_file(html, cluster_bytes(overview))
    for path in written:
        if path != "-":
            click.echo(f"wrote {path}", err=True)
    if output != "-":
        from ..cluster.overview_show import print_overview

        print_overview(overview)
    return int(any(finding.state == "failed" for finding in overview.findings))
