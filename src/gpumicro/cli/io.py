"""`gpumicro io DIR`: can this storage feed the GPUs?"""

from __future__ import annotations

import click

from ..errors import UsageError


def _size(text: str | None, name: str) -> float | None:
    from ..units import parse

    if text is None:
        return None
    try:
        return parse(text, "B")
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


@click.command("io", short_help="Can this storage feed the GPUs?")
@click.argument("directory", metavar="DIR")
@click.option("--gpus", type=int, metavar="N", help="Judge: so many GPUs are to be fed. [default: 1]")
@click.option("--samples-per-s", type=float, metavar="RATE", help="Judge: what one GPU takes in a second.")
@click.option("--sample-bytes", metavar="SIZE", help="Of a sample as it lies on the storage. [default: 128 KiB]")
@click.option("--scale", metavar="FILE", help="Judge: take GPUs and rate from a file of `gpumicro scale -o`.")
@click.option("--size", metavar="SIZE", help="Write at most so much at a time. [default: 4 GiB]")
@click.option("--runtime", type=float, default=3.0, show_default=True, metavar="SECONDS", help="Of each of 8 parts.")
@click.option("--workers", type=int, metavar="N", help="Of the loader-like read. [default: one a CPU, at most 8]")
@click.option("--files", type=int, metavar="N", help="Of the loader-like read. [default: as fit a quarter of --size]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the order in which files are read.")
@click.option("--no-fio", is_flag=True, help="The loader-like read alone.")
@click.option("-o", "--json", "--output", "output", metavar="FILE", help="Write the result as JSON; - is stdout.")
def command(
    directory: str, gpus: int | None, samples_per_s: float | None, sample_bytes: str | None, scale: str | None,
    size: str | None, runtime: float, workers: int | None, files: int | None, seed: int, no_fio: bool,
    output: str | None,
) -> int:  # fmt: skip
    """Measure the storage under DIR with fio and a loader-like read; say whether it can feed so many GPUs.

    Writes only into a new folder in DIR, never fills the disk, and removes the folder again, also after Ctrl-C.

    \b
    gpumicro io /data
    gpumicro io /data --gpus 8 --samples-per-s 400 --sample-bytes 110kB
    gpumicro io /data --size 64GiB --runtime 60 -o io.json

    Exit codes: 0 measured and, where asked, enough; 1 not enough, or the storage failed; 2 wrong use, no room;
    3 no fio; 130 interrupted.
    """
    from rich.console import Console

    from ..cluster.feeding import need_of
    from ..cluster.storage import SAMPLE_BYTES, StorageRun, StorageSettings
    from ..report.console import print_report
    from ..result import check_outputs, write
    from ..units import parse_size

    check_outputs([output] if output else [])
    sample = _size(sample_bytes, "--sample-bytes")
    need = need_of(gpus, samples_per_s, sample, scale, SAMPLE_BYTES)
    size_of = need.sample_bytes if need else SAMPLE_BYTES if sample is None else sample
    settings = StorageSettings(
        directory, None if size is None else parse_size(size), size_of, runtime, workers, files, not no_fio, need, seed
    )
    err = Console(stderr=True)

    def say(line: str) -> None:
        err.print(line, markup=False, highlight=False, soft_wrap=True)

    run = StorageRun(settings, say)
    try:
        run.run()
    except KeyboardInterrupt:
        if not run.rows and run.loader is None:
            raise
    found = run.result()
    if output:
        write(output, found.document)
    if output != "-":
        print_report(found.document, Console())
        if output:
            say(f"wrote {output}")
    if run.interrupted:
        say("Interrupted: what was measured until then is shown and written; the folder is removed.")
        return 130
    return 0 if found.passed else 1
