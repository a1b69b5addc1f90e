"""What is subtracted from every span, and how well it is known: an empty region's spans, or a line's intercept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from . import slopes, stats
from .measurement import FloatArray
from .timers import Counts, Timer


class Baseline:
    """Spans of an empty region: what is subtracted from every span, and how well it is known."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self.tick_s = timer.tick().seconds
        self.spans = timer.overhead(256)
        self._locate()

    def grow(self) -> bool:
        """Twice the spans; False where more of them would not help."""
        self.spans = np.concatenate((self.spans, self.timer.overhead(len(self.spans))))
        self._locate()
        return True

    def refit(self, counts: Counts, raw: FloatArray, coarse: bool) -> None:
        """Look at the spans of the work itself: they tell nothing about an empty region."""

    def _locate(self) -> None:
        # The mean also on a fine tick: an empty region is a few ticks long whatever the clock.
        self.location = stats.clipped_mean_location(self.spans, self.tick_s)
        self.half_s = self.location.statistical


class Intercept(Baseline):
    """The fixed cost of a replay: where the line through one work's spans of several lengths meets zero runs.

    Until there are spans of two lengths it is the empty region of `empty`, from which it starts.
    """

    def __init__(self, empty: Baseline) -> None:
        self.timer, self.tick_s, self.spans = empty.timer, empty.tick_s, empty.spans
        self.location, self.half_s = empty.location, empty.half_s
        self.line: slopes.Line | None = None

    @property
    def bent(self) -> bool:
        """Whether the work's spans lie on no line."""
        return self.line is not None and self.line.nonlinear

    def grow(self) -> bool:
        """It is known better only with more samples of the work."""
        return False

    def refit(self, counts: Counts, raw: FloatArray, coarse: bool) -> None:
        """Lay the line through all spans there are."""
        if len(np.unique(counts)) < 2:
            return
        self.line = line = slopes.through_rungs(counts, raw, self.tick_s, coarse)
        low, high = line.intercept_s - line.intercept_half_s, line.intercept_s + line.intercept_half_s
        self.location = replace(
            self.location, kind="clipped-mean" if coarse else "median", estimate=line.intercept_s, low=low, high=high
        )
        self.half_s = line.intercept_half_s
