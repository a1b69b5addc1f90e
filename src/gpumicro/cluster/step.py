"""The time of one training step on N GPUs, part by part: a model on measured or spec figures.

step = compute + elementwise + optimizer + tensor + pipeline + bubble + what of the gradients' all_reduce stays in sight
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..units import MIB
from .fabric import Fabric, Hop, all_reduce_s, at
from .figures import Figure
from .footprint import Split, bubble
from .training import TrainingModel

BUCKET_BYTES = 25 * MIB  # of gradients, where the number of layers is not known: PyTorch DDP's (arXiv 2006.15704)
PARTS = ("compute", "elementwise", "optimizer", "tensor", "pipeline", "bubble", "all_reduce")
# what holds a step, by part
HOLDS = {
    "compute": "compute", "elementwise": "memory", "optimizer": "memory", "tensor": "network", "pipeline": "network",
    "bubble": "pipeline", "all_reduce": "network",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rates:
    """One GPU: its fastest GEMM of the model's dtype, its DRAM and its memory (None: not known)."""

    device: str
    kind: str  # "cpu", "cuda"
    dtype: str
    flop_per_s: Figure
    dram_bytes_per_s: Figure
    memory_bytes: Figure | None


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of the slowest GPU. `all_reduce_s` is the part that is not hidden, `communicated_s` all of it."""

    gpus: int
    samples: float  # of all GPUs
    microbatches: int
    compute_s: float
    elementwise_s: float
    optimizer_s: float
    tensor_s: float
    pipeline_s: float
    bubble_s: float
    all_reduce_s: float
    communicated_s: float
    algorithm: str

    def part(self, name: str) -> float:
        """Seconds of one of PARTS."""
        value: float = getattr(self, f"{name}_s")
        return value

    @property
    def total_s(self) -> float:
        """The step."""
        return sum(self.part(name) for name in PARTS)

    def held_by(self) -> dict[str, float]:
        """Seconds by what holds them: compute, memory, network, pipeline."""
        found: dict[str, float] = {}
        for name in PARTS:
            found[HOLDS[name]] = found.get(HOLDS[name], 0.0) + self.part(name)
        return found


@dataclass(frozen=True, slots=True)
class Setting:
    """What stays the same over all counts. `overlap`: the part of a backward pass that may hide communication;
    `utilization`: the part of the GEMM rate that a real model's products reach."""

    model: TrainingModel
    split: Split
    rates: Rates
    overlap: float = 1.0
    utilization: float = 1.0


def one_gpu(setting: Setting, samples: float) -> float:
    """Seconds of those samples on one GPU that holds the whole model: what a speed-up is measured against."""
    compute = samples * _sample_flop(setting.model) / (_rate(setting, 0))
    traffic = samples * _sample_traffic(setting.model) + _optimizer_bytes(setting.model) * setting.model.params
    return compute + traffic / setting.rates.dram_bytes_per_s.estimate


def step_time(setting: Setting, fabric: Fabric, gpus: int, case: int = 0) -> Step:
    """The parts of a step. `case`: 0 the estimates, -1 and 1 the ends of the inputs' intervals that make it shortest
    and longest.

    Data-parallel replicas d = N/(t p) each take batch/d samples (rounded up: the fullest is waited for), or micro x
    accumulate where no batch is given.
    """
    model, split = setting.model, setting.split
    replicas = max(1, gpus // split.model_ways)
    each = math.ceil(model.batch / replicas) if model.batch else model.micro * model.accumulate
    micros = math.ceil(each / model.micro)
    compute = each * _sample_flop(model) / split.model_ways / _rate(setting, case)
    dram = at(setting.rates.dram_bytes_per_s, -case)
    elementwise = each * _sample_traffic(model) / split.model_ways / dram
    tensor, pipeline = _tensor_s(setting, fabric, micros, case), _pipeline_s(setting, fabric, micros, case)
    working = compute + elementwise + tensor
    whole, algorithm = _gradients_s(setting, fabric, replicas, micros, case)
    pieces = _pieces(setting)
    hidden = setting.overlap * _window(model, split, working, micros)
    exposed = max(whole - hidden, whole / pieces)  # the last bucket has nothing left to hide behind
    share = split.model_ways * (replicas if split.zero else 1)
    return Step(
        gpus, float(model.batch or each * replicas), micros, compute, elementwise,
        _optimizer_bytes(model) * model.params / share / dram, tensor, pipeline,
        bubble(split, micros) * working, exposed, whole, algorithm,
    )  # fmt: skip


def _rate(setting: Setting, case: int) -> float:
    return at(setting.rates.flop_per_s, -case) * setting.utilization


def _sample_flop(model: TrainingModel) -> float:
    return model.flop_per_token() * model.seq


def _sample_traffic(model: TrainingModel) -> float:
    """Bytes between GEMMs for one sample: what a layer stores (34 s h in 16 bits, arXiv 2205.05198) is written and read
    in the forward pass, and so are its gradients in the backward pass. Without a shape: none is counted."""
    shape = model.shape()
    return 0.0 if shape is None else 4 * 34 * model.seq * shape[1] * shape[0] * model.activation_bytes / 2


def _optimizer_bytes(model: TrainingModel) -> int:
    """Bytes a parameter that Adam moves: gradient and states read, states and weights written (Kingma and Ba, 2015).

    28 in 16-bit training (2 + 12 read, 12 + 2 written) and in float32 (gradient, weight and two states of 4 read, the
    last three written).
    """
    weights, gradients, states = model.kept
    keeps_masters = states > 2 * weights  # else the weights themselves are read
    return gradients + states + states + weights + (0 if keeps_masters else weights)


def _tensor_s(setting: Setting, fabric: Fabric, micros: int, case: int) -> float:
    """All_reduces of s b h elements: two a layer forward and two backward, two more where the forward pass is repeated
    (Shoeybi et al., arXiv 1909.08053, 3); none is hidden."""
    model, t, shape = setting.model, setting.split.tensor, setting.model.shape()
    if t < 2 or shape is None:
        return 0.0
    layers = shape[0] / setting.split.pipeline
    times = layers * micros * (6 if model.recompute == "full" else 4)
    return times * all_reduce_s(fabric, t, _boundary_bytes(model, shape[1]), case=case)[0]


def _pipeline_s(setting: Setting, fabric: Fabric, micros: int, case: int) -> float:
    """Sends of s b h elements to the next stage and of their gradients back, one for each microbatch and chunk, each of
    the t GPUs sending its part (Narayanan et al., arXiv 2104.04473, 4.1)."""
    model, split, shape = setting.model, setting.split, setting.model.shape()
    if split.pipeline < 2 or shape is None:
        return 0.0
    hop: Hop = fabric.between or fabric.inside
    if split.model_ways <= fabric.gpus_per_node:
        hop = fabric.inside
    size = _boundary_bytes(model, shape[1]) / split.tensor
    once = at(hop.alpha_s, case) + size * at(hop.beta_s_per_byte, case)
    return 2 * split.interleave * micros * once


def _boundary_bytes(model: TrainingModel, hidden: int) -> float:
    return float(model.seq) * model.micro * hidden * model.activation_bytes


def _pieces(setting: Setting) -> float:
    shape = setting.model.shape()
    if shape is not None:
        return max(1.0, shape[0] / setting.split.pipeline)
    return max(1.0, math.ceil(setting.model.params * setting.model.kept[1] / BUCKET_BYTES))


def _gradients_s(
    setting: Setting, fabric: Fabric, replicas: int, micros: int, case: int
) -> tuple[float, str]:  # fmt: skip
    """The gradients' all_reduce, a bucket a layer. ZeRO 1 and 2 move as much (a reduce-scatter and an all-gather); ZeRO
    3 gathers the weights forward and backward for each microbatch: (2 m + 1)/2 times, 1.5 at m = 1 (arXiv 1910.02054,
    7)."""
    model, split = setting.model, setting.split
    size = model.params * model.kept[1] / split.model_ways
    seconds, name = all_reduce_s(fabric, replicas, size, apart=split.tensor, case=case, pieces=_pieces(setting))
    return seconds * ((2 * micros + 1) / 2 if split.zero == 3 else 1), name


def _window(model: TrainingModel, split: Split, working: float, micros: int) -> float:
    """Seconds that may hide the gradients: the backward pass of the last microbatch, two thirds of it (three quarters
    with a repeated forward pass); with ZeRO 3, which communicates throughout, all of the work."""
    if split.zero == 3:
        return working
    return working / micros * (3 / 4 if model.recompute == "full" else 2 / 3)
