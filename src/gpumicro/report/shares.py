"""What a row of a collective is a share of: the link where busbw counts what crosses it, else the bound that holds.

Under NVLS, CollNet or SHARP the switch reduces, and less crosses a link than busbw's factor assumes: busbw is then
never shown as a share of the link, but algbw as a share of what the link allows under that algorithm, where known.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..collectives.crossing import in_switch, wire
from ..peaks.links import Link
from .tables import Doc, clean, quantity

_SWITCHED = "no share of the link: NVLS, CollNet or SHARP reduced in the switch, so less crossed it than busbw says"


@dataclass(frozen=True, slots=True)
class Share:
    """`of_link`: busbw over the link's rate; `of_bound`: algbw over `bound` (B/s); `why` and `note`: for the reader."""

    of_link: float | None = None
    of_bound: float | None = None
    bound: float | None = None
    why: str = ""  # why busbw is no share of the link
    note: str = ""  # what holds instead, or how far a share can be trusted


def share_of(item: Doc, link: Link) -> Share:
    """A row against a link."""
    names = algorithms(item)
    known = wire(str(item.get("collective") or ""), "+".join(names) or None, item.get("ranks"))
    if any(map(in_switch, names)):
        return _bounded(item, link, _SWITCHED)
    if names and not (known and known.exact):
        return _bounded(item, link, f"no share of the link: it does not count what {clean('+'.join(names))} moves")
    if not names and not known and link.reduces_in_switch:
        return Share(why=(
            f"not given as a share of {clean(link.name)}: the file does not say whether {link.reduces_in_switch} was "
            "used, under which busbw overstates what crosses a link"
        ))  # fmt: skip
    note = ""
    if not known and (item.get("ranks") or 0) > 2:
        note = "The file does not name the algorithm: the shares are of what must cross the link at least."
    return Share(of_link=_over(item, "busbw_bytes_per_s", link.bytes_per_s), note=note)


def _bounded(item: Doc, link: Link, why: str) -> Share:
    """The bound that holds instead; within one host alone, as a hop between hosts is another link."""
    name = "+".join(algorithms(item))
    known = wire(str(item.get("collective") or ""), name, item.get("ranks")) if (item.get("hosts") or 1) == 1 else None
    bound = known.bound(link.bytes_per_s) if known else None
    if known is None or bound is None:
        return Share(why=why, note=f"What the link allows under {clean(name)} is not known here.")
    note = f"{known.words}; {clean(link.name)} so allows an algbw of {quantity(bound, 'B/s')} (model)."
    return Share(None, _over(item, "algbw_bytes_per_s", bound), bound, why, note)


def _over(item: Doc, key: str, rate: float) -> float | None:
    figure = item.get(key)
    if not figure or figure["estimate"] is None or item["status"] != "ok":
        return None
    return float(figure["estimate"]) / rate


def algorithms(item: Doc) -> list[str]:
    """The algorithms that a row names, by whatever key; a transport only where it is one that reduces."""
    labels, transport = item.get("labels") or {}, item.get("transport")
    named = [str(name) for name in (item.get("algorithm"), labels.get("algorithm")) if name]
    named += [str(transport)] if transport and in_switch(str(transport)) else []
    return list(dict.fromkeys(name for words in named for name in words.split("+")))
