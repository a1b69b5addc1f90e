"""The price of a step and of a token by the number of GPUs: what `gpumicro scale -o` says, times a price.

More GPUs finish sooner and waste more: a step's price rises where its time does not fall in proportion.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SchemaError, UsageError
from .cost import HOUR_S, MachineCost


@dataclass(frozen=True, slots=True)
class ScaledStep:
    """One row of `scale`: seconds of a step on so many GPUs, the tokens in it; "model"."""

    fabric: str
    gpus: int
    step_s: float
    tokens: float
    fits: bool | None  # into a GPU's memory; None where that is not known


@dataclass(frozen=True, slots=True)
class ScaledCost:
    """What that costs on a machine: whole instances are paid. `usd_run`, `wall_s`: of the run, where one was given."""

    machine: MachineCost
    step: ScaledStep
    instances: int
    usd_per_step: float
    usd_per_million_tokens: float
    usd_run: float | None
    wall_s: float | None


def read_scaling(path: str | os.PathLike[str]) -> tuple[ScaledStep, ...]:
    """The rows of a file of `gpumicro scale -o`. Raises SchemaError naming the file and what is missing in it."""
    name = os.fspath(path)
    try:
        doc = json.loads(Path(name).read_text("utf-8"))
    except OSError as error:
        raise SchemaError(f"{name}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{name}: not JSON: {error}") from None
    try:
        model = doc["setting"]["model"]
        steps = tuple(_step(curve, row, model) for curve in doc["curves"] for row in curve["rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"{name}: not what `gpumicro scale -o` writes: {type(error).__name__} {error}") from None
    if not steps:
        raise SchemaError(f"{name}: holds no step of a model: only laws were fitted")
    return steps


def _step(curve: Mapping[str, Any], row: Mapping[str, Any], model: Mapping[str, Any]) -> ScaledStep:
    step_s, tokens = float(row["step_s"]), float(row["step"]["samples"]) * float(model["seq"])
    if not (step_s > 0 and tokens > 0 and math.isfinite(step_s * tokens)):
        raise ValueError(f"a step of {step_s} s over {tokens} tokens")
    fabric = curve["fabric"]
    name = str(fabric.get("name", "")) if isinstance(fabric, Mapping) else str(fabric)
    return ScaledStep(name, int(row["gpus"]), step_s, tokens, row.get("fits"))


def scaled_costs(
    machines: Sequence[MachineCost], steps: Sequence[ScaledStep], tokens: float | None = None
) -> tuple[ScaledCost, ...]:
    """dollars = ceil(GPUs / GPUs of an instance) x price x step time, for each machine with a price and each row.

    `tokens`: of the whole run. Raises UsageError where no machine has a price.
    """
    priced = [machine for machine in machines if machine.usd_per_hour is not None]
    if not priced:
        raise UsageError("a step's price needs a machine with a price: --instance and --prices, or --price")
    return tuple(_cost(machine, step, tokens) for machine in priced for step in steps)


def _cost(machine: MachineCost, step: ScaledStep, tokens: float | None) -> ScaledCost:
    assert machine.usd_per_hour is not None
    instances = -(-step.gpus // machine.devices)
    usd = instances * machine.usd_per_hour / HOUR_S * step.step_s
    steps = None if tokens is None else tokens / step.tokens
    return ScaledCost(
        machine, step, instances, usd, usd / step.tokens * 1e6, None if steps is None else steps * usd,
        None if steps is None else steps * step.step_s,
    )  # fmt: skip


def cheapest(costs: Sequence[ScaledCost]) -> ScaledCost | None:
    """The least dollars a token among what fits into memory, or may; None where nothing does."""
    return min((c for c in costs if c.step.fits is not False), key=lambda c: c.usd_per_million_tokens, default=None)
