"""Cloud instances with GPUs, from instances.toml: what a provider says they hold, and a list price where one was found
with its date and region. No price is made up: most have none, and a user gives theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ..errors import SchemaError, UsageError, unknown
from ..units import GIB, from_prefix
from .gpu import find_gpu
from .toml import Reader, read_toml

KINDS = ("on-demand", "spot", "reserved")


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for an hour of the whole instance, as of a day, from a source."""

    usd_per_hour: float
    day: date
    source: str
    region: str | None = None
    kind: str = "on-demand"  # one of KINDS

    def age_days(self, today: date) -> int:
        """Days since it was read; negative for a date that is still to come."""
        return (today - self.day).days

    def words(self, today: date) -> str:
        """`on-demand, us-east-1, 2026-07-20 (133 days old)`."""
        days = self.age_days(today)
        age = "today" if days == 0 else f"{days} days old" if days > 0 else f"{-days} days ahead"
        return ", ".join(filter(None, (self.kind, self.region, f"{self.day.isoformat()} ({age})")))


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance type. What no source states is None and named in `unknown`."""

    provider: str
    name: str
    gpu: str | None  # an id in gpus.toml; None for a user's own instance that names none
    gpu_count: int
    vcpus: int | None
    memory_bytes: float | None
    network_bits_per_s: float | None  # the GPUs' fabric where there is one
    fabric: str
    intra_node: str
    local_nvme_bytes: float | None
    price: Price | None
    unknown: tuple[str, ...]
    source: tuple[str, ...]
    note: str

    @property
    def id(self) -> str:
        """`AWS:p5.48xlarge`."""
        return f"{self.provider}:{self.name}"


@lru_cache(maxsize=1)
def instance_specs() -> tuple[Instance, ...]:
    """Every instance of instances.toml, checked."""
    path = Path(str(files("gpumicro") / "peaks" / "instances.toml"))
    return read_instances(path, "instances.toml")


def read_instances(path: Path, name: str) -> tuple[Instance, ...]:
    """The instances of a file. Raises SchemaError with file, entry and key."""
    found = tuple(map(_instance, Reader(read_toml(path, name), name).tables("instance")))
    ids = [one.id for one in found]
    for one in ids:
        if ids.count(one) > 1:
            raise SchemaError(f"{name}: {one} is there twice")
    return found


_KEYS = (
    "provider", "instance", "gpu", "gpu_count", "vcpus", "memory_gib", "network_gbps", "frontend_gbps", "rdma_nics",
    "rdma_gbps_per_nic", "fabric", "intra_node", "local_nvme_gb", "usd_per_hour", "price_date", "price_region",
    "unknown", "source", "note",
)  # fmt: skip


def _instance(entry: Reader) -> Instance:
    entry.only(*_KEYS)
    provider, name, gpu = (_needed(entry, key) for key in ("provider", "instance", "gpu"))
    count, vcpus = entry.whole("gpu_count"), entry.whole("vcpus")
    if count is None:
        raise SchemaError(f"{entry.place}.gpu_count is missing")
    try:
        find_gpu(gpu)
    except UsageError as error:
        raise SchemaError(f"{entry.place}.gpu: {error}") from None
    memory, network = entry.number("memory_gib"), entry.number("network_gbps")
    return Instance(
        provider, name, gpu, count, vcpus, None if memory is None else memory * GIB,
        None if network is None else from_prefix(network, "G"), entry.text("fabric") or "",
        entry.text("intra_node") or "", _nvme(entry), _list_price(entry), entry.texts("unknown"),
        entry.texts("source"), str(entry.table.get("note") or ""),
    )  # fmt: skip


def _needed(entry: Reader, key: str) -> str:
    value = entry.text(key)
    if value is None:
        raise SchemaError(f"{entry.place}.{key} is missing")
    return value


def _nvme(entry: Reader) -> float | None:
    if entry.table.get("local_nvme_gb") == 0:  # there is none, which is known
        return 0.0
    size = entry.number("local_nvme_gb")
    return None if size is None else from_prefix(size, "G")


def _list_price(entry: Reader) -> Price | None:
    usd = entry.number("usd_per_hour")
    if usd is None:
        return None
    sources = entry.texts("source")
    source = next((text for text in sources if "pricing" in text), "; ".join(sources))
    return Price(usd, as_date(entry, "price_date"), source, _needed(entry, "price_region"))


def as_date(entry: Reader, key: str) -> date:
    """A day, as TOML has it or as text. Raises SchemaError with the place."""
    value = entry.table.get(key)
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        what = "is missing" if value is None else f"must be a day such as 2026-11-30, not {value!r}"
        raise SchemaError(f"{entry.place}.{key} {what}: a price needs the day on which it held") from None


def find_instance(name: str, more: Iterable[Instance] = ()) -> Instance:
    """By name or `provider:name`, in any case; those in `more` win. Raises UsageError with the nearest."""
    more = tuple(more)
    known = (*more, *(one for one in instance_specs() if _plain(one.id) not in {_plain(m.id) for m in more}))
    wanted = _plain(name)
    found = [one for one in known if wanted in (_plain(one.name), _plain(one.id))]
    if len(found) > 1:
        raise UsageError(f"{name!r} may be {' or '.join(one.id for one in found)}; give one of these")
    if not found:
        hint = unknown("instance", name, (one.name for one in known))
        shown = hint if "?" in hint else f"unknown instance {name!r}"
        raise UsageError(f"{shown}; `gpumicro cost --list` shows all; one of your own goes into --prices")
    return found[0]


def _plain(name: str) -> str:
    return re.sub(r"\s+", "", name.casefold())
