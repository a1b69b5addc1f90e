"""What the commands that judge read out of a result document: each a `Figure` that says where it comes from.

Everything here takes documents as schema/result-1.json has them, our own and imported ones, or a spec by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .. import model
from ..collectives.fit import Fit, Interval, fit
from ..collectives.sweeps import Sweep, sweeps_of
from ..peaks import GpuSpec, UserSpecs, find_gpu
from ..peaks.links import find_link
from ..result import read
from ..sustain import SETTLED_SHARE

Record = Mapping[str, Any]

# Only "measured" is what our own kernels did on a real device. "emulated", "replayed" and "synthetic" are made up,
# "imported" is another tool's word, "spec" a data sheet's, "model" what a formula makes of any of these.
ORIGINS = ("measured", "imported", "emulated", "replayed", "synthetic", "spec", "model")
UNREAL = ("emulated", "synthetic", "replayed")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number in an SI base unit ("FLOP/s", "OP/s", "B/s", "B", "W", "J", "Hz", "s", "s/B", "")."""

    estimate: float
    unit: str
    origin: str  # one of ORIGINS
    source: str  # "r.json: <measurement id>", or the data sheet's name
    ci95: tuple[float, float] | None = None
    why: str = ""  # why there is no interval
    flags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For a result file: null has its reason."""
        ends = {"ci95": list(self.ci95)} if self.ci95 else {"ci95": None, "ci95_why": self.why or "not known"}
        found = {"estimate": self.estimate, **ends, "unit": self.unit, "origin": self.origin, "source": self.source}
        return found | ({"flags": list(self.flags)} if self.flags else {})


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """One device of one file. A mapping lacks what was not measured; a single figure is None."""

    file: str
    host: str | None  # a hash of its name
    device: str  # "cuda:0", "cpu"
    kind: str
    name: str
    uuid: str | None
    driver: str | None
    backends: tuple[str, ...]
    cores: int | None
    memory_bytes: Figure | None
    gemm: Mapping[str, Figure] = field(default_factory=dict)  # dtype -> the fastest GEMM
    peak: Mapping[str, Figure] = field(default_factory=dict)  # dtype -> the arithmetic roof
    bandwidth: Mapping[str, Figure] = field(default_factory=dict)  # level -> the bandwidth roof
    spec_peak: Mapping[str, Figure] = field(default_factory=dict)
    spec_bandwidth: Mapping[str, Figure] = field(default_factory=dict)
    power_w: Figure | None = None  # the median under load; of a spec its limit
    energy_j: Figure | None = None  # of the whole run
    clock_hz: Figure | None = None  # the median under load
    settled: Mapping[str, tuple[Figure, Figure]] = field(default_factory=dict)  # --sustained: level or dtype -> rate, W

    @property
    def dram(self) -> Figure | None:
        """DRAM's bandwidth."""
        return self.bandwidth.get("dram")


@dataclass(frozen=True, slots=True)
class AllReduce:
    """One sweep of all_reduce. The fit is made when it is first asked for, and kept."""

    file: str
    sweep: Sweep
    hosts: int | None
    backend: str
    algorithm: str | None
    origin: str
    busbw: Figure | None  # the highest of the sweep

    @property
    def ranks(self) -> int | None:
        return self.sweep.ranks

    @property
    def fitted(self) -> Fit:
        """Latency and time a byte, by regime; none where the sweep is too short (`fitted.why`)."""
        return fit(self.sweep)

    @property
    def alpha_s(self) -> Figure | None:
        """Latency of the whole collective on these ranks, of the regime of the smallest sizes."""
        regimes = self.fitted.regimes
        return self._figure(regimes[0].alpha_s, "s") if regimes else None

    @property
    def beta_s_per_byte(self) -> Figure | None:
        """Seconds for each further byte on these ranks, of the regime of the largest sizes."""
        regimes = self.fitted.regimes
        return self._figure(regimes[-1].beta_s_per_byte, "s/B") if regimes else None

    def _figure(self, found: Interval, unit: str) -> Figure:
        why = "" if found.ci95 else "not resolved by the fit"
        return Figure(found.value, unit, "model", f"{self.file}: fitted to {self.sweep.name}", found.ci95, why)


@dataclass(frozen=True, slots=True)
class DocumentFigures:
    """One result file."""

    file: str
    created: str
    host: str | None
    driver: str | None
    unreal: str  # "emulated", "synthetic", "replayed", or "" where the times are of a device
    imported: str  # the tool, or ""
    devices: tuple[DeviceFigures, ...]
    all_reduce: tuple[AllReduce, ...]
    failed_verdicts: tuple[str, ...]  # "outputs: stream.copy gave a wrong output"


def read_figures(path: str) -> DocumentFigures:
    """The figures of a file (`-`: stdin). Raises SchemaError naming file and place."""
    return figures_of(read(path), path)


def figures_of(doc: Record, file: str) -> DocumentFigures:
    """The figures of a document; `file` is what sources call it."""
    environment = doc.get("environment") or {}
    host, driver = (environment.get("host") or {}).get("hostname_hash"), environment.get("driver")
    devices = tuple(
        _device(doc, entry, file, host, driver) for entry in doc["devices"] if entry.get("kind") not in ("group", None)
    )
    return DocumentFigures(
        file, str(doc.get("created") or ""), host, driver, unreal(doc),
        str((doc.get("imported") or {}).get("tool") or ""), devices, tuple(_all_reduce(doc, file)),
        tuple(f"{v['name']}: {v['text']}" for v in doc.get("verdicts") or () if v.get("passed") is False),
    )  # fmt: skip


def unreal(doc: Record) -> str:
    """Why a document's times are none of a device now, "" where they are."""
    return next((tag for tag in UNREAL if doc.get(tag)), "")


def origin_of(doc: Record, record: Record) -> str:
    """Where a measurement of a document comes from: one of ORIGINS."""
    return unreal(doc) or ("imported" if record.get("imported") or doc.get("imported") else "measured")


def spec_figures(name: str, user: UserSpecs | None = None) -> DeviceFigures:
    """A GPU's data sheet by id, name or alias, as if it were a result: every figure is "spec", dense.

    `gemm` holds the tensor cores' peaks where the sheet has them, else the vector units': no real GEMM reaches them.
    Raises UsageError with the nearest names.
    """
    return _sheet_figures(find_gpu(name, user))


def link_figure(name: str) -> Figure:
    """A link's spec rate, one direction, by its name in peaks/links.toml or as a rate ("46GB/s"). UsageError else."""
    link = find_link(name)
    return Figure(link.bytes_per_s, "B/s", "spec", f"{link.name}: {', '.join(link.source)}", None, _NO_SPREAD)


_NO_SPREAD = "a data sheet gives no interval"
_READINGS = "the median of readings over the run"


def _sheet_figures(spec: GpuSpec) -> DeviceFigures:
    def said(value: float | None, unit: str) -> Figure | None:
        return None if value is None else Figure(value, unit, "spec", f"data sheet of {spec.name}", None, _NO_SPREAD)

    best = {p.dtype: spec.peak(p.dtype) for p in spec.peaks}
    peaks = {dtype: said(p.flop_per_s, _unit(dtype)) for dtype, p in best.items() if p}
    known = {dtype: figure for dtype, figure in peaks.items() if figure}
    bandwidth = said(spec.memory_bandwidth_bytes_per_s, "B/s")
    dram = {"dram": bandwidth} if bandwidth else {}
    return DeviceFigures(
        "", None, spec.id, "cuda" if spec.vendor.upper() == "NVIDIA" else "gpu", spec.name, None, None, (),
        spec.sm_count, said(spec.memory_reported_bytes or spec.memory_bytes, "B"), known, known, dram, known, dram,
        said(spec.tdp_w, "W"), None, said(spec.boost_clock_hz, "Hz"),
    )  # fmt: skip


# -- one document ------------------------------------------------------------------------------------------------------


def _device(doc: Record, entry: Record, file: str, host: str | None, driver: str | None) -> DeviceFigures:
    name = entry["id"]
    mine = [m for m in doc["measurements"] if m["device"] == name and m["status"] == "ok" and not m.get("repeat_of")]
    ceilings = [c for c in doc.get("ceilings") or () if c.get("device", name) == name and c.get("scope") != "shown"]
    memory = {c["level"]: c for c in reversed(ceilings) if c["kind"] == "memory"}
    arithmetic = {c["dtype"]: c for c in reversed(ceilings) if c["kind"] == "arithmetic"}
    seen: Record = next((c for c in doc.get("conditions") or () if c.get("device") == name), {})
    size = entry.get("memory_bytes")
    tag, where = origin_of(doc, entry), f"{file}: {name}"
    return DeviceFigures(
        file, host, name, entry["kind"], str(entry.get("name") or name), entry.get("uuid"), driver,
        tuple(dict.fromkeys(str(m["backend"]) for m in mine)), entry.get("cores"),
        None if not size else Figure(size, "B", tag, where, None, "a fact of the device"),
        dict(_gemms(doc, mine, file)),
        {key: _ceiling(doc, c, file) for key, c in arithmetic.items() if c["achieved"] is not None},
        {key: _ceiling(doc, c, file) for key, c in memory.items() if c["achieved"] is not None},
        dict(_spec_of(arithmetic, doc, file)), dict(_spec_of(memory, doc, file)),
        _seen((seen.get("power_w") or {}).get("median"), "W", tag, where),
        _seen(seen.get("energy_j"), "J", tag, where),
        _seen((seen.get("sm_clock_hz") or {}).get("median") or seen.get("clock_hz"), "Hz", tag, where),
        dict(_settled(doc, ceilings, file)),
    )  # fmt: skip


def _settled(doc: Record, ceilings: list[Record], file: str) -> Iterator[tuple[str, tuple[Figure, Figure]]]:
    """The rate that a sustained run settled at, and the median power of the same seconds, where that was told."""
    for run in doc.get("sustained") or ():
        ceiling = next((c for c in ceilings if c["id"] == run["ceiling"]), None)
        start = run["series"][-1]["t_s"] * (1 - SETTLED_SHARE) if run["series"] else 0.0
        watts = [p["power_w"] for p in run["series"] if p["t_s"] >= start and p["power_w"]]
        if ceiling is None or not watts:
            continue
        tag, where, last = origin_of(doc, ceiling), f"{file}: {ceiling['id']}, sustained", run["settled"]
        unit, ends = _unit(ceiling["dtype"]) if ceiling["kind"] == "arithmetic" else "B/s", last["ci95"]
        rate = Figure(last["value"], unit, tag, where, (ends[0], ends[1]) if ends else None, last.get("ci95_why", ""))
        yield ceiling["dtype"] or ceiling["level"], (rate, Figure(median(watts), "W", tag, where, None, _READINGS))


def _unit(dtype: str | None) -> str:
    return "OP/s" if (dtype or "").startswith(("int", "uint")) else "FLOP/s"


def _seen(value: float | None, unit: str, tag: str, where: str) -> Figure | None:
    return None if not value else Figure(value, unit, tag, where, None, _READINGS)


def rate_figure(doc: Record, record: Record, key: str, unit: str, file: str) -> Figure | None:
    """A measurement's rate by its key ("flop_per_s", "busbw_bytes_per_s" ...); None where it is not resolved."""
    interval = model.figure_of(dict(record), key)
    if interval is None:
        return None
    ends = (interval.low, interval.high) if interval.bounded else None
    why = "" if ends else "imported without an interval"
    flags = tuple(model.flags_of(record))
    return Figure(interval.estimate, unit, origin_of(doc, record), f"{file}: {record['id']}", ends, why, flags)


def _gemms(doc: Record, mine: list[Record], file: str) -> Iterator[tuple[str, Figure]]:
    """The fastest GEMM of each dtype, of whatever size, library and variant."""
    best: dict[str, Figure] = {}
    for record in mine:
        figure = rate_figure(doc, record, "flop_per_s", _unit(record["dtype"]), file) if _is_gemm(record) else None
        if figure and (record["dtype"] not in best or figure.estimate > best[record["dtype"]].estimate):
            best[record["dtype"]] = figure
    yield from best.items()


def _is_gemm(record: Record) -> bool:
    return record["family"] == "gemm" and bool(record.get("dtype"))


def _ceiling(doc: Record, ceiling: Record, file: str) -> Figure:
    ends = ceiling.get("ci95")
    return Figure(
        ceiling["achieved"], _unit(ceiling["dtype"]) if ceiling["kind"] == "arithmetic" else "B/s",
        origin_of(doc, ceiling), f"{file}: {ceiling['measurement']}", (ends[0], ends[1]) if ends else None,
        "" if ends else str(ceiling.get("ci95_why") or "not known"), tuple(ceiling.get("flags") or ()),
    )  # fmt: skip


def _spec_of(ceilings: Mapping[str, Record], doc: Record, file: str) -> Iterator[tuple[str, Figure]]:
    name = str((doc.get("spec") or {}).get("name") or "spec")
    for key, ceiling in ceilings.items():
        if ceiling.get("spec") is not None:
            unit = _unit(ceiling["dtype"]) if ceiling["kind"] == "arithmetic" else "B/s"
            yield key, Figure(ceiling["spec"], unit, "spec", f"{file}: {name}", None, _NO_SPREAD)


def _all_reduce(doc: Record, file: str) -> Iterator[AllReduce]:
    items = {m["id"]: m for m in doc["measurements"] if m["family"] == "collective"}
    for sweep in sweeps_of(doc):
        rows = [items[name] for name in sweep.ids if items[name]["status"] == "ok"]
        if sweep.collective not in ("all_reduce", "allreduce") or not rows:
            continue
        rates = [rate_figure(doc, row, "busbw_bytes_per_s", "B/s", file) for row in rows]
        yield AllReduce(
            file, sweep, rows[0].get("hosts"), str(rows[0]["backend"]), rows[0].get("algorithm"),
            origin_of(doc, rows[0]), max(filter(None, rates), key=lambda figure: figure.estimate, default=None),
        )  # fmt: skip
