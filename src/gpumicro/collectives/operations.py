"""What each collective moves: how a size becomes counts, and what its bus bandwidth is.

Rounding and factors are those of nccl-tests (doc/PERFORMANCE.md and the counts of each test), so that rows compare.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError, unknown

ALIGNMENT = 16  # bytes: the share of a rank is a multiple of it


@dataclass(frozen=True, slots=True)
class Counts:
    """Elements of one run on one rank; `share` is what one rank gives or takes where the data are divided."""

    send: int
    receive: int
    share: int

    @property
    def shown(self) -> int:
        """Elements that the size of a row means: the larger buffer."""
        return max(self.send, self.receive)


@dataclass(frozen=True, slots=True)
class Collective:
    """One operation. `whole` names the buffers that hold all ranks' data, the others hold one rank's share."""

    name: str
    mpi: str  # what is called
    whole: frozenset[str]  # of "send", "receive"; empty where the data are not divided between the ranks
    reduces: bool = False
    rooted: bool = False
    factor_kind: str = "one"  # "one": 1, "share": (n-1)/n, "twice": 2(n-1)/n
    places: tuple[bool, ...] = (False, True)  # out of place, in place

    def counts(self, size_bytes: int, itemsize: int, ranks: int) -> Counts:
        """Elements for a size: rounded down to whole elements, and to 16 bytes a rank where the data are divided."""
        count = size_bytes // itemsize
        if not self.whole:
            return Counts(count, count, count)
        align = max(1, ALIGNMENT // itemsize)
        share = count // ranks // align * align
        send, receive = (share * ranks if side in self.whole else share for side in ("send", "receive"))
        return Counts(send, receive, share)

    def factor(self, ranks: int) -> float | None:
        """busbw over algbw; None at one rank, where nothing goes over a bus."""
        if ranks < 2:
            return None
        return {"one": 1.0, "share": (ranks - 1) / ranks, "twice": 2 * (ranks - 1) / ranks}[self.factor_kind]


_NONE: frozenset[str] = frozenset()
_SEND, _RECEIVE = frozenset({"send"}), frozenset({"receive"})
BARRIER = "barrier"

COLLECTIVES: dict[str, Collective] = {
    one.name: one
    for one in (
        Collective("all_reduce", "MPI_Allreduce", _NONE, reduces=True, factor_kind="twice"),
        Collective("all_gather", "MPI_Allgather", _RECEIVE, factor_kind="share"),
        Collective("reduce_scatter", "MPI_Reduce_scatter_block", _SEND, reduces=True, factor_kind="share"),
        Collective("broadcast", "MPI_Bcast", _NONE, rooted=True, places=(True,)),  # MPI's has one buffer
        Collective("reduce", "MPI_Reduce", _NONE, reduces=True, rooted=True),
        Collective("alltoall", "MPI_Alltoall", _SEND | _RECEIVE, factor_kind="share"),
        Collective("sendrecv", "MPI_Sendrecv", _NONE),  # a ring: to the next rank, from the one before
        Collective("scatter", "MPI_Scatter", _SEND, rooted=True, factor_kind="share"),
        Collective("gather", "MPI_Gather", _RECEIVE, rooted=True, factor_kind="share"),
        Collective(BARRIER, "MPI_Barrier", _NONE, places=(False,)),  # its latency: it moves no data
    )
}
ALIASES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "bcast": "broadcast",
    "all_to_all": "alltoall", "send_recv": "sendrecv",
}  # fmt: skip
OPS = ("sum", "prod", "min", "max")
DTYPES = ("float32", "float64", "int8", "int32", "int64")
_DTYPE_ALIASES = {"float": "float32", "f32": "float32", "double": "float64", "f64": "float64"}


def collective(name: str) -> Collective:
    """By name, with or without the underscore. UsageError names those that there are."""
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in COLLECTIVES:
        raise UsageError(unknown("collective", name, COLLECTIVES))
    return COLLECTIVES[key]


def reduction(name: str) -> str:
    """An operator that MPI has. UsageError else."""
    if name.lower() in ("avg", "average", "mean"):
        raise UsageError("MPI has no average (NCCL has): take --op sum, which does the same work but for a division")
    if name.lower() not in OPS:
        raise UsageError(unknown("operator", name, OPS))
    return name.lower()


def element(name: str) -> str:
    """A dtype that MPI reduces. UsageError else."""
    key = _DTYPE_ALIASES.get(name.lower(), name.lower())
    if key in ("half", "float16", "f16", "bfloat16", "bf16") or key.startswith(("float8", "fp8")):
        raise UsageError(f"MPI has no {name}; it has {', '.join(DTYPES)}")
    if key not in DTYPES:
        raise UsageError(unknown("dtype", name, DTYPES))
    return key
