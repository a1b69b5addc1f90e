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
    mpi: str  # what MPI calls
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
_DTYPE_ALIASES = {
    "float": "float32", "f32": "float32", "double": "float64", "f64": "float64", "half": "float16", "f16": "float16",
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8": "float8_e4m3fn",
    "f8e4m3": "float8_e4m3fn", "float8_e4m3": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "fp8_e5m2": "float8_e5m2",
}  # fmt: skip
_OP_ALIASES = {"average": "avg", "mean": "avg"}


@dataclass(frozen=True, slots=True)
class Library:
    """What moves the data, and what it reduces."""

    title: str
    ops: tuple[str, ...] = OPS
    dtypes: tuple[str, ...] = DTYPES


LIBRARIES = {
    "mpi": Library("MPI"),
    "nccl": Library("NCCL", (*OPS, "avg"), (*DTYPES, "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")),
}


def collective(name: str) -> Collective:
    """By name, with or without the underscore. UsageError names those that there are."""
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    if key not in COLLECTIVES:
        raise UsageError(unknown("collective", name, COLLECTIVES))
    return COLLECTIVES[key]


def reduction(name: str, library: str = "mpi") -> str:
    """An operator that the library has. UsageError else."""
    has = LIBRARIES[library]
    key = _OP_ALIASES.get(name.lower(), name.lower())
    if key == "avg" and key not in has.ops:
        raise UsageError(
            f"{has.title} has no average (NCCL has): take --op sum, which does the same work but for a division"
        )
    if key not in has.ops:
        raise UsageError(unknown("operator", name, has.ops))
    return key


def element(name: str, library: str = "mpi") -> str:
    """A dtype that the library reduces. UsageError else."""
    has = LIBRARIES[library]
    key = _DTYPE_ALIASES.get(name.lower(), name.lower())
    if key in has.dtypes:
        return key
    if key in LIBRARIES["nccl"].dtypes:
        raise UsageError(f"{has.title} has no {name}; it has {', '.join(has.dtypes)}")
    raise UsageError(unknown("dtype", name, has.dtypes))
