"""Two sets of result files: what is paired, what is refused and why, and how sure the verdicts are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from result_files import cpu, entry, file, gpu, machine

from gpumicro import __main__, ratios, result, stats
from gpumicro.errors import UsageError
from gpumicro.report.diff import diff_markdown, diff_text
from gpumicro.report.junit import to_junit
from gpumicro.result_diff import Rules, compare_results
from gpumicro.result_sources import Source, read_sources

SIZES = {1024: 1e-3, 2048: 2e-3, 4096: 4e-3}


def compared(base: Any, new: Any, **rules: Any) -> dict[str, Any]:
    sides = [side if isinstance(side, list) else [side] for side in (base, new)]
    sources = [[Source(f"{name}{i}.json", doc) for i, doc in enumerate(side)]
               for name, side in zip(("base", "new"), sides, strict=True)]  # fmt: skip
    diff = compare_results(sources[0], sources[1], Rules(**rules))
    json.dumps(diff, allow_nan=False)
    assert result.missing_reasons(diff) == []
    return diff


def verdicts(diff: dict[str, Any]) -> list[str]:
    return [record["verdict"] for record in diff["compared"]]


def reasons(diff: dict[str, Any]) -> str:
    return "; ".join(text for left in diff["not_compared"] for text in left["reasons"])


# --- what a user asks ------------------------------------------------------------------------------------------------


def test_a_planted_slowdown_is_found_and_the_rest_is_left_alone() -> None:
    slow = SIZES | {2048: 2.2e-3}
    diff = compared(machine(SIZES, 1), machine(slow, 2))
    by_name = {record["id"]: record for record in diff["compared"]}
    found = by_name["stream.triad[n=2048,dtype=float64]@cpu/cpu/threads=2"]
    assert found["verdict"] == "slower"
    assert found["ci95"][0] < 1.1 < found["ci95"][1]
    assert found["p_adjusted"] <= 0.05
    assert sorted(verdicts(diff)) == ["inconclusive", "inconclusive", "slower"]
    assert found["base"]["unit"] == "B/s"
    assert found["base"]["value"] == pytest.approx(24 * 2048 / 2e-3, rel=0.01)


def test_faster_is_found_too() -> None:
    assert verdicts(compared(file(entry()), file(entry(true_s=0.9e-3, seed=1)))) == ["faster"]


def test_one_file_a_side_cannot_be_equivalent_within_what_a_process_may_be_off_by_and_says_so() -> None:
    diff = compared(file(entry()), file(entry(seed=1)))
    assert verdicts(diff) == ["inconclusive"]
    assert diff["compared"][0]["mde"] > 0.0139
    assert any("one process a side" in note for note in diff["notes"])
    assert verdicts(compared(file(entry()), file(entry(seed=1)), process_sd=0.0)) == ["equivalent"]


def test_several_files_a_side_measure_what_one_process_cannot_see() -> None:
    true = {1024: 1e-3}
    base = [machine(true, seed, 0.001) for seed in range(6)]
    same = [machine(true, 100 + seed, 0.001) for seed in range(6)]
    slow = [machine({1024: 1.02e-3}, 200 + seed, 0.001) for seed in range(6)]
    diff = compared(base, same)
    assert verdicts(diff) == ["equivalent"]
    assert diff["compared"][0]["base"]["files"] == 6
    assert not any("one process a side" in note for note in diff["notes"])
    assert verdicts(compared(base, slow)) == ["slower"]


def test_a_process_effect_is_no_change_of_the_code() -> None:
    """Each file is sure of itself to 0.1%; the processes differ by 1%: no verdict may come of that."""
    true = dict.fromkeys(range(1024, 1074), 1e-3)
    base, new = ([machine(true, 10 * side + i, 0.01, max_samples=30, min_samples=30) for i in range(3)]
                 for side in (1, 2))  # fmt: skip
    assert {"slower", "faster"}.isdisjoint(verdicts(compared(base, new)))


def test_a_lone_file_takes_the_spread_of_the_other_side() -> None:
    base = [machine({1024: 1e-3}, seed, 0.005) for seed in range(8)]
    diff = compared(base, machine({1024: 1.05e-3}, 99))
    assert verdicts(diff) == ["slower"]
    assert diff["compared"][0]["mde"] > 0.01


# --- the statistics --------------------------------------------------------------------------------------------------


def correlated(rng: np.random.Generator, n: int, rho: float) -> stats.FloatArray:
    noise = rng.normal(size=n)
    for i in range(1, n):
        noise[i] = rho * noise[i - 1] + np.sqrt(1 - rho * rho) * noise[i]
    return np.exp(0.02 * noise)


def p_of(a: stats.FloatArray, b: stats.FloatArray) -> float:
    def at(confidence: float) -> ratios.Interval:
        sides = [ratios.of_location(stats.median_location(x, confidence)) for x in (a, b)]
        return ratios.difference(sides[0], sides[1])

    return ratios.p_value(at)


def p_of_groups(a: stats.FloatArray, b: stats.FloatArray) -> float:
    return ratios.p_value(lambda confidence: ratios.of_groups(a, b, confidence))


@pytest.mark.parametrize(("n", "rho"), [(10, 0.0), (30, 0.0), (100, 0.5), (300, 0.9)])
def test_p_values_of_equal_works_are_no_smaller_than_they_should_be(n: int, rho: float) -> None:
    rng = np.random.default_rng(n)
    p = np.array([p_of(correlated(rng, n, rho), correlated(rng, n, rho)) for _ in range(400)])
    for level, most in ((0.2, 100), (0.05, 32), (0.01, 12)):  # two standard deviations above 80, 20 and 4
        assert np.count_nonzero(p <= level) <= most


@pytest.mark.parametrize("files", [(3, 3), (5, 5), (1, 5)])
def test_p_values_of_equal_files_are_no_smaller_than_they_should_be(files: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(files))
    p = np.array([p_of_groups(rng.normal(size=files[0]), rng.normal(size=files[1])) for _ in range(1000)])
    assert np.count_nonzero(p <= 0.05) <= 64
    assert np.count_nonzero(p <= 0.01) <= 17


def test_a_p_value_promises_no_more_than_the_interval_of_few_samples() -> None:
    a = np.linspace(1.0, 1.01, 7)
    assert 1 - stats.median_location(a).confidence <= p_of(a, a + 1) <= 0.02
    assert p_of(a, a) == 1.0


def test_adjusted_p_values_are_those_of_the_procedure() -> None:
    """The example of Benjamini and Hochberg (1995): 15 values, of which the procedure at 5% rejects four."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
         0.7590, 1.0]  # fmt: skip
    shuffled = np.random.default_rng(0).permutation(15)
    adjusted = np.array(ratios.benjamini_hochberg([p[i] for i in shuffled]))
    assert {p[i] for i in shuffled[adjusted <= 0.05]} == set(p[:4])
    assert np.all(np.diff(adjusted[np.argsort(shuffled)]) >= 0)
    assert ratios.benjamini_hochberg([]) == []
    for n in range(1, 50):
        assert ratios.benjamini_hochberg([0.05] * n) == [0.05] * n, "rounding takes no verdict away"


def test_false_discoveries_stay_rare_and_planted_effects_are_found() -> None:
    """100 measurements, 20 of them 3% slower, on 2% noise: on average at most 5% of the findings may be false."""
    rng = np.random.default_rng(7)
    shares, found = [], []
    for _ in range(20):
        true = np.where(np.arange(100) < 20, 1.03, 1.0)
        p = [p_of(correlated(rng, 60, 0.0), correlated(rng, 60, 0.0) * ratio) for ratio in true]
        hits = np.array(ratios.benjamini_hochberg(p)) <= 0.05
        shares.append(np.count_nonzero(hits[20:]) / max(1, np.count_nonzero(hits)))
        found.append(np.count_nonzero(hits[:20]) / 20)
    assert np.mean(shares) <= 0.05
    assert np.mean(found) >= 0.8


def test_one_of_many_that_its_own_interval_calls_slower_is_not_believed_alone() -> None:
    noisy = dict.fromkeys(range(1024, 1064), 1e-3)
    diff = compared(machine(noisy, 1, spread=0.05), machine(noisy, 2, spread=0.05), process_sd=0.0)
    alone = [record for record in diff["compared"] if "by its own interval" in record.get("why", "")]
    assert alone
    assert {"slower", "faster"}.isdisjoint(verdicts(diff))


# --- what cannot be compared -----------------------------------------------------------------------------------------


def with_condition(clock: float, **more: Any) -> dict[str, Any]:
    card = gpu()
    seen = {"device": "cuda:0", "kind": "gpu", "clock_hz": clock, "gpu": {"application_clock_hz": 1.98e9}}
    return file(entry(device=card), device=card, conditions=[seen | more])


def changed(**timing: Any) -> dict[str, Any]:
    record = entry()
    record["timing"] |= timing
    return file(record)


REFUSED = [
    (file(entry()), file(entry(), device=cpu(name="Model 2")), "other device: Model 1 and Model 2", True),
    (file(entry()), file(entry(), device=cpu(cores=4)), "other device: cores 2 and 4", True),
    (
        file(entry(device=gpu()), device=gpu()), file(entry(device=gpu("GPU-2")), device=gpu("GPU-2")),
        "another Model G: GPU-1 and GPU-2", True,
    ),
    (with_condition(1.98e9), with_condition(1.90e9), "clock measured 1980 MHz and 1900 MHz", True),
    (
        with_condition(1.98e9), with_condition(1.98e9, gpu={"application_clock_hz": 1.41e9}),
        "clock set 1980 MHz and 1410 MHz", True,
    ),
    (file(entry()), changed(cache="cold"), "other cache state: hot and cold", True),
    (file(entry()), changed(estimand="period"), "other estimand: host and period", False),
    (file(entry()), changed(raw_s=[], counts=[]), "no samples", False),
    (file(entry()), changed(raw_s=[1e-3] * 5, counts=[1] * 5), "5 samples", False),
    (file(entry()), file(entry(), emulated=True), "emulated: its times are not a device's", True),
    (file(entry()), file(entry(), replayed=True, synthetic=True), "synthetic", True),
    (
        file(entry()), file(entry(), imported={"tool": "nvbench", "version": None, "file": "x"}),
        "measured by other tools: gpumicro and nvbench", True,
    ),
    (
        file(entry()), file(entry(dtype="float32")),
        "only in the base; the other has dtype float32 instead of float64", False,
    ),
    (file(entry()), file(entry(n=77)), "only in the base", False),
]  # fmt: skip


@pytest.mark.parametrize(("base", "new", "says", "forcible"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_cannot_be_compared_is_refused_with_its_reason(base: Any, new: Any, says: str, forcible: bool) -> None:
    diff = compared(base, new)
    assert diff["compared"] == []
    assert says in reasons(diff)
    assert says in " ".join(diff_text(diff, 200).split())
    forced = compared(base, new, force=True)
    assert bool(forced["compared"]) is forcible
    if forcible:
        assert says in forced["compared"][0]["forced"][0]
        assert "FORCED" in diff_text(forced)


def test_of_several_files_the_one_that_does_not_belong_is_named() -> None:
    diff = compared([file(entry(seed=i)) for i in range(3)], [file(entry()), file(entry(), device=cpu(name="Model 2"))])
    assert "other device: Model 1 and Model 2 (in new1.json)" in reasons(diff)


def test_a_failed_measurement_is_named_with_its_error() -> None:
    why = {"timing_why": "failed", "time_s_why": "failed"}
    broken = entry() | {"status": "failed", "error": "wrong output at index 3", "time_s": None, "timing": None} | why
    diff = compared(file(entry()), file(broken))
    assert "failed in new0.json: wrong output at index 3" in reasons(diff)


def test_imported_results_of_one_tool_are_compared() -> None:
    imported = {"tool": "nvbench", "version": None, "file": "x"}
    diff = compared(file(entry(), imported=imported), file(entry(true_s=2e-3), imported=imported))
    assert verdicts(diff) == ["slower"]


def test_small_changes_of_a_clock_are_no_reason() -> None:
    assert verdicts(compared(with_condition(1.98e9), with_condition(1.95e9))) == ["inconclusive"]


def test_imported_files_without_samples_are_compared_where_files_repeat() -> None:
    sides = [[changed(raw_s=[], counts=[]) for _ in range(3)] for _ in range(2)]
    assert len(compared(sides[0], sides[1])["compared"]) == 1


def test_files_that_state_a_rate_and_no_time_are_compared_by_the_rate_where_files_repeat() -> None:
    def stated(rate: float) -> dict[str, Any]:
        doc = file(entry(), imported={"tool": "nvbandwidth", "version": None, "file": "x"})
        doc["measurements"][0] |= {
            "timing": None, "time_s": None, "time_s_why": "states no time",
            "bandwidth_bytes_per_s": {"estimate": rate, "ci95": None, "ci95_why": "none"},
        }  # fmt: skip
        return doc

    base, new = ([stated(top * (1 + 0.001 * i)) for i in range(4)] for top in (100e9, 90e9))
    diff = compared(base, new)
    assert verdicts(diff) == ["slower"]
    assert diff["compared"][0]["new"]["value"] == pytest.approx(90.1e9, rel=0.01)
    assert "no samples" in reasons(compared(base[0], new[0]))


def stated(**figures: float | None) -> dict[str, Any]:
    """One figure or more that a tool states without samples."""
    doc = file(entry(), imported={"tool": "fio", "version": None, "file": "x"})
    none = {"timing": None, "time_s": None, "bandwidth_bytes_per_s": None, "flop_per_s": None}
    whole = {key: {"estimate": value, "ci95": None, "ci95_why": "none", "location": "mean"}
             for key, value in figures.items()}  # fmt: skip
    doc["measurements"][0] |= none | {f"{key}_why": "not stated" for key in none} | whole
    return doc


def test_the_figure_that_is_compared_is_the_one_that_is_shown() -> None:
    """A bandwidth that halves beside a latency that stays: the columns must not show the latency."""
    base, new = ([stated(latency_s=1e-4, bandwidth_bytes_per_s=rate + i) for i in range(4)] for rate in (2e9, 1e9))
    record = compared(base, new)["compared"][0]
    assert (record["base"]["unit"], record["verdict"]) == ("B/s", "slower")
    assert record["base"]["value"] == pytest.approx(2e9)
    assert record["new"]["value"] == pytest.approx(1e9)


def test_a_stated_rate_goes_before_the_time_beside_it_which_has_fewer_digits() -> None:
    sides = [[stated(time_s=4e-4, bandwidth_bytes_per_s=rate + 1e6 * i) for i in range(4)] for rate in (400e9, 390e9)]
    record = compared(*sides)["compared"][0]
    assert record["verdict"] == "slower"
    assert record["ratio"] == pytest.approx(400 / 390, rel=1e-4)


def test_a_latency_alone_is_compared_where_files_repeat() -> None:
    sides = [[stated(latency_s=latency + 1e-10 * i) for i in range(4)] for latency in (6e-7, 7e-7)]
    record = compared(*sides)["compared"][0]
    assert (record["verdict"], record["new"]["unit"]) == ("slower", "s")
    assert record["new"]["value"] == pytest.approx(7e-7, rel=1e-3)


def test_a_time_is_not_set_against_a_rate_nor_a_mean_against_a_median() -> None:
    times, rates = ([stated(**{key: 1e-3 + 1e-6 * i}) for i in range(3)] for key in ("time_s", "flop_per_s"))
    assert "other figure: time_s and flop_per_s" in reasons(compared(times, rates))
    medians = [stated(time_s=1e-3 + 1e-6 * i) for i in range(3)]
    for doc in medians:
        doc["measurements"][0]["time_s"]["location"] = "median"
    assert "other location: mean and median" in reasons(compared(times, medians))


def test_the_figures_shown_have_the_ratio_that_is_shown() -> None:
    """Two files a side far apart, one with a repeat: every median is one of the logarithms, and of all samples."""
    first, again = entry(seed=1), entry(true_s=3e-3, seed=2)
    again |= {"id": first["id"] + "#repeat", "repeat_of": first["id"]}
    base = [file(first, again), file(entry(true_s=9e-3, seed=3))]
    new = [file(entry(true_s=true_s, seed=4)) for true_s in (1e-3, 4e-3)]
    for sides in ((base, new), (base[0], new[0])):
        record = compared(*sides)["compared"][0]
        assert record["new"]["time_s"] / record["base"]["time_s"] == pytest.approx(record["ratio"])
        assert record["base"]["value"] / record["new"]["value"] == pytest.approx(record["ratio"]), "of a rate"


def test_a_repeat_belongs_to_the_first() -> None:
    first, again = entry(seed=1), entry(true_s=1.2e-3, seed=2)
    again |= {"id": first["id"] + "#repeat", "repeat_of": first["id"]}
    diff = compared(file(first, again), file(entry(seed=3)))
    assert [record["id"] for record in diff["compared"]] == [first["id"]]
    record = diff["compared"][0]
    assert record["base"]["samples"] == 200
    assert record["mde"] > 0.1, "two levels in one process widen the interval"


def test_on_a_coarse_grid_both_are_located_alike() -> None:
    assert len(compared(file(entry()), changed(kind="clipped-mean", tick_s=1e-6))["compared"]) == 1


def test_flags_that_no_verdict_can_rest_on_make_it_inconclusive() -> None:
    diff = compared(file(entry()), changed(flags=["below-resolution"], raw_s=[9.0] * 100, counts=[1] * 100))
    assert verdicts(diff) == ["inconclusive"]
    assert "below-resolution" in diff["compared"][0]["why"]


def test_a_time_that_drowns_in_the_overhead_is_inconclusive_and_no_crash() -> None:
    lost = changed(raw_s=[1e-6, -1e-6] * 50, counts=[1] * 100, flags=["below-resolution"])
    diff = compared(file(entry()), lost)
    assert verdicts(diff) == ["inconclusive"]
    assert diff["compared"][0]["ci95"] is None
    assert "unknown" in diff_text(diff)


def test_what_else_differs_is_noted() -> None:
    new = file(entry(), environment={"python": "3.13"}) | {"interrupted": True}
    notes = " ".join(compared(file(entry()), new)["notes"])
    assert "Python differs: 3.12 in the base, 3.13 in the new" in notes
    assert "Interrupted: new0.json" in notes
    loud = {"name": "quiet machine", "passed": False, "text": "other processes used 40% of the CPU time"}
    found = compared(file(entry()), file(entry(), verdicts=[loud, loud | {"passed": True, "text": "quiet"}]))
    assert "new0.json: other processes used 40% of the CPU time." in found["notes"]
    assert "quiet" not in " ".join(found["notes"])
    days = [[file(entry(seed=i), created=f"2026-11-{day}T06:00:00Z") for i in range(2)] for day in (29, 30)]
    assert "Measure in turns" in " ".join(compared(days[0], days[1])["notes"])


def test_rules_that_make_no_sense_are_refused() -> None:
    for wrong in ({"margin": 0.0}, {"confidence": 1.0}, {"fdr": 2.0}, {"process_sd": -1.0}):
        with pytest.raises(UsageError):
            Rules(**wrong)


# --- shown -----------------------------------------------------------------------------------------------------------


def test_markdown_and_junit_show_the_verdicts_and_escape_what_the_files_say() -> None:
    evil = "<script>|x|</script>\x1b[2J"
    base, new = file(entry()), file(entry(true_s=1.505e-3))
    for doc in (base, new):
        doc["measurements"][0]["id"] = evil
    diff = compared(base, new)
    text = diff_markdown(diff)
    assert "# Compared: 1 slower of 1 measurement" in text
    assert "<script>" not in text
    assert "\x1b" not in text + diff_text(diff)
    assert "+50." in text
    suite = ElementTree.fromstring(to_junit(diff, lambda verdict: verdict == "slower"))[0]
    assert dict(suite.attrib)["failures"] == "1"
    assert suite[0][0].attrib["type"] == "slower"
    assert "B/s" in suite[0][0].attrib["message"]
    assert suite[0][0].text == suite[0][0].attrib["message"], "some services show the one, some the other"
    passing = ElementTree.fromstring(to_junit(diff, lambda _: False))[0]
    assert passing.attrib["failures"] == "0"


def test_markdown_calls_nobody() -> None:
    """GitHub reads "@cpu" as a person or a team, escaped or not; in code it does not."""
    doc = file(entry())
    doc["measurements"][0]["id"] += " by @octocat, a@b.c"
    text = diff_markdown(compared(doc, doc))
    assert "`@cpu/cpu/threads=2`" in text
    assert "by `@octocat`," in text
    assert " a@b.c" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_stays_within_its_width(width: int) -> None:
    text = diff_text(compared(machine(SIZES, 1), machine(SIZES | {1024: 2e-3}, 2)), width)
    assert max(map(len, text.splitlines())) <= width


# --- the command -----------------------------------------------------------------------------------------------------


def written(folder: Path, **documents: Any) -> list[str]:
    for name, doc in documents.items():
        result.write(folder / f"{name}.json", doc)
    return [str(folder / f"{name}.json") for name in documents]


def run(*arguments: str) -> int:
    return __main__.main(["compare", *arguments])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0), (["--fail-on", "slower"], 1), (["--fail-on", "faster"], 0), (["--fail-on", "any"], 1),
        (["--fail-on", "missing"], 0), (["--fail-on", "faster", "--fail-on", "slower"], 1), (["--margin", "0"], 2),
        (["--margin", "much"], 2), (["--fail-on", "sad"], 2), (["--process-sd", "200%"], 2),
    ],
)  # fmt: skip
def test_the_exit_code_says_what_was_asked(options: Sequence[str], code: int, tmp_path: Path) -> None:
    files = written(tmp_path, a=file(entry()), b=file(entry(true_s=1.5e-3)))
    assert run(*files, *options) == code


def test_nothing_comparable_is_exit_2_and_the_reasons_are_shown(tmp_path: Path, capsys: Any) -> None:
    files = written(tmp_path, a=file(entry()), b=file(entry(n=5)))
    assert run(*files) == 2
    shown = capsys.readouterr()
    assert "only in the base" in " ".join(shown.out.split())
    assert "nothing could be compared" in shown.err
    both = written(tmp_path, c=file(entry(), entry(n=5)), d=file(entry()))
    assert run(*both, "--fail-on", "missing", "--junit", str(tmp_path / "j.xml")) == 1
    assert ElementTree.parse(tmp_path / "j.xml").getroot()[0].attrib["failures"] == "1"
    assert run(*reversed(both), "--fail-on", "missing") == 0, "what is new is not missing"


def test_outputs_are_written_and_json_on_stdout_is_clean(tmp_path: Path, capsys: Any) -> None:
    files = written(tmp_path, a=file(entry()), b=file(entry(true_s=1.5e-3)))
    outputs = [str(tmp_path / name) for name in ("d.json", "d.md", "d.xml")]
    assert run(*files, "-o", outputs[0], "--markdown", outputs[1], "--junit", outputs[2]) == 0
    assert json.loads(Path(outputs[0]).read_text())["summary"] == {"slower": 1}
    capsys.readouterr()
    assert run(*files, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["compared"][0]["verdict"] == "slower"


def test_folders_and_options_give_several_files(tmp_path: Path, capsys: Any) -> None:
    for side, true_s in (("a", 1e-3), ("b", 1.2e-3)):
        (tmp_path / side).mkdir()
        written(tmp_path / side, **{f"r{i}": machine({1024: true_s}, i + ord(side), 0.002) for i in range(3)})
    assert run(str(tmp_path / "a"), str(tmp_path / "b"), "--fail-on", "slower") == 1
    capsys.readouterr()
    options = [part for side, flag in (("a", "--base"), ("b", "--new")) for i in range(3)
               for part in (flag, str(tmp_path / side / f"r{i}.json"))]  # fmt: skip
    assert run(*options, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["compared"][0]["new"]["files"] == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give a base and a new"), (["a.json"], "not 1 files"), (["a.json", "missing.json"], "no such file"),
        (["a.json", "a.json", "--new", "./a.json"], "given twice"), (["empty", "a.json"], "no .json file"),
        (["a.json", "a.json", "-o", "a.json"], "is compared"), (["a.json", "a.json", "--junit", "-"], "file's name"),
        (["a.json", "a.json", "-o", "/nowhere/x"], "/nowhere"),
    ],
)  # fmt: skip
def test_wrong_use_is_a_sentence_and_changes_nothing(
    arguments: list[str], says: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, a=file(entry()))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "a.json").read_bytes()
    assert run(*arguments) == 2
    assert says in capsys.readouterr().err
    assert (tmp_path / "a.json").read_bytes() == before


def test_a_copy_is_no_second_run(tmp_path: Path, capsys: Any) -> None:
    later = file(entry(seed=1), created="2026-12-01T06:00:00Z")
    a, b, copy = written(tmp_path, a=file(entry(seed=1)), b=file(entry(seed=2)), c=later)
    assert run("--base", a, "--base", copy, "--new", b) == 2
    assert "c.json holds the same samples as" in capsys.readouterr().err
    assert run("--base", a, "--base", b, "--new", copy) == 0, "against itself is another matter, and noted"


def test_a_file_set_against_itself_shows_no_difference(tmp_path: Path, capsys: Any) -> None:
    (path,) = written(tmp_path, a=file(entry()))
    assert run(path, path, "--process-sd", "0", "--fail-on", "any") == 0
    assert "1 equivalent" in capsys.readouterr().out
    assert read_sources([path])[0].name == path
