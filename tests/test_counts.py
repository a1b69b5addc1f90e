"""The helpers that count FLOP and bytes, set against loops that do the operation and count as they go."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import gpumicro as gm
from gpumicro.counts import Counts, Declared, declared_of
from gpumicro.errors import UsageError


class Touched:
    """Counts FLOP, and each element of an array once, however often it is used."""

    def __init__(self) -> None:
        self.flops = 0
        self.seen: set[tuple[Any, ...]] = set()

    def fma(self, *elements: tuple[Any, ...]) -> None:
        self.flops += 2
        self.seen |= set(elements)


@pytest.mark.parametrize(("m", "n", "k"), [(2, 3, 4), (1, 5, 1), (3, 1, 7)])
def test_gemm(m: int, n: int, k: int) -> None:
    loop = Touched()
    for i, j, p in itertools.product(range(m), range(n), range(k)):
        loop.fma(("a", i, p), ("b", p, j), ("c", i, j))
    found = gm.counts.gemm(m, n, k, "float32")
    assert (found.flops, found.bytes) == (loop.flops, 4 * len(loop.seen))
    assert found.dtype == "float32"


def test_gemm_of_mixed_types_batches_and_sums() -> None:
    found = gm.counts.gemm(2, 3, 4, "bf16", out_dtype="float32", batch=5, accumulate=True)
    assert found.flops == 5 * 2 * 24
    assert found.bytes == 5 * (2 * (8 + 12) + 2 * 4 * 6)
    assert found.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("channels", "filters", "groups", "kernel", "stride", "padding"),
    [(2, 3, 1, 3, 1, 1), (4, 2, 2, (2, 3), 2, 0), (2, 2, 2, 1, 1, 0)],
)
def test_conv2d(channels: int, filters: int, groups: int, kernel: Any, stride: int, padding: int) -> None:
    batch, height, width = 2, 6, 7
    rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
    loop = Touched()
    for b, f in itertools.product(range(batch), range(filters)):
        for y in range(0, height + 2 * padding - rows + 1, stride):
            for x in range(0, width + 2 * padding - columns + 1, stride):
                for c, r, s in itertools.product(range(channels // groups), range(rows), range(columns)):
                    loop.fma(("w", f, c, r, s), ("out", b, f, y, x))
    elements = len(loop.seen) + batch * channels * height * width
    found = gm.counts.conv2d(
        batch, channels, height, width, filters, kernel, stride=stride, padding=padding, groups=groups
    )
    assert (found.flops, found.bytes) == (loop.flops, 4 * elements)


def test_numpys_integers_do_not_overflow() -> None:
    m = np.int32(1 << 20)
    assert gm.counts.gemm(m, m, m).flops == 2.0 * (1 << 60)
    assert gm.counts.conv2d(1, 3, 8, 8, 1, np.int64(3)) == gm.counts.conv2d(1, 3, 8, 8, 1, 3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (2, 5), (5, 3)])
def test_attention(queries: int, keys: int, causal: bool) -> None:
    batch, heads, kv_heads, dim = 2, 4, 2, 3
    loop = Touched()
    for b, h, i, j, d in itertools.product(*map(range, (batch, heads, queries, keys, dim))):
        if not causal or j <= i + keys - queries:
            loop.fma()
            loop.fma()
        loop.seen |= {("q", b, h, i, d), ("o", b, h, i, d), ("k", b, h % kv_heads, j, d), ("v", b, h % kv_heads, j, d)}
    found = gm.counts.attention(batch, heads, queries, keys, dim, causal=causal, kv_heads=kv_heads)
    assert (found.flops, found.bytes) == (loop.flops, 2 * len(loop.seen))


def test_elementwise_copy_and_reduction() -> None:
    triad = gm.counts.elementwise(1000, inputs=2, flops_per_element=2)
    assert (triad.flops, triad.bytes) == (2000, 24000)
    copy = gm.counts.elementwise(1000, "float32", flops_per_element=0)
    assert (copy.flops, copy.bytes, copy.intensity) == (0, 8000, 0)
    values, additions = [1.0] * 10, 0
    while len(values) > 3:
        values = [values[0] + values[1], *values[2:]]
        additions += 1
    rows = gm.counts.reduction(10, outputs=3)
    assert (rows.flops, rows.bytes) == (additions, 8 * 13)


def radix2(x: list[complex]) -> tuple[list[complex], int]:
    """A textbook transform and its real operations: 10 a butterfly (a complex product and two sums)."""
    n = len(x)
    if n == 1:
        return x, 0
    even, a = radix2(x[::2])
    odd, b = radix2(x[1::2])
    turned = [np.exp(-2j * np.pi * k / n) * odd[k] for k in range(n // 2)]
    out = [even[k] + turned[k] for k in range(n // 2)] + [even[k] - turned[k] for k in range(n // 2)]
    return out, a + b + 10 * (n // 2)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_fft_is_what_a_radix_2_transform_takes(n: int) -> None:
    x = [complex(i, -i) for i in range(n)]
    transformed, operations = radix2(x)
    assert np.allclose(transformed, np.fft.fft(x))
    found = gm.counts.fft(n, "complex64", batch=3)
    assert (found.flops, found.bytes, found.dtype) == (3 * operations, 3 * 2 * n * 8, "float32")
    real = gm.counts.fft(n, real=True)
    assert (real.flops, real.bytes) == (operations / 2, 8 * n + 16 * (n // 2 + 1))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: gm.counts.gemm(0, 1, 1), "m must be a whole number from 1 up, not 0"),
        (lambda: gm.counts.gemm(1.5, 1, 1), "m must be a whole number"),
        (lambda: gm.counts.gemm(True, 1, 1), "m must be a whole number"),
        (lambda: gm.counts.gemm(1, 1, 1, "float23"), "float32"),
        (lambda: gm.counts.conv2d(1, 3, 2, 2, 1, 5), "does not fit"),
        (lambda: gm.counts.conv2d(1, 3, 8, 8, 1, 3, groups=2), "groups must divide"),
        (lambda: gm.counts.attention(1, 3, 4, 4, 8, kv_heads=2), "kv_heads must divide"),
        (lambda: gm.counts.reduction(2, outputs=3), "make no 3 sums"),
        (lambda: gm.counts.elementwise(4, inputs=-1), "inputs must be"),
        (lambda: gm.counts.elementwise(4, flops_per_element=-1), "flops_per_element of one call must be a number"),
        (lambda: gm.counts.elementwise(4, flops_per_element="x"), "flops_per_element of one call must be a number"),
        (lambda: gm.counts.conv2d(1, 3, 8, 8, 1, (3,)), "one size or rows and columns"),
        (lambda: gm.counts.conv2d(1, 3, 8, 8, 1, "3"), "rows must be a whole number"),
        (lambda: gm.counts.conv2d(1, 3, 8, 8, 1, 3, padding=0.5), "padding must be a whole number from 0 up"),
        (lambda: Counts(0, 0, "float64", ""), "does nothing"),
        (lambda: Counts(float("nan"), 1, "float64", ""), "flops of one call must be a number"),
        (lambda: Counts("2e9", 1, "float64", ""), "flops of one call must be a number"),
        (lambda: Declared(flops=1), "bytes=0 says that there are none"),
        (lambda: Declared(flops=1, bytes=1, counts=gm.counts.fft(8)), "either counts, or"),
        (lambda: Declared().of(), "not known"),
        (lambda: Declared(flops=lambda a: a.missing, bytes=1).of(3), "the flops function failed .*AttributeError"),
        (lambda: Declared(counts=lambda: 3).of(), "must give a gm.counts.Counts, not int"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(call: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        call()


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(np.float32, "float32"), (np.dtype("complex128"), "float64"), ("torch.bfloat16", "bfloat16"), ("fp16", "float16")],
)
def test_a_dtype_may_come_from_any_library(dtype: Any, name: str) -> None:
    assert gm.counts.elementwise(1, dtype).dtype == name


def test_a_prepared_kernel_of_the_catalogue_knows_its_counts() -> None:
    with gm.prepare("stream.triad", n=1000) as triad:
        found = declared_of(triad).of()
    assert (found.flops, found.bytes) == (2000, 24000)
