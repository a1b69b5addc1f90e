"""`gpumicro launch KIND ... -- COMMAND`: the job script that runs a command of gpumicro on many nodes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..errors import BackendUnavailable, UsageError, unknown

if TYPE_CHECKING:
    from ..cluster.launch import LaunchPlan

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_SUBMITS = {"slurm": ["sbatch"], "k8s": ["kubectl", "create", "-f", "-"], "mpijob": ["kubectl", "create", "-f", "-"]}


@click.group("launch", short_help="Job scripts: Slurm, Kubernetes, MPIJob, torchrun.")
def command() -> None:
    """Print the job script that runs a command of gpumicro on many nodes. Nothing is started without --submit.

    \b
    gpumicro launch slurm --nodes 4 --gpus-per-node 8 -- collectives -o r.json
    gpumicro launch slurm --nodes 64 --gpus-per-node 8 -- roofline -o {node}.json
    gpumicro launch k8s --nodes 8 --gpus-per-node 8 --image my/image -- roofline
    gpumicro launch mpijob --nodes 4 --gpus-per-node 8 --image my/image \\
        -- collectives all
    gpumicro launch torchrun --nodes 2 --gpus-per-node 8 --head node0 \\
        -- collectives all_reduce

    `collectives` and `allreduce` run as one rank a GPU over all nodes, every other command once on each node; {node}
    in an argument is the node's number.
    """


def _pairs(texts: tuple[str, ...], option: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign):
            raise UsageError(f"{option} takes NAME=VALUE, not {text!r}")
        pairs.append((key, value))
    return tuple(pairs)


def _plan(words: tuple[str, ...], given: dict[str, Any]) -> LaunchPlan:
    from ..cluster.launch import launch_plan
    from ..cluster.uncertain import duration
    from . import COMMANDS

    if words and words[0] not in COMMANDS:
        raise UsageError(unknown("command", words[0], COMMANDS))
    if words[:1] == ("launch",):
        raise UsageError("launch launches every command but itself")
    _check(words)
    given = {key: value for key, value in given.items() if value is not None}
    given["time_s"] = int(duration(given.pop("time")))
    given["environment"] = _pairs(given.pop("env"), "--env")
    given["volumes"] = _pairs(given.pop("volume", ()), "--volume")
    return launch_plan(words, given.pop("nodes"), given.pop("gpus_per_node"), **given)


def _check(words: tuple[str, ...]) -> None:
    """A wrong option is found now and not after hours in a queue. Nothing is run."""
    from . import cli

    with click.Context(cli, info_name="gpumicro") as context:
        found = cli.get_command(context, words[0]) if words else None
        if found is not None:
            found.make_context(words[0], list(words[1:]), parent=context)


def _options(kind: str) -> list[Decorator]:
    """What every kind takes, and what this one alone does."""
    pod = [click.option("--image", required=True, metavar="IMAGE"), click.option("--namespace", metavar="NAME")]
    where = {
        "slurm": [
            click.option("--image", metavar="IMAGE", help="Run in this container (the pyxis plug-in)."),
            click.option("--partition", metavar="NAME"), click.option("--account", metavar="NAME"),
            click.option("--mpi", metavar="NAME", help="Of srun. [default: pmix]"),
        ],
        "k8s": pod,
        "mpijob": pod,
        "torchrun": [
            click.option("--head", metavar="HOST", help="The node at which the others meet it."),
            click.option("--port", type=int, metavar="N", help="[default: 29500]"),
        ],
    }[kind]  # fmt: skip
    if kind != "torchrun":
        where.append(click.option("--volume", multiple=True, metavar="SOURCE=PATH", help="Mount a folder, or a claim."))
    return [
        click.option("--nodes", type=int, required=True, metavar="N"),
        click.option("--gpus-per-node", type=int, required=True, metavar="N", help="0 on machines without GPUs."),
        click.option("--ranks-per-node", type=int, metavar="N", help="[default: a rank a GPU for collectives, else 1]"),
        click.option("--name", metavar="NAME", help="Of the job. [default: gpumicro]"),
        click.option("--time", default="30min", show_default=True, metavar="TIME", help="The job's limit."),
        click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for it: NCCL_DEBUG=INFO."),
        *where,
        click.option("--submit", is_flag=True, help="Hand it to the scheduler now."),
        click.option("-o", "--output", metavar="FILE", help="Write it here instead of stdout."),
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]..."),
    ]  # fmt: skip


def _add(kind: str, help_text: str) -> None:
    def run(words: tuple[str, ...], submit: bool, output: str | None, **given: Any) -> int:
        return _launch(kind, words, submit, output, given)

    for option in reversed(_options(kind)):
        run = option(run)
    settings = {"ignore_unknown_options": False, "allow_interspersed_args": False}
    command.command(kind, help=help_text, context_settings=settings)(run)


def _launch(kind: str, words: tuple[str, ...], submit: bool, output: str | None, given: dict[str, Any]) -> int:
    from ..cluster.launch import launch_text, torchrun_words
    from ..result import check_outputs, replace_file

    plan = _plan(words, given)
    text = launch_text(kind, plan)
    if output not in (None, "-"):
        assert output is not None
        check_outputs([output])
        replace_file(output, text.encode())
        click.echo(f"wrote {output}", err=True)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    if not submit:
        return 0
    if kind == "torchrun":
        return _hand_over(torchrun_words(plan, plan.head), None, dict(plan.environment))
    return _hand_over(_SUBMITS[kind], text, {})


def _hand_over(words: list[str], text: str | None, environment: dict[str, str]) -> int:
    """Run the scheduler's program, without a shell; its exit code is ours."""
    import os

    click.echo(f"submitting: {' '.join(words[:3])}", err=True)
    try:
        done = subprocess.run(words, input=text, text=True, check=False, env=os.environ | environment, encoding="utf-8")
    except FileNotFoundError:
        raise BackendUnavailable(
            f"{words[0]} is not on PATH, so nothing was submitted", "Run this where the scheduler's programs are"
        ) from None
    return 1 if done.returncode else 0


_add("slurm", "A script for sbatch.")
_add(
    "k8s",
    "A Kubernetes Job, Indexed, a pod a node; ranks of several pods meet by torchrun, which the image then needs.",
)
_add("mpijob", "An MPIJob for Kubeflow's MPI operator.")
_add("torchrun", "The torchrun line for each node.")
