"""What a notebook shows of a measurement and a comparison: a small table, every text in it escaped."""

from __future__ import annotations

import dataclasses

import gpumicro as gm
from gpumicro.notebook import html_table


def test_texts_are_escaped_and_rows_without_a_value_left_out() -> None:
    shown = html_table("<script>", [("a & b", '"<i>"'), ("none", "")])
    assert "&lt;script&gt;" in shown
    assert "a &amp; b" in shown
    assert "&quot;&lt;i&gt;&quot;" in shown
    assert "none" not in shown
    assert "<script" not in shown


def test_a_measurement_shows_its_estimate_interval_samples_and_flags() -> None:
    seen = gm.time_kernel(gm.FakeWork(2e-3), timer=gm.FakeTimer())
    shown = dataclasses.replace(seen, flags=("<b>",))._repr_html_()
    for part in ("median", "2.00 ms (95%: ", f"{seen.n} of about", "fake, host, hot caches", "&lt;b&gt;"):
        assert part in shown


def test_a_comparison_shows_its_verdict_and_both_times() -> None:
    found = gm.compare(gm.FakeWork(1e-3), gm.FakeWork(2e-3), timer=gm.FakeTimer())
    shown = found._repr_html_()
    for part in ("slower", "times as long as a", "verdict", "b against a", " ms (95%: "):
        assert part in shown
