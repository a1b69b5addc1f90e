"""Fleets that spread by more than a normal law name no more than their share falsely."""

from __future__ import annotations

import numpy as np
import pytest

from gpumicro import ratios
from gpumicro.cluster.fleet_cells import distances, heaviness, locate, p_values
from gpumicro.stats import FloatArray

CEILINGS = 20


def adjusted(values: FloatArray) -> FloatArray:
    """Adjusted p by ceiling and device, as `judge` has them."""
    where = [locate(row) for row in values]
    z = [distances(row, np.zeros(len(row)), each) for row, each in zip(values, where, strict=True)]
    heavy = heaviness(np.concatenate(z))
    p = [one for row, each in zip(z, where, strict=True) for one in p_values(row, each, heavy).tolist()]
    return np.array(ratios.benjamini_hochberg(p)).reshape(values.shape)


@pytest.mark.parametrize("law", ["normal", "t5", "t3"])
@pytest.mark.parametrize("n", [12, 64, 400])
def test_few_healthy_fleets_have_anybody_named(law: str, n: int) -> None:
    rng = np.random.default_rng(n)
    runs = 30 if n < 400 else 8
    named = 0
    for _ in range(runs):
        draws = rng.normal(size=(CEILINGS, n)) if law == "normal" else rng.standard_t(int(law[1]), (CEILINGS, n))
        named += bool((adjusted(0.01 * draws) <= 0.05).any())
    assert named <= max(2, 0.2 * runs)


def test_a_slow_node_is_found_all_the_same() -> None:
    rng = np.random.default_rng(4)
    values = 0.01 * rng.standard_t(5, (CEILINGS, 200))
    values[3, 17] = np.log(0.8)
    assert adjusted(values)[3, 17] <= 0.05


def test_slow_devices_do_not_pass_for_heavy_tails() -> None:
    rng = np.random.default_rng(5)
    values = 0.01 * rng.normal(size=(CEILINGS, 200))
    values[:, :30] += np.log(0.85)
    assert (adjusted(values)[:, :30] <= 0.05).mean() > 0.95
