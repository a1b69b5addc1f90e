"""Which node or link of a cluster is slow, from the times of pairs of nodes. Pure functions: nothing is run here.

A tournament times disjoint pairs at once, so that no pair waits for another. Then the suspects are timed with healthy
partners. A node is slow where it is slow with every partner; a link where both of its nodes are well with others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..errors import UsageError
from ..stats import normal_quantile
from .huber import MAD_TO_SD

LEAST_NODES = 4  # below, there is no majority that could be called healthy
FALSE_ALARM = 0.02  # of a whole search on a healthy cluster, by the thresholds; docs state what came out
LEAST_EXCESS = 0.10  # slower than the typical pair by less is not called slow, however sure it is
FAR = 6.0  # robust standard deviations above the shortest interval: no healthy pair lies there
LEAST_SPREAD = 0.005  # of the times: a spread below is a rounded log's, not a cluster's

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PairTime:
    """The time of one message size between two nodes, in seconds."""

    a: str
    b: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Slow:
    """A node or a link: how much slower than a typical pair (0.5: half as long again), and its robust z."""

    names: tuple[str, ...]
    excess: float
    z: float
    pairs: int  # timed pairs that say so


@dataclass(frozen=True, slots=True)
class Search:
    """What the times say. `suspects`: nodes of slow pairs that too few partners were tried with to tell node from link;
    `typical_s` is the median pair, `spread` the robust relative standard deviation between pairs."""

    slow_nodes: tuple[Slow, ...]
    slow_links: tuple[Slow, ...]
    suspects: tuple[str, ...]
    healthy: tuple[str, ...]
    typical_s: float
    spread: float


def tournament(nodes: Sequence[str]) -> tuple[tuple[Pair, ...], ...]:
    """Rounds of disjoint pairs in which everyone meets everyone once; with an odd number one rests each round.

    The circle method: n - 1 rounds of n / 2 pairs (n rounds for odd n). UsageError for a name given twice.
    """
    if len(set(nodes)) < len(nodes):
        raise UsageError("a node is named twice")
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append(tuple((a, b) for a, b in pairs if a is not None and b is not None))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return tuple(rounds)


def find_stragglers(times: Iterable[PairTime]) -> Search:
    """Name slow nodes and slow links apart. Repeats of a pair count as their median. UsageError below four nodes."""
    logs = _logs(times)
    nodes = sorted({name for pair in logs for name in pair})
    if len(nodes) < LEAST_NODES:
        raise UsageError(f"{len(nodes)} nodes: a straggler shows against {LEAST_NODES} or more")
    typical, spread = _typical(sorted(logs.values()))
    over = {pair: value - typical for pair, value in logs.items()}
    limit = max(_threshold(len(logs)) * spread, math.log1p(LEAST_EXCESS))
    slow_pairs = {pair for pair, value in over.items() if value > limit}
    slow_nodes = _nodes(nodes, over, slow_pairs, spread)
    named = {slow.names[0] for slow in slow_nodes}
    links, suspects = _links(over, slow_pairs, named, spread)
    healthy = tuple(name for name in nodes if name not in named and name not in suspects)
    return Search(tuple(slow_nodes), tuple(links), tuple(suspects), healthy, math.exp(typical), spread)


def retest(search: Search, most: int = 3) -> tuple[tuple[Pair, ...], ...]:
    """Rounds of disjoint pairs of every suspect with a healthy partner, `most` rounds or as many as there are partners.

    Empty where there is no suspect. UsageError where nobody is healthy.
    """
    if not search.suspects:
        return ()
    if not search.healthy:
        raise UsageError("no healthy node to time the suspects with")
    count = len(search.healthy)
    rounds: list[tuple[Pair, ...]] = []
    for turn in range(min(most, count)):
        for start in range(0, len(search.suspects), count):
            group = search.suspects[start : start + count]
            rounds.append(tuple((name, search.healthy[(i + turn) % count]) for i, name in enumerate(group)))
    return tuple(rounds)


def confirm(search: Search, times: Iterable[PairTime], most: int = 3) -> tuple[tuple[Pair, ...], ...]:
    """Rounds of disjoint pairs that time again what was found slow: links, and the `most` slowest pairs of each node.

    Timed twice more, a pair counts as the median of three: one hiccup of a machine makes no straggler. Empty where
    nothing is slow.
    """
    logs = _logs(times)
    wanted: dict[Pair, None] = {(slow.names[0], slow.names[1]): None for slow in search.slow_links}
    for slow in search.slow_nodes:
        mine = sorted((pair for pair in logs if slow.names[0] in pair), key=lambda pair: -logs[pair])
        wanted |= dict.fromkeys(mine[:most])
    rounds: list[list[Pair]] = []
    for pair in wanted:
        free = (one for one in rounds if not any(set(pair) & set(other) for other in one))
        place = next(free, None)
        if place is None:
            rounds.append([pair])
        else:
            place.append(pair)
    return tuple(map(tuple, rounds))


def pair_times(docs: Iterable[Mapping[str, Any]], size_bytes: int | None = None) -> list[PairTime]:
    """The times of the pairs in result documents, at one size (default: the largest that every pair has).

    A measurement names its pair by "pair": [a, b]; in an imported log the file's name does, as in "node1--node2.log"
    (nccl-tests writes host names into a log, our import leaves them out). UsageError where a pair or size is missing.
    """
    found: dict[Pair, dict[int, list[float]]] = {}
    for doc in docs:
        for item in doc["measurements"]:
            time = item.get("time_s")
            if item["family"] == "collective" and item["status"] == "ok" and item.get("size_bytes") and time:
                sizes = found.setdefault(_pair_of(item), {})
                sizes.setdefault(item["size_bytes"], []).append(time["estimate"])
    if not found:
        raise UsageError("no timed pair in these files")
    common = set.intersection(*(set(sizes) for sizes in found.values()))
    wanted = size_bytes if size_bytes is not None else max(common, default=None)
    if wanted is None or wanted not in common:
        raise UsageError(f"not every pair was timed at {'one same size' if wanted is None else f'{wanted} bytes'}")
    return [PairTime(a, b, time) for (a, b), sizes in found.items() for time in sizes[wanted]]


# -- shared ----------------------------------------------------------------------------------------------------------


def pair_of(item: Mapping[str, Any]) -> Pair | None:
    """The two nodes of a measurement: its "pair", or the name of the log that it was imported from. None for neither.

    "a.cluster--b.cluster.log" is a.cluster and b.cluster: of the file's name the last ending goes.
    """
    if item.get("pair"):
        names = [str(name) for name in item["pair"]]
    else:
        file = str((item.get("imported") or {}).get("file", "")).replace("\\", "/").rpartition("/")[2]
        names = (file.rpartition(".")[0] or file).split("--")
    return (names[0], names[1]) if len(names) == 2 and all(names) and names[0] != names[1] else None


def _pair_of(item: Mapping[str, Any]) -> Pair:
    pair = pair_of(item)
    if pair is None:
        raise UsageError(
            f"{item['id']}: which two nodes? A measurement has them as pair, a log in its file's name: node1--node2.log"
        )
    return pair


def _logs(times: Iterable[PairTime]) -> dict[Pair, float]:
    """The logarithm of each pair's median time: a slow part multiplies."""
    groups: dict[Pair, list[float]] = {}
    for one in times:
        if one.a == one.b or not 0 < one.time_s < math.inf:
            raise UsageError(f"no time of a pair: {one}")
        groups.setdefault((min(one.a, one.b), max(one.a, one.b)), []).append(one.time_s)
    return {pair: math.log(median(values)) for pair, values in groups.items()}


def _typical(ordered: Sequence[float]) -> tuple[float, float]:
    """Median and robust standard deviation of the pairs that are not slow: nearly half of them may be.

    The shortest interval that holds half of the pairs lies among the healthy ones; what is far above it is left out.
    """
    part = len(ordered) // 2 + 1
    width, start = min((ordered[i + part - 1] - ordered[i], i) for i in range(len(ordered) - part + 1))
    middle = median(ordered[start : start + part])
    spread = max(width / (2 * normal_quantile(0.75)), LEAST_SPREAD)
    near = [value for value in ordered if value <= middle + FAR * spread]
    typical = median(near)
    return typical, max(MAD_TO_SD * median(abs(value - typical) for value in near), LEAST_SPREAD)


def _threshold(count: int) -> float:
    """Robust z that a healthy search of so many pairs exceeds anywhere in 2% of cases, were the noise normal.

    A spread from few pairs is itself uncertain: 1 + 4 / count allows for it.
    """
    return normal_quantile(1 - FALSE_ALARM / count) * (1 + 4 / count)


def _nodes(nodes: Sequence[str], over: Mapping[Pair, float], slow_pairs: set[Pair], spread: float) -> list[Slow]:
    """Nodes that are slow with most partners, the worst first: their pairs no longer count against the partners."""
    slow: list[Slow] = []
    left = dict(over)
    while True:
        worst: Slow | None = None
        for name in nodes:
            mine = [(value, pair in slow_pairs) for pair, value in left.items() if name in pair]
            bad = [value for value, is_slow in mine if is_slow]
            if len(bad) < 2 or len(bad) <= len(mine) / 2:
                continue
            excess = median(value for value, _ in mine)
            if worst is None or (len(bad), excess) > (worst.pairs, math.log1p(worst.excess)):
                worst = Slow((name,), math.expm1(excess), excess / spread, len(bad))
        if worst is None:
            break
        slow.append(worst)
        left = {pair: value for pair, value in left.items() if worst.names[0] not in pair}
    return slow


def _links(
    over: Mapping[Pair, float], slow_pairs: set[Pair], slow_nodes: set[str], spread: float
) -> tuple[list[Slow], list[str]]:
    """Slow pairs whose nodes are both well elsewhere are links; of the others, the nodes that were not are suspects."""
    links: list[Slow] = []
    suspects: dict[str, None] = {}
    for pair in sorted(slow_pairs, key=lambda pair: -over[pair]):
        if slow_nodes & set(pair):
            continue
        unknown = [name for name in pair if not any(name in other and other not in slow_pairs for other in over)]
        if not unknown:
            links.append(Slow(pair, math.expm1(over[pair]), over[pair] / spread, 1))
        suspects |= dict.fromkeys(unknown)
    return links, list(suspects)
