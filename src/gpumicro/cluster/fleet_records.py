"""What the judge of a fleet finds, as records: JSON-ready, and what every report of it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from .. import __version__
from .fleet_reading import Fault

SCHEMA = "gpumicro-fleet/1"


@dataclass(frozen=True, slots=True)
class Rules:
    """How to judge. `margin`: relative distance from the median below which nobody is called slow or fast; `fdr`: share
    of false ones among those called so that is accepted; the patterns find node and rack in a file's name."""

    margin: float
    fdr: float
    node_pattern: str
    rack_pattern: str


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One ceiling over all devices of a model, in `unit`. `spread` is the robust relative standard deviation between
    devices, `floored` where what was seen is below what is believed; `why` says why nobody is judged by it."""

    model: str
    name: str
    unit: str
    n: int
    median: float
    ci95: tuple[float, float]
    spread: float
    floored: bool
    low: float  # the lowest and the highest device
    high: float
    spec: float | None
    slow: int
    fast: int
    why: str


@dataclass(frozen=True, slots=True)
class Departure:
    """How far a device is from the median of its model: `ratio` 0.9 is 10% below, with its 95% interval; `p_adjusted`
    after Benjamini and Hochberg over every device and ceiling that was tested."""

    ceiling: str
    unit: str
    value: float
    ratio: float
    ci95: tuple[float, float]
    z: float
    p: float
    p_adjusted: float


@dataclass(frozen=True, slots=True)
class Outlier:
    """A device that is out of line, by the ceiling that shows it most surely; `others` are the further ones."""

    node: str
    device: str
    model: str
    rack: str | None
    uuid: str | None
    shown_by: Departure
    others: tuple[Departure, ...]
    ceilings: int  # how many were tested
    shared: tuple[str, ...]  # "rack r07": groups that are out of line as a whole, by the same ceiling
    hints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes (under "host": devices) that share something, against the rest of their model, by one ceiling."""

    factor: str
    group: str
    model: str
    ceiling: str
    n: int
    rest: int
    ratio: float
    ci95: tuple[float, float]
    p: float
    p_adjusted: float


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device: `ratios` by ceiling, of the model's median."""

    node: str
    device: str
    model: str
    files: tuple[str, ...]
    groups: Mapping[str, str]  # factor -> group
    ratios: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule of the thresholds file that something does not meet; `node` is "" where it is the fleet as a whole."""

    node: str
    device: str
    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What the thresholds file says: passed without a refusal. `checked` counts what was looked at."""

    file: str
    passed: bool
    checked: int
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The whole judgement. Lists are ordered, the worst first."""

    folder: str
    files: int
    nodes: int
    faults: tuple[Fault, ...]
    rules: Rules
    tests: int
    ceilings: tuple[Ceiling, ...]
    slow: tuple[Outlier, ...]
    fast: tuple[Outlier, ...]
    groups: tuple[Group, ...]  # those out of line
    members: Mapping[str, Mapping[str, int]]  # factor -> group -> nodes
    group_tests: int
    tails: Mapping[str, float]  # model -> 1 / degrees of freedom of its healthy spread; 0: normal
    devices: tuple[DeviceRow, ...]
    notes: tuple[str, ...]
    acceptance: Acceptance | None = None

    @property
    def slow_nodes(self) -> tuple[str, ...]:
        """Nodes with a slow device, the worst first."""
        return tuple(dict.fromkeys(outlier.node for outlier in self.slow))

    def to_json(self) -> dict[str, Any]:
        """Of schema "gpumicro-fleet/1"."""
        found = {key: getattr(self, key) for key in self.__slots__ if key != "devices"}
        plain = {key: _plain(value) for key, value in found.items()}
        if self.acceptance is None:
            plain["acceptance_why"] = "no thresholds file was given"
        rows = [
            {"node": d.node, "device": d.device, "model": d.model, "files": list(d.files), "groups": dict(d.groups),
             "ratios": {key: round(ratio, 6) for key, ratio in d.ratios.items()}}
            for d in self.devices
        ]  # fmt: skip
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"schema": SCHEMA, "gpumicro_version": __version__, "created": now, **plain, "devices": rows}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    return value
