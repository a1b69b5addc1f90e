"""`gpumicro collectives`: the table of nccl-tests, between ranks on CPUs or GPUs."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from ..errors import UsageError
from . import collectives_gpu


def _settings(names: tuple[str, ...], wished: dict[str, Any], library: str = "mpi") -> Any:
    from ..collectives.operations import COLLECTIVES, collective, element, reduction
    from ..collectives.settings import Settings
    from ..collectives.sizes import Sweep, parse_size

    chosen = COLLECTIVES if "all" in names else names or ("all_reduce",)
    step, iters = wished["step"], wished["iters"]
    if iters is not None and iters < 2:
        raise UsageError(f"--iters must be at least 2, not {iters}: one sample has no interval")
    settings = Settings(
        collectives=tuple(dict.fromkeys(collective(name).name for name in chosen)),
        sweep=Sweep(
            parse_size(wished["begin"]), parse_size(wished["end"]), wished["factor"],
            None if step is None else parse_size(step),
        ),
        dtype=element(wished["dtype"], library), op=reduction(wished["op"], library), root=wished["root"],
        places={"both": (False, True), "in": (True,), "out": (False,)}[wished["place"]],
        iters=iters, max_time_s=wished["max_time"], target=wished["target"],
        **(collectives_gpu.settings_of(wished) if library == "nccl" else {}),
    )  # fmt: skip
    settings.policy()  # what cannot be had is said before any rank is started
    return settings


def _arguments(names: tuple[str, ...], wished: dict[str, Any], ranks: int) -> list[str]:
    """The same command for each rank that mpirun starts."""
    flags = {
        "begin": "-b", "end": "-e", "factor": "-f", "step": "-i", "dtype": "--dtype", "op": "--op", "root": "--root",
        "place": "--place", "iters": "--iters", "max_time": "--max-time", "target": "--target", "timeout": "--timeout",
        "format": "--format", "output": "-o", "loop": "--loop", "rounds": "--rounds",
    }  # fmt: skip
    names = (*names, "--pairs") if wished.get("pairs") else names
    given = [part for key, flag in flags.items() if wished[key] is not None for part in (flag, str(wished[key]))]
    return ["collectives", *names, "--device", "cpu", "--expect-ranks", str(ranks), *given]


def _one_size(names: tuple[str, ...], wished: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What --pairs takes where nothing else is said: sendrecv, at the size of -e or 4 MiB."""
    from click.core import ParameterSource

    context = click.get_current_context()
    said = {key for key in ("begin", "end") if context.get_parameter_source(key) is not ParameterSource.DEFAULT}
    end = wished["end"] if "end" in said else wished["begin"] if "begin" in said else "4M"
    if wished["format"] != "table":
        raise UsageError("--pairs has a table of its own: leave --format out")
    return names or ("sendrecv",), wished | {"begin": wished["begin"] if "begin" in said else end, "end": end}


def _check(wished: dict[str, Any], device: str, ranks: int | None) -> None:
    from ..collectives.table import FORMATS
    from ..errors import unknown
    from ..result import check_outputs

    if not collectives_gpu.is_gpu(device):
        collectives_gpu.refuse_on_cpu(wished)
    elif ranks is not None:
        raise UsageError(
            "--ranks starts ranks on CPUs. On GPUs one process takes all devices (--device cuda) or some (cuda:0,1); "
            "for a process a device start this with mpirun, srun or torchrun"
        )
    if wished["format"] not in FORMATS:
        raise UsageError(unknown("format", wished["format"], FORMATS))
    if not 0 < wished["timeout"] < float("inf"):
        raise UsageError(f"--timeout must be a positive number of seconds, not {wished['timeout']:g}")
    if wished["output"] is not None:
        check_outputs([wished["output"]])


def _line(output: str | None) -> Any:
    """Where the table goes: stdout, or stderr where the result takes that."""
    stream = sys.stderr if output == "-" else sys.stdout

    def write(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return write


@click.command("collectives", short_help="Time collectives between ranks, as nccl-tests does.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-b", "begin", default="8", show_default=True, metavar="SIZE", help="The first size; K, M, G are 1024s.")
@click.option("-e", "end", default="64M", show_default=True, metavar="SIZE", help="The last size.")
@click.option("-f", "factor", type=float, default=2.0, show_default=True, help="From each size to the next.")
@click.option("-i", "step", metavar="SIZE", help="Bytes from each size to the next, instead of -f.")
@click.option(
    "--dtype",
    "-d",
    default="float32",
    show_default=True,
    metavar="NAME",
    help="float64, int32 ...; GPUs: fp16, bf16, fp8.",
)
@click.option("--op", default="sum", show_default=True, metavar="NAME", help="sum, prod, min, max; GPUs: avg.")
@click.option("--root", type=int, default=0, show_default=True, help="Of broadcast, reduce, scatter and gather.")
@click.option("--place", type=click.Choice(["both", "in", "out"]), default="both", show_default=True,
              help="In place, out of place.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda|cuda:0,1",
              help="cuda: all GPUs, or with a launcher one a rank.")  # fmt: skip
@click.option("--ranks", type=int, metavar="N", help="Start N ranks with mpirun, where no launcher did.")
@click.option("--expect-ranks", type=int, metavar="N", help="Fail where there are more or fewer.")
@click.option("--iters", type=int, metavar="N", help="Samples of each row. [default: by --target]")
@click.option("--target", type=float, default=0.02, show_default=True, help="Stop a row at this half-width.")
@click.option("--max-time", type=float, default=1.0, show_default=True, metavar="SECONDS", help="Of sampling a row.")
@click.option("--timeout", type=float, default=120.0, show_default=True, metavar="SECONDS",
              help="End all ranks after so long without progress.")  # fmt: skip
@click.option("--transport", default="auto", show_default=True, metavar="NAME[,NAME]...",
              help="GPUs: the same sweep by auto, p2p, shm, ib, socket.")  # fmt: skip
@click.option("--graph", type=int, default=0, metavar="N", help="GPUs: a run is a CUDA graph of N operations.")
@click.option("--aggregate", type=int, default=1, metavar="N", help="GPUs: N operations in one NCCL group.")
@click.option("--algorithms", is_flag=True, help="GPUs: let NCCL's log say what it picks; slows nccl avg.")
@click.option("--loop", type=click.Choice(["auto", "native", "python"]), default="auto", show_default=True,
              help="Between MPI ranks: compiled by mpicc where that is here, or Python's.")  # fmt: skip
@click.option("--format", default="table", show_default=True, metavar="NAME", help="table or nccl-tests.")
@click.option("--pairs", is_flag=True, help="Find slow nodes: each rank with each other, at one size (-e, or 4M).")
@click.option("--rounds", type=click.IntRange(1), metavar="N",
              help="Of --pairs: N of the n-1. [default: all up to 32 ranks, else 3]")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write the result as JSON; - is stdout.")
def command(names: tuple[str, ...], **wished: Any) -> int:
    """Time collectives between ranks: time, algbw, busbw and wrong elements by size.

    NAME: all_reduce (default), all_gather, reduce_scatter, broadcast, reduce, alltoall, sendrecv, scatter, gather,
    barrier, or all.

    \b
    mpirun -n 4 python -m gpumicro collectives --device cpu -b 8 -e 64M -f 2
    torchrun --nproc-per-node 8 -m gpumicro collectives --device cuda -e 8G
    gpumicro collectives --device cuda --transport auto,p2p,shm -o r.json
    gpumicro collectives all_gather alltoall --device cpu --ranks 2 -o r.json
    mpirun -n 16 -ppn 1 python -m gpumicro collectives --pairs
    """
    return run(names, **wished)


def run(
    names: tuple[str, ...], device: str, ranks: int | None, expect_ranks: int | None, **wished: Any
) -> int:  # fmt: skip
    """Start the ranks, or be one of them; the exit code."""
    from ..collectives import launch, started

    _check(wished, device, ranks)
    if collectives_gpu.is_gpu(device):
        from ..collectives import job

        if wished["pairs"]:
            raise UsageError("--pairs is between ranks on CPUs in this version")
        settings = _settings(names, wished, "nccl")
        output = job.Output(_line(wished["output"]), wished["format"], wished["output"])
        return collectives_gpu.run(settings, device, output, expect_ranks, wished)
    if wished["rounds"] is not None and not wished["pairs"]:
        raise UsageError("--rounds goes with --pairs")
    if wished["pairs"]:
        names, wished = _one_size(names, wished)
    settings = _settings(names, wished)
    if ranks is not None and started.started().kind == "alone":
        return launch.start(ranks, _arguments(names, wished, ranks))
    from ..collectives import job, pair_job, rendezvous

    work = None
    if wished["pairs"]:
        settings, work = pair_job.pair_settings(settings), partial(pair_job.together, rounds=wished["rounds"])
    output = job.Output(_line(wished["output"]), wished["format"], wished["output"])
    connected = rendezvous.connect(wished["timeout"], loop=wished["loop"])
    return job.run(
        connected, settings, output, expect=ranks if expect_ranks is None else expect_ranks,
        timeout_s=wished["timeout"], work=work,
    )  # fmt: skip
