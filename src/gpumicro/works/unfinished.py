"""Results that are none yet: a call that returns one has not done its work, and its time would be too short.

Types are told by their names, so that nothing is imported for it.
"""

from __future__ import annotations

import concurrent.futures
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import UsageError
from . import jax, pytorch
from .place import leaves

# (start of the module, type) -> what to do instead.
_LAZY = {
    ("asyncio", "Future"): "run the event loop to its end in the work: asyncio.run(...)",
    ("asyncio", "Task"): "run the event loop to its end in the work: asyncio.run(...)",
    ("_asyncio", "Future"): "run the event loop to its end in the work: asyncio.run(...)",
    ("_asyncio", "Task"): "run the event loop to its end in the work: asyncio.run(...)",
    ("distributed.", "Future"): "call .result() in the work",
    ("multiprocessing.pool", "ApplyResult"): "call .get() in the work",
    ("multiprocessing.pool", "IMapIterator"): "take all its items in the work: list(...)",
    ("ray.", "ObjectRef"): "call ray.get() in the work",
    ("polars.", "LazyFrame"): "call .collect() in the work",
    ("mlx.", "array"): "call mlx.core.eval() in the work",
    ("subprocess", "Popen"): "call .wait() in the work",
    ("threading", "Thread"): "call .join() in the work",
    ("torch", "Future"): "call .wait() in the work",
    ("torch", "Work"): "an operation of torch.distributed goes on; call .wait() in the work",
}
_ITERATES = "nothing was computed yet; take all its items in the work: list(...)"


def refuse(result: Any, name: str) -> None:
    """UsageError where the result, or a part of it, is none yet and cannot be waited for here."""
    for leaf in leaves(result):
        why = _why(leaf)
        if why:
            raise UsageError(f"{name} returned a {type(leaf).__name__}: {why}")


def waits_for(result: Any) -> Callable[[Any], Any] | None:
    """What waits for results like this one, None where there is nothing to wait for."""
    if any(isinstance(leaf, concurrent.futures.Future) for leaf in leaves(result)):
        return _wait_for_futures
    return jax.wait if jax.holds(result) else None


def _wait_for_futures(result: Any) -> None:
    for leaf in leaves(result, most=sys.maxsize):
        if isinstance(leaf, concurrent.futures.Future):
            leaf.result()


def _why(leaf: Any) -> str:
    if inspect.iscoroutine(leaf):
        leaf.close()  # or Python warns that it was never awaited
        return "a coroutine runs nothing until it is awaited; call asyncio.run(...) in the work"
    if inspect.isasyncgen(leaf):
        return "an asynchronous generator runs nothing until it is iterated; do so in the work"
    # map, filter and zip compute as they are read; a file is an iterator, too, but no lazy result.
    if inspect.isgenerator(leaf) or (isinstance(leaf, Iterator) and type(leaf).__module__ in ("builtins", "itertools")):
        return _ITERATES
    if hasattr(leaf, "__dask_graph__") and not isinstance(leaf, type):
        return "a dask collection is a plan; call .compute() in the work"
    for kind in type(leaf).__mro__:
        for (module, name), cure in _LAZY.items():
            if kind.__name__ == name and kind.__module__.startswith(module):
                return f"it is not done; {cure}"
    return pytorch.unfinished(leaf)
