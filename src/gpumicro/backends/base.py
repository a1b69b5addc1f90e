"""The contract between a backend and everything above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..device import Device
from ..spec import Check, Execution, KernelSpec, Problem


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether something can run here; the reason reads well after 'because'."""

    usable: bool
    reason: str = ""
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.usable


class Prepared(Protocol):
    """Allocated, compiled, bound work. A context manager: leaving it frees everything."""

    spec: KernelSpec
    problem: Problem
    execution: Execution
    device: Device
    backend: str

    @property
    def work(self) -> Any:
        """What a timer runs: a `_core.timing.Work` or a Python callable."""

    @property
    def timer(self) -> Any:
        """The `Timer` that reads this work, None for the host's default."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """JSON-ready: ISA, pages had, placement, compiler, flags."""

    def verify(self) -> Check:
        """Poison the outputs, run once, compare every element with a reference in higher precision.

        Raises VerificationError for a wrong output.
        """

    def outputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """Copies of the arrays that the kernel wrote."""

    def close(self) -> None: ...

    def __enter__(self) -> Prepared: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Backend(Protocol):
    """One way to run kernels."""

    name: str

    def availability(self) -> Availability: ...

    def devices(self) -> tuple[Device, ...]: ...

    def supports(self, spec: KernelSpec, dtype: str, device: Device) -> Availability: ...

    def prepare(self, spec: KernelSpec, problem: Problem, execution: Execution, device: Device) -> Prepared: ...


def variants_of(backend: Backend, spec: KernelSpec, dtype: str, device: Device) -> tuple[str, ...]:
    """Ways to do the same work, best guess first: the backend's own where it has not all that the record lists."""
    own: tuple[str, ...] = getattr(backend, "variants", lambda *_: ())(spec, dtype, device)
    listed = spec.gpu.variants(dtype, device) if device.kind == "cuda" and spec.gpu else spec.variants
    return own or listed
