"""A caller's own work under a hand-made roof: every figure here can be checked with pencil and paper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from machines import machine_records, record

import gpumicro as gm
from gpumicro import model, result, schema
from gpumicro.counts import Counts
from gpumicro.errors import UsageError
from gpumicro.placed import Placed
from gpumicro.placing import Place, Roofs, user_point

CACHES = [
    {"level": "l2", "size_bytes": 1 << 20, "line_bytes": 64, "shared_by": [0], "count": 2},
]


def document(records: list[dict[str, Any]] | None = None, kind: str = "cpu", **more: Any) -> dict[str, Any]:
    found = model.ceilings(records or machine_records())
    return result.document(
        argv=[], devices=[{"id": "cpu", "kind": kind, "name": "two cores", "caches": CACHES}], measurements=[],
        ceilings=found, ridge_points=model.ridge_points(found), environment={}, **more,
    )  # fmt: skip


@pytest.fixture
def roof() -> gm.Roofline:
    """100 GB/s from L2, 20 GB/s from DRAM, 100 GFLOP/s in float64."""
    return gm.Roofline(document())


def timed(seconds: float, width: float = 0.01, flags: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(estimate_s=seconds, ci95_s=(seconds * (1 - width), seconds * (1 + width)), flags=flags)


def at(counts: Counts, seen: Any, doc: dict[str, Any] | None = None, **where: Any) -> Placed:
    return Placed(user_point(Place.find(Roofs.of(doc or document()), counts, **where), seen, "mine"))


def given(flops: float, moved: float, dtype: str = "float64") -> Counts:
    return Counts(flops, moved, dtype, "as given")


def test_a_point_has_its_bound_its_fraction_and_the_time_at_the_roof() -> None:
    half = at(given(20e6, 20e6), timed(2e-3, flags=("drift",)))
    assert half["flop_per_s"] == pytest.approx(10e9)
    assert (half["bound_by"], half["bound_unit"], half.bound) == ("dram", "memory", "DRAM bandwidth")
    assert half.fraction == pytest.approx(0.5)
    assert half["time_at_roof_s"] == pytest.approx(1e-3)
    assert half["flags"] == ["drift"]
    low, high = half["fraction_ci95"]
    assert low == pytest.approx(0.5 / 1.01 / 1.01)
    assert high == pytest.approx(0.5 / 0.99 / 0.99)


def test_a_copy_is_set_against_the_bandwidth_and_pure_arithmetic_against_the_peak() -> None:
    copy = at(given(0, 20e6), timed(2e-3))
    assert copy["flop_per_s"] is None
    assert copy["bandwidth_bytes_per_s"] == pytest.approx(10e9)
    assert copy["attainable_bytes_per_s"] == 20e9
    assert copy.fraction == pytest.approx(0.5)
    sums = at(given(50e6, 0), timed(1e-3))
    assert (sums["bound_by"], sums["level"], sums["intensity_flop_per_byte"]) == ("float64", None, None)
    assert sums.fraction == pytest.approx(0.5)
    assert "no memory traffic" in sums["intensity_flop_per_byte_why"]


def test_level_auto_is_the_nearest_that_holds_the_bytes() -> None:
    assert at(given(1e3, 1 << 20), timed(1e-3), level="auto")["level"] == "l2"
    assert at(given(1e3, 4 << 20), timed(1), level="auto")["level"] == "dram"


def test_tensor_cores_and_plain_units_are_two_roofs() -> None:
    records = [
        *machine_records(),
        record("peak.mma", rate=800e9, bytes_moved=0, dtype="float16", intensity_flop_per_byte=None),
        record("peak.fma", rate=200e9, bytes_moved=0, dtype="float16", intensity_flop_per_byte=None),
    ]
    work, seen = given(100e6, 0, "float16"), timed(1e-3)
    tensor, vector = (at(work, seen, document(records), unit=unit) for unit in ("auto", "vector"))
    assert (tensor["bound_unit"], tensor.fraction) == ("tensor", pytest.approx(1 / 8))
    assert (vector["bound_unit"], vector.fraction) == ("vector", pytest.approx(1 / 2))
    assert vector.bound == "float16 arithmetic (vector)"
    fast = at(work, timed(0.2e-3), document(records), unit="vector")
    assert fast.causes[0].startswith("it computes with tensor float16 arithmetic")
    with pytest.raises(UsageError, match="no tensor arithmetic ceiling for 'float64'; measured: float16"):
        at(given(1, 0), seen, document(records), unit="tensor")


def test_a_faster_mix_of_the_same_dtype_covers_a_point_above_the_fma_roof() -> None:
    assert not at(given(120e6, 0), timed(1e-3)).impossible
    assert at(given(160e6, 0), timed(1e-3)).impossible


def test_a_ceiling_that_came_out_higher_at_the_end_is_believed() -> None:
    doc = document()
    for ceiling in doc["ceilings"]:
        if ceiling["level"] == "dram":
            ceiling["repeat"] = {"achieved": 24e9, "ci95": [23e9, 25e9], "measurement": "x", "ratio": 1.2}
    assert not at(given(1e3, 22e6), timed(1e-3), doc).impossible


def test_an_impossible_point_names_the_cache_first_where_its_data_fit_one() -> None:
    point = at(given(1e5, 1 << 20), timed(20e-6))
    assert point["flags"] == ["impossible"]
    assert point.causes[0].startswith("the 1 MiB of a call fit L2 (2 MiB)")
    assert "against L2 this is 52.4% of attainable (level='l2')" in point.causes[0]


def test_an_impossible_point_that_fits_nowhere_has_its_count_doubted_first() -> None:
    point = at(given(1e6, 64 << 20), timed(1e-3))
    assert "more than one call does" in point.causes[0]
    assert any("found again in L2" in cause for cause in point.causes[1:])


def test_an_impossible_point_that_takes_no_time_has_done_nothing() -> None:
    assert "one call takes only 100 ns" in at(given(1e9, 0), timed(100e-9)).causes[0]


def test_an_impossible_point_whose_clocks_disagree_ran_on_a_side_stream() -> None:
    doc = document(kind="cuda")
    point = at(given(1e6, 64 << 20), timed(1e-3, flags=("event-wall",)), doc)
    assert point.causes[0].startswith("part of the work runs on another stream")
    assert any("another stream" in cause for cause in at(given(1e6, 64 << 20), timed(1e-3), doc).causes)


def test_a_point_a_little_above_says_first_that_the_machine_may_have_been_slower() -> None:
    assert "slower" in at(given(1e6, 64 << 20), timed(3.2e-3, 0.001)).causes[0]


def test_a_ceiling_that_moved_is_doubted_before_the_work() -> None:
    doc = document()
    for ceiling in doc["ceilings"]:
        ceiling["flags"].append("unstable")
        ceiling["ci95"] = [0.8 * ceiling["achieved"], 1.2 * ceiling["achieved"]]
    assert "slower" in at(given(1e5, 1 << 20), timed(35e-6), doc).causes[0]  # 1.5 times the roof: 1.2 and as much again
    assert "fit L2" in at(given(1e5, 1 << 20), timed(20e-6), doc).causes[0]  # 2.6 times: no ceiling moved so far


def test_arithmetic_beyond_every_peak_says_so() -> None:
    assert "no arithmetic measured on this device is so fast: 1.0" in at(given(1e9, 0), timed(1e-3)).causes[0]


def test_of_spec_is_known_only_where_the_spec_that_binds_is() -> None:
    doc = document()
    assert at(given(1e6, 1e6), timed(1e-3), doc)["fraction_of_spec"] is None
    for ceiling in doc["ceilings"]:
        if ceiling["level"] == "dram":
            ceiling["spec"] = 25e9
    assert at(given(1e6, 1e6), timed(1e-3), doc)["fraction_of_spec"] == pytest.approx(1 / 25)
    high = at(given(1e8, 1e6), timed(1e-2), doc)  # held by arithmetic, whose spec is not known
    assert high["fraction_of_spec"] is None
    with pytest.raises(UsageError, match="cannot be set against the spec: no spec was given"):
        high.assert_at_least(0.1, of="spec")


def test_a_work_too_short_for_the_timer_is_no_point() -> None:
    seen = SimpleNamespace(estimate_s=1e-9, ci95_s=(-1e-9, 3e-9), flags=("below-resolution",))
    with pytest.raises(UsageError, match="mine: one call takes no time"):
        at(given(1, 1), seen)


def test_a_time_of_few_samples_is_a_single_figure() -> None:
    point = at(given(20e6, 20e6), timed(1.25e-3, 0.5, ("few-samples",)))
    assert (point["fraction_ci95"], point["time_ci95_s"]) == (None, None)
    with pytest.raises(AssertionError, match=r"reaches 80\.0% of the roof, .*too few calls for an interval"):
        point.assert_at_least(0.9)


def test_an_assertion_fails_only_when_the_whole_interval_is_below() -> None:
    point = at(given(20e6, 20e6), timed(1.25e-3, 0.02))  # 80%, 78 to 82
    point.assert_at_least(0.8)
    point.assert_at_least(0.82)
    with pytest.raises(AssertionError) as failed:
        point.assert_at_least(0.9)
    text = str(failed.value)
    for part in ("mine reaches 80.0% (95%: ", "less than the 90.0% asked for", "held by DRAM bandwidth", "1.00 ms"):
        assert part in text


def test_an_impossible_point_fails_every_assertion_with_its_causes() -> None:
    with pytest.raises(AssertionError, match=r"faster than its roof(.|\n)*likely cause: the 1 MiB of a call fit L2"):
        at(given(1e5, 1 << 20), timed(20e-6)).assert_at_least(0.1)


@pytest.mark.parametrize("fraction", [80, 0, -1, True, "0.8", float("nan")])
def test_a_fraction_that_makes_no_sense_is_a_usage_error(fraction: Any) -> None:
    with pytest.raises(UsageError, match=r"0\.8 is 80%"):
        at(given(1e6, 1e6), timed(1e-3)).assert_at_least(fraction)


def test_several_devices_must_be_told_apart() -> None:
    doc = document([*machine_records(), *(dict(one, device="cuda:0") for one in machine_records())])
    with pytest.raises(UsageError, match="device=: cpu, cuda:0"):
        Roofs.of(doc)
    assert len(Roofs.of(doc, "cuda:0").memory) == 2
    with pytest.raises(UsageError, match="no device 'cuda:1'"):
        Roofs.of(doc, "cuda:1")


# --- Roofline.place -----------------------------------------------------------------------------------------------


def fake(seconds: float) -> dict[str, Any]:
    return {"work": gm.FakeWork(seconds), "timer": gm.FakeTimer()}


def test_place_times_a_work_and_puts_it_on_the_chart(roof: gm.Roofline) -> None:
    point = roof.place(**fake(2e-3), flops=20e6, bytes=20e6, name="mine")
    assert point.fraction == pytest.approx(0.5, rel=0.01)
    assert roof.points[-1] == point.to_json()
    assert point.measurement is not None
    assert point.measurement.n >= 6
    assert len(point["timed"]["timing"]["raw_s"]) == point.measurement.n
    result.validate(roof.document)
    assert schema.missing_reasons(roof.document) == []
    assert next(one for one in roof.document["verdicts"] if one["name"] == "roof")["passed"]


@pytest.mark.parametrize("counts", [(0, 20e6), (20e6, 0), (1e12, 20e6)])
def test_whatever_is_placed_the_file_complies(roof: gm.Roofline, counts: tuple[float, float], tmp_path: Any) -> None:
    roof.place(**fake(2e-3), flops=counts[0], bytes=counts[1])
    result.validate(roof.document)
    assert schema.missing_reasons(roof.document) == []
    for ending in ("json", "md", "csv", "svg", "html"):
        roof.save(tmp_path / f"out.{ending}")
    assert gm.Roofline.load(tmp_path / "out.json").points == roof.points


def test_an_impossible_point_fails_the_verdict_on_the_roof(roof: gm.Roofline) -> None:
    roof.place(**fake(1e-3), flops=1e12, bytes=1, name="mine")
    (verdict,) = (one for one in roof.document["verdicts"] if one["name"] == "roof")
    assert not verdict["passed"]
    assert "mine" in verdict["text"]


def test_counts_come_from_functions_of_the_arguments(roof: gm.Roofline) -> None:
    seen: list[Any] = []

    def work(x: Any, times: int) -> None:
        seen.append((x, times))

    point = roof.look(
        work, np.ones(5), 3, flops=lambda x, times: x.size * times, bytes=lambda x, _: x.nbytes, max_time_s=0.01,
        warmup=0, min_samples=2,
    )  # fmt: skip
    assert (point["flops"], point["bytes_moved"], point["name"]) == (15, 40, "work")
    assert seen[0][1] == 3
    assert roof.points == []


def test_a_measurement_taken_already_is_placed_as_it_is(roof: gm.Roofline) -> None:
    seen = gm.time_kernel(gm.FakeWork(2e-3), timer=gm.FakeTimer())
    point = roof.place(seen, counts=gm.counts.elementwise(10**6, inputs=2), name="add")
    assert point.measurement is seen
    assert point["time_s"] == seen.estimate_s
    with pytest.raises(UsageError, match="taken already"):
        roof.place(seen, flops=1, bytes=1, target=0.1)


def test_the_dtype_of_counts_is_the_roof_unless_another_is_named(roof: gm.Roofline) -> None:
    with pytest.raises(UsageError, match="no arithmetic ceiling for 'float32'; measured: float64"):
        roof.place(**fake(1e-3), counts=gm.counts.gemm(8, 8, 8, "float32"))
    assert roof.look(**fake(1e-3), counts=gm.counts.gemm(8, 8, 8, "float32"), dtype="f64")["dtype"] == "float64"


def never(*_: Any) -> None:
    raise AssertionError("nothing may be run")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "flops= and bytes="),
        ({"flops": 1}, "bytes of one call is missing"),
        ({"flops": -1, "bytes": 1}, "from 0 up"),
        ({"flops": 0, "bytes": 0}, "does nothing"),
        ({"flops": 1, "bytes": 1, "level": "l9"}, "'l9'; measured: l2, dram"),
        ({"flops": 1, "bytes": 1, "unit": "cuda"}, "auto, vector, tensor"),
        ({"flops": 1, "bytes": 1, "device": "cuda:3"}, "no device 'cuda:3'"),
        ({"flops": 1, "bytes": 1, "dtype": "float23"}, "unknown dtype"),
        ({"flops": 1, "bytes": 1, "name": 3}, "name is a text"),
        ({"flops": 1, "bytes": 1, "max_times_s": 1}, "unknown keyword 'max_times_s'; did you mean max_time_s"),
    ],
)
def test_wrong_use_is_found_before_anything_runs(roof: gm.Roofline, wrong: dict[str, Any], says: str) -> None:
    before = roof.to_json()
    with pytest.raises(UsageError, match=says):
        roof.place(never, **wrong)
    assert roof.to_json() == before


def test_arguments_that_were_not_given_are_named(roof: gm.Roofline) -> None:
    def work(a: Any, b: Any) -> None:
        never(a, b)

    with pytest.raises(UsageError, match=r"work\(.*\bb\b"):
        roof.place(work, 1, flops=1, bytes=1)


def test_a_work_that_raises_leaves_the_roofline_as_it_was(roof: gm.Roofline) -> None:
    def work() -> None:
        raise ZeroDivisionError("mine")

    before = roof.to_json()
    with pytest.raises(ZeroDivisionError, match="mine"):
        roof.place(work, flops=1, bytes=1)
    assert roof.to_json() == before


def test_work_of_a_gpu_has_no_place_under_a_cpus_roof(roof: gm.Roofline) -> None:
    class Events(gm.FakeTimer):
        estimand = "isolated"

    work = {"work": gm.FakeWork(1e-3), "timer": Events(), "flops": 20e6, "bytes": 20e6}
    with pytest.raises(UsageError, match=r"timed by a GPU's fake timer, and this roof is that of cpu"):
        roof.place(**work)
    assert gm.Roofline(document(kind="cuda")).place(**work).fraction == pytest.approx(1.0, rel=0.1)


def test_a_roofline_without_ceilings_says_so(roof: gm.Roofline) -> None:
    roof.document["ceilings"] = []
    with pytest.raises(UsageError, match="no ceilings"):
        roof.place(never, flops=1, bytes=1)


def test_a_notebook_shows_a_point_escaped(roof: gm.Roofline) -> None:
    shown = roof.place(**fake(2e-3), flops=20e6, bytes=20e6, name="<b>mine</b>")._repr_html_()
    assert "&lt;b&gt;mine" in shown
    assert "<b>" not in shown
    assert "DRAM bandwidth" in shown
