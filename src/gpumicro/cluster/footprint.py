"""Bytes that training keeps on one GPU: weights, gradients, optimizer states and activations, however they are split.

P parameters, l layers of width h, a heads, s tokens, b samples at once; t ways tensor, p ways pipeline, d ways data
parallel. What a framework reserves beside these (workspaces, NCCL's buffers, fragmentation) is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from .training import TrainingModel

ZERO_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Split:
    """How a job is divided. `interleave`: model chunks a pipeline stage (1: the plain 1F1B schedule)."""

    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    interleave: int = 1
    sequence_parallel: bool = True

    @property
    def model_ways(self) -> int:
        """GPUs that hold one copy of the model."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on one GPU. `activations` is None where the model gives no shape."""

    weights: float
    gradients: float
    optimizer: float
    activations: float | None
    gathered: float = 0.0  # one layer's whole weights, while ZeRO 3 works on it

    @property
    def states(self) -> float:
        """What is there between steps: weights, gradients and optimizer states."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All of it."""
        return self.states + (self.activations or 0.0) + self.gathered


def check_split(split: Split, model: TrainingModel) -> None:
    """UsageError for a split that this model cannot have."""
    for name, value in (("--tensor", split.tensor), ("--pipeline", split.pipeline), ("--interleave", split.interleave)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if split.zero not in ZERO_STAGES:
        raise UsageError(f"--zero must be 0, 1, 2 or 3, not {split.zero}")
    shape = model.shape()
    if split.model_ways > 1 and shape is None:
        raise UsageError("--tensor and --pipeline need the model's layers and hidden: what they move follows from them")
    if split.interleave > 1 and split.pipeline < 2:
        raise UsageError("--interleave divides a pipeline: give --pipeline too")
    if shape and split.pipeline * split.interleave > shape[0]:
        raise UsageError(f"--pipeline {split.pipeline} x --interleave {split.interleave}: only {shape[0]} layers")
    if shape and split.tensor > shape[2]:
        raise UsageError(f"--tensor {split.tensor}: only {shape[2]} heads to divide")


def footprint(model: TrainingModel, split: Split, data_ways: int, microbatches: int = 1) -> Footprint:
    """Of the fullest GPU (the first pipeline stage), at d = `data_ways`.

    ZeRO (Rajbhandari et al., arXiv 1910.02054, 5 and table 1), with 2 + 2 + 12 bytes a parameter in 16-bit training:
    0: 16 P; 1: 4 P + 12 P/d; 2: 2 P + 14 P/d; 3: 16 P/d; P/(t p) in the place of P where the model is split.
    """
    share = model.params / split.model_ways
    kept = [size * share for size in model.kept]
    # stage 1 divides the optimizer states, 2 also the gradients, 3 also the weights
    weights, gradients, states = (
        size / data_ways if split.zero >= stage else size for size, stage in zip(kept, (3, 2, 1), strict=True)
    )
    shape = model.shape()
    gathered = model.params / shape[0] / split.tensor * model.kept[0] if shape and split.zero == 3 else 0.0
    return Footprint(weights, gradients, states, activations(model, split, microbatches), gathered)


def layer_activations(model: TrainingModel, split: Split) -> float | None:
    """Bytes that one layer stores for the backward pass of one microbatch; None without a shape.

    Korthikanti et al., arXiv 2205.05198, table 2, in 16 bits: s b h (34 + 5 a s/h) on one GPU; s b h (10 + 24/t +
    5 a s/(h t)) with tensor parallelism; s b h/t (34 + 5 a s/h) with sequence parallelism too; without the term in a
    where the scores are computed again (selective; FlashAttention stores none either); 2 s b h where all is.
    """
    shape = model.shape()
    if shape is None:
        return None
    _, hidden, heads = shape
    t, rows = split.tensor, float(model.seq) * model.micro * hidden
    scores = 5 * heads * model.seq / hidden if model.recompute == "none" else 0.0
    if model.recompute == "full":
        sixteen_bit = 2 * rows
    elif split.sequence_parallel:
        sixteen_bit = rows / t * (34 + scores)
    else:
        sixteen_bit = rows * (10 + 24 / t + scores / t)
    return sixteen_bit * model.activation_bytes / 2


def activations(model: TrainingModel, split: Split, microbatches: int = 1) -> float | None:
    """Bytes of all layers that a first stage holds: l/p layers of as many microbatches as are under way there.

    That is p of them with 1F1B, so l layers' worth, and 1 + (p - 1)/(p v) times that with v chunks a stage
    (Korthikanti et al., arXiv 2205.05198, 4.2.3); never more than there are microbatches.
    """
    layer, shape = layer_activations(model, split), model.shape()
    if layer is None or shape is None:
        return None
    p, v = split.pipeline, split.interleave
    under_way = min(p * (1 + (p - 1) / (p * v)) if v > 1 else p, microbatches)
    return layer * shape[0] / p * under_way


def bubble(split: Split, microbatches: int) -> float:
    """A pipeline's idle time as a share of its working time: (p - 1)/(v m), Narayanan et al., arXiv 2104.04473, 2.2."""
    return (split.pipeline - 1) / (split.interleave * microbatches)
