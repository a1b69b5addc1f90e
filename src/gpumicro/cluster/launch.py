"""Job scripts that start gpumicro on many nodes: Slurm, Kubernetes, Kubeflow's MPIJob, torchrun.

Text only: nothing is started here. Names are checked against what their system allows, whatever else comes from the
user is quoted for the shell (shlex) or written as a YAML text, and Kubernetes' own `$(NAME)` is escaped.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UsageError

# commands whose processes work together, one rank a GPU; all others run once on every node
TOGETHER = ("collectives", "allreduce")
NODE = "{node}"  # in an argument: the number of the node
_WRITES = ("-o", "--output", "--html", "--md", "--csv", "--plot", "--record", "--json")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")  # RFC 1123, as Kubernetes has it
_IMAGE = re.compile(r"[A-Za-z0-9/.][A-Za-z0-9._/:@#+-]*")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,&|*-]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"[^\x00-\x1f:,]+")
LONGEST_S = 365 * 86400
_LONGEST_NAME = 50  # leaves room for "-worker-99999" in a label's 63


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What is to be started where. Made by `launch_plan`, which checks it."""

    command: tuple[str, ...]  # gpumicro's own arguments: ("roofline", "-o", "r-{node}.json")
    nodes: int
    gpus_per_node: int
    ranks_per_node: int
    name: str = "gpumicro"
    image: str | None = None
    time_s: int = 1800
    partition: str | None = None
    account: str | None = None
    namespace: str | None = None
    mpi: str = "pmix"
    head: str | None = None
    port: int = 29500
    environment: tuple[tuple[str, str], ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()  # (a folder, or a claim's name, and where it stands inside)
    program: tuple[str, ...] = ("gpumicro",)

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def together(self) -> bool:
        """Whether the processes of all nodes are ranks of one run."""
        return self.command[0] in TOGETHER

    def words(self, node: str) -> list[str]:
        """The program and its arguments; `node` is the shell variable with the node's number, where it is asked for."""
        words = [*self.program, *self.command]
        if not any(NODE in word for word in words):
            return words
        return ["bash", "-c", "exec " + " ".join(_expanding(word, node) for word in words)]


def _expanding(word: str, variable: str) -> str:
    """The word quoted, with the variable for the shell to fill in."""
    if NODE not in word:
        return shlex.quote(word)
    return f'"${{{variable}}}"'.join(shlex.quote(part) if part else "" for part in word.split(NODE))


def launch_plan(
    command: Sequence[str], nodes: int, gpus_per_node: int, *, ranks_per_node: int | None = None, **more: object
) -> LaunchPlan:
    """A checked plan. Raises UsageError naming what cannot be: counts, names, a file that all nodes would write."""
    if not command:
        raise UsageError("say what to run after --: gpumicro launch slurm --nodes 2 --gpus-per-node 8 -- roofline")
    for word in (*command, *_texts(more, "environment"), *_texts(more, "volumes")):
        _printable(word)
    if ranks_per_node is None:
        ranks_per_node = max(gpus_per_node, 1) if command[0] in TOGETHER else 1
    plan = LaunchPlan(tuple(command), nodes, gpus_per_node, ranks_per_node, **more)  # type: ignore[arg-type]
    for what, count, least in (
        ("--nodes", nodes, 1), ("--gpus-per-node", gpus_per_node, 0), ("--ranks-per-node", ranks_per_node, 1),
        ("--time", plan.time_s, 1),
    ):  # fmt: skip
        if count < least:
            raise UsageError(f"{what} must be at least {least}, not {count}")
    if plan.time_s > LONGEST_S:
        raise UsageError(f"--time must be at most a year, not {plan.time_s:.3g} s")
    if ranks_per_node > 1 and not plan.together:
        raise UsageError(
            f"--ranks-per-node {ranks_per_node}: {command[0]} runs once on a node, several would disturb one another; "
            f"ranks are of {' and '.join(TOGETHER)}"
        )
    if not 0 < plan.port < 65536:
        raise UsageError(f"--port must be between 1 and 65535, not {plan.port}")
    _names(plan)
    _outputs(plan)
    return plan


def _texts(more: dict[str, object], key: str) -> list[str]:
    pairs = more.get(key, ())
    assert isinstance(pairs, tuple)
    return [text for pair in pairs for text in pair]


def _printable(word: str) -> None:
    if "\0" in word:
        raise UsageError(f"{word!r} holds a NUL, which no argument can")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{word!r} is not UTF-8, and a job script is") from None


def is_label(text: str) -> bool:
    """Whether Kubernetes takes it as a name: small letters, digits and dashes within."""
    return _LABEL.fullmatch(text) is not None


def _names(plan: LaunchPlan) -> None:
    # a Service's name, which RFC 1035 rules, begins with a letter
    if not is_label(plan.name) or plan.name[0].isdigit() or len(plan.name) > _LONGEST_NAME:
        raise UsageError(
            f"--name {plan.name!r}: at most {_LONGEST_NAME} small letters, digits and dashes within, a letter first"
        )
    rules = (
        ("--image", plan.image, _IMAGE, "registry/name:tag, or a file without spaces"),
        ("--partition", plan.partition, _WORD, "a name of Slurm's"),
        ("--account", plan.account, _WORD, "a name of Slurm's"),
        ("--namespace", plan.namespace, _LABEL, "small letters, digits and dashes"),
        ("--mpi", plan.mpi, _WORD, "pmix, pmi2 or another that `srun --mpi=list` shows"),
        ("--head", plan.head, _HOST, "a host's name or address"),
    )
    for option, value, rule, words in rules:
        if value is not None and not rule.fullmatch(value):
            raise UsageError(f"{option} {value!r}: {words}")
    for key, _ in plan.environment:
        if not _VARIABLE.fullmatch(key):
            raise UsageError(f"--env {key!r}: the name of a variable has letters, digits and _, and no digit first")
    targets = [target for _, target in plan.volumes]
    for source, target in plan.volumes:
        if targets.count(target) > 1 or target == "/dev/shm":
            raise UsageError(f"--volume {source}={target}: something else stands at {target} already")
        if not (_PATH.fullmatch(source) and _PATH.fullmatch(target) and target.startswith("/")):
            raise UsageError(f"--volume {source}={target}: a source and a full path inside, without commas and colons")


def _outputs(plan: LaunchPlan) -> None:
    """A file that every node would write at once must bear the node's number."""
    if plan.together or plan.nodes == 1:
        return
    for flag, value in _options(plan.command):
        if flag in _WRITES and NODE not in value and value != "-":
            raise UsageError(
                f"{plan.nodes} nodes would all write {value!r}: put {NODE} into its name, such as "
                f"{flag} result-{NODE}.json; `gpumicro fleet` reads them all"
            )


def _options(command: Sequence[str]) -> list[tuple[str, str]]:
    found = [(word, following) for word, following in itertools.pairwise(command) if word in _WRITES]
    found += [(word[:2], word[2:]) for word in command if word.startswith("-o") and len(word) > 2]
    return found + [(key, value) for key, sign, value in (word.partition("=") for word in command) if sign]


def launch_text(kind: str, plan: LaunchPlan) -> str:
    """The job script of that kind: "slurm", "k8s", "mpijob" or "torchrun". Raises UsageError for what it cannot do."""
    from .launch_kubernetes import job_yaml, mpijob_yaml

    makers = {"slurm": slurm_script, "k8s": job_yaml, "mpijob": mpijob_yaml, "torchrun": torchrun_line}
    if kind not in makers:
        raise UsageError(f"launch knows {', '.join(makers)}, not {kind!r}")
    return makers[kind](plan)


# -- Slurm and torchrun ------------------------------------------------------------------------------------------------


def slurm_script(plan: LaunchPlan) -> str:
    """A script for sbatch: one task a node, or a rank a GPU for what works together."""
    hours, rest = divmod(plan.time_s, 3600)
    days, hours = divmod(hours, 24)
    options = {
        "job-name": plan.name, "nodes": plan.nodes, "ntasks-per-node": plan.ranks_per_node,
        "gpus-per-node": plan.gpus_per_node or None, "exclusive": "", "partition": plan.partition,
        "account": plan.account, "time": f"{days}-{hours:02}:{rest // 60:02}:{rest % 60:02}",
        "output": f"{plan.name}-%j.log",
    }  # fmt: skip
    directives = [f"#SBATCH --{key}" + ("" if value == "" else f"={value}")
                  for key, value in options.items() if value is not None]  # fmt: skip
    # sbatch reads no directive after the first command, so nothing below can be one
    exports = [f"export {key}={shlex.quote(value)}" for key, value in plan.environment]
    step = ["srun", "--kill-on-bad-exit=1", *([f"--mpi={plan.mpi}"] if plan.together else []), *_container(plan)]
    line = shlex.join([*step, *plan.words("SLURM_NODEID")])
    return "\n".join(["#!/bin/bash", *directives, "set -euo pipefail", *exports, line]) + "\n"


def _container(plan: LaunchPlan) -> list[str]:
    """srun's options of the pyxis plug-in, which runs containers under Slurm."""
    if plan.image is None:
        if plan.volumes:
            raise UsageError("--volume mounts into a container: give its --image too")
        return []
    mounts = ",".join(f"{source}:{target}" for source, target in plan.volumes)
    return [f"--container-image={plan.image}", *([f"--container-mounts={mounts}"] if mounts else [])]


def torchrun_words(plan: LaunchPlan, head: str | None) -> list[str]:
    """torchrun's arguments; without a head all ranks are on this node."""
    meet = ["--standalone"]
    if plan.nodes > 1:
        meet = [f"--nnodes={plan.nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={head}:{plan.port}",
                f"--rdzv-id={plan.name}"]  # fmt: skip
    each = f"--nproc-per-node={plan.ranks_per_node}"
    return ["torchrun", *meet, each, "--no-python", *plan.words("GROUP_RANK")]


def torchrun_line(plan: LaunchPlan) -> str:
    """The one line to run on each node."""
    if plan.nodes > 1 and plan.head is None:
        raise UsageError(f"torchrun on {plan.nodes} nodes needs --head HOST: the node at which the others meet it")
    if plan.image or plan.volumes:
        raise UsageError("torchrun starts no container: run it inside one, without --image and --volume")
    exports = [f"{key}={shlex.quote(value)}" for key, value in plan.environment]
    where = "on this node" if plan.nodes == 1 else f"on each of the {plan.nodes} nodes"
    return f"# {where}:\n" + " ".join([*exports, shlex.join(torchrun_words(plan, plan.head))]) + "\n"
