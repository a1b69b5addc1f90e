"""`gpumicro ab 'CMD A' 'CMD B'`: which of two commands is faster?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .compare import as_fraction, failing

if TYPE_CHECKING:
    from rich.console import Console

    from ..command_pairs import Progress

SAY_EVERY_S = 5.0  # without a terminal


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """One line that changes on a terminal, a line now and then elsewhere; both on stderr."""
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda blocks, spent_s, known: status.update(f"blocks: {blocks}, {spent_s:.0f} s; {known}")
        return
    said_s = 0.0

    def say(blocks: int, spent_s: float, known: str) -> None:
        nonlocal said_s
        if blocks and (blocks == 1 or spent_s - said_s >= SAY_EVERY_S):
            said_s = spent_s
            console.print(
                f"[{spent_s:3.0f} s] blocks: {blocks}; {known}".rstrip("; "),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    yield say


@click.command("ab", short_help="Which of two commands is faster?")
@click.argument("a", metavar="'CMD A'")
@click.argument("b", metavar="'CMD B'")
@click.option("--runs", type=int, metavar="N", help="So many runs of each, even. [default: as many as it takes]")
@click.option("--max-time", default="60", metavar="TIME", help="Stop then in any case. [default: 60 s]")
@click.option("--margin", default="0.5%", metavar="SHARE", help="A difference that does not matter. [default: 0.5%]")
@click.option("--warmup", type=int, default=1, metavar="N", help="Runs of each that do not count. [default: 1]")
@click.option("--timeout", metavar="TIME", help="Of one run: one that takes longer is stopped, and has failed.")
@click.option(
    "--metric", metavar="REGEX", help="Compare a number that the command prints: the last match, its first group."
)
@click.option("--higher", is_flag=True, help="With --metric: a higher number is the better.")
@click.option("--show", is_flag=True, help="Show what the commands print, on standard error.")
@click.option("--seed", type=int, default=0, metavar="N", help="Of the order within the blocks. [default: 0]")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(("slower", "faster", "any", "inconclusive")),
    help="Exit with 1 where B is so. May be repeated.",
)
@click.option("-o", "--json", "output", metavar="FILE", help="Write every run as JSON; - is standard output.")
def command(
    a: str, b: str, runs: int | None, max_time: str, margin: str, warmup: int, timeout: str | None,
    metric: str | None, higher: bool, show: bool, seed: int, fail_on: tuple[str, ...], output: str | None,
) -> int:  # fmt: skip
    """Run two commands in turns, each run a fresh process, and say how B stands to A.

    \b
    gpumicro ab './old --size 1000' './new --size 1000'
    gpumicro ab 'python a.py' 'python b.py' --max-time 5m --fail-on slower
    gpumicro ab ./v1 ./v2 --metric 'rate: ([0-9.]+)' --higher

    A command is split into words as a shell would, but no shell runs it: pipes and variables need `sh -c '...'`.

    Exit codes: 0 compared, 1 a command failed or B is what --fail-on names, 2 wrong use, 130 interrupted.
    """
    from rich.console import Console

    from ..command_pairs import CommandPairs, Rules
    from ..result import check_outputs

    check_outputs([output] if output else [])
    rules = Rules(
        margin=as_fraction(margin, "--margin"), runs=runs, max_time_s=_seconds(max_time),
        timeout_s=None if timeout is None else _seconds(timeout), warmup=warmup, metric=metric, higher=higher,
        show=show, seed=seed,
    )  # fmt: skip
    pairs, err = CommandPairs(a, b, rules), Console(stderr=True)
    interrupted = False
    try:
        with _progress(err) as progress:
            pairs.run(progress)
    except KeyboardInterrupt:
        interrupted = True
    doc = pairs.document()
    _write(doc, output, err)
    if interrupted:
        err.print("Interrupted: what was measured until then is shown and written.", highlight=False)
        return 130
    if pairs.error is not None:
        err.print(f"gpumicro: {pairs.error}", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 1 if failing(fail_on)(doc["verdict"]) else 0


def _seconds(text: str) -> float:
    """ "90", "1.5 s", "5m" or "2h"."""
    from ..units import parse_time

    for unit, seconds in (("min", 60), ("m", 60), ("h", 3600)):
        if text.endswith(unit) and text[: -len(unit)].strip().replace(".", "", 1).isdigit():
            return float(text[: -len(unit)]) * seconds
    try:
        return parse_time(text)
    except UsageError:
        raise UsageError(f"a time is such as 90, 1.5s, 5m or 2h, not {text!r}") from None


def _write(doc: dict[str, Any], output: str | None, err: Console) -> None:
    from rich.console import Console

    from ..report.ab import print_ab
    from ..result import write

    if output:
        write(output, doc)
    if output != "-":
        print_ab(doc, Console())
        if output:
            err.print(f"wrote {output}", markup=False, highlight=False, soft_wrap=True)
