"""What machines cost by the hour: a user's own file before the list prices of peaks/instances.toml.

[[price]]
instance = "p5.48xlarge"        # one of ours, or a name of your own, then with gpu_count and, if it is known, gpu
usd_per_hour = 41.3             # of the whole instance
date = 2026-11-30               # the day on which it held
source = "contract of 2026"
region = "eu-west-1"            # may be left out, as may the next
kind = "reserved"               # on-demand (if left out), spot or reserved
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import SchemaError, UsageError
from ..peaks import find_gpu
from ..peaks.instances import KINDS, Instance, Price, as_date, find_instance
from ..peaks.toml import Reader, read_toml

STALE_DAYS = 90  # list prices of GPU instances moved within quarters in recent years


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance at one of its prices; None where none is known."""

    instance: Instance
    price: Price | None


def load_prices(path: str | os.PathLike[str]) -> tuple[Offer, ...]:
    """A user's file. Raises SchemaError with file, entry and key: a price not above zero, no date, no source."""
    name = os.fspath(path)
    top = Reader(read_toml(Path(path), name), name)
    top.only("schema", "price")
    entries = top.tables("price")
    if not entries:
        raise SchemaError(f"{name}: holds no [[price]] table")
    offers: list[Offer] = []
    for entry in entries:
        offers.append(_offer(entry, offers))
    return tuple(offers)


def _offer(entry: Reader, before: Sequence[Offer]) -> Offer:
    entry.only("instance", "usd_per_hour", "date", "source", "region", "kind", "gpu", "gpu_count", "provider")
    name, usd, source = entry.text("instance"), entry.number("usd_per_hour"), entry.text("source")
    for key, value in (("instance", name), ("usd_per_hour", usd), ("source", source)):
        if value is None:
            raise SchemaError(
                f"{entry.place}.{key} is missing: no price without its instance, its figure and its source"
            )
    assert name is not None
    assert usd is not None
    assert source is not None
    kind = entry.text("kind") or "on-demand"
    if kind not in KINDS:
        raise SchemaError(f"{entry.place}.kind must be one of {', '.join(KINDS)}, not {kind!r}")
    price = Price(usd, as_date(entry, "date"), source, entry.text("region"), kind)
    offer = Offer(_instance(entry, name, [one.instance for one in before]), price)
    if any(one.instance.id == offer.instance.id and one.price and _same(one.price, price) for one in before):
        raise SchemaError(f"{entry.place}: a {kind} price of {name} in {price.region or 'no region'} is there twice")
    return offer


def _same(one: Price, other: Price) -> bool:
    return (one.kind, one.region) == (other.kind, other.region)


def _instance(entry: Reader, name: str, before: Iterable[Instance]) -> Instance:
    """One of ours where the entry does not say what is in it, else one of the user's own."""
    count, gpu = entry.whole("gpu_count"), entry.text("gpu")
    if count is None:
        try:
            return find_instance(name, before)
        except UsageError as error:
            raise SchemaError(f"{entry.place}.instance: {error} with gpu_count") from None
    if gpu is not None:
        try:
            gpu = find_gpu(gpu).id
        except UsageError as error:
            raise SchemaError(f"{entry.place}.gpu: {error}") from None
    provider = entry.text("provider") or "own"
    return Instance(
        provider, name, gpu, count, None, None, None, "", "", None, None, ("vcpus", "memory_gib", "network_gbps"),
        entry.texts("source"), "",
    )  # fmt: skip


def offer_of(name: str, kind: str = "on-demand", own: Sequence[Offer] = (), region: str | None = None) -> Offer:
    """An instance with its price of that kind: the user's, else the list price; no price where neither is known.

    Raises UsageError for an unknown instance or kind, and where several regions have a price and none was chosen.
    """
    if kind not in KINDS:
        raise UsageError(f"the kind of a price is one of {', '.join(KINDS)}, not {kind!r}")
    instance = find_instance(name, [offer.instance for offer in _unique(own)])
    mine = [offer.price for offer in own if offer.instance.id == instance.id and offer.price]
    fitting = [price for price in mine if price.kind == kind and region in (None, price.region)]
    if len(fitting) > 1:
        regions = ", ".join(str(price.region) for price in fitting)
        raise UsageError(f"{name}: {kind} prices in several regions ({regions}); choose one with --region")
    listed = instance.price
    if not fitting and listed and listed.kind == kind and region in (None, listed.region):
        fitting = [listed]
    return Offer(instance, fitting[0] if fitting else None)


def _unique(own: Sequence[Offer]) -> tuple[Offer, ...]:
    seen: dict[str, Offer] = {}
    for offer in own:
        seen.setdefault(offer.instance.id, offer)
    return tuple(seen.values())


def own_machine(usd_per_hour: float, devices: int, price: Price) -> Offer:
    """A machine that has no name but a price: `--price`."""
    if not usd_per_hour > 0:
        raise UsageError(f"--price must be above zero, not {usd_per_hour:g}")
    if devices < 1:
        raise UsageError(f"--gpus must be at least 1, not {devices}")
    blank = Instance("own", "this machine", None, devices, None, None, None, "", "", None, None, (), (), "")
    return Offer(blank, replace(price, usd_per_hour=usd_per_hour))
