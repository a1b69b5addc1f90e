"""Buffers of several emulated ranks, what they should hold after a collective, and communicators as fixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gpumicro import cuda_native, libraries

Array = npt.NDArray[Any]
RANKS = 4
COUNT = 1000  # elements of a rank in most cases


@pytest.fixture(scope="module")
def cuda() -> Any:
    return cuda_native.load()


@pytest.fixture(scope="module")
def library(cuda: Any) -> Any:
    return cuda.nccl.Nccl(libraries.find("nccl").path)


@pytest.fixture(params=[False, True], ids=["non-blocking", "blocking"])
def four(request: pytest.FixtureRequest, cuda: Any, library: Any) -> Any:
    made = cuda.nccl.Communicators.local(library, range(RANKS), timeout_s=20.0, blocking=request.param)
    assert made.blocking is request.param
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_four(cuda: Any, library: Any) -> Any:
    made = cuda.nccl.Communicators.local(library, range(RANKS), timeout_s=20.0)
    yield made
    made.close()


@dataclass
class Side:
    """A buffer for each rank."""

    buffers: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, cuda: Any, arrays: Sequence[Array]) -> Side:
        side = cls([cuda.Buffer(device, max(1, array.nbytes)) for device, array in enumerate(arrays)])
        for buffer, array in zip(side.buffers, arrays, strict=True):
            buffer.upload(array)
        return side

    @property
    def addresses(self) -> list[int]:
        return [buffer.address for buffer in self.buffers]

    def arrays(self, like: Array) -> list[Array]:
        return [buffer.download()[: like.nbytes].view(like.dtype) for buffer in self.buffers]


def given(count: int, dtype: str = "float32", ranks: int = RANKS) -> list[Array]:
    """What each rank holds: small whole numbers, all different along the way."""
    return [((np.arange(count) * 7 + 3 * rank) % 11 + 1).astype(dtype) for rank in range(ranks)]


def expected(kind: str, send: list[Array], rank: int, root: int) -> Array | None:
    """What a rank receives of float32 sums; None for nothing."""
    share = len(send[0]) // RANKS
    total = np.sum(send, axis=0)
    found: dict[str, Array | None] = {
        "all_reduce": total,
        "all_gather": np.concatenate(send),
        "reduce_scatter": total[rank * share : (rank + 1) * share],
        "broadcast": send[root],
        "reduce": total if rank == root else None,
        "alltoall": np.concatenate([one[rank * share : (rank + 1) * share] for one in send]),
        "sendrecv": send[(rank - 1) % RANKS],
        "scatter": send[root][rank * share : (rank + 1) * share],
        "gather": np.concatenate(send) if rank == root else None,
    }
    return found[kind]


def reducer(cuda: Any, communicators: Any, count: int = COUNT) -> tuple[Any, Side]:
    """An all_reduce in place: each run multiplies the first rank's ones by the number of ranks."""
    size = len(communicators.devices)
    side = Side.of(cuda, [np.ones(count, np.float64)] * size)
    return cuda.nccl.Collective(communicators, "all_reduce", "float64", count, side.addresses, side.addresses), side


def value(side: Side) -> set[float]:
    """What all elements of all ranks are: one number if all is well."""
    return {float(x) for array in side.arrays(np.zeros(COUNT, np.float64)) for x in array}
