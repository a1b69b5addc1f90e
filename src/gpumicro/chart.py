"""`Roofline`: what a script or a notebook holds after a run. A thin face over the result document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import model
from .counts import Amount, Counts, Declared, declared_of
from .errors import UsageError
from .measurement import Measurement
from .measuring import undecorated
from .placed import Placed
from .placing import Place, Roofs, Unit, user_point
from .spec import DTYPE_ALIASES, OperandClass
from .verdicts import roof_verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .plan import Mode
    from .survey import Progress


class Roofline:
    """Measured ceilings and points of one machine.

    `document` is the result as schema/result-1.json has it; everything else is read from it.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @classmethod
    def load(cls, path: str | Path) -> Roofline:
        """From a result file; SchemaError, naming the place, where it is not one."""
        from .result import read

        return cls(read(path))

    def __repr__(self) -> str:
        names = ", ".join(c["id"] for c in self.ceilings if c["scope"] == "roof")
        return f"<Roofline of {names or 'nothing'}; {len(self.points)} points>"

    @property
    def ceilings(self) -> list[dict[str, Any]]:
        """Measured ceilings, roofs first: B/s for memory levels, FLOP/s for arithmetic."""
        return list(self.document["ceilings"])

    @property
    def points(self) -> list[dict[str, Any]]:
        """Kernels on the chart, those placed by `place` last."""
        return list(self.document["points"])

    @property
    def ridge_points(self) -> list[dict[str, Any]]:
        """Intensities (FLOP/B) where a memory roof meets an arithmetic one."""
        return list(self.document["ridge_points"])

    def attainable(self, intensity: float, *, level: str = "dram", dtype: str = "float64") -> float:
        """FLOP/s that the roof allows at `intensity` (FLOP/B) with data from `level`.

        Raises UsageError where that level or dtype was not measured.
        """
        if not intensity > 0:
            raise UsageError(f"arithmetic intensity must be above 0 FLOP/B, got {intensity!r}")
        dtype = DTYPE_ALIASES.get(dtype, dtype)
        return model.attainable(self.ceilings, intensity, level=level, dtype=dtype).attainable.estimate

    def place(
        self, work: Any, *args: Any, flops: Amount | None = None, bytes: Amount | None = None,
        counts: Counts | Callable[..., Counts] | None = None, name: str | None = None, level: str = "dram",
        dtype: Any = None, unit: Unit = "auto", device: str | None = None, stream: Any = None, **timing: Any,
    ) -> Placed:  # fmt: skip
        """Time `work(*args)` and put it on the chart.

        work: whatever `time_kernel` takes, or what was timed already: a Measurement, a region of `gm.measured`.
        flops, bytes: of one call (an FMA is 2 FLOP; bytes as the algorithm must move them), each a number or a
        function of `args`; or `counts`, from `gm.counts` or a function of `args` that gives it. They may be left out
        where `gm.measured` or a prepared kernel has them. One of them may be 0: a copy is set against the bandwidth
        alone, pure arithmetic against the peak alone.
        level: the memory level the data come from; "auto" is the nearest one that holds the bytes of a call.
        dtype: whose arithmetic is done (default: the counts', else float64); unit: "vector" sets it against the plain
        units where tensor cores make the roof. Further keywords go to `time_kernel`.

        Returns the point: achieved rate with its interval, the bound that holds it, the fraction of attainable, the
        time at the roof. A point above its roof is flagged "impossible", with the likely causes. UsageError for counts
        or a level that cannot be had, before anything is timed; what the work raises passes through, and the roofline
        stays as it was.
        """
        placed = self.look(
            work, *args, flops=flops, bytes=bytes, counts=counts, name=name, level=level, dtype=dtype, unit=unit,
            device=device, stream=stream, **timing,
        )  # fmt: skip
        self._add(placed.to_json())
        return placed

    def look(
        self, work: Any, *args: Any, flops: Amount | None = None, bytes: Amount | None = None,
        counts: Counts | Callable[..., Counts] | None = None, name: str | None = None, level: str = "dram",
        dtype: Any = None, unit: Unit = "auto", device: str | None = None, stream: Any = None, **timing: Any,
    ) -> Placed:  # fmt: skip
        """As `place`, but the chart is left as it is."""
        if name is not None and not isinstance(name, str):
            raise UsageError(f"a point's name is a text, not {name!r}")
        said = Declared(flops, bytes, counts, dtype)
        if not said:
            known = declared_of(work)
            said = known if dtype is None else replace(known, dtype=dtype)
        place = Place.find(Roofs.of(self.document, device), said.of(*args), level=level, unit=unit)
        timed: Any = work
        if not _timed_already(work):
            timed = _time(work, args, stream, timing)
        elif args or timing or stream is not None:
            raise UsageError("a measurement was taken already: it takes no arguments and no policy")
        _check_device(place.roofs.device, timed)
        record = user_point(place, timed, name or _name_of(work))
        if not isinstance(timed, Measurement):
            return Placed(record)
        return Placed(record | {"timed": timed.to_json()}, timed)

    def _add(self, point: dict[str, Any]) -> None:
        """One more point, and the verdict on all of them."""
        points = [*self.document["points"], point]
        verdict = roof_verdict(points)
        others = [one for one in self.document.get("verdicts", ()) if one["name"] != verdict["name"]]
        self.document |= {"points": points, "verdicts": [*others, verdict]}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the log-log roofline into `ax`, or into a new figure; returns the axes."""
        from .report.plot import draw_roofline, roofline_figure

        if ax is None:
            return roofline_figure(self.document).axes[0]
        return draw_roofline(self.document, ax)

    def to_dataframe(self) -> Any:
        """Ceilings, ridge points, points and measurements as a pandas.DataFrame, as the CSV report has them.

        Of any result file: `Roofline.load(path).to_dataframe()`. Raises BackendUnavailable without pandas.
        """
        from .report.frame import to_dataframe

        return to_dataframe(self.document)

    def to_json(self) -> str:
        """The result document as JSON text."""
        from .result import dumps

        return dumps(self.document)

    def save(self, path: str | Path) -> None:
        """Write the result file (or a report, by the extension: .html .png .svg .md .csv .bmf.json ...)."""
        from .report import known_format, write_report
        from .result import write

        if Path(path).suffix.lower() == ".json" and known_format(path) is None:
            write(path, self.document)
        else:
            write_report(self.document, path)

    def _repr_html_(self) -> str:
        from base64 import b64encode

        from .report.page import to_html

        # In a frame of its own: the page's style and script must not meet the notebook's.
        page = b64encode(to_html(self.document).encode()).decode()
        return f'<iframe src="data:text/html;base64,{page}" width="100%" height="900" style="border:0"></iframe>'


def _timed_already(work: Any) -> bool:
    return hasattr(work, "estimate_s") and hasattr(work, "ci95_s")


def _check_device(device: dict[str, Any], timed: Any) -> None:
    """UsageError for work of a GPU under a CPU's roof: every figure would look right and mean nothing."""
    if device.get("kind") == "cpu" and getattr(timed, "estimand", "host") != "host":
        raise UsageError(
            f"the work was timed by a GPU's {timed.timer} timer, and this roof is that of {device['id']}: measure one "
            'with gm.roofline("cuda:0")'
        )


def _name_of(work: Any) -> str:
    """The work's own name; "user" where it has none that says anything."""
    if isinstance(work, partial):
        work = work.func
    name = next((found for one in (work, getattr(work, "spec", None)) for key in ("name", "__name__")
                 if (found := getattr(one, key, None))), None)  # fmt: skip
    return name if isinstance(name, str) and name and name != "<lambda>" else "user"


def _time(work: Any, args: tuple[Any, ...], stream: Any, timing: dict[str, Any]) -> Measurement:
    """The one place that times: without the decorator that would time it too."""
    from .measure import time_kernel

    return time_kernel(undecorated(work), *args, stream=stream, **timing)


def roofline(
    device: str = "auto", *, backend: str = "auto", dtype: str | Sequence[str] = (), mode: Mode = "default",
    operands: OperandClass = "uniform", spec: str | None = None, sustained_s: float = 0.0,
    progress: Progress | None = None,
) -> Roofline:  # fmt: skip
    """Measure a device's roofline.

    `device`: "cpu", "cuda:N", "all" or "auto"; `mode`: "quick" (20 s on two cores), "default" (60 s) or "thorough";
    `spec`: a name from `gpumicro specs` or a TOML file; `sustained_s`: hold each ceiling that many seconds as well;
    `progress(done_s, total_s, title)` is called before each group. Raises UsageError for an unknown name and
    BackendUnavailable for a device that cannot run here.
    """
    from .survey import Survey

    dtypes = [dtype] if isinstance(dtype, str) else list(dtype)
    survey = Survey(
        device=device, backend=backend, dtypes=dtypes, mode=mode, operands=operands, spec=spec,
        sustained_s=sustained_s,
    )  # fmt: skip
    survey.run(progress)
    return Roofline(survey.document())
