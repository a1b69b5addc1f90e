"""`precision`: what a narrower type buys on this device: speed, bytes and error of the GEMMs that were measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UsageError
from ..kernels.formats import roundoff
from ..kernels.gemm_check import result_dtype
from ..result import read
from ..spec import ITEMSIZE
from .figures import Figure, figures_of, rate_figure
from .footprint import Split
from .inputs import pick_rates
from .step import Setting, one_gpu
from .training import DEFAULT, KEPT, TrainingModel, parse_model

Record = Mapping[str, Any]
Doc = Mapping[str, Any]

ORDER = ("float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
BASE = "float32"
MUCH = 1.2  # times float32's rate, from which on a type is worth a change of code


@dataclass(frozen=True, slots=True)
class Precision:
    """One type. `error`: the worst element's distance from the float64 product, over the size of a typical element
    (None: not checked); `roundoff`: what storing an operand costs, relative (0: exact); `step`: how much faster a whole
    training step is than in float32 (None: not trained in, or no DRAM figure)."""

    dtype: str
    rate: Figure
    kernel: str
    problem: tuple[tuple[str, int], ...]
    speedup: float | None
    same_problem: bool
    error: float | None
    error_bound: float | None
    reference: str
    roundoff: float
    operand_bytes: int
    result_bytes: int
    bytes_moved: int | None
    step: float | None


@dataclass(frozen=True, slots=True)
class DevicePrecision:
    """The types of one device, widest first, and the sentences that follow."""

    file: str
    device: str
    name: str
    model: TrainingModel
    rows: tuple[Precision, ...]
    advice: tuple[str, ...]


def precision(results: Sequence[str | Doc], *, model: str | None = None) -> tuple[DevicePrecision, ...]:
    """For each device of the results (files, or documents) that has a GEMM. Raises UsageError where none has.

    All types are compared at one problem: the one that most types were measured at, the largest of these. A type that
    was not measured there is shown at its own fastest, and said so.
    """
    wanted = parse_model(DEFAULT if model is None else model)
    found: list[DevicePrecision] = []
    for index, one in enumerate(results):
        doc, file = (read(one), one) if isinstance(one, str) else (one, f"result {index + 1}")
        found += [
            _device(doc, file, entry, gemms, wanted) for entry in doc["devices"] if (gemms := _gemms(doc, entry["id"]))
        ]
    if not found:
        names = ", ".join(one if isinstance(one, str) else "the document" for one in results) or "no file"
        raise UsageError(f"{names}: no GEMM in it; measure with `gpumicro roofline -o r.json`")
    return tuple(found)


def _gemms(doc: Doc, device: str) -> list[Record]:
    return [
        item
        for item in doc["measurements"]
        if item["family"] == "gemm" and item["status"] == "ok" and item["device"] == device
        and not item.get("repeat_of") and (item.get("flop_per_s") or {}).get("estimate")
    ]  # fmt: skip


def _device(doc: Doc, file: str, entry: Record, gemms: Sequence[Record], model: TrainingModel) -> DevicePrecision:
    problem = _common(gemms)
    best: dict[str, tuple[Record, bool]] = {}
    for item in sorted(gemms, key=lambda one: one["flop_per_s"]["estimate"]):
        dtype, same = item["dtype"], _size(item) == problem
        if dtype not in best or same >= best[dtype][1]:  # the last, and so the fastest, wins
            best[dtype] = (item, same)
    steps = _steps(doc, file, entry["id"], model)
    names = sorted(best, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    base = best[BASE][0] if BASE in best else None
    rows = tuple(row for name in names if (row := _row(doc, file, *best[name], base, steps.get(name))))
    name = str(entry.get("name") or entry["id"])
    return DevicePrecision(file, entry["id"], name, model, rows, tuple(_advice(rows)))


def _size(item: Record) -> tuple[tuple[str, int], ...]:
    return tuple(item["problem"].items())


def _common(gemms: Sequence[Record]) -> tuple[tuple[str, int], ...]:
    """The problem of most types; of several the largest."""
    types = Counter(size for size, _ in {(_size(item), item["dtype"]) for item in gemms})
    return max(types, key=lambda size: (types[size], math.prod(extent for _, extent in size)))


def _row(
    doc: Doc, file: str, item: Record, same: bool, base: Record | None, step: float | None
) -> Precision | None:  # fmt: skip
    dtype = item["dtype"]
    rate = rate_figure(doc, item, "flop_per_s", "OP/s" if dtype.startswith("int") else "FLOP/s", file)
    if rate is None:
        return None
    check, typical = item.get("check") or {}, typical_element(item)
    scaled = [
        None if not typical or value is None else value / typical for value in (check.get("worst"), check.get("bound"))
    ]
    speedup = None if base is None else rate.estimate / base["flop_per_s"]["estimate"]
    kernel = f"{item['kernel']} {item.get('variant') or ''}".strip()
    return Precision(
        dtype, rate, kernel, _size(item), speedup, same and (base is None or _size(base) == _size(item)), scaled[0],
        scaled[1], str(check.get("reference") or "not checked"), roundoff(dtype) if dtype != "tf32" else 2.0**-11,
        ITEMSIZE.get(dtype, 0), ITEMSIZE.get(result_dtype(dtype), 0), item.get("bytes_moved"), step,
    )  # fmt: skip


def typical_element(item: Record) -> float | None:
    """The root mean square of an element of C = A B for these operands: sqrt(k) s^2, s that of an operand's element.

    s^2 is 1/3 for numbers uniform in [-1, 1) and 1 for normal ones; of int8, which fill their range, 127^2/3 and 32^2.
    None for other operands.
    """
    square = {"uniform": 1 / 3, "normal": 1.0}.get(item.get("operands") or "uniform")
    inner = item["problem"].get("k")
    if square is None or not inner:
        return None
    if item["dtype"] == "int8":
        square = {"uniform": 127.0**2 / 3, "normal": 32.0**2}[item.get("operands") or "uniform"]
    return math.sqrt(inner) * square


def _steps(doc: Doc, file: str, device: str, model: TrainingModel) -> dict[str, float]:
    """How many times faster than in float32 one sample trains on this device, by type: the model of `scale`."""
    figures = figures_of(doc, file)
    mine = next((one for one in figures.devices if one.device == device), None)
    if mine is None or mine.dram is None:
        return {}
    seconds = {}
    for dtype in mine.gemm:
        if dtype in KEPT:
            rates, _ = pick_rates([figures], dtype, None, device)
            seconds[dtype] = one_gpu(Setting(replace(model, dtype=dtype), Split(), rates), 1.0)
    return {dtype: seconds[BASE] / value for dtype, value in seconds.items()} if BASE in seconds else {}


def _advice(rows: Sequence[Precision]) -> list[str]:
    """What mixed precision buys here, in a sentence each."""
    by_type = {row.dtype: row for row in rows}
    said = [] if BASE in by_type else [f"No {BASE} GEMM was measured: there is nothing to compare with."]
    if (tf32 := by_type.get("tf32")) and tf32.speedup:
        said.append(f"tf32 needs no change of the data: {tf32.speedup:.3g} times {BASE} with operands kept to 11 bits.")
    sixteen = [row for row in rows if row.dtype in ("bfloat16", "float16") and row.speedup]
    if sixteen:
        fastest = max(sixteen, key=lambda row: row.speedup or 0.0)
        whole = f", a whole training step {fastest.step:.3g} times as fast" if fastest.step else ""
        half = "half the bytes of weights and activations"
        if (fastest.speedup or 0) >= MUCH:
            said.append(
                f"Mixed precision buys {fastest.speedup:.3g} times the GEMM in {fastest.dtype}{whole}, and {half}."
            )
        else:
            said.append(f"Mixed precision buys {half} but no speed here: {fastest.speedup:.3g} times {BASE} only.")
    elif BASE in by_type:
        said.append("No 16-bit GEMM was measured here, so nothing is known of mixed precision.")
    if (eight := by_type.get("float8_e4m3fn")) and eight.speedup and sixteen:
        gain = eight.speedup / max(row.speedup or 1.0 for row in sixteen)
        said.append(f"fp8 is {gain:.3g} times the fastest 16-bit GEMM; its operands need scales of their own.")
    if (wide := by_type.get("float64")) and wide.speedup and wide.speedup * MUCH < 1:
        said.append(f"float64 runs at 1/{1 / wide.speedup:.3g} of {BASE}'s rate.")
    return said
