"""The how-to's blocks run one after the other, as a reader would paste them; ceilings come from a hand-made file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_placing import document

import gpumicro as gm

TEXT = (Path(__file__).parents[1] / "docs" / "own-kernel.md").read_text(encoding="utf-8")


def test_every_block_of_the_how_to_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gm, "roofline", lambda *_, **__: gm.Roofline(document()), raising=False)
    place, calls = gm.Roofline.look, []

    def briefly(self: gm.Roofline, work: Any, *args: Any, **more: Any) -> Any:
        calls.append(more)
        brief = {} if hasattr(work, "estimate_s") else {"warmup": 1, "min_samples": 2, "max_samples": 8}
        return place(self, work, *args, **more, **brief)

    monkeypatch.setattr(gm.Roofline, "look", briefly)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "own-kernel.md", "exec"), names)
    said = capsys.readouterr().out
    for part in ("add: ", "of attainable, held by", "at the roof", "norm2", "calls: 9", "once: no interval"):
        assert part in said
    assert len(calls) >= 6
