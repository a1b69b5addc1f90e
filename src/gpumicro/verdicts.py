"""What a reader wants to know of a run before any figure: is it to be believed, and what stands beside it?

Pure: reads JSON-shaped records, gives JSON-shaped verdicts and sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import knees
from .device import Device
from .kernels.latency import GPU_LINE_BYTES as LINE_BYTES
from .model import UNSTABLE_OVER, Record, grouped, measured
from .units import format_quantity, format_size

EVICTED_OVER = 2.0  # latency over an eighth of a shared cache against that over less: hits of the nearer one give 1.3
CROWDED_OVER = 0.05  # of the CPU time for other processes


def verdicts(
    found: Sequence[Record], placed: Sequence[Record], records: Sequence[Record], others: Sequence[float | None] = ()
) -> list[Record]:
    """What a reader wants to know first: are the figures to be believed? Nothing is said of what was not looked at.

    `others` is the share of CPU time that other processes used during each device's run.
    """
    crowd = max((share for share in others if share is not None), default=None)
    checked = [record for record in records if record["status"] in ("ok", "failed")]
    failed = [record for record in checked if record["status"] == "failed"]
    beyond = [c for c in found if "above-spec" in c["flags"]]
    shaky = [c for c in found if "unstable" in c["flags"]]
    names = "; ".join
    failures = names(f"{r['id']}: {r['error']}" for r in failed)
    out: list[Record] = []
    if crowd is not None:
        out.append(_verdict(
            "quiet machine", crowd <= CROWDED_OVER, "no other process used the CPUs to speak of",
            f"other processes used {crowd:.0%} of the CPU time: the figures are too low, run again alone",
        ))  # fmt: skip
    if checked:
        out.append(_verdict(
            "outputs", not failed, "every kernel's output agrees with its reference", f"failed: {failures}"
        ))  # fmt: skip
    if any(c["spec"] is not None for c in found):
        out.append(_verdict(
            "physical bounds", not beyond, "no ceiling is above its spec peak, where that is known",
            names(f"{c['id']}: {c['causes'][0]}" for c in beyond),
        ))  # fmt: skip
    if placed:
        out.append(roof_verdict(placed))
    if any("repeat" in c for c in found):
        out.append(_verdict(
            "repeat", not shaky, f"measured again at the end, the ceilings came out within {UNSTABLE_OVER:.0%}",
            names(f"{c['id']} came out at {c['repeat']['ratio']:.2f} times the first figure" for c in shaky),
        ))  # fmt: skip
    return out


def roof_verdict(placed: Sequence[Record]) -> Record:
    """Whether every point is possible."""
    above = [p for p in placed if {"above-ceiling", "impossible"} & set(p["flags"])]
    return _verdict(
        "roof", not above, "no point is above its ceiling by more than both intervals",
        f"above their ceiling: {'; '.join(p['name'] for p in above)}",
    )  # fmt: skip


def _verdict(name: str, passed: bool, good: str, bad: str) -> Record:
    return {"name": name, "passed": passed, "text": good if passed else bad}


def notes(records: Sequence[Record], devices: Sequence[Device] = ()) -> list[str]:
    """What a reader must know beside the figures of a level: what neighbours leave of a shared cache, and where a
    GPU's latency over footprint has its knees."""
    return [*_crowded_caches(records), *(line for device in devices for line in _knees(records, device))]


def _knees(records: Sequence[Record], device: Device) -> list[str]:
    """The latency of each memory that a sweep of footprints found, and where the caches end by it."""
    walked = [
        r for r in measured(records)
        if r["kernel"] == "latency.gpu_chase" and not r["variant"] and r["device"] == device.id and r.get("latency_s")
    ]  # fmt: skip
    points = [
        knees.Point(LINE_BYTES * r["problem"]["n"], r["latency_s"]["estimate"], *r["latency_s"]["ci95"]) for r in walked
    ]
    found = knees.find(points, device.caches)
    lines = []
    for knee in found.knees:
        stated = f", {format_size(knee.stated_bytes)} by the device's facts" if knee.stated_bytes else ""
        name = knee.level.upper() if knee.level else "a nearer part of a memory"
        lines.append(
            f"{device.id}: latency rises between {format_size(knee.low_bytes)} and {format_size(knee.high_bytes)}: "
            f"{name} ends there{stated}."
        )
    return lines


def _crowded_caches(records: Sequence[Record]) -> list[str]:
    chases = [r for r in measured(records) if r["kernel"] == "latency.chase" and r.get("level") and r.get("latency_s")]
    found = []
    for (device, level), group in grouped(chases, lambda r: (r["device"], r["level"])):
        near, far = (pick(group, key=lambda r: int(r["problem"]["n"])) for pick in (min, max))
        near_s, far_s = near["latency_s"]["estimate"], far["latency_s"]["estimate"]
        if near_s > 0 and far_s > EVICTED_OVER * near_s:
            found.append(
                f"{device}, {level}: a hop takes {format_quantity(far_s, 's')} over {far['problem']['n']} lines and "
                f"{format_quantity(near_s, 's')} over {near['problem']['n']}: not all of this cache is ours, others "
                "that share it evict the rest."
            )
    return found
