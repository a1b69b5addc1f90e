"""Plateaus and knees on synthetic sweeps, whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from gpumicro.device import Cache
from gpumicro.knees import Point, find

KIB, MIB = 1024, 1024**2
CACHES = (Cache("l1", 192 * KIB, 128, (), 108), Cache("l2", 40 * MIB, 128, (), 1))
TIMES = (20.0, 140.0, 500.0)  # of l1, l2, dram: invented


def sweep(
    times: Sequence[float] = TIMES,
    capacities: Sequence[int] = (192 * KIB, 40 * MIB),
    noise: float = 0.0,
    per_octave: int = 2,
    seed: int = 0,
) -> list[Point]:
    """A chase of random lines with random replacement: beyond a capacity C, a share C / size still hits."""
    random = np.random.default_rng(seed)
    points = []
    for step in range(int(per_octave * np.log2(320 * MIB / (4 * KIB))) + 1):
        size = int(4 * KIB * 2 ** (step / per_octave))
        latency = times[0]
        for capacity, time in zip(capacities, times[1:], strict=True):
            latency += max(0.0, 1 - capacity / size) ** 0.25 * (time - latency)
        latency *= 1 + noise * random.standard_normal()
        points.append(Point(size, latency, latency * (1 - 2 * noise), latency * (1 + 2 * noise)))
    return points


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("seed", range(5))
def test_three_levels_and_two_knees_are_found_and_named(noise: float, seed: int) -> None:
    stairs = find(sweep(noise=noise, seed=seed), CACHES)
    assert [plateau.level for plateau in stairs.plateaus] == ["l1", "l2", "dram"]
    for plateau, time in zip(stairs.plateaus, TIMES, strict=True):
        assert plateau.latency == pytest.approx(time, rel=0.15)
        assert plateau.low <= plateau.latency <= plateau.high
    assert [knee.level for knee in stairs.knees] == ["l1", "l2"]
    for knee, cache in zip(stairs.knees, CACHES, strict=True):
        assert knee.stated_bytes == cache.size_bytes
        assert cache.size_bytes / 2 < knee.size_bytes < cache.size_bytes * 2
        assert knee.low_bytes < knee.high_bytes


def test_a_cache_that_is_smaller_than_stated_shows() -> None:
    stairs = find(sweep(capacities=(64 * KIB, 40 * MIB)), CACHES)
    knee = stairs.knees[0]
    assert (knee.level, knee.stated_bytes) == ("l1", 192 * KIB)
    assert 64 * KIB <= knee.size_bytes < 96 * KIB


def test_a_step_within_one_level_is_a_knee_without_a_name() -> None:
    stairs = find(sweep(times=(140.0, 220.0, 500.0), capacities=(10 * MIB, 40 * MIB)), CACHES[1:])
    assert [plateau.level for plateau in stairs.plateaus] == ["l2", "l2", "dram"]
    assert [knee.level for knee in stairs.knees] == ["", "l2"]
    assert stairs.knees[0].stated_bytes is None


def test_one_memory_has_one_plateau_and_no_knee() -> None:
    flat = [Point(4096 << i, 30.0, 29.0, 31.0) for i in range(6)]
    stairs = find(flat, CACHES)
    assert len(stairs.plateaus) == 1
    assert stairs.knees == ()


def test_a_slope_without_a_flat_part_has_no_plateau() -> None:
    steep = [Point(4096 << i, 2.0**i, 2.0**i, 2.0**i) for i in range(8)]
    assert find(steep, CACHES).plateaus == ()
    assert find([], CACHES).plateaus == ()
    assert find(steep[:1], CACHES).knees == ()


def test_the_order_of_the_points_does_not_matter() -> None:
    points = sweep(noise=0.02, seed=7)
    assert find(points[::-1], CACHES) == find(points, CACHES)


def test_a_lone_outlier_does_not_cut_a_plateau_in_two() -> None:
    points = sweep()
    points[4] = Point(points[4].size_bytes, 29.0, 28.5, 29.5)
    assert [plateau.level for plateau in find(points, CACHES).plateaus] == ["l1", "l2", "dram"]
