"""Spec rates of links between GPUs and nodes, from links.toml: one direction, what a bus bandwidth compares with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ..errors import UsageError, unknown
from ..units import format_quantity, from_prefix, parse
from .toml import Reader, read_toml


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link, of one GPU or one port. `reduces_in_switch`: "NVLS", "SHARP" or None; `kind`: "nvlink",
    "pcie", "infiniband", "ethernet", or "" of a rate that the user gave."""

    id: str
    name: str
    bytes_per_s: float
    reduces_in_switch: str | None
    note: str
    source: tuple[str, ...]
    kind: str = ""
    aliases: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def link_specs() -> tuple[Link, ...]:
    """Every link of links.toml."""
    path = files("gpumicro") / "peaks" / "links.toml"
    return tuple(
        _link(entry) for entry in Reader(read_toml(Path(str(path)), "links.toml"), "links.toml").tables("link")
    )


def _link(entry: Reader) -> Link:
    rate = entry.number("gbs_per_dir") or 0.0
    return Link(
        entry.text("id") or "", entry.text("name") or "", from_prefix(rate, "G"), entry.text("reduces_in_switch"),
        entry.text("note") or "", entry.texts("source"), entry.text("kind") or "", entry.texts("aliases"),
    )  # fmt: skip


def find_link(name: str) -> Link:
    """By id or name, in any case and with or without spaces and dashes ("NVLink 4", "ib-ndr"); or a rate of one's own
    ("46GB/s"). Raises UsageError with the list."""
    wanted = _plain(name)
    for link in link_specs():
        if wanted in map(_plain, (link.id, link.name, *link.aliases)):
            return link
    if name.strip()[:1].isdigit() and "/" in name:
        rate = parse(name, "B/s")
        if rate > 0:
            return Link(name, format_quantity(rate, "B/s"), rate, None, "as given", ("the command line",))
    raise UsageError(f"{unknown('link', name, (link.id for link in link_specs()))}; or give a rate, such as 46GB/s")


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
