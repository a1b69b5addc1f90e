"""Stragglers in made-up clusters: planted nodes and links are named, healthy clusters are left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from sweep_files import document, item

from gpumicro.collectives.pairs import PairTime, Search, find_stragglers, pair_times, retest, tournament
from gpumicro.errors import UsageError

Pair = tuple[str, str]


def names(count: int) -> list[str]:
    return [f"n{i:02}" for i in range(count)]


def timed(
    rounds: Sequence[Sequence[Pair]], seed: int = 0, noise: float = 0.02, nodes: Mapping[str, float] | None = None,
    links: Mapping[Pair, float] | None = None,
) -> list[PairTime]:  # fmt: skip
    """Log-normal times of 1 ms; a slow node or link multiplies, and the slowest part rules."""
    errors = np.random.default_rng(seed)
    found = []
    for a, b in (pair for one in rounds for pair in one):
        factors = [(nodes or {}).get(a, 1.0), (nodes or {}).get(b, 1.0)]
        factors += [(links or {}).get(pair, 1.0) for pair in ((a, b), (b, a))]
        found.append(PairTime(a, b, 1e-3 * max(factors) * float(np.exp(noise * errors.standard_normal()))))
    return found


def slow(search: Search) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]], tuple[str, ...]]:
    return {x.names for x in search.slow_nodes}, {x.names for x in search.slow_links}, search.suspects


@pytest.mark.parametrize("count", [2, 4, 5, 8, 9])
def test_a_tournament_meets_everyone_once_in_disjoint_pairs(count: int) -> None:
    rounds = tournament(names(count))
    for one in rounds:
        assert len({name for pair in one for name in pair}) == 2 * len(one)
    met = [frozenset(pair) for one in rounds for pair in one]
    assert sorted(map(sorted, met)) == sorted(map(list, combinations(names(count), 2)))
    assert len(rounds) == (count if count % 2 else count - 1)


@pytest.mark.parametrize("count", [8, 16])
def test_a_slow_node_and_a_slow_link_are_told_apart(count: int) -> None:
    rounds = tournament(names(count))
    for seed in range(20):
        assert slow(find_stragglers(timed(rounds, seed, nodes={"n03": 1.4}))) == ({("n03",)}, set(), ())
        assert slow(find_stragglers(timed(rounds, seed, links={("n02", "n05"): 1.4}))) == (set(), {("n02", "n05")}, ())


def test_two_slow_nodes_and_a_link_at_once() -> None:
    plan = timed(tournament(names(16)), nodes={"n03": 1.5, "n01": 1.3}, links={("n02", "n05"): 2.0})
    search = find_stragglers(plan)
    assert slow(search) == ({("n03",), ("n01",)}, {("n02", "n05")}, ())
    (link,) = search.slow_links
    assert link.excess == pytest.approx(1.0, abs=0.15)
    assert link.z > 10
    assert search.typical_s == pytest.approx(1e-3, rel=0.05)


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("count", [4, 8, 16])
def test_a_healthy_cluster_raises_no_alarm_beyond_the_stated_rate(count: int, noise: float) -> None:
    """Stated: 6% of searches (docs). 200 searches: 12, with a standard deviation of 3."""
    rounds = tournament(names(count))
    alarms = sum(slow(find_stragglers(timed(rounds, seed, noise))) != (set(), set(), ()) for seed in range(200))
    assert alarms <= 18


@pytest.mark.parametrize("planted", ["node", "link"])
def test_one_round_gives_suspects_and_a_retest_settles_them(planted: str) -> None:
    rounds = tournament(names(12))
    pair = rounds[0][2]
    fault: dict[str, dict[object, float]] = {"nodes": {pair[0]: 1.5}} if planted == "node" else {"links": {pair: 1.5}}
    first = timed(rounds[:1], **fault)  # type: ignore[arg-type]
    search = find_stragglers(first)
    assert set(search.suspects) == set(pair)
    again = retest(search)
    for one in again:
        assert len({name for pair in one for name in pair}) == 2 * len(one)
    settled = find_stragglers([*first, *timed(again, seed=1, **fault)])  # type: ignore[arg-type]
    expected = ({(pair[0],)}, set(), ()) if planted == "node" else (set(), {tuple(sorted(pair))}, ())
    assert slow(settled) == expected


def test_no_suspect_needs_no_retest() -> None:
    assert retest(find_stragglers(timed(tournament(names(8))))) == ()


def test_repeats_count_as_their_median() -> None:
    rounds = tournament(names(6))
    plan = timed(rounds)
    a, b = rounds[0][0]
    spike = [PairTime(b, a, 5e-3), PairTime(a, b, 1e-3)]  # one of three is slow, in either order of names
    assert slow(find_stragglers([*plan, *spike])) == (set(), set(), ())


def test_refusals() -> None:
    with pytest.raises(UsageError, match="3 nodes"):
        find_stragglers(timed(tournament(names(3))))
    with pytest.raises(UsageError, match="named twice"):
        tournament(["a", "a"])
    with pytest.raises(UsageError, match="no time of a pair"):
        find_stragglers([PairTime("a", "b", 0.0)])


def test_pairs_come_from_the_document_or_the_name_of_a_log() -> None:
    log = document([item(size, 1e-5, id=str(size), ranks=2, imported={"tool": "nccl-tests", "file": "d/a--b.log"})
                    for size in (8, 1024)])  # fmt: skip
    own = document([item(1024, 2e-5, ranks=2, pair=["c", "d"])])
    assert pair_times([log, own]) == [PairTime("a", "b", 1e-5), PairTime("c", "d", 2e-5)]
    with pytest.raises(UsageError, match="8 bytes"):
        pair_times([log, own], 8)
    with pytest.raises(UsageError, match=r"node1--node2\.log"):
        pair_times([document([item(8, 1e-5)])])
    with pytest.raises(UsageError, match="no timed pair"):
        pair_times([document([])])
