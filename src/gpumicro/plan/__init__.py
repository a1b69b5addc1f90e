"""What a roofline run measures, in which groups, and how long that will take. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.base import Backend
from ..device import Device
from ..measure import Policy
from ..spec import OperandClass
from .cpu import CpuPlanner
from .gpu import GpuPlanner
from .records import DRAM_OVER_CACHE, MIB, REPEAT_S, Group, Item, Mode, Plan

__all__ = ["DRAM_OVER_CACHE", "MIB", "Group", "Item", "Mode", "Plan", "make_plan", "repeat_group"]


def make_plan(
    device: Device, backend: Backend, *, mode: Mode = "default", dtypes: Sequence[str] = (),
    operands: OperandClass = "uniform",
) -> Plan:  # fmt: skip
    """The whole plan of a roofline run on one device."""
    kind = CpuPlanner if device.kind == "cpu" else GpuPlanner
    planner = kind(device, backend, mode=mode, dtypes=dtypes, operands=operands)
    planner.fill()
    notes = dict.fromkeys(planner.plan.notes)
    planner.plan.notes = list(notes)
    return planner.plan


def repeat_group(plan: Plan, ceilings: Sequence[dict[str, object]]) -> Group | None:
    """The kernels behind the roofs once more, to be measured at the end of the run; None where nothing was measured."""
    ids = {ceiling["measurement"] for ceiling in ceilings if ceiling["scope"] == "roof"}
    again = [(item, group.policy) for group in plan.groups for item in group.items if item.id in ids]
    if not again:
        return None
    budget_s = max(policy.max_time_s for _, policy in again) / 2
    target = min(policy.target for _, policy in again)
    policy = Policy(target=target, max_time_s=budget_s, max_warmup_s=budget_s / 3)
    return Group("ceilings again", tuple(item for item, _ in again), policy, REPEAT_S * len(again), repeat=True)
