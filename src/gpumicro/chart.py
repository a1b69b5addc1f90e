"""`Roofline`: what a script or a notebook holds after a run. A thin face over the result document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import model
from .errors import UsageError
from .spec import DTYPE_ALIASES, OperandClass

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
        self, work: Any, *, flops: float, bytes: float, name: str = "user", level: str = "dram",
        dtype: str = "float64", **timing: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Time `work` and put it on the chart.

        `flops` and `bytes` are those of one call (an FMA is 2 FLOP; bytes as the algorithm must move them);
        `level` is the memory level its data come from; further keywords go to `time_kernel`. Returns the point:
        achieved FLOP/s with its interval, the bound that holds it, the fraction of attainable and the time at the
        roof. A point above its roof is flagged "impossible", with the likely causes.
        """
        from .measure import time_kernel

        if not flops > 0 or not bytes > 0:
            raise UsageError(f"flops and bytes of one call must be above 0, got flops={flops!r}, bytes={bytes!r}")
        dtype = DTYPE_ALIASES.get(dtype, dtype)
        bound = model.attainable(self.ceilings, flops / bytes, level=level, dtype=dtype)
        measurement = time_kernel(work, **timing)
        point = model.user_point(bound, measurement, flops=flops, moved=bytes, name=name, level=level, dtype=dtype)
        self.document["points"].append(point)
        return point

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
