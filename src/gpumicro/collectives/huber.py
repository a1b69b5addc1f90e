"""time(size) = alpha + size * beta by Huber's M-estimator on relative residuals, many subsets of a sweep at once.

The residual of a point is time / fitted - 1: sizes span nine decades, and an error of 1% is as bad at 8 B as at 8 GiB.
The solver takes a matrix of masks, a row a subset, so that the search for a kink (every run of neighbouring sizes) and
the jackknife (every sweep without one size) cost one pass. Arrays in, arrays out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TUNING = 1.345  # Huber's: 95% of least squares' efficiency where the noise is normal
MAD_TO_SD = 1.4826
_LEAST_SCALE = 1e-9  # of the time: a made-up sweep may have no noise at all
_MOST_STEPS = 60
_CONVERGED = 1e-8


def solve(sizes: FloatArray, times: FloatArray, masks: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(alpha_s[m], beta_s_per_byte[m], residuals[m, n]) of the m subsets that `masks` [m, n] select.

    sizes [n] in bytes, times [n] in seconds, both above 0; every row of `masks` selects two sizes or more. Neither
    alpha nor beta is let below 0: where the best line has a negative one, it is 0 and the other is fitted alone.
    Residuals are relative, NaN outside the mask.
    """
    # rough weights first: a median of three neighbours keeps a lone spike from steering the start
    fitted = np.broadcast_to(_smooth(times), masks.shape)
    weights = masks.astype(np.float64)
    alpha = beta = np.zeros(len(masks))
    for _ in range(_MOST_STEPS):
        last_alpha, last_beta = alpha, beta
        alpha, beta = _line(sizes / fitted, times / fitted, 1 / fitted, weights)
        fitted = alpha[:, None] + beta[:, None] * sizes
        residuals = np.where(masks, times / fitted - 1, np.nan)
        cut = TUNING * np.maximum(scale(residuals), _LEAST_SCALE)[:, None]
        size = np.maximum(np.abs(residuals), cut)
        weights = np.where(masks, cut / size, 0.0)
        moved = np.abs(alpha - last_alpha) / (alpha + 1e-300) + np.abs(beta - last_beta) / (beta + 1e-300)
        if np.all(np.where(alpha + beta > 0, moved, 0) < _CONVERGED):
            break
    return alpha, beta, residuals


def scale(residuals: FloatArray) -> FloatArray:
    """A robust standard deviation a row [m] of residuals [m, n] (NaN: not there): 1.4826 times their median size."""
    count = np.count_nonzero(~np.isnan(residuals), axis=1)
    ordered = np.sort(np.abs(residuals), axis=1)  # NaN go last
    rows = np.arange(len(residuals))
    middle = (ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2
    # two of the residuals are spent on the two parameters
    result: FloatArray = MAD_TO_SD * middle * np.sqrt(count / np.maximum(count - 2, 1))
    return result


def _line(
    size: FloatArray, time: FloatArray, one: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Weighted least squares of time ~ alpha * one + beta * size, row by row."""
    oo, os, ss = ((weights * a * b).sum(1) for a, b in ((one, one), (one, size), (size, size)))
    ot, st = (weights * one * time).sum(1), (weights * size * time).sum(1)
    determinant = np.maximum(oo * ss - os * os, 1e-12 * oo * ss)
    alpha, beta = (ss * ot - os * st) / determinant, (oo * st - os * ot) / determinant
    alone_alpha, alone_beta = ot / oo, st / ss
    below_alpha, below_beta = alpha < 0, beta < 0
    alpha = np.where(below_alpha, 0.0, np.where(below_beta, alone_alpha, alpha))
    beta = np.where(below_alpha, alone_beta, np.where(below_beta, 0.0, beta))
    return alpha, beta


def _smooth(times: FloatArray) -> FloatArray:
    padded = np.concatenate((times[:1], times, times[-1:]))
    return np.median(np.stack((padded[:-2], padded[1:-1], padded[2:])), axis=0)
