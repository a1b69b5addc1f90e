"""`gpumicro monitor [-- CMD...]`: what do GPUs and host do, and what does that say?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..cluster.exporter import Textfile
    from ..cluster.monitoring import MonitorRun, Sample


def _say(text: str) -> None:
    click.echo(text, err=True)


def _exports(run: MonitorRun, port: int | None, bind: str | None, textfile: str | None,
             stack: ExitStack) -> Textfile | None:  # fmt: skip
    """Prometheus's ways out, where they are asked for."""
    from ..cluster.exporter import LOCAL, Exporter, Textfile
    from ..errors import UsageError

    if bind is not None and port is None:
        raise UsageError("--bind says where --prometheus PORT listens; give that too")
    if port is None and textfile is None:
        return None
    exporter = Exporter([(gpu.reader.index, gpu.reader.uuid, gpu.reader.name) for gpu in run.gpus])
    run.sinks.append(exporter)
    if port is not None:
        address, found = exporter.serve(port, bind or LOCAL)
        stack.callback(exporter.close)
        _say(f"Prometheus: http://{f'[{address}]' if ':' in address else address}:{found}/metrics")
        if bind not in (None, LOCAL, "::1", "localhost"):
            _say(f"Whoever reaches {address} on this machine can read it: there is no password.")
    if textfile is None:
        return None
    written = Textfile(exporter, textfile)
    run.sinks.append(written)
    return written


@contextmanager
def _shown(run: MonitorRun, live: bool, stream: Any) -> Iterator[None]:
    """A table that changes on a terminal, a line a sample elsewhere; beside a command nothing, unless asked for."""
    from rich.console import Console

    from ..cluster.live import line, table

    gpus = [(gpu.reader.index, gpu.reader.name) for gpu in run.gpus]
    console = Console(file=stream)
    if run.command is not None and not live:
        yield
    elif console.is_terminal:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=True) as view:
            run.sinks.append(lambda sample: view.update(table(sample, gpus), refresh=True))
            yield
    else:

        def write(sample: Sample) -> None:
            stream.write(f"{line(sample, gpus)}\n")
            stream.flush()

        run.sinks.append(write)
        yield


@click.command("monitor", short_help="Watch GPUs and host, also while a command runs.",
               context_settings={"allow_interspersed_args": False})  # fmt: skip
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@click.option("--interval", type=float, default=1.0, show_default=True, metavar="SECONDS", help="Between samples.")
@click.option("--duration", type=float, metavar="SECONDS", help="Without CMD: end then. [default: at Ctrl-C]")
@click.option("--gpu", "gpus", multiple=True, metavar="INDEX|UUID", help="Only this one, as nvidia-smi counts them.")
@click.option("--prometheus", type=int, metavar="PORT", help="Answer Prometheus there; 0 is any free port.")
@click.option("--bind", metavar="ADDRESS", help="Where --prometheus listens. [default: 127.0.0.1]")
@click.option("--textfile", metavar="FILE.prom", help="Write each sample there, for node_exporter.")
@click.option("--threshold", "thresholds", multiple=True, metavar="NAME=SHARE", help="Of the verdicts: shrink=20%.")
@click.option("--live", is_flag=True, help="Show each sample also while CMD runs, on standard error.")
@click.option("-o", "--json", "--output", "output", metavar="FILE", help="Write the result as JSON; - is stdout.")
def command(
    command_line: tuple[str, ...], interval: float, duration: float | None, gpus: tuple[str, ...],
    prometheus: int | None, bind: str | None, textfile: str | None, thresholds: tuple[str, ...], live: bool,
    output: str | None,
) -> int:  # fmt: skip
    """Watch GPUs (NVML), CPU, disks and network; end with percentiles, energy and verdicts.

    \b
    gpumicro monitor                                until Ctrl-C
    gpumicro monitor -o m.json -- python train.py   while that runs
    gpumicro monitor --duration 600 --prometheus 9400

    With CMD the summary goes to standard error, signals go on to CMD, and its exit code is returned (128 + n where
    signal n ended it). Thresholds: shrink, grow, idle, memory_bound, throttled, power_capped, cpu_busy, io_wait,
    disk_busy.
    """
    from ..cluster.advice import Thresholds
    from ..cluster.monitoring import MonitorRun, MonitorSettings
    from ..errors import UsageError
    from ..result import check_outputs

    paths = [path for path in (output, textfile) if path]
    if textfile == "-":
        raise UsageError("--textfile names a file that ends in .prom")
    check_outputs(paths)
    settings = MonitorSettings(interval, duration, command_line, gpus, Thresholds.of(thresholds))
    run = MonitorRun(settings)
    if not run.gpus:
        _say(f"No GPU is watched, the host alone: {run.no_gpu}.")
    stream = sys.stderr if command_line or output == "-" else sys.stdout
    with ExitStack() as stack:
        written = _exports(run, prometheus, bind, textfile, stack)
        stack.enter_context(_shown(run, live, stream))
        try:
            run.run()
        except KeyboardInterrupt:
            if not run.samples:
                raise
    if written is not None and written.failure:
        _say(f"--textfile: {written.failure}")
    return _finish(run, output, stream)


def _finish(run: MonitorRun, output: str | None, stream: Any) -> int:
    """Write and show what was seen; the exit code. Ctrl-C is the common end of a watch that has none of its own."""
    from rich.console import Console

    from ..report.console import print_report
    from ..result import write

    early = run.interrupted and run.settings.duration_s is not None
    run.interrupted = early
    found = run.result()
    if output:
        write(output, found.document)
    print_report(found.document, Console(file=stream))
    if output not in (None, "-"):
        _say(f"wrote {output}")
    return found.exit_code if found.exit_code is not None else 130 if early else 0
