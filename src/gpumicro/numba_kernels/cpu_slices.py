"""The CPU's kernels: what one thread does to its share. Plain functions; `cpu` compiles them and makes the team.

Each takes the operands, `sizes` (whole numbers, kernel by kernel), the number of this thread, of all threads, and how
often to do the work: the repeats are inside, so that threads meet once a span and not once a run, as the native ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernels.peak_check import UNROLL, WORDS
from ..kernels.stream import SCALAR

PAD = 16  # words between two threads' sums: two lines, so that no line and no paired prefetch is shared
LINE = 16  # elements: slices are cut at multiples, so that no two threads write one line
PAIRS = WORDS // 2  # chains of one kind side by side, `thread` of kernels/peak_check.py
K_BLOCK, N_BLOCK = 64, 512  # of B at a time: 4 rows of it fill half an L1, all of it half an L2


def share(n: Any, thread: Any, threads: Any) -> Any:
    """Where the part of thread number `thread` begins, of n elements."""
    lines = (n + LINE - 1) // LINE
    return min(lines * thread // threads * LINE, n)


def make_map(compiled: Callable[..., Any], body: Any) -> Callable[..., Any]:
    """a[i] = body(b[i], c[i], s). sizes: n."""
    share_of = compiled(share)

    def run(a: Any, b: Any, c: Any, sizes: Any, thread: Any, threads: Any, repeats: Any) -> None:
        s = a.dtype.type(SCALAR)
        begin, end = share_of(sizes[0], thread, threads), share_of(sizes[0], thread + 1, threads)
        # From nought on: an index that might be negative would be counted from the end, and no loop be made of vectors.
        to, left, right = a[begin:end], b[begin:end], c[begin:end]
        for _ in range(repeats):
            for i in range(len(to)):
                to[i] = body(left[i], right[i], s)

    return run


def make_fold(compiled: Callable[..., Any], body: Any) -> Callable[..., Any]:
    """sums[PAD * thread] = sum of body(b[i], c[i]). sizes: n."""
    share_of = compiled(share)

    def run(sums: Any, b: Any, c: Any, sizes: Any, thread: Any, threads: Any, repeats: Any) -> None:
        begin, end = share_of(sizes[0], thread, threads), share_of(sizes[0], thread + 1, threads)
        left, right = b[begin:end], c[begin:end]
        for _ in range(repeats):
            total = sums.dtype.type(0)
            for i in range(len(left)):
                total += body(left[i], right[i])
            sums[PAD * thread] = total

    return run


def make_peak(compiled: Callable[..., Any], body: Any) -> Callable[..., Any]:  # noqa: ARG001
    """Chains x = a x + b and x = -a x + b in turn, four of them side by side, which 16 registers hold.

    Numba has no vectors that stay in registers, so UNROLL steps of a chain are made for one load and store of it.
    x: (threads, chains, PAIRS), b: (chains, PAIRS), a: (PAIRS,), all flat. sizes: chains, a multiple of 4; steps of
    UNROLL of all threads together in one run.
    """
    n, turns = PAIRS, UNROLL // 2

    def run(x: Any, a: Any, b: Any, sizes: Any, thread: Any, threads: Any, repeats: Any) -> None:
        chains, steps = sizes[0], sizes[1] * repeats
        mine = steps * (thread + 1) // threads - steps * thread // threads
        for first in range(0, chains, 4):
            row = (thread * chains + first) * n
            held, terms = x[row : row + 4 * n], b[first * n : (first + 4) * n]
            for _ in range(mine):
                for i in range(n):
                    f = a[i]
                    b0, b1, b2, b3 = terms[i], terms[i + n], terms[i + 2 * n], terms[i + 3 * n]
                    x0, x1, x2, x3 = held[i], held[i + n], held[i + 2 * n], held[i + 3 * n]
                    for _ in range(turns):
                        x0, x1, x2, x3 = f * x0 + b0, f * x1 + b1, f * x2 + b2, f * x3 + b3
                        x0, x1, x2, x3 = b0 - f * x0, b1 - f * x1, b2 - f * x2, b3 - f * x3
                    held[i], held[i + n], held[i + 2 * n], held[i + 3 * n] = x0, x1, x2, x3

    return run


def make_gemm(compiled: Callable[..., Any], body: Any) -> Callable[..., Any]:  # noqa: ARG001
    """C = A B, row-major and flat: two rows of C by four of B at a time, B in blocks. sizes: m, n, k."""

    def run(c: Any, a: Any, b: Any, sizes: Any, thread: Any, threads: Any, repeats: Any) -> None:
        m, n, k = sizes[0], sizes[1], sizes[2]
        begin, end = m * thread // threads, m * (thread + 1) // threads
        for _ in range(repeats):
            for i in range(begin * n, end * n):
                c[i] = 0
            for p0 in range(0, k, K_BLOCK):
                p1 = min(k, p0 + K_BLOCK)
                for j0 in range(0, n, N_BLOCK):
                    width = min(n, j0 + N_BLOCK) - j0
                    for i in range(begin, end, 2):
                        second = min(i + 1, end - 1)  # of an odd last row: itself, added once
                        both = second != i
                        row0, row1 = i * k, second * k
                        c0 = c[i * n + j0 : i * n + j0 + width]
                        c1 = c[second * n + j0 : second * n + j0 + width]
                        p = p0
                        while p + 4 <= p1 and both:
                            x0, x1, x2, x3 = a[row0 + p], a[row0 + p + 1], a[row0 + p + 2], a[row0 + p + 3]
                            y0, y1, y2, y3 = a[row1 + p], a[row1 + p + 1], a[row1 + p + 2], a[row1 + p + 3]
                            at = p * n + j0
                            b0, b1 = b[at : at + width], b[at + n : at + n + width]
                            b2, b3 = b[at + 2 * n : at + 2 * n + width], b[at + 3 * n : at + 3 * n + width]
                            for j in range(width):
                                v0, v1, v2, v3 = b0[j], b1[j], b2[j], b3[j]
                                c0[j] += x0 * v0 + x1 * v1 + x2 * v2 + x3 * v3
                                c1[j] += y0 * v0 + y1 * v1 + y2 * v2 + y3 * v3
                            p += 4
                        for q in range(p, p1):
                            x0, y0 = a[row0 + q], a[row1 + q]
                            b0 = b[q * n + j0 : q * n + j0 + width]
                            for j in range(width):
                                c0[j] += x0 * b0[j]
                            if both:
                                for j in range(width):
                                    c1[j] += y0 * b0[j]

    return run


def make_chase(compiled: Callable[..., Any], body: Any) -> Callable[..., Any]:  # noqa: ARG001
    """at[0] = the pointer that stands where it points to, once a run. `body` loads a word from an address."""

    def run(at: Any, b: Any, c: Any, sizes: Any, thread: Any, threads: Any, repeats: Any) -> None:  # noqa: ARG001
        p = at[0]
        for _ in range(repeats):
            p = body(p)
        at[0] = p

    return run
