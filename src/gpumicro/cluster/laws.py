"""Laws of scaling fitted to runs: Amdahl's, Gustafson's and the universal scalability law, with 95% intervals.

X(N) = g C(N) is the throughput on N GPUs; g is that of one GPU. Arrays in, numbers out.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..stats import t_quantile

FloatArray = npt.NDArray[np.float64]
MOST_COUNTS = 10_000
_STEPS = 200
_NOTHING = 1e-12  # a parameter below is the rounding of 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Runs: GPU counts, ascending, and the throughput of each (in the unit of the file)."""

    gpus: tuple[float, ...]
    throughput: tuple[float, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A fitted parameter; no interval where it sits on its bound of 0 or no run is left over to judge by."""

    name: str
    value: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Law:
    """One law as fitted. `misfit`: the standard deviation of the residuals over the mean throughput, with what the
    parameters leave free; None where they leave nothing."""

    name: str
    formula: str
    parameters: tuple[Parameter, ...]
    misfit: float | None

    def value(self, name: str) -> float:
        """A parameter by its name."""
        return next(one.value for one in self.parameters if one.name == name)

    def throughput(self, gpus: float) -> float:
        """X(N) as fitted."""
        values = {one.name: one.value for one in self.parameters}
        return values.pop("one GPU") * float(_LAWS[self.name].capacity(np.array([gpus]), *values.values())[0])

    @property
    def peak(self) -> tuple[float, float] | None:
        """The count with the most throughput, and that; None where more GPUs always give more.

        N* = sqrt((1 - s)/k): Gunther, "Guerrilla Capacity Planning" (2007), 4.4; one GPU where that is less than one,
        and by all three laws where the serial part is 1 or more.
        """
        serial = self.parameters[1].value
        if serial >= 1:
            return 1.0, self.throughput(1)
        if self.name != "universal" or self.value("coherency") <= 0:
            return None
        best = max(math.sqrt((1 - serial) / self.value("coherency")), 1.0)
        return best, self.throughput(best)

    @property
    def limit(self) -> float | None:
        """The speed-up that no count exceeds; None where there is no such limit."""
        if self.peak:
            return self.peak[1] / self.value("one GPU")
        return 1 / self.value("serial") if self.name == "amdahl" and self.value("serial") > 0 else None


@dataclass(frozen=True, slots=True)
class _Form:
    formula: str
    names: tuple[str, ...]
    capacity: Callable[..., FloatArray]


def amdahl(n: FloatArray, serial: float) -> FloatArray:
    """C(N) = N/(1 + s(N - 1)): a serial part s of a fixed work (Amdahl, AFIPS 1967)."""
    return n / (1 + serial * (n - 1))


def gustafson(n: FloatArray, serial: float) -> FloatArray:
    """C(N) = N - s(N - 1): a serial part s while the work grows with N (Gustafson, CACM 31(5), 1988)."""
    return n - serial * (n - 1)


def universal(n: FloatArray, contention: float, coherency: float) -> FloatArray:
    """C(N) = N/(1 + s(N - 1) + k N(N - 1)): contention s, coherency k (Gunther, "Guerrilla Capacity Planning" 2007)."""
    return n / (1 + contention * (n - 1) + coherency * n * (n - 1))


_LAWS: Mapping[str, _Form] = {
    "amdahl": _Form("X = g N/(1 + s(N-1))", ("serial",), amdahl),
    "gustafson": _Form("X = g (N - s(N-1))", ("serial",), gustafson),
    "universal": _Form("X = g N/(1 + s(N-1) + k N(N-1))", ("contention", "coherency"), universal),
}


def fit_laws(counts: Counts) -> tuple[Law, ...]:
    """The three laws by least squares; no parameter below 0. The least misfit first,
    the universal law after Amdahl's where its coherency may be 0: it is then the same law with one parameter more.

    Raises UsageError for fewer than three different counts: two parameters always pass through two runs.
    """
    n, x = np.array(counts.gpus, dtype=np.float64), np.array(counts.throughput, dtype=np.float64)
    if len(set(counts.gpus)) < 3:
        raise UsageError(
            f"{counts.source}: a law needs runs at 3 different GPU counts or more, not {len(set(counts.gpus))}"
        )
    fits = [_fit(name, n, x) for name in _LAWS]
    ranked = sorted(fits, key=lambda law: math.inf if law.misfit is None else law.misfit)
    if ranked[0].name == "universal" and not _resolved(ranked[0].parameters[-1]):
        ranked.append(ranked.pop(0))
    return tuple(ranked)


def _resolved(known: Parameter) -> bool:
    return known.ci95 is not None and known.ci95[0] > 0


def _fit(name: str, n: FloatArray, x: FloatArray) -> Law:
    form = _LAWS[name]
    free = list(range(len(form.names)))
    values = np.zeros(len(form.names))
    while True:
        scale, values = _solve(form, n, x, values, free)
        # a parameter that is driven below 0 is 0, and the others are fitted without it
        stuck = [i for i in free if values[i] <= _NOTHING]
        if not stuck:
            break
        free = [i for i in free if i not in stuck]
        values[stuck] = 0.0
    residual = x - scale * form.capacity(n, *values)
    spread = _spread(form, n, scale, values, free, residual)
    ends = [
        _ends(value, half, i in free) for i, (value, half) in enumerate(zip(values.tolist(), spread[1:], strict=True))
    ]
    known = map(Parameter, form.names, values.tolist(), ends)
    left = len(x) - 1 - len(form.names)
    misfit = math.sqrt(float(residual @ residual) / left) / float(x.mean()) if left > 0 else None
    scaled = Parameter("one GPU", scale, _ends(scale, spread[0], held=True))
    return Law(name, form.formula, (scaled, *known), misfit)


def _solve(
    form: _Form, n: FloatArray, x: FloatArray, start: FloatArray, free: Sequence[int]
) -> tuple[float, FloatArray]:
    """Levenberg and Marquardt's method; the scale follows from the others by linear least squares."""
    values, damping = start.copy(), 1e-3
    values[list(free)] = np.maximum(values[list(free)], 1e-3)
    error = _misses(form, n, x, values)
    for _ in range(_STEPS):
        if not free:
            break
        slopes = np.stack([_slope(form, n, x, values, i) for i in free], axis=1)
        normal = slopes.T @ slopes
        move = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal) + 1e-30), -slopes.T @ error, rcond=None)[0]
        trial = values.copy()
        trial[list(free)] += move
        missed = _misses(form, n, x, trial)
        if np.all(np.isfinite(missed)) and missed @ missed <= error @ error:
            settled = float(np.max(np.abs(move) / (np.abs(trial[list(free)]) + 1e-12))) < 1e-10
            values, error, damping = trial, missed, damping / 5
            if settled:
                break
        elif damping > 1e12:
            break
        else:
            damping *= 5
    return _scale(form, n, x, values), values


def _scale(form: _Form, n: FloatArray, x: FloatArray, values: FloatArray) -> float:
    shape = form.capacity(n, *values)
    return float(shape @ x / (shape @ shape))


def _misses(form: _Form, n: FloatArray, x: FloatArray, values: FloatArray) -> FloatArray:
    return _scale(form, n, x, values) * form.capacity(n, *values) - x


def _slope(form: _Form, n: FloatArray, x: FloatArray, values: FloatArray, index: int) -> FloatArray:
    step = max(abs(float(values[index])) * 1e-6, 1e-9)
    up, down = values.copy(), values.copy()
    up[index] += step
    down[index] -= step
    return (_misses(form, n, x, up) - _misses(form, n, x, down)) / (2 * step)


def _spread(
    form: _Form, n: FloatArray, scale: float, values: FloatArray, free: Sequence[int], residual: FloatArray
) -> list[float | None]:  # fmt: skip
    """95% half-widths of the scale and of each parameter, from the residuals and the slopes (Gauss and Newton)."""
    columns = [form.capacity(n, *values)]
    for i in free:
        step = max(abs(float(values[i])) * 1e-6, 1e-9)
        up, down = values.copy(), values.copy()
        up[i] += step
        down[i] -= step
        columns.append(scale * (form.capacity(n, *up) - form.capacity(n, *down)) / (2 * step))
    left = len(n) - len(columns)
    halves: list[float | None] = [None] * (1 + len(values))
    if left < 1:
        return halves
    design = np.stack(columns, axis=1)
    unit = np.linalg.norm(design, axis=0)
    inverse = np.linalg.pinv((design / unit).T @ (design / unit)) / np.outer(unit, unit)
    variance = float(residual @ residual) / left
    for at, value in zip((0, *(i + 1 for i in free)), np.diag(inverse).tolist(), strict=True):
        halves[at] = t_quantile(0.975, left) * math.sqrt(max(value * variance, 0.0))
    return halves


def _ends(value: float, half: float | None, held: bool) -> tuple[float, float] | None:
    return (max(value - half, 0.0), value + half) if held and half is not None else None


# -- the file ----------------------------------------------------------------------------------------------------------


def read_counts(path: str) -> Counts:
    """A CSV with the columns `gpus` and `throughput`, or `gpus` and `time_s` (of the same work). Raises UsageError with
    the line."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_counts(text, path)


def parse_counts(text: str, name: str) -> Counts:
    """As `read_counts`, of the file's text."""
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    heads = [head.strip() for head in rows.fieldnames or () if head]
    kind = next((head for head in ("throughput", "time_s") if head in heads), None)
    if "gpus" not in heads or kind is None:
        raise UsageError(
            f"{name}: the first line must name gpus and throughput (or time_s), not {', '.join(heads) or 'nothing'}"
        )
    found: list[tuple[float, float]] = []
    for row in rows:
        line = rows.line_num
        if row.get(None):
            raise UsageError(
                f"{name}, line {line}: more values than the first line has names; write 1234.5 for 1,234.5"
            )
        if len(found) >= MOST_COUNTS:
            raise UsageError(f"{name}: more than {MOST_COUNTS} runs")
        plain = {str(key).strip(): value for key, value in row.items()}
        gpus, value = (_number(plain.get(key), key, name, line) for key in ("gpus", kind))
        found.append((gpus, value if kind == "throughput" else 1 / value))
    if not found:
        raise UsageError(f"{name}: no runs in it")
    found.sort()
    return Counts(tuple(gpus for gpus, _ in found), tuple(value for _, value in found), name)


def _number(text: object, key: str, name: str, line: int) -> float:
    try:
        value = float(str(text))
    except ValueError:
        raise UsageError(f"{name}, line {line}: {key} is {text!r}, not a number") from None
    if not 0 < value < 1e30:
        raise UsageError(f"{name}, line {line}: {key} must be above 0, not {text}")
    if key == "gpus" and value < 1:
        raise UsageError(f"{name}, line {line}: gpus must be at least 1, not {text}")
    return value
