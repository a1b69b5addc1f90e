from __future__ import annotations

from typing import TypedDict

from .._core.timing import Work

class _Algorithm(TypedDict):
    id: int | None
    tile: int | None
    stages: int | None
    split_k: int | None
    cluster: int | None
    workspace_bytes: int
    waves: float

class Lt:
    """cuBLASLt, opened at `path`. Raises RuntimeError where it cannot be opened or lacks a function."""

    def __init__(self, path: str) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def version(self) -> int:
        """130200 for 13.2.0."""

class LtMatmul:
    """C = A B, row-major, by cuBLASLt; the addresses are the device's.

    `b` is B, k x n; where `transposed_b` (int8, fp8) it is B transposed, n x k. Raises CudaError with cuBLAS's status
    where it has no algorithm for the product, ValueError for an unknown dtype.
    """

    def __init__(
        self,
        lt: Lt,
        m: int,
        n: int,
        k: int,
        dtype: str,
        a: int,
        b: int,
        c: int,
        device: int,
        workspace_bytes: int,
    ) -> None: ...
    @property
    def algorithms(self) -> list[_Algorithm]:
        """What the heuristic offers, its best guess first."""

    @property
    def count(self) -> int: ...
    @property
    def chosen(self) -> int: ...
    @property
    def transposed_b(self) -> bool: ...
    def choose(self, algorithm: int) -> None:
        """The work uses this one from now on. Raises IndexError."""

    @property
    def work(self) -> Work:
        """Enqueues on the measuring stream and returns; a device timer waits."""
