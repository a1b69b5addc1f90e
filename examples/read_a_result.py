"""A result file from anywhere: ceilings, ridge points, a page."""

from __future__ import annotations

import sys

import gpumicro as gm

roof = gm.Roofline.load(sys.argv[1])
for ceiling in roof.ceilings:
    print(f"{ceiling['id']:28} {ceiling['achieved'] / 1e9:8.1f} G{ceiling['unit']}  {ceiling['recipe']}")
for ridge in roof.ridge_points:
    print(f"{ridge['memory']} meets {ridge['arithmetic']} at {ridge['intensity_flop_per_byte']:.2f} FLOP/B")
