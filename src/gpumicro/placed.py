"""`Placed`, what `Roofline.place` hands back: reads as the point's record, says itself in words, can be asserted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from .errors import UsageError
from .notebook import html_table
from .units import format_fraction, format_interval, format_quantity, format_size, shown_unit

if TYPE_CHECKING:
    from .measurement import Measurement

Of = Literal["roof", "spec"]


class Placed(Mapping[str, Any]):
    """A work under its roof. `placed["time_at_roof_s"]` and every other key of the schema's point; `measurement` is
    what was timed, None where no more than a time was given."""

    def __init__(self, record: Mapping[str, Any], measurement: Measurement | None = None) -> None:
        self._record = dict(record)
        self.measurement = measurement

    def __getitem__(self, key: str) -> Any:
        return self._record[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)

    @property
    def fraction(self) -> float:
        """Achieved over attainable: 0.8 is 80% of the roof."""
        return float(self["fraction_of_attainable"])

    @property
    def impossible(self) -> bool:
        """Faster than the roof by more than both intervals; `causes` says why that may be."""
        return "impossible" in self["flags"]

    @property
    def causes(self) -> tuple[str, ...]:
        """Why an impossible point may be so, likeliest first."""
        return tuple(self.get("causes", ()))

    def to_json(self) -> dict[str, Any]:
        """The point as the result file has it."""
        return dict(self._record)

    def rows(self) -> list[tuple[str, str]]:
        """Names and values in words, for a terminal or a notebook."""
        by_flops = self["flop_per_s"] is not None
        rate, ends = ("flop_per_s", "ci95") if by_flops else ("bandwidth_bytes_per_s", "bandwidth_ci95")
        unit = shown_unit("FLOP/s" if by_flops else "B/s", str(self["dtype"]))
        attainable = self["attainable_flop_per_s" if by_flops else "attainable_bytes_per_s"]
        spec = self.get("fraction_of_spec")
        return [
            ("achieved", with_interval(self[rate], self[ends], unit)),
            ("of the roof", f"{self.share()} of {format_quantity(attainable, unit)}, held by {self.bound}"),
            ("of spec", format_fraction(spec) if spec is not None else ""),
            ("time", with_interval(self["time_s"], self["time_ci95_s"], "s")),
            ("time at the roof", format_quantity(self["time_at_roof_s"], "s")),
            ("counted", self._counted()),
            ("flags", ", ".join(self["flags"])),
            *(("likely cause" if i == 0 else "or", cause) for i, cause in enumerate(self.causes)),
        ]

    @property
    def bound(self) -> str:
        """What holds it, in words: "DRAM bandwidth", "float32 arithmetic (tensor)"."""
        name = str(self["bound_by"])
        if self["bound_unit"] == "memory":
            return f"{name if name in ('host', 'shared') else name.upper()} bandwidth"
        return f"{name} arithmetic ({self['bound_unit']})"

    def share(self, of: Of = "roof") -> str:
        """The percentage of roof or spec, with its interval."""
        value, ends = _fraction(self, of)
        return _percent(value, ends)

    def _counted(self) -> str:
        flops, moved = format_quantity(self["flops"], "FLOP"), format_size(self["bytes_moved"])
        intensity = self["intensity_flop_per_byte"]
        per_byte = f", {format_quantity(intensity, 'FLOP/B')}" if intensity else ""
        return f"{flops} and {moved} a call{per_byte} ({self['counted']})"

    def __str__(self) -> str:
        held = f"{self.share()} of attainable, held by {self.bound}"
        alarm = f"; impossible: {self.causes[0]}" if self.impossible else ""
        times = f"{format_quantity(self['time_s'], 's')} a call, {format_quantity(self['time_at_roof_s'], 's')} at the"
        return f"{self['name']}: {held}; {times} roof{alarm}"

    def __repr__(self) -> str:
        return f"<Placed {self}>"

    def _repr_html_(self) -> str:
        return html_table(str(self["name"]), self.rows())

    def assert_at_least(self, fraction: float, *, of: Of = "roof") -> None:
        """Fail with AssertionError where the work surely reaches less than `fraction` (0.8: 80%) of the roof or spec.

        "Surely": the upper end of the 95% interval is below it. A point that is impossible fails too: its count or its
        time is wrong, and no comparison with it means anything. UsageError: a fraction that makes no sense, or a spec
        that is not known.
        """
        __tracebackhide__ = True
        if of not in ("roof", "spec"):
            raise UsageError(f"of={of!r}: a point is set against 'roof' or 'spec'")
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
            raise UsageError(f"a fraction of {of} is above 0 and at most 1 (0.8 is 80%), not {fraction!r}")
        value, ends = _fraction(self, of)
        if self.impossible:
            raise AssertionError(self._failure("is faster than its roof can be, so its count or its time is wrong"))
        upper = ends[1] if ends else value
        if upper < fraction:
            surely = "" if ends else " (a single figure: too few calls for an interval)"
            asked = f"less than the {format_fraction(fraction)} asked for{surely}"
            reached = f"reaches {self.share(of)} of the {of}, {asked}"
            raise AssertionError(self._failure(reached))

    def _failure(self, what: str) -> str:
        return "\n".join([f"{self['name']} {what}", *(f"  {name}: {value}" for name, value in self.rows() if value)])


def _fraction(point: Placed, of: Of) -> tuple[float, tuple[float, float] | None]:
    key, ends = ("fraction_of_attainable", "fraction_ci95") if of == "roof" else (
        "fraction_of_spec", "fraction_of_spec_ci95")  # fmt: skip
    if point[key] is None:
        raise UsageError(f"{point['name']} cannot be set against the spec: {point[f'{key}_why']}")
    return point[key], tuple(point[ends]) if point[ends] else None


def _percent(value: float, ends: tuple[float, float] | None) -> str:
    if value > 10:
        return f"{value:,.0f} times"
    if ends is None:
        return format_fraction(value)
    return f"{format_fraction(value)} (95%: {format_fraction(ends[0])} to {format_fraction(ends[1])})"


def with_interval(value: float, ci95: Any, unit: str) -> str:
    """`1.25 ms (95%: 1.24 to 1.26)`; the value alone where there is no interval."""
    if ci95 is None:
        return format_quantity(value, unit)
    return f"{format_quantity(value, unit, ci95)} (95%: {format_interval(ci95, value, unit)})"
