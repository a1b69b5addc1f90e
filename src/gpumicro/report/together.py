"""Several result files in one report: a roofline with the network as a ceiling, or collectives side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..collectives.roof import Work, parse_work, with_network, work_of_point
from ..errors import UsageError
from ..peaks.links import find_link
from .tables import Doc, clean, has_collectives

Named = tuple[str, Doc]


def together(docs: Sequence[Named], link: str | None, works: Sequence[str], wires: Sequence[str]) -> dict[str, Any]:
    """One document of all. `docs`: (name of the file, its content).

    UsageError for two rooflines, for a file without collectives beside another, or for works without both kinds.
    """
    rooflines = [one for one in docs if one[1]["ceilings"]]
    others = [one for one in docs if not one[1]["ceilings"]]
    if len(rooflines) > 1:
        names = " and ".join(name for name, _ in rooflines[:2])
        raise UsageError(f"{names} are both rooflines: one report has one (compare shows two)")
    empty = next((name for name, doc in others if len(docs) > 1 and not has_collectives(doc)), None)
    if empty is not None:
        raise UsageError(f"{empty} holds neither a roofline nor collectives: nothing to put beside the others")
    if (works or wires) and not (rooflines and (others or has_collectives(rooflines[0][1]))):
        raise UsageError("--work and --wire set a work against a network: give a roofline and a result of collectives")
    chosen = rooflines[0][1] if rooflines else others[0][1]
    doc = _joined(chosen, [one for one in docs if one[1] is not chosen])
    if rooflines and (others or works or wires):
        sources = [one for _, one in others] or [chosen]
        wished: list[Work] = [*map(parse_work, works), *(work_of_point(chosen, text) for text in wires)]
        doc = with_network(doc, sources, find_link(link) if link else None, wished)
    return doc if link is None else {**doc, "settings": {**(doc.get("settings") or {}), "link": link}}


def _joined(first: Doc, others: Sequence[Named]) -> dict[str, Any]:
    """Measurements and devices of all; ids stay apart. What a reader must know of one holds for the whole."""
    doc = dict(first)
    seen = Counter(item["id"] for item in first["measurements"])
    measurements, devices, notes = list(first["measurements"]), list(first["devices"]), list(first.get("notes", []))
    for name, other in others:
        for item in other["measurements"]:
            seen[item["id"]] += 1
            again = seen[item["id"]]
            measurements.append(item if again == 1 else item | {"id": f"{item['id']}#{again}"})
        known = {device["id"] for device in devices}
        devices += [device for device in other["devices"] if device["id"] not in known]
        notes += [f"{clean(name)}: {note}" for note in _about(other)]
    if others:
        doc |= {"measurements": measurements, "devices": devices, "notes": notes}
        for key in ("emulated", "interrupted", "replayed", "synthetic"):
            if any(other.get(key) for _, other in others):
                doc[key] = True
    return doc


def _about(doc: Mapping[str, Any]) -> list[str]:
    imported = doc.get("imported")
    where = f", imported from {clean(imported['tool'])}" if imported else ""
    return [f"collectives of {clean(doc['created'])}{where}", *map(clean, doc.get("notes", []))]
