"""What a fitted sweep says of sizes and rank counts that were not measured: figures of a model, tagged as such.

The formulas are those of alpha-beta models: Hockney (1994) for one message; Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH" (2005), for ring, recursive doubling, binomial tree and
Rabenseifner's; Sanders, Speck and Traff (2009) for the double binary tree. p ranks, n bytes, g ranks a node on m nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import UsageError, unknown
from .fit import Fit, Interval, Regime

TAG = "model"
MOST_RANKS = 2**24
_SAME = {"all_to_all": "alltoall", "alltoallv": "alltoall", "send_recv": "sendrecv"}


@dataclass(frozen=True, slots=True)
class Terms:
    """How often a formula pays the latency, the time of the size's bytes, and the reduction of the size's bytes."""

    latency: float
    bandwidth: float
    reduction: float = 0.0


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One formula in words, and its terms for p ranks."""

    formula: str
    terms: Callable[[int], Terms]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A time that was not measured. The interval is the fit's: it holds no doubt about the formula itself."""

    time_s: Interval
    size_bytes: int
    ranks: int | None
    formula: str
    fitted_from_bytes: int
    fitted_to_bytes: int
    fitted_ranks: int | None
    beyond: tuple[str, ...]  # what was extrapolated, in words; empty within the fitted sizes and ranks
    tag: str = TAG

    @property
    def extrapolated(self) -> bool:
        """Outside the sizes or the rank count that were fitted."""
        return bool(self.beyond)


def _levels(p: int) -> int:
    return (p - 1).bit_length()  # ceil(log2 p)


def _doubling(p: int) -> Terms:
    """Pairs at distances 1, 2, 4 ... exchange all bytes. Where p is no power of two, the ranks above the largest one
    first hand theirs to a partner and get the result back at the end: two steps more, one of them with a sum."""
    steps, extra = p.bit_length() - 1, 0 if p & (p - 1) == 0 else 2
    return Terms(steps + extra, steps + extra, steps + extra / 2)


def _halving_and_doubling(p: int) -> Terms:
    """Reduce-scatter by halving, all-gather by doubling, among the largest power of two of ranks, as above."""
    steps, extra = p.bit_length() - 1, 0 if p & (p - 1) == 0 else 2
    share = 1 - 2.0**-steps
    return Terms(2 * steps + extra, 2 * share + extra, share + extra / 2)


# collective -> algorithm -> formula; "ring" first: it is what is taken where none is named
ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "all_reduce": {
        "ring": Algorithm(
            "2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma",
            lambda p: Terms(2 * (p - 1), 2 * (p - 1) / p, (p - 1) / p),
        ),
        "tree": Algorithm(
            "2 ceil(log2 p) (alpha + n beta) + ceil(log2 p) n gamma (binomial reduce, then broadcast)",
            lambda p: Terms(2 * _levels(p), 2 * _levels(p), _levels(p)),
        ),
        "double-tree": Algorithm(
            "2 ceil(log2 p) alpha + 2 n beta + n gamma (two binary trees, pipelined)",
            lambda p: Terms(2 * _levels(p), 2.0, 1.0),
        ),
        "recursive-doubling": Algorithm(
            "k (alpha + n beta + n gamma), k = log2 p; floor(log2 p) + 2 where p is no power of two", _doubling
        ),
        "rabenseifner": Algorithm(
            "2 log2 p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; of the power of two below p and 2 (alpha + n beta) "
            "where p is none",
            _halving_and_doubling,
        ),
    },
    "all_gather": {
        "ring": Algorithm("(p-1) alpha + (p-1)/p n beta", lambda p: Terms(p - 1, (p - 1) / p)),
        "recursive-doubling": Algorithm(
            "ceil(log2 p) alpha + (p-1)/p n beta", lambda p: Terms(_levels(p), (p - 1) / p)
        ),
    },
    "reduce_scatter": {
        "ring": Algorithm(
            "(p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma", lambda p: Terms(p - 1, (p - 1) / p, (p - 1) / p)
        ),
        "recursive-halving": Algorithm(
            "ceil(log2 p) alpha + (p-1)/p n beta + (p-1)/p n gamma",
            lambda p: Terms(_levels(p), (p - 1) / p, (p - 1) / p),
        ),
    },
    "broadcast": {
        "ring": Algorithm("(p-1) alpha + n beta (a pipelined chain)", lambda p: Terms(p - 1, 1.0)),
        "tree": Algorithm("ceil(log2 p) (alpha + n beta) (binomial)", lambda p: Terms(_levels(p), _levels(p))),
        "double-tree": Algorithm(
            "ceil(log2 p) alpha + n beta (two binary trees, pipelined)", lambda p: Terms(_levels(p), 1.0)
        ),
    },
    "reduce": {
        "ring": Algorithm("(p-1) alpha + n beta + n gamma (a pipelined chain)", lambda p: Terms(p - 1, 1.0, 1.0)),
        "tree": Algorithm(
            "ceil(log2 p) (alpha + n beta + n gamma) (binomial)",
            lambda p: Terms(_levels(p), _levels(p), _levels(p)),
        ),
        "double-tree": Algorithm(
            "ceil(log2 p) alpha + n beta + n gamma (two binary trees, pipelined)",
            lambda p: Terms(_levels(p), 1.0, 1.0),
        ),
    },
    "alltoall": {"ring": Algorithm("(p-1) alpha + (p-1)/p n beta (pairwise)", lambda p: Terms(p - 1, (p - 1) / p))},
    "sendrecv": {"ring": Algorithm("alpha + n beta", lambda _: Terms(1.0, 1.0))},
}  # fmt: skip


def algorithm(collective: str, name: str = "ring") -> Algorithm:
    """The formula of a collective. UsageError names those that there are."""
    key = _SAME.get(collective, collective)
    if key not in ALGORITHMS:
        raise UsageError(unknown("collective with a model", collective, ALGORITHMS))
    if name not in ALGORITHMS[key]:
        raise UsageError(unknown(f"algorithm of {key}", name, ALGORITHMS[key]))
    return ALGORITHMS[key][name]


def predict_size(fitted: Fit, size_bytes: int) -> Prediction:
    """The time of another size on the same ranks, from the regime that holds there. UsageError without a fit."""
    regime = _regime_at(fitted, size_bytes)
    return Prediction(
        regime.time_s(size_bytes), size_bytes, fitted.sweep.ranks, "alpha + n beta", *_reach(fitted),
        fitted.sweep.ranks, _beyond(fitted, size_bytes),
    )  # fmt: skip


def predict_ranks(fitted: Fit, size_bytes: int, ranks: int, name: str = "ring") -> Prediction:
    """The time at another rank count, if the library keeps the algorithm and every link is as those fitted.

    The fitted alpha and beta are taken apart by the algorithm's formula at the fitted rank count and put together at
    `ranks`; gamma stays within beta, so what a reduction costs grows as the bytes do. UsageError without a fit, without
    the fitted rank count, at one rank (no link was measured), or for an unknown algorithm.
    """
    chosen = algorithm(fitted.sweep.collective, name)
    before, after = chosen.terms(_known_ranks(fitted)), chosen.terms(_checked(ranks))
    regime = _regime_at(fitted, size_bytes)
    a, b = after.latency / before.latency, after.bandwidth / before.bandwidth
    beyond = _beyond(fitted, size_bytes)
    if ranks != fitted.sweep.ranks:
        beyond = (*beyond, f"{ranks} ranks: fitted at {fitted.sweep.ranks}")
    return Prediction(
        _scaled(regime, a, b, size_bytes), size_bytes, ranks, f"{name}: {chosen.formula}", *_reach(fitted),
        fitted.sweep.ranks, beyond,
    )  # fmt: skip


def predict_hierarchical(inside: Fit, between: Fit, size_bytes: int, ranks_per_node: int, nodes: int) -> Prediction:
    """All-reduce over m nodes of g ranks: reduce-scatter inside, all-reduce of n/g between nodes, all-gather inside.

    2(g-1) alpha1 + 2(g-1)/g n beta1 + 2(m-1) alpha2 + 2(m-1)/m n/g beta2, with alpha1 and beta1 from an all_reduce
    inside a node and alpha2 and beta2 from one between nodes (one rank a node), both taken as rings. The g exchanges
    between nodes run at once: where they share a network card, beta2 has to be fitted under that load.
    """
    for fitted in (inside, between):
        if fitted.sweep.collective != "all_reduce":
            raise UsageError(f"the hierarchical formula is of all_reduce, not of {fitted.sweep.collective}")
    ring = algorithm("all_reduce")
    share = max(round(size_bytes / _checked(ranks_per_node)), 1)
    parts = []
    for fitted, ranks, size in ((inside, ranks_per_node, size_bytes), (between, _checked(nodes), share)):
        before, after = ring.terms(_known_ranks(fitted)), ring.terms(ranks)
        a, b = after.latency / before.latency, after.bandwidth / before.bandwidth
        parts.append(_scaled(_regime_at(fitted, size), a, b, size))
    half = math.hypot(*((part.high or part.value) - part.value for part in parts))
    value = sum(part.value for part in parts)
    low, high = max(inside.regimes[0].from_bytes, 1), inside.regimes[-1].to_bytes
    beyond = (
        *(f"inside a node: {text}" for text in _beyond(inside, size_bytes)),
        *(f"between nodes: {text}" for text in _beyond(between, share)),
        *((f"{ranks_per_node} ranks a node: fitted at {inside.sweep.ranks}",) * (ranks_per_node != inside.sweep.ranks)),
        *((f"{nodes} nodes: fitted at {between.sweep.ranks}",) * (nodes != between.sweep.ranks)),
    )
    formula = "hierarchical: 2(g-1) alpha1 + 2(g-1)/g n beta1 + 2(m-1) alpha2 + 2(m-1)/m n/g beta2"
    interval = Interval(value, max(value - half, 0.0), value + half)
    return Prediction(interval, size_bytes, ranks_per_node * nodes, formula, low, high, inside.sweep.ranks, beyond)


def gamma(reducing: Fit, moving: Fit) -> Interval:
    """Seconds a byte of the reduction itself: what a reducing collective takes beyond one that only moves.

    One sweep cannot tell gamma from beta: both grow with the bytes. Two sweeps on the same ranks can, if both run as
    rings: all_reduce or reduce_scatter against all_gather. UsageError where the pair does not identify it. An interval
    that holds 0 says that the reduction costs nothing that shows.
    """
    one, other = reducing.sweep, moving.sweep
    if one.collective not in ("all_reduce", "reduce_scatter") or other.collective != "all_gather":
        raise UsageError(
            f"gamma is found by all_reduce or reduce_scatter against all_gather, not by {one.collective} against "
            f"{other.collective}"
        )
    if one.ranks != other.ranks or one.dtype != other.dtype:
        raise UsageError(f"gamma needs the same ranks and dtype in both sweeps: {one.name}; {other.name}")
    ranks = _known_ranks(reducing)
    first, second = algorithm(one.collective).terms(ranks), algorithm("all_gather").terms(ranks)
    mine, its = (_regime_at(fitted, math.inf).beta_s_per_byte for fitted in (reducing, moving))
    times = first.bandwidth / second.bandwidth
    value = (mine.value - times * its.value) / first.reduction
    if mine.high is None or its.high is None:
        return Interval(value, None, None)
    half = math.hypot(mine.high - mine.value, times * (its.high - its.value)) / first.reduction
    return Interval(value, value - half, value + half)


# -- shared ----------------------------------------------------------------------------------------------------------


def _scaled(regime: Regime, a: float, b: float, size: float) -> Interval:
    aa, ab, bb = regime.spread
    value = a * regime.alpha_s.value + b * size * regime.beta_s_per_byte.value
    half = math.sqrt(max(a * a * aa + 2 * a * b * size * ab + (b * size) ** 2 * bb, 0.0))
    return Interval(value, max(value - half, 0.0), value + half)


def _regime_at(fitted: Fit, size_bytes: float) -> Regime:
    if not fitted.regimes:
        raise UsageError(f"{fitted.sweep.name}: nothing was fitted, so nothing can be predicted: {fitted.why}")
    if size_bytes <= 0:
        raise UsageError(f"a size must be above 0 bytes, not {size_bytes}")
    return fitted.regime_at(size_bytes)


def _reach(fitted: Fit) -> tuple[int, int]:
    return fitted.regimes[0].from_bytes, fitted.regimes[-1].to_bytes


def _beyond(fitted: Fit, size_bytes: int) -> tuple[str, ...]:
    low, high = _reach(fitted)
    if low <= size_bytes <= high:
        return ()
    return (f"{size_bytes} bytes: fitted from {low} to {high} bytes",)


def _known_ranks(fitted: Fit) -> int:
    ranks = fitted.sweep.ranks
    if ranks is None:
        raise UsageError(f"{fitted.sweep.name}: the file does not say how many ranks ran")
    if ranks < 2:
        raise UsageError(f"{fitted.sweep.name}: at one rank no link was measured")
    return ranks


def _checked(ranks: int) -> int:
    if not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"ranks must be from 1 to {MOST_RANKS}, not {ranks}")
    return ranks
