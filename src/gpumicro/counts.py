"""How many FLOP and bytes a known operation takes at least: `gm.counts.gemm(m, n, k)` and its like.

An FMA is 2 FLOP. Bytes are compulsory: each operand read once and each result written once, however often a real
kernel comes back for them; so an intensity from here is the highest that the operation can have. What is counted
stands in each record's `what`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .errors import UsageError, unknown
from .spec import DTYPE_ALIASES, ITEMSIZE, KernelSpec

_COMPONENT = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True, slots=True)
class Counts:
    """FLOP and bytes of one call, the dtype whose arithmetic does it, and in words what was counted."""

    flops: float
    bytes: float
    dtype: str
    what: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "flops", _number("flops", self.flops))
        object.__setattr__(self, "bytes", _number("bytes", self.bytes))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        if not self.flops and not self.bytes:
            raise UsageError("flops and bytes are both 0: a call that does nothing has no place under a roof")

    @property
    def intensity(self) -> float | None:
        """FLOP/B; None where no byte is counted."""
        return self.flops / self.bytes if self.bytes else None


def dtype_name(dtype: Any) -> str:
    """NumPy's name of a dtype: from a name or alias ("bf16"), a NumPy dtype or scalar type, PyTorch's or JAX's.

    Complex types give their components' dtype, whose arithmetic they use. UsageError for one that is not known.
    """
    told = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)
    name = str(told).rpartition(".")[2]
    name = DTYPE_ALIASES.get(name, _COMPONENT.get(name, name))
    if name not in ITEMSIZE:
        raise UsageError(unknown("dtype", name, [*ITEMSIZE, *DTYPE_ALIASES]))
    return name


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (str, bool)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{name} of one call must be a number from 0 up, not {value!r}")
    return number


def _sizes(least: int = 1, **sizes: int) -> tuple[int, ...]:
    """The sizes as Python's integers, which do not overflow as NumPy's do."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not hasattr(size, "__index__") or size < least:
            raise UsageError(f"{name} must be a whole number from {least} up, not {size!r}")
    return tuple(map(operator.index, sizes.values()))


def gemm(
    m: int, n: int, k: int, dtype: Any = "float64", *, out_dtype: Any = None, batch: int = 1, accumulate: bool = False
) -> Counts:
    """C = A B with A[m, k], B[k, n], C[m, n], `batch` times with operands of its own each.

    FLOP: 2 m n k, a multiplication and an addition for each term, as LAPACK Working Note 41 counts with k additions.
    Bytes: (m k + k n) of `dtype` read, m n of `out_dtype` (default: `dtype`) written, and read too where C += A B
    (`accumulate`).
    """
    m, n, k, batch = _sizes(m=m, n=n, k=k, batch=batch)
    name = dtype_name(dtype)
    out = ITEMSIZE[dtype_name(out_dtype if out_dtype is not None else name)]
    moved = (m * k + k * n) * ITEMSIZE[name] + m * n * out * (2 if accumulate else 1)
    many = f"{batch} x " if batch > 1 else ""
    return Counts(2 * m * n * k * batch, moved * batch, name, f"GEMM {many}{m}x{n}x{k}: 2mnk, compulsory bytes")


def conv2d(
    batch: int, channels: int, height: int, width: int, filters: int, kernel: int | tuple[int, int],
    dtype: Any = "float32", *, stride: int = 1, padding: int = 0, groups: int = 1,
) -> Counts:  # fmt: skip
    """A direct 2-d convolution: input [batch, channels, height, width], `filters` filters of `kernel` (one size, or
    rows and columns) over channels / groups.

    FLOP: 2 for each tap of each output; taps on the padding count, as kernels compute them. A Winograd or FFT
    algorithm needs fewer, and may stand above the roof by this count. Bytes: input, weights and output once.
    The output's size is that of PyTorch's Conv2d: (height + 2 padding - rows) // stride + 1.
    """
    sides = tuple(kernel) if isinstance(kernel, (tuple, list)) else (kernel, kernel)
    if len(sides) != 2:
        raise UsageError(f"kernel must be one size or rows and columns, not {kernel!r}")
    rows, columns = sides
    batch, channels, height, width, filters, rows, columns, stride, groups = _sizes(
        batch=batch, channels=channels, height=height, width=width, filters=filters, rows=rows, columns=columns,
        stride=stride, groups=groups,
    )  # fmt: skip
    if channels % groups or filters % groups:
        raise UsageError(f"groups must divide channels and filters; {groups} does not divide {channels}, {filters}")
    (padding,) = _sizes(0, padding=padding)
    if height + 2 * padding < rows or width + 2 * padding < columns:
        raise UsageError(f"a kernel of {rows}x{columns} does not fit {height}x{width} with padding {padding}")
    name = dtype_name(dtype)
    out_height = (height + 2 * padding - rows) // stride + 1
    out_width = (width + 2 * padding - columns) // stride + 1
    taps = channels // groups * rows * columns
    outputs = batch * filters * out_height * out_width
    elements = batch * channels * height * width + filters * taps + outputs
    what = f"direct convolution, {taps} taps for each of {outputs} outputs, compulsory bytes"
    return Counts(2 * outputs * taps, elements * ITEMSIZE[name], name, what)


def attention(
    batch: int, heads: int, queries: int, keys: int, head_dim: int, dtype: Any = "float16", *, causal: bool = False,
    kv_heads: int | None = None,
) -> Counts:  # fmt: skip
    """softmax(Q K^T) V: Q and the output [batch, heads, queries, head_dim], K and V [batch, kv_heads, keys, head_dim].

    FLOP: 4 head_dim for each pair of a query and a key that it sees: the two products; the softmax is not counted,
    as in Dao, "FlashAttention-2", arXiv:2307.08691, section 4.1. Causal: the last query sees all keys, each one
    before it one key less, so (for queries = keys = s) s (s + 1) / 2 pairs, where the usual half of s^2 leaves the
    diagonal's half out. Bytes: Q, K, V read and the output written once; scores stay on the chip. `kv_heads`
    (default: heads): K and V shared by groups of heads.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    batch, heads, queries, keys, head_dim, kv_heads = _sizes(
        batch=batch, heads=heads, queries=queries, keys=keys, head_dim=head_dim, kv_heads=kv_heads
    )
    if heads % kv_heads:
        raise UsageError(f"kv_heads must divide heads; {kv_heads} does not divide {heads}")
    name = dtype_name(dtype)
    seeing = min(queries, keys)  # queries that see any key; the others stand before all of them
    pairs = seeing * keys - seeing * (seeing - 1) // 2 if causal else queries * keys
    elements = batch * head_dim * (2 * heads * queries + 2 * kv_heads * keys)
    what = f"attention{', causal' if causal else ''}: two products over {pairs} pairs a head, no softmax"
    return Counts(4 * batch * heads * head_dim * pairs, elements * ITEMSIZE[name], name, what)


def elementwise(
    n: int, dtype: Any = "float64", *, inputs: int = 1, outputs: int = 1, flops_per_element: float = 1
) -> Counts:
    """`outputs` arrays of n elements from `inputs` arrays of n.

    FLOP: n `flops_per_element` (0 for a copy). Bytes: (inputs + outputs) n itemsize, as STREAM counts (McCalpin,
    "STREAM", www.cs.virginia.edu/stream): the line that a store may read first is not counted. An array that is changed
    in place is both an input and an output.
    """
    n, outputs = _sizes(n=n, outputs=outputs)
    (inputs,) = _sizes(0, inputs=inputs)
    each = _number("flops_per_element", flops_per_element)
    name = dtype_name(dtype)
    what = f"elementwise: {inputs} arrays read, {outputs} written, {each:g} FLOP an element"
    return Counts(n * each, (inputs + outputs) * n * ITEMSIZE[name], name, what)


def reduction(n: int, dtype: Any = "float64", *, outputs: int = 1) -> Counts:
    """n elements into `outputs` sums (1: all of them; rows: one for each row).

    FLOP: n - outputs, the additions that any order takes. Bytes: n elements read, `outputs` written.
    """
    n, outputs = _sizes(n=n, outputs=outputs)
    if outputs > n:
        raise UsageError(f"{n} elements make no {outputs} sums")
    name = dtype_name(dtype)
    what = f"reduction of {n} elements to {outputs}: n - outputs additions"
    return Counts(n - outputs, (n + outputs) * ITEMSIZE[name], name, what)


def fft(n: int, dtype: Any = "float64", *, batch: int = 1, real: bool = False) -> Counts:
    """`batch` one-dimensional transforms of n complex points of `dtype` components (real: of n real points).

    FLOP: 5 n log2 n, half of it for real points: the nominal count of benchFFT (www.fftw.org/speed), what a radix-2
    transform takes about; others take fewer, so rates compare transforms rather than count their instructions.
    Bytes: the input read and the output written once; a real transform writes n // 2 + 1 complex points.
    """
    n, batch = _sizes(n=n, batch=batch)
    name = dtype_name(dtype)
    elements = n + 2 * (n // 2 + 1) if real else 4 * n
    flops = (2.5 if real else 5.0) * n * math.log2(n)
    kind = "real" if real else "complex"
    what = f"FFT of {batch} x {n} {kind} points: nominal {'2.5' if real else '5'} n log2 n"
    return Counts(flops * batch, elements * ITEMSIZE[name] * batch, name, what)


# --- what a caller says of a work of his own ----------------------------------------------------------------------

Amount = float | Callable[..., float]


@dataclass(frozen=True, slots=True)
class Declared:
    """What a caller says that a work does: numbers, or functions of the work's arguments."""

    flops: Amount | None = None
    bytes: Amount | None = None
    counts: Counts | Callable[..., Counts] | None = None
    dtype: Any = None

    def __post_init__(self) -> None:
        if self.counts is not None and (self.flops is not None or self.bytes is not None):
            raise UsageError("give either counts, or flops and bytes")
        if self.counts is None and (self.flops is None) != (self.bytes is None):
            missing = "flops" if self.flops is None else "bytes"
            raise UsageError(f"{missing} of one call is missing; {missing}=0 says that there are none")

    def __bool__(self) -> bool:
        return self.counts is not None or self.flops is not None

    @property
    def fixed(self) -> bool:
        """Whether every call does as much: nothing depends on the arguments."""
        return bool(self) and not any(map(callable, (self.flops, self.bytes, self.counts)))

    def bound(self, *args: Any, **kwargs: Any) -> Declared:
        """The same where these arguments are bound to the work already."""

        def with_them(amount: Any) -> Any:
            return partial(amount, *args, **kwargs) if callable(amount) else amount

        return Declared(with_them(self.flops), with_them(self.bytes), with_them(self.counts), self.dtype)

    def of(self, *args: Any, **kwargs: Any) -> Counts:
        """The counts of a call with these arguments; UsageError where nothing was said or a function of them fails."""
        if self.counts is not None:
            found = _evaluated("counts", self.counts, args, kwargs)
            if not isinstance(found, Counts):
                raise UsageError(f"counts must give a gm.counts.Counts, not {type(found).__name__}")
            return found if self.dtype is None else replace(found, dtype=self.dtype)
        if not self:
            raise UsageError("how much one call does is not known: give flops= and bytes=, or counts=")
        flops, moved = (_evaluated(name, getattr(self, name), args, kwargs) for name in ("flops", "bytes"))
        return Counts(flops, moved, "float64" if self.dtype is None else self.dtype, "as given")


def _evaluated(name: str, amount: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not callable(amount):
        return amount
    try:
        return amount(*args, **kwargs)
    except Exception as error:
        raise UsageError(f"the {name} function failed on the work's arguments: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


ATTRIBUTE = "__gpumicro_counts__"  # where a function keeps what was declared of it


def declared_of(work: Any) -> Declared:
    """What is known of the work: of a prepared kernel by its record, of a function by what `gm.measured` attached (a
    bound method's instance comes first among its arguments, and so does what functools.partial binds). Empty where
    nothing is."""
    if isinstance(work, partial):
        return declared_of(work.func).bound(*work.args, **work.keywords)
    spec, problem = getattr(work, "spec", None), getattr(work, "problem", None)
    if isinstance(spec, KernelSpec) and problem is not None:
        return Declared(counts=Counts(spec.flops(problem), spec.bytes_moved(problem), problem.dtype, spec.summary))
    found = getattr(work, ATTRIBUTE, None)
    if not isinstance(found, Declared):
        return Declared()
    owner = getattr(work, "__self__", None)
    return found if owner is None else found.bound(owner)
