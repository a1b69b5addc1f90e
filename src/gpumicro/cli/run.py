"""`gpumicro run FILE.py:FUNC`: time a function of the user's and show it under the roof."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import GpumicroError, UsageError
from ..interrupts import waiting
from .roofline import _check_paths, _keep, _measure

if TYPE_CHECKING:
    from rich.console import Console

    from ..chart import Roofline
    from ..counts import Declared
    from ..own_file import OwnWork
    from ..placed import Placed


def _declared(flops: str | None, moved: str | None) -> Declared | None:
    from ..counts import Declared
    from ..units import parse

    if flops is None and moved is None:
        return None
    return Declared(None if flops is None else parse(flops, "FLOP"), None if moved is None else parse(moved, "B"))


def _roofline(path: str | None, device: str, work: OwnWork, output: str | None, err: Console) -> tuple[Roofline, bool]:
    """The ceilings, read or measured, and whether that was interrupted; what there is then is written."""
    from ..chart import Roofline
    from ..survey import Survey

    if path is not None:
        return Roofline.load(path), False
    dtypes = (work.counts.dtype,) if work.counts.flops else ()
    survey = Survey(device=device, mode="quick", dtypes=dtypes, argv=sys.argv[1:])
    _measure(survey, err)
    if survey.interrupted:
        kept = _keep(survey, output)
        written = f"; {output} has the ceilings" if kept and output not in (None, "-") else ""
        err.print(f"Interrupted while the ceilings were measured: the function was not timed{written}.", markup=False,
                  highlight=False, soft_wrap=True)  # fmt: skip
    return Roofline(survey.document()), survey.interrupted


def _place(roof: Roofline, work: OwnWork, where: dict[str, Any], timing: dict[str, Any]) -> tuple[Placed | None, bool]:
    """The point, None where nothing can be said of it, and whether timing it was interrupted."""
    from ..measure import MeasurementsInterrupted

    try:
        return roof.place(work.function, *work.args, counts=work.counts, name=work.name, **where, **timing), False
    except MeasurementsInterrupted as stop:
        seen = stop.partial[0]
        return (roof.place(seen, counts=work.counts, name=work.name, **where) if seen else None), True
    except KeyboardInterrupt:
        return None, True
    except GpumicroError:
        raise
    except (Exception, SystemExit) as error:
        raise work.error(error) from error


def _write(roof: Roofline, output: str | None, html: str | None, plot: str | None, err: Console) -> None:
    from ..report import write_report
    from ..result import write

    with waiting():
        if output:
            write(output, roof.document)
        for path in filter(None, (html, plot)):
            write_report(roof.document, path)
    for path in filter(None, (output, html, plot)):
        if path != "-":
            err.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _show(placed: Placed) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in placed.rows():
        if value:
            grid.add_row(Text(name), Text(value, style="bold red" if placed.impossible and name == "flags" else ""))
    console = Console()
    console.print(Text(placed["name"], style="bold"))
    console.print(grid)


@click.command("run", short_help="Time a function of your own and show it under the roof.")
@click.argument("target", metavar="FILE.py:FUNC")
@click.option("--arg", "arguments", multiple=True, metavar="VALUE", help="An argument of FUNC; repeat it for each.")
@click.option("--flops", metavar="COUNT", help="FLOP of one call: 2e9, 2^30. 0 for a copy.")
@click.option("--bytes", "moved", metavar="SIZE", help="Bytes that one call must move: 96MiB, 1e9.")
@click.option("--roofline", metavar="FILE", help="Ceilings from this result. [default: measure them, about 20 s]")
@click.option("--device", metavar="cpu|cuda:N", help="What to measure, or which device of FILE. [default: the first]")
@click.option("--level", default="dram", show_default=True, metavar="NAME", help="Where its data come from, or auto.")
@click.option("--dtype", metavar="NAME", help="Whose arithmetic it does. [default: its counts', else float64]")
@click.option("--target", "precision", type=float, metavar="FRACTION", help="Stop at this half-width. [default: 0.01]")
@click.option("--max-time", type=float, metavar="SECONDS", help="Stop sampling after this long. [default: 5]")
@click.option("-o", "--json", "--output", "output", metavar="FILE", help="Write the result as JSON; - is stdout.")
@click.option("--html", metavar="FILE", help="Write one self-contained page.")
@click.option("--plot", metavar="FILE", help="Write the roofline as .png or .svg.")
def command(
    target: str, arguments: tuple[str, ...], flops: str | None, moved: str | None, roofline: str | None,
    device: str | None, level: str, dtype: str | None, precision: float | None, max_time: float | None,
    output: str | None, html: str | None, plot: str | None,
) -> int:  # fmt: skip
    """Time FUNC of FILE.py and show it under the roof: what holds it, how far it is from that.

    The file says how much a call does, by @gm.measured(flops=..., bytes=...) on FUNC or by COUNTS; FUNC's arguments
    are --arg or the file's ARGS.

    \b
    gpumicro run kernels.py:add                        ceilings are measured first
    gpumicro run kernels.py:add --roofline r.json      ceilings from a file
    gpumicro run kernels.py:add --arg 2^20 -o out.json
    """
    from rich.console import Console

    from .. import own_file
    from ..measurement import Policy
    from ..placing import Place, Roofs
    from ..works import refuse

    err = Console(stderr=True)
    if device == "all":
        raise UsageError("a function is set against one device: --device cpu or cuda:N")
    _check_paths(output, html, plot, None, roofline)
    work = own_file.load(target, arguments, _declared(flops, moved), dtype)
    given = {"target": precision, "max_time_s": max_time}
    timing = {key: value for key, value in given.items() if value is not None}
    Policy.of(**timing)
    refuse(work.function)
    roof, interrupted = _roofline(roofline, device or "auto", work, output, err)
    if interrupted:
        return 130
    where = {"level": level, "device": device if roofline else None}
    remarks: list[str] = []
    try:
        Place.find(Roofs.of(roof.document, where["device"]), work.counts, level=level)
        err.print(f"Timing {work.name}; Ctrl-C keeps what there is.", markup=False, highlight=False)
        with own_file.printing_counted(work.name, remarks):
            placed, interrupted = _place(roof, work, where, timing)
    except GpumicroError:
        if output and not roofline:  # the ceilings are worth keeping
            _write(roof, output, None, None, err)
        raise
    roof.document["notes"] = [*roof.document.get("notes", ()), *remarks]
    roof.document["interrupted"] = roof.document["interrupted"] or interrupted
    _write(roof, output, html, plot, err)
    if placed is not None and output != "-":
        _show(placed)
    for remark in [*remarks, *(["Interrupted: " + _kept(placed)] if interrupted else [])]:
        err.print(remark, markup=False, highlight=False)
    return 130 if interrupted else 1 if placed is not None and placed.impossible else 0


def _kept(placed: Placed | None) -> str:
    return "what was timed until then is shown." if placed else "too little was timed to say anything."
