"""The table in docs/compare.md is what the tool shows for the files that the page describes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from result_files import entry, file

from gpumicro.report.diff import diff_text
from gpumicro.result_diff import compare_results
from gpumicro.result_sources import Source

PAGE = Path(__file__).parents[1] / "docs" / "compare.md"
SECONDS = {"stream.copy": 21e-3, "stream.triad": 31e-3, "stream.dot": 20e-3}
BLOCK = re.compile(r"(?<=-->\n```\n).*?(?=\n```)", re.DOTALL)


def run_of(seconds: dict[str, float], seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    records = [
        entry(1 << 25, true_s * float(np.exp(0.003 * rng.normal())), name=name, seed=int(rng.integers(1 << 31)))
        for name, true_s in seconds.items()
    ]
    return file(*records, created=f"2026-11-30T06:{seed:02}:00Z")


def test_the_table_of_the_page_is_what_the_tool_shows() -> None:
    slower = SECONDS | {"stream.triad": 1.04 * SECONDS["stream.triad"]}
    base = [Source(f"base/{i}.json", run_of(SECONDS, 2 * i)) for i in range(1, 6)]
    new = [Source(f"new/{i}.json", run_of(slower, 2 * i + 1)) for i in range(1, 6)]
    shown = "\n".join(line.rstrip() for line in diff_text(compare_results(base, new)).rstrip().splitlines())
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("GPUMICRO_UPDATE_GOLDEN") == "1":
        page = BLOCK.sub(lambda _: shown, page)
        PAGE.write_text(page, encoding="utf-8")
    found = BLOCK.search(page)
    assert found is not None
    assert found[0] == shown
