"""`gpumicro compare BASE.json NEW.json`: faster, slower, equivalent or inconclusive, and an exit code for a CI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError

FAILING = ("slower", "faster", "any", "inconclusive", "missing")


def as_fraction(text: str, name: str) -> float:
    """ "0.5%" or "0.005". Raises UsageError."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{name} takes a share such as 0.5% or 0.005, not {text!r}") from None


def failing(fail_on: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a verdict ("missing": the base has it, and it was not compared) makes the exit code 1."""
    wanted = {"slower", "faster", *fail_on} if "any" in fail_on else set(fail_on)
    return lambda verdict: verdict in wanted


@click.command("compare", short_help="Set one result file against another: what became slower?")
@click.argument("files", nargs=-1, metavar="BASE NEW")
@click.option("--base", multiple=True, metavar="FILE", help="One more base file, or a folder of them; each a run.")
@click.option("--new", multiple=True, metavar="FILE", help="One more new file, or a folder of them; each a run.")
@click.option(
    "--fail-on", multiple=True, type=click.Choice(FAILING), help="Exit with 1 where one is so. May be repeated."
)
@click.option("--margin", default="0.5%", metavar="SHARE", help="A difference that does not matter. [default: 0.5%]")
@click.option("--confidence", default="95%", metavar="SHARE", help="Of the intervals. [default: 95%]")
@click.option("--fdr", default="5%", metavar="SHARE", help="False ones among faster and slower. [default: 5%]")
@click.option(
    "--process-sd",
    metavar="SHARE",
    help="Spread between processes, where one file stands for a side. [default: 0.5%]",
)
@click.option("--force", is_flag=True, help="Compare other devices, clocks, cache states and origins too.")
@click.option("-o", "--json", "output", metavar="FILE", help="Write the comparison as JSON; - is standard output.")
@click.option("--markdown", metavar="FILE", help="Write it as Markdown.")
@click.option("--junit", metavar="FILE", help="Write it as JUnit XML.")
def command(
    files: tuple[str, ...], base: tuple[str, ...], new: tuple[str, ...], fail_on: tuple[str, ...], margin: str,
    confidence: str, fdr: str, process_sd: str | None, force: bool, output: str | None, markdown: str | None,
    junit: str | None,
) -> int:  # fmt: skip
    """Compare the measurements of two results, pair by pair: BASE and NEW are files, or folders with a file a run.

    \b
    gpumicro compare main.json branch.json --fail-on slower
    gpumicro compare main/ branch/ --junit j.xml   five runs each, in turns
    gpumicro compare --base a1.json --base a2.json --new b1.json --new b2.json

    Exit codes: 0 done, 1 something that --fail-on names, 2 wrong use or nothing that can be compared.
    """
    from ..result_diff import PROCESS_SD, Rules, compare_results

    paths = _paths(files, base, new)
    named = [("--json", output), ("--markdown", markdown), ("--junit", junit)]
    _check(paths, named)
    rules = Rules(
        as_fraction(margin, "--margin"), as_fraction(confidence, "--confidence"), as_fraction(fdr, "--fdr"),
        PROCESS_SD if process_sd is None else as_fraction(process_sd, "--process-sd"), force,
    )  # fmt: skip
    from ..result_sources import read_sources

    diff = compare_results(read_sources(paths[0]), read_sources(paths[1]), rules)
    fails = failing(fail_on)
    _write(diff, output, markdown, junit, fails)
    if output != "-":
        _show(diff)
    if not diff["compared"]:
        click.echo("gpumicro: nothing could be compared", err=True)
        return 2
    verdicts = {record["verdict"] for record in diff["compared"]}
    verdicts |= {"missing" for left in diff["not_compared"] if left["expected"]}
    return 1 if any(map(fails, verdicts)) else 0


def _paths(files: tuple[str, ...], base: tuple[str, ...], new: tuple[str, ...]) -> tuple[list[str], list[str]]:
    if len(files) not in (0, 2):
        raise UsageError(f"give BASE and NEW, or --base and --new for several files a side; not {len(files)} files")
    paths = ([*files[:1], *base], [*files[1:], *new])
    if not all(paths):
        raise UsageError("give a base and a new result: gpumicro compare BASE.json NEW.json")
    return paths


def _check(paths: tuple[list[str], list[str]], outputs: list[tuple[str, str | None]]) -> None:
    """Before anything is read: every output can be written, and none is a file that is read."""
    from ..result import check_outputs

    for name, path in outputs[1:]:
        if path == "-":
            raise UsageError(f"{name} takes a file's name")
    written = [path for _, path in outputs if path is not None]
    check_outputs(written)
    for path in (*paths[0], *paths[1]):
        if any(one != "-" and Path(one).resolve() == Path(path).resolve() for one in written):
            raise UsageError(f"cannot write {path}: it is a file that is compared")


def _write(
    diff: dict[str, Any], output: str | None, markdown: str | None, junit: str | None, fails: Callable[[str], bool]
) -> None:
    from ..report.diff import diff_markdown
    from ..report.junit import to_junit
    from ..result import replace_file, write

    if output:
        write(output, diff)
    if markdown:
        replace_file(markdown, diff_markdown(diff).encode("utf-8", "replace"))
    if junit:
        replace_file(junit, to_junit(diff, fails))
    for path in (output, markdown, junit):
        if path and path != "-":
            click.echo(f"wrote {path}", err=True)


def _show(diff: dict[str, Any]) -> None:
    from rich.console import Console

    from ..report.diff import print_diff

    print_diff(diff, Console())
