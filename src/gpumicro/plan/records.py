"""What a plan is made of: items, groups of them that are compared with each other, and the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..measure import Policy
from ..spec import Execution, KernelSpec, Problem

Mode = Literal["quick", "default", "thorough"]
MIB = 1 << 20
DRAM_OVER_CACHE = 4  # STREAM's rule: each array at least four times the last-level cache
REPEAT_S = 0.5  # one roof measured again, with its set-up
ROOFS = 7  # about: four memory levels, three dtypes


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement to take; `id` is the name it will have in the result."""

    id: str
    spec: KernelSpec
    problem: Problem
    execution: Execution
    level: str | None = None
    flags: tuple[str, ...] = ()  # known before measuring


@dataclass(frozen=True, slots=True)
class Group:
    """Measurements that are compared with each other, so they are interleaved; `seconds` is the estimate for all."""

    title: str
    items: tuple[Item, ...]
    policy: Policy
    seconds: float
    repeat: bool = False  # measured again at the end, to see whether the machine moved


@dataclass(slots=True)
class Plan:
    """Groups in the order of measuring, what cannot run here with its reason, and remarks for the report."""

    groups: list[Group] = field(default_factory=list)
    skipped: list[tuple[Item, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """About how long all takes, with the roofs once more at the end."""
        return sum(group.seconds for group in self.groups) + REPEAT_S * ROOFS
