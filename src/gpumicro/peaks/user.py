"""A user's own specs (`--spec FILE`): TOML with [[gpu]] and [[cpu]] tables, merged over ours.

[[cpu]]                          # peaks of the whole machine follow from these factors
name = "My CPU"                  # or leave it out: then it is for any CPU
cores = 8
clock_ghz = 3.5
flop_per_cycle = { float64 = 16, float32 = 32 }     # of one core
memory_bandwidth_gbs = 76.8
source = "data sheet"

[[gpu]]
id = "h100-sxm5-80"              # one of ours: only the keys given here change; or a new one, then also `name`
memory_bandwidth_gbs = 3350
peak = { fp64 = 33.5, fp16_tensor = 989 }           # dense TFLOP/s, keys as in gpus.toml
source = "data sheet"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import SchemaError
from ..spec import DTYPE_ALIASES, ITEMSIZE
from ..units import from_prefix
from .gpu import FORMATS, MARKS, GpuSpec, gpu_from_table
from .toml import Reader, read_toml


@dataclass(frozen=True, slots=True)
class UserCpu:
    """What a user says about a CPU; None where nothing is said."""

    name: str | None
    cores: int | None
    clock_hz: float | None
    flop_per_cycle: Mapping[str, float]  # of one core, by dtype
    memory_bandwidth_bytes_per_s: float | None
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserSpecs:
    """All of a user's file."""

    path: str
    gpus: tuple[GpuSpec, ...]
    cpus: tuple[UserCpu, ...]


def load_user(path: str | os.PathLike[str]) -> UserSpecs:
    """Read and check. Raises SchemaError with the file and the place in it."""
    name = os.fspath(path)
    top = Reader(read_toml(Path(path), name), name)
    for key in top.table:
        if key not in ("schema", "gpu", "cpu", "rates"):
            raise SchemaError(f"{name}: unknown table {key!r} (known: [[gpu]], [[cpu]])")
    gpus, cpus = tuple(map(_gpu, top.tables("gpu"))), tuple(map(_cpu, top.tables("cpu")))
    if not gpus and not cpus:
        raise SchemaError(f"{name}: holds neither a [[gpu]] nor a [[cpu]] table")
    ids = [spec.id for spec in gpus]
    for index, spec in enumerate(gpus):
        if spec.id in ids[:index]:
            raise SchemaError(f"{name}: gpu[{index}].id {spec.id!r} is there twice")
    return UserSpecs(name, gpus, cpus)


def _cpu(entry: Reader) -> UserCpu:
    entry.only("name", "cores", "clock_ghz", "flop_per_cycle", "memory_bandwidth_gbs", "source")
    rates = entry.inner("flop_per_cycle")
    by_dtype: dict[str, float] = {}
    for key in rates.table:
        dtype = DTYPE_ALIASES.get(key, key)
        if dtype not in ITEMSIZE:
            raise SchemaError(f"{rates.place}.{key}: unknown dtype (known: {', '.join(ITEMSIZE)})")
        value = rates.number(key)
        assert value is not None
        by_dtype[dtype] = value
    clock, bandwidth = entry.number("clock_ghz"), entry.number("memory_bandwidth_gbs")
    return UserCpu(
        name=entry.text("name"),
        cores=entry.whole("cores"),
        clock_hz=None if clock is None else from_prefix(clock, "G"),
        flop_per_cycle=by_dtype,
        memory_bandwidth_bytes_per_s=None if bandwidth is None else from_prefix(bandwidth, "G"),
        source=entry.texts("source") or (entry.place.partition(": ")[0],),
    )


@lru_cache(maxsize=1)
def _builtin_tables() -> Mapping[str, Mapping[str, Any]]:
    table = read_toml(Path(str(files("gpumicro") / "peaks" / "gpus.toml")), "gpus.toml")
    return {entry["id"]: entry for entry in table["gpu"]}


def _gpu(entry: Reader) -> GpuSpec:
    """Our entry of that id with the user's keys over it, or a new one where absent keys are unknown."""
    name = entry.text("name")
    key = entry.text("id") or name
    if key is None:
        raise SchemaError(f"{entry.place}: needs an id or a name")
    ours = _builtin_tables().get(key)
    peak = _peaks(entry.inner("peak"))
    if ours is None and entry.number("memory_bandwidth_gbs") is None:
        raise SchemaError(f"{entry.place}: a new GPU needs memory_bandwidth_gbs")
    base: dict[str, Any] = dict(ours) if ours else _blank(key, name or key)
    known = {
        *base,
        "sm_count",
        "boost_clock_mhz",
        "memory_reported_mib",
        "l2_mib",
        "tdp_w",
        *_builtin_tables()["h100-sxm5-80"],
    }
    entry.only(*sorted(known))
    changed = {k: v for k, v in entry.table.items() if k not in ("peak", "source")}
    for number in ("memory_gib", "memory_bandwidth_gbs", "boost_clock_mhz", "l2_mib", "tdp_w", "memory_reported_mib"):
        entry.number(number)
    entry.whole("sm_count")
    for text in ("vendor", "architecture", "form_factor", "compute_capability", "memory_type"):
        entry.text(text)
    for texts in ("aliases", "unknown", "not_applicable", *MARKS):
        entry.texts(texts)
    whole = base | changed | {"id": key, "peak": {**base["peak"], **peak}}
    # the user's word replaces our doubts about these values
    for mark in (*MARKS, "unknown", "not_applicable"):
        whole[mark] = [k for k in whole[mark] if k not in changed and k not in peak]
    source = entry.texts("source") or (entry.place.partition(": ")[0],)
    whole["source"] = [*source, *(base["source"] if ours else [])]
    return gpu_from_table(whole)


def _peaks(entry: Reader) -> dict[str, float]:
    entry.only(*FORMATS)
    found = {key: entry.number(key) for key in entry.table}
    return {key: value for key, value in found.items() if value is not None}


def _blank(key: str, name: str) -> dict[str, Any]:
    unsaid = ("vendor", "architecture", "form_factor", "compute_capability", "memory_type")
    lists = ("aliases", "unknown", "not_applicable", *MARKS, "source")
    return {
        **dict.fromkeys(unsaid, "unknown"),
        **{field: [] for field in lists},
        "id": key,
        "name": name,
        "memory_gib": 0,
        "peak": {},
        "evidence": "user",
        "note": "",
    }
