"""Laws of scaling fitted to runs: found again in what they made, and refused where a law can't be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpumicro.cluster.laws import Counts, Law, Parameter, amdahl, fit_laws, gustafson, parse_counts, universal
from gpumicro.errors import UsageError

N = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
LAWS = [(amdahl, (0.02,), "amdahl"), (gustafson, (0.1,), "gustafson"), (universal, (0.02, 1e-4), "universal")]


@pytest.mark.parametrize(("capacity", "values", "name"), LAWS)
def test_a_law_is_found_again_in_what_it_made(capacity: Any, values: tuple[float, ...], name: str) -> None:
    exact = 100 * capacity(np.array(N), *values)
    found = [_fit_with_noise(exact, seed, name) for seed in range(30)]
    for index, truth in enumerate((100.0, *values)):
        held = [ends is not None and ends[0] <= truth <= ends[1] for ends in (ends[index] for _, ends in found)]
        assert sum(held) >= 25  # of 30, at 95%
    assert sum(first == name for first, _ in found) >= 25


def _fit_with_noise(exact: Any, seed: int, name: str) -> tuple[str, list[tuple[float, float] | None]]:
    """The best law's name, and the intervals of the law that made the runs."""
    runs = exact + 2 * np.random.default_rng(seed).standard_normal(len(N))
    laws = fit_laws(Counts(N, tuple(runs.tolist()), "x"))
    law = next(one for one in laws if one.name == name)
    return laws[0].name, [known.ci95 for known in law.parameters]


def test_perfect_scaling_has_no_serial_part_and_no_end() -> None:
    for law in fit_laws(Counts(N, tuple(10 * n for n in N), "x")):
        assert law.limit is None
        assert law.throughput(1) == pytest.approx(10)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus,throughput\n1,10\n-2,20\n", "line 3: gpus must be above 0"),
        ("gpus,throughput\n1,10\n2,-20\n", "line 3: throughput must be above 0"),
        ("gpus,throughput\n1,ten\n", "line 2: throughput is 'ten'"), ("nodes,time\n1,2\n", "must name gpus"),
        ("", "must name gpus"), ("gpus,throughput\n", "no runs"), ("gpus,time_s\n0.5,1\n", "at least 1"),
        ("gpus,throughput\n1\n", "is None|not a number"), ("gpus,throughput\n1,1,234.5\n", "line 2: more values"),
    ],
)  # fmt: skip
def test_runs_that_cannot_be_are_refused_by_the_line(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_counts(text, "counts.csv")


def test_times_count_as_throughput_and_order_does_not_matter() -> None:
    found = parse_counts("\ufeffgpus, time_s\n4, 2.5\n1, 10\n".lstrip("\ufeff"), "counts.csv")
    assert found == Counts((1.0, 4.0), (0.1, 0.4), "counts.csv")


def test_one_node_only_is_too_little_for_a_law() -> None:
    with pytest.raises(UsageError, match="3 different GPU counts"):
        fit_laws(Counts((1.0, 1.0), (1.0, 1.1), "counts.csv"))


@pytest.mark.parametrize("runs", [(100.0, 30.0, 10.0, 3.1, 0.9), (100.0, 40.0, 30.0, 28.0, 27.0)])
def test_runs_that_get_slower_from_the_start_end_at_one_gpu(runs: tuple[float, ...]) -> None:
    for law in fit_laws(Counts((1.0, 2.0, 4.0, 8.0, 16.0), runs, "x")):
        assert law.limit == pytest.approx(1)
        assert law.peak is not None
        assert law.peak[0] == 1
        assert law.peak[1] == pytest.approx(law.throughput(1))


def test_a_contention_above_one_ends_at_one_gpu_and_not_in_an_error() -> None:
    known = tuple(
        Parameter(name, value, None) for name, value in (("one GPU", 5.0), ("contention", 1.6), ("coherency", 0.3))
    )
    assert Law("universal", "", known, None).peak == (1.0, 5.0)
