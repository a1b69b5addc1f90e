"""The catalogue: records agree with themselves, with scalar loops and with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gpumicro.errors import UsageError
from gpumicro.kernels import CATALOGUE, find, mixed
from gpumicro.kernels.operands import operand
from gpumicro.spec import KernelSpec, Problem

SIZES = (0, 1, 7, 1000, 1023)
STREAMS = [spec for spec in CATALOGUE if spec.family == "stream"]


def problem_for(spec: KernelSpec, dtype: str, n: int) -> Problem:
    return Problem.of(dtype, **{size: 8 if size == "k" else n for size in spec.sizes})


def test_names_are_unique_and_found() -> None:
    assert len({spec.name for spec in CATALOGUE}) == len(CATALOGUE)
    assert all(find(spec.name) is spec for spec in CATALOGUE)


def test_an_unknown_name_brings_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"stream\.triad"):
        find("stream.traid")


@pytest.mark.parametrize(
    "spec", [spec for spec in CATALOGUE if spec.traffic == "exact" and spec.family != "cache"], ids=lambda s: s.name
)
@pytest.mark.parametrize("n", SIZES)
def test_exact_bytes_follow_from_the_operands(spec: KernelSpec, n: int) -> None:
    for dtype in spec.dtypes:
        problem = problem_for(spec, dtype, n)
        arrays = [o for o in spec.operands if o.name != "sum"]  # a sum is one number and stays in a register
        passes = {"in": 1, "out": 1, "inout": 2}
        expected = sum(passes[o.role] * o.size(problem) for o in arrays) * problem.itemsize
        assert spec.bytes_moved(problem) == expected


def test_compulsory_bytes_of_a_gemm_are_its_three_matrices() -> None:
    problem = Problem.of("float32", m=2, n=3, k=5)
    assert find("gemm.tiled").bytes_moved(problem) == 4 * (2 * 3 + 2 * 5 + 5 * 3)
    assert find("gemm.tiled").flops(problem) == 2 * 2 * 3 * 5


# a[i] of each map and the terms of each fold, as plain Python on Python floats
SCALAR = {
    "write": lambda _b, _c, s: s,
    "copy": lambda b, _c, _s: b,
    "scale": lambda b, _c, s: s * b,
    "add": lambda b, c, _s: b + c,
    "triad": lambda b, c, s: b + s * c,
    "read": lambda b, _c, _s: b,
    "dot": lambda b, c, _s: b * c,
}


@pytest.mark.parametrize("spec", STREAMS, ids=lambda s: s.name)
@pytest.mark.parametrize("n", SIZES)
def test_references_agree_with_scalar_loops(spec: KernelSpec, n: int) -> None:
    arrays = {o.name: operand(n if o.name != "sum" else 1, "float64", index=i) for i, o in enumerate(spec.operands)}
    b, c = (arrays.get(name, np.zeros(n)).tolist() for name in "bc")
    terms = [SCALAR[spec.name.partition(".")[2]](x, y, 0.4) for x, y in zip(b, c, strict=True)]
    assert spec.reference is not None
    got = spec.reference(*arrays.values())
    expected = [sum(terms)] if "sum" in arrays else terms
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 4, 0)])
def test_the_gemm_reference_agrees_with_scalar_loops(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = operand(m * k, "float64", index=1).reshape(m, k), operand(k * n, "float64", index=2).reshape(k, n)
    reference = find("gemm.tiled").reference
    assert reference is not None
    expected = [[sum(a[i, p] * b[p, j] for p in range(k)) for j in range(n)] for i in range(m)]
    np.testing.assert_allclose(reference(np.empty((m, n)), a, b), np.reshape(expected, (m, n)), rtol=1e-12)


def test_intensities_of_the_mixed_kernel_span_the_roof() -> None:
    spec = find("mixed.fma")
    for dtype in spec.dtypes:
        for exponent in range(-4, 9):
            k = mixed.k_for(2.0**exponent, dtype)
            assert spec.intensity(Problem.of(dtype, n=1024, k=k)) == 2.0**exponent
    with pytest.raises(UsageError, match="FLOP/B"):
        mixed.k_for(0.3, "float64")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_uniform_operands_fill_their_range(dtype: str) -> None:
    x = operand(100_000, dtype, seed=3)
    assert x.dtype == dtype
    assert -1 <= x.min() < -0.999
    assert 0.999 < x.max() < 1
    assert abs(x.mean()) < 0.01
    assert len(np.unique(x)) > 99_000
    assert not np.array_equal(x, operand(100_000, dtype, seed=3, index=1))


def test_normal_operands_have_unit_spread_and_zeros_are_zero() -> None:
    x = operand(100_000, "float64", operands="normal")
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02
    assert not operand(10, "float32", operands="zeros").any()
