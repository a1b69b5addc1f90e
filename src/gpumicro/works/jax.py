"""JAX: every call returns before it is done, so every array of a result is waited for. It has no stream to give."""

from __future__ import annotations

import sys
from typing import Any

from .place import Place

MODULE = "jax"


def place_of(value: Any) -> Place | None:
    """Of an array; None for anything else. A GPU is "jax-gpu": JAX queues on streams of its own, never on ours."""
    jax: Any = sys.modules.get(MODULE)
    if jax is None or not hasattr(jax, "Array") or not isinstance(value, jax.Array):
        return None
    try:
        device = min(value.devices(), key=lambda one: one.id)
    except Exception:  # a tracer is on no device, and a donated array on none any more
        return Place(MODULE, "cpu")
    platform = str(device.platform)
    return Place(MODULE, "jax-gpu" if platform in ("gpu", "cuda", "rocm") else platform, int(device.id))


def holds(result: Any) -> bool:
    """Whether an array of JAX is in the result, at whatever depth of its tree."""
    jax: Any = sys.modules.get(MODULE)
    if jax is None or not hasattr(jax, "tree_util"):
        return False
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(result))


def wait(result: Any) -> Any:
    """The result, all of its arrays computed."""
    jax: Any = sys.modules[MODULE]
    return jax.block_until_ready(result)
