"""Result files of fleets that never ran: one file's ceilings, scaled by known factors, written as the suite writes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpumicro import result

LIKE = json.loads((Path(__file__).parent / "data" / "roofline-cpu.json").read_text())
CEILINGS = ("l1 (2 threads)", "l2 (2 threads)", "l3 (2 threads)", "dram (2 threads)", "dram (1 thread)",
            "float64 (2 threads)", "float32 (2 threads)", "int8 (2 threads)")  # fmt: skip


def node_file(factors: Sequence[float] | float = 1.0, **more: Any) -> dict[str, Any]:
    """A file of one node; a factor for each ceiling, or one for all. `state`: the device's conditions."""
    doc = copy.deepcopy(LIKE)
    doc |= {"measurements": doc["measurements"][:1], "points": [], "gap": [], "sustained": [], "verdicts": []}
    each = np.broadcast_to(np.asarray(factors, dtype=float), len(doc["ceilings"])).tolist()
    for ceiling, factor in zip(doc["ceilings"], each, strict=True):
        ceiling["achieved"] *= factor
        ceiling["ci95"] = [end * factor for end in ceiling["ci95"]]
    for key in ("driver", "host"):
        if key in more:
            doc["environment"][key] = more.pop(key)
    if "state" in more:
        doc["conditions"] = [{"device": "cpu", **more.pop("state")}]
    return doc | more


def noisy(rng: np.random.Generator, sd: float = 0.008, slow: Mapping[int, float] | None = None) -> list[float]:
    """Factors of a node: normal noise, and for the ceilings in `slow` a factor more."""
    factors = np.exp(sd * rng.normal(size=len(CEILINGS)))
    for place, factor in (slow or {}).items():
        factors[place] *= factor
    return [float(factor) for factor in factors]


def write_fleet(folder: Path, nodes: Mapping[str, Any]) -> Path:
    """A file for each: factors, or a whole document."""
    folder.mkdir(exist_ok=True)
    for name, what in nodes.items():
        doc = what if isinstance(what, dict) else node_file(what)
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(result.dumps(doc))
    return folder


def healthy(count: int, seed: int = 0, name: str = "n{:03d}", **more: Any) -> dict[str, Any]:
    """So many nodes that differ by noise alone."""
    rng = np.random.default_rng(seed)
    return {name.format(i): node_file(noisy(rng), **more) for i in range(count)}
