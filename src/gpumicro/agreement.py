"""What a timer, a work and a policy agree on: the quantity that is measured, the state of the caches, the flags."""

from __future__ import annotations

from typing import Any

from .errors import UsageError
from .measurement import Policy
from .timers import Timer


def take_flags(timer: Timer) -> set[str]:
    """What the timer has to say about its spans since it was last asked."""
    take = getattr(timer, "take_flags", None)
    return set(take()) if take else set()


def agreed_estimand(policy: Policy, timer: Timer) -> str:
    """What the timer measures; UsageError where the policy wants something else."""
    has: str = getattr(timer, "estimand", "host")
    if policy.estimand not in ("auto", has):
        raise UsageError(f"estimand is {policy.estimand!r}, and timer {timer.name!r} measures {has!r}")
    return has


def agreed_cache(work: Any, policy: Policy, timer: Timer) -> str:
    """What state the work finds the caches in; UsageError where the policy wants what neither timer nor work does.

    A caller's own work is believed to rotate; a prepared kernel is known to use one set of operands.
    """
    if getattr(timer, "cache", "") == "cold":
        return "cold"
    if policy.cache == "cold":
        raise UsageError(f"cache is 'cold', and timer {timer.name!r} evicts nothing: take EventTimer(cache='cold')")
    own = str(getattr(work, "cache", ""))
    if policy.cache == "rotate" and own != "rotate" and hasattr(work, "spec"):
        raise UsageError(
            f"cache is 'rotate', and {work.spec.name} uses one set of operands: measure a cuda_rotation.Rotation of it"
        )
    return own or policy.cache
