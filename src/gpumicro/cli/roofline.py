"""`gpumicro roofline`: measure, show, write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..interrupts import waiting

if TYPE_CHECKING:
    from rich.console import Console

    from ..backends.replay import ReplayBackend
    from ..survey import Progress, Survey


DECIDING = ("outputs", "physical bounds", "devices")  # verdicts that make the exit code 1


@contextmanager
def _progress(console: Console, survey: Survey) -> Iterator[Progress]:
    """A bar on a terminal, one line a group elsewhere; both on stderr."""
    if not console.is_terminal:
        yield lambda done, total, title: console.print(f"[{done:3.0f} of {total:.0f} s] {title}", markup=False)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:42.42}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=survey.seconds)
        yield lambda done, total, title: bar.update(task, completed=done, total=total, description=title)


def _measure(survey: Survey, console: Console) -> None:
    if survey.replay is None:
        console.print(f"Measuring takes about {survey.seconds:.0f} s.", highlight=False)
    else:
        console.print("Playing a recording back: nothing is measured.", highlight=False)
    with _progress(console, survey) as progress:
        try:
            survey.run(progress)
        except KeyboardInterrupt:
            survey.interrupted = True


def _keep(survey: Survey, output: str | None, record: str | None = None) -> dict[str, Any] | None:
    """The result, written where it was asked for; None where an interrupted run has nothing to keep."""
    from .. import recording
    from ..result import write

    with waiting():  # a minute of measuring is not lost in the moment of writing it
        document = survey.document()
        if survey.interrupted and not any(m["status"] == "ok" for m in document["measurements"]):
            return None
        if output:
            write(output, document)
        if record:
            recording.write(record, survey.recording())
    return document


def _show(document: dict[str, Any], output: str | None, html: str | None, plot: str | None) -> None:
    from rich.console import Console

    from ..report import write_report
    from ..report.console import print_report

    for path in filter(None, (html, plot)):
        write_report(document, path)
    if output != "-":
        print_report(document, Console())


def _check_paths(
    output: str | None, html: str | None, plot: str | None, record: str | None, replay: str | None
) -> None:
    """A path that cannot be written is found before measuring, not after a minute of it."""
    from ..report import check_report_format, known_format
    from ..result import check_outputs

    if output and known_format(output) is not None:
        raise UsageError(f"-o writes the result as JSON, not as {output!r}; --html and --plot write reports")
    for path, formats in ((html, ("html",)), (plot, ("png", "svg"))):
        if path is not None:
            check_report_format(path, formats)
    if record == "-":
        raise UsageError("--record writes a file, not standard output")
    check_outputs([path for path in (output, html, plot, record) if path is not None], replay)


def _played(
    replay: str | None, faults: str | None, record: str | None, backend: str
) -> tuple[ReplayBackend | None, dict[str, Any]]:
    """The recording to run on and the settings it was made with; UsageError for options that contradict each other."""
    if replay is None:
        if faults is not None:
            raise UsageError("--faults are injected into a replay: give --replay FILE too")
        return None, {}
    if record is not None:
        raise UsageError("--record keeps what a device shows; with --replay there is none")
    if backend != "auto":
        raise UsageError("--replay is a backend of its own; leave --backend out")
    from ..backends.replay import replay as play

    played = play(replay, faults)
    return played, dict(played.recording["settings"])


@click.command("roofline", short_help="Measure ceilings and see what stands where under them.")
@click.option(
    "--device", default="auto", metavar="cpu|cuda:N|all", help="What to measure. [default: the first that can run]"
)
@click.option(
    "--backend", default="auto", metavar="NAME", help="How to run kernels; `gpumicro list` names them. [default: auto]"
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="NAME",
    help="Only these element types: float64, float32, bf16, int8 ... May be repeated.",
)
@click.option("--quick", "mode", flag_value="quick", help="Fewer kernels, within about 20 s.")
@click.option("--thorough", "mode", flag_value="thorough", help="Every kernel, more samples; minutes.")
@click.option(
    "--operands",
    type=click.Choice(["uniform", "normal", "zeros"]),
    help="What the arrays hold: uniform is [-1, 1]. [default: uniform]",
)
@click.option(
    "--sustained",
    type=click.FloatRange(min=0.0),
    metavar="SECONDS",
    help="Hold each ceiling's kernel that long as well and show what it settles at.",
)
@click.option(
    "--spec",
    metavar="NAME|FILE",
    help="Spec peaks: a name from `gpumicro specs` or a TOML file. [default: by the device]",
)
@click.option("--record", metavar="FILE", help="Keep what a replay needs: facts, spans and NVML's readings, as JSON.")
@click.option("--replay", metavar="FILE", help="Run on such a file, with no device; the result is tagged.")
@click.option("--faults", metavar="FILE", help="TOML with faults to inject into a replay: throttle, dead, missing ...")
@click.option("-o", "--output", metavar="FILE", help="Write the result as JSON; - is standard output.")
@click.option("--html", metavar="FILE", help="Write one self-contained page.")
@click.option("--plot", metavar="FILE", help="Write the roofline as .png or .svg.")
def command(
    device: str, backend: str, dtypes: tuple[str, ...], mode: Any, operands: Any, sustained: float | None,
    spec: str | None, record: str | None, replay: str | None, faults: str | None, output: str | None,
    html: str | None, plot: str | None,
) -> int:  # fmt: skip
    """Measure ceilings of memory and arithmetic, and where GEMM and STREAM stand under them.

    \b
    gpumicro roofline                           the table, in about a minute
    gpumicro roofline -o r.json --html r.html   keep the result, make a page
    gpumicro roofline --quick --dtype float32   less, sooner
    gpumicro roofline --replay seen.json        play a recording, no device
    """
    from rich.console import Console

    from ..survey import Survey

    _check_paths(output, html, plot, record, replay)
    played, told = _played(replay, faults, record, backend)
    survey = Survey(
        device=device, backend=backend, dtypes=dtypes or told.get("dtypes", ()),
        mode=mode or told.get("mode", "default"), operands=operands or told.get("operands", "uniform"), spec=spec,
        sustained_s=told.get("sustained_s", 0.0) if sustained is None else sustained, argv=sys.argv[1:],
        replay=played, record=record is not None,
    )  # fmt: skip
    err = Console(stderr=True)
    _measure(survey, err)
    document = _keep(survey, output, record)
    if document is None:
        err.print("Interrupted before anything was measured: nothing is written.", highlight=False)
        return 130
    _show(document, output, html, plot)
    for path in filter(None, (output, html, plot, record)):
        if path != "-":
            err.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    if survey.interrupted:
        err.print("Interrupted: what was measured until then is shown and written.", highlight=False)
        return 130
    # What the machine was like (quiet, steady) is for the reader to judge; a wrong output or figure is not.
    return 0 if all(v["passed"] for v in document["verdicts"] if v["name"] in DECIDING) else 1
