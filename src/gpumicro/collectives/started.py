"""Who started this process, read from its environment: a launcher of MPI, torchrun, srun, or nobody."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UsageError

Environment = Mapping[str, str]

# what mpirun of MPICH, Intel and Open MPI, and srun with PMI or PMIx set for each rank
_LAUNCHED = (
    "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "PALS_RANKID",
)  # fmt: skip
_RANK_AND_SIZE = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)  # fmt: skip
_TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_JOB = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID")
TOKEN = "GPUMICRO_TOKEN"


@dataclass(frozen=True, slots=True)
class Started:
    """By whom ("mpi", "torchrun", "srun", "alone"), as which of how many, and where rank 0 waits for the others.

    `address` is "" and `port` 0 where nobody said. Of "mpi", rank and size are what the launcher's variables say, 0 of
    0 where they do not: MPI knows. `agent_store`: torchrun itself listens at the address, with torch's TCPStore.
    """

    kind: str
    rank: int = 0
    size: int = 1
    address: str = ""
    port: int = 0
    agent_store: bool = False
    token: bytes = b""

    @property
    def words(self) -> str:
        """ "torchrun's way (RANK 0 of WORLD_SIZE 2)"."""
        if self.kind == "srun":
            return f"by srun (task {self.rank} of {self.size})"
        return f"torchrun's way (RANK {self.rank} of WORLD_SIZE {self.size})"


def launched(environment: Environment = os.environ) -> bool:
    """Whether a launcher of MPI started this process as one of its ranks."""
    return any(name in environment for name in _LAUNCHED)


def started(environment: Environment = os.environ) -> Started:
    """From the environment. UsageError names the variable that is missing or makes no sense."""
    if launched(environment):
        return _by_mpi(environment)
    if "WORLD_SIZE" in environment and _whole(environment, "WORLD_SIZE", 1) > 1:
        return _torch_like(environment)
    if "SLURM_PROCID" in environment and _whole(environment, "SLURM_STEP_NUM_TASKS", 1, default=1) > 1:
        return _by_srun(environment)
    return Started("alone")


def _by_mpi(environment: Environment) -> Started:
    rank, size = 0, 0
    for rank_name, size_name in _RANK_AND_SIZE:
        if rank_name in environment and size_name in environment:
            size = _whole(environment, size_name, 1)
            rank = _whole(environment, rank_name, 0, size - 1)
            break
    address = environment.get("MASTER_ADDR", "").strip()
    port = _whole(environment, "MASTER_PORT", 1, 65535) if "MASTER_PORT" in environment else 0
    return Started("mpi", rank, size, address, port, token=_token(environment, address, port))


def _torch_like(environment: Environment) -> Started:
    missing = [name for name in _TORCH if not environment.get(name, "").strip()]
    if missing:
        raise UsageError(
            f"WORLD_SIZE is {environment['WORLD_SIZE']}, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set: torchrun's way needs {', '.join(_TORCH)} on every rank"
        )
    size = _whole(environment, "WORLD_SIZE", 1)
    rank = _whole(environment, "RANK", 0, size - 1)
    address, port = environment["MASTER_ADDR"].strip(), _whole(environment, "MASTER_PORT", 1, 65535)
    agent = environment.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    return Started("torchrun", rank, size, address, port, agent, _token(environment, address, port))


def _by_srun(environment: Environment) -> Started:
    """srun without MPI: rank 0 is on the first node of the step; the port follows from the job's number."""
    size = _whole(environment, "SLURM_STEP_NUM_TASKS", 1)
    rank = _whole(environment, "SLURM_PROCID", 0, size - 1)
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    address = environment.get("MASTER_ADDR", "").strip() or first_node(nodes)
    if not address:
        raise UsageError("srun did not say its nodes (SLURM_STEP_NODELIST): set MASTER_ADDR to the host of task 0")
    job, step = (_whole(environment, name, 0, default=0) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    port = 20000 + (job * 16 + step) % 10000  # below the ports that systems give away
    if "MASTER_PORT" in environment:
        port = _whole(environment, "MASTER_PORT", 1, 65535)
    return Started("srun", rank, size, address, port, token=_token(environment, address, port))


def first_node(nodes: str) -> str:
    """The first host of a list as Slurm writes it: "n03" of "n[03-05,9],x1"."""
    first = re.split(r",(?![^\[]*\])", nodes.strip())[0]
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first)


def _whole(
    environment: Environment, name: str, least: int, most: int | None = None, default: int | None = None
) -> int:  # fmt: skip
    text = environment.get(name, "" if default is None else str(default)).strip()
    if not (text.isascii() and text.isdigit()) or int(text) < least or (most is not None and int(text) > most):
        bound = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise UsageError(f"{name} is {text!r}: it must be a whole number {bound}")
    return int(text)


def _token(environment: Environment, address: str, port: int) -> bytes:
    """32 bytes that the ranks of one job share: of GPUMICRO_TOKEN where it is set, else of what names the job.

    The latter tells jobs apart; it is no secret.
    """
    parts = [environment.get(name, "") for name in _JOB] + [address, str(port)]
    text = environment.get(TOKEN) or "\n".join(parts)
    return hashlib.sha256(b"gpumicro\n" + text.encode("utf-8", "surrogateescape")).digest()
