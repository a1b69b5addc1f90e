"""What one step of training computes, and what a model keeps in bytes: counts from a transformer's shape.

P parameters, l layers of width h, a heads, vocabulary V, s tokens a sample. An FMA is 2 FLOP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UsageError, unknown
from ..spec import DTYPE_ALIASES
from ..units import parse_count

HEAD_WIDTH = 128  # taken where the number of heads is not given: that of GPT-3 and LLaMA
RECOMPUTE = ("none", "selective", "full")
# bytes a parameter of weights, gradients and optimizer states (Adam). 16-bit training keeps float32 master weights,
# momentum and variance: 2 + 2 + 12 (arXiv 1910.02054, 3.1); fp8 GEMMs take weights kept in 16 bits.
KEPT: Mapping[str, tuple[int, int, int]] = {
    "bfloat16": (2, 2, 12), "float16": (2, 2, 12), "float8_e4m3fn": (2, 2, 12),
    "float32": (4, 4, 8), "tf32": (4, 4, 8), "float64": (8, 8, 16),
}  # fmt: skip
_COUNTS = ("layers", "hidden", "seq", "heads", "vocab", "batch", "micro", "accumulate")
KEYS = ("params", *_COUNTS, "flop", "dtype", "recompute")
DEFAULT = "params=7e9,layers=32,hidden=4096,seq=4096"
MOST = 1e24


@dataclass(frozen=True, slots=True)
class TrainingModel:
    """A model and how it is fed. `batch`: samples of all GPUs in a step (None: it grows with the GPUs, `micro` x
    `accumulate` samples for each replica). `dtype` None: the fastest that was measured. `flop`: forward and backward
    FLOP of a sample where they do not follow from the parameters (a convolution's)."""

    params: float
    seq: int
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    vocab: int | None = None
    dtype: str | None = None
    batch: int | None = None
    micro: int = 1
    accumulate: int = 1
    recompute: str = "selective"
    flop: float | None = None

    @property
    def kept(self) -> tuple[int, int, int]:
        """Bytes a parameter: weights, gradients, optimizer states."""
        return KEPT[self.dtype or "bfloat16"]

    @property
    def activation_bytes(self) -> int:
        """Of one element that passes between layers."""
        return self.kept[0]

    def flop_per_token(self) -> float:
        """6 P, and 12 l h s of attention scores where the shape is known; a third more where all is computed again.

        2 FLOP a parameter forward and 4 backward: Kaplan et al., arXiv 2001.08361, 2.1. Scores (Q K^T and the product
        with V): 4 l h s forward, three times that in all: Narayanan et al., arXiv 2104.04473, appendix. Selective
        recomputation repeats the scores' forward pass only (Korthikanti et al., arXiv 2205.05198, 5).
        """
        forward, scores = 2 * self.params, self._scores()
        if self.flop is not None:
            forward, scores = self.flop / self.seq / 3, 0.0
        return 3 * (forward + scores) + {"none": 0.0, "selective": scores, "full": forward + scores}[self.recompute]

    def model_flop_per_token(self) -> float:
        """Without what is computed twice: what MFU counts."""
        return replace(self, recompute="none").flop_per_token()

    def _scores(self) -> float:
        return 4.0 * self.layers * self.hidden * self.seq if self.layers and self.hidden else 0.0

    def shape(self) -> tuple[int, int, int] | None:
        """Layers, width and heads; None where the model gives no shape."""
        if not self.layers or not self.hidden:
            return None
        return self.layers, self.hidden, self.heads or max(1, self.hidden // HEAD_WIDTH)


def parameters(layers: int, hidden: int, vocab: int, seq: int) -> float:
    """P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)) of a GPT: Narayanan et al., arXiv 2104.04473, equation 2."""
    return 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocab + seq) / (12 * layers * hidden))


def parse_model(text: str) -> TrainingModel:
    """`params=7e9,layers=32,hidden=4096,seq=4096,dtype=bf16`. Raises UsageError naming the key.

    Without `params` they follow from layers, hidden and vocab.
    """
    given: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, sign, value = part.partition("=")
        if not sign:
            raise UsageError(f"--model: {part!r} is no key=value (keys: {', '.join(KEYS)})")
        if key.strip() not in KEYS:
            raise UsageError(f"--model: {unknown('key', key.strip(), KEYS)}")
        given[key.strip()] = value.strip()
    values: dict[str, Any] = {key: _count(key, given[key]) for key in _COUNTS if key in given}
    if "seq" not in values:
        raise UsageError("--model: seq (tokens a sample) is missing: add seq=4096, or 1 where samples have no tokens")
    values["params"] = _parameters(given, values)
    values["flop"] = float(_count("flop", given["flop"])) if "flop" in given else None
    values["dtype"] = _dtype(given["dtype"]) if "dtype" in given else None
    if "recompute" in given:
        values["recompute"] = given["recompute"]
    return checked(TrainingModel(**values))


def checked(model: TrainingModel) -> TrainingModel:
    """The same, or a UsageError for what no model can be."""
    for key in ("params", "flop", *_COUNTS):
        value = getattr(model, key)
        if value is not None and not 0 < value <= MOST:
            raise UsageError(f"--model: {key} must be above 0 and at most {MOST:g}, not {value:g}")
    if model.recompute not in RECOMPUTE:
        raise UsageError(f"--model: {unknown('recompute', model.recompute, RECOMPUTE)}")
    if model.dtype is not None:
        _dtype(model.dtype)
    if model.heads and model.hidden and model.hidden % model.heads:
        raise UsageError(f"--model: hidden={model.hidden} does not divide into heads={model.heads}")
    return model


def _count(key: str, text: str) -> int:
    try:
        return parse_count(text)
    except UsageError as error:
        raise UsageError(f"--model: {key}: {error}") from None


def _parameters(given: Mapping[str, str], values: Mapping[str, int]) -> float:
    if "params" in given:
        return float(_count("params", given["params"]))
    needed = ("layers", "hidden", "vocab")
    if any(key not in values for key in needed):
        raise UsageError("--model: give params, or layers, hidden and vocab, from which they follow")
    layers, hidden, vocab = (values[key] for key in needed)
    if not min(layers, hidden, vocab):
        raise UsageError("--model: layers, hidden and vocab must be above 0")
    return parameters(layers, hidden, vocab, values["seq"])


def _dtype(text: str) -> str:
    name = DTYPE_ALIASES.get(text.lower(), text.lower())
    if name not in KEPT:
        raise UsageError(f"--model: {unknown('dtype', text, KEPT)}")
    return name
