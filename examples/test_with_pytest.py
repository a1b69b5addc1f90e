"""A kernel's place under the roof as a test: `pytest --gpumicro-roofline r.json examples/test_with_pytest.py`."""

from __future__ import annotations

import numpy as np

import gpumicro as gm


def test_add_reaches_a_hundredth_of_the_roof(gpumicro_roofline: gm.Roofline) -> None:
    n = 1 << 22
    a, b = np.ones(n), np.ones(n)
    counts = gm.counts.elementwise(n, inputs=2)
    point = gpumicro_roofline.place(lambda: np.add(a, b, out=b), counts=counts, name="add", max_time_s=1.0)
    point.assert_at_least(0.01, of="roof")
