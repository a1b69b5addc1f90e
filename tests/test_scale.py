"""`scale`: the parts of a step, where more GPUs stop paying and why, what fits, which link, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import result_files
import sweep_files
from click.testing import CliRunner

from gpumicro import result
from gpumicro.__main__ import main
from gpumicro.cli import cli
from gpumicro.cluster.fabric import all_reduce_s, measured_fabric, parse_fabrics, spec_hop
from gpumicro.cluster.figures import figures_of
from gpumicro.cluster.footprint import Split, footprint
from gpumicro.cluster.laws import Counts, amdahl, fit_laws, gustafson, parse_counts, universal
from gpumicro.cluster.scale import parse_gpus, scale
from gpumicro.cluster.training import TrainingModel, parse_model
from gpumicro.errors import UsageError

CPU = str(Path(__file__).parent / "data" / "roofline-cpu.json")
SEVEN = "params=7e9,layers=32,hidden=4096,seq=4096,dtype=bf16"
H100: Any = {"spec": "h100-sxm5-80", "links": "nvlink4+ib-ndr"}


def ranks_doc(ranks: int = 2, hosts: int = 1, **more: Any) -> dict[str, Any]:
    items = [
        sweep_files.item(size, sweep_files.line(size), ranks=ranks, hosts=hosts, **more) for size in sweep_files.SIZES
    ]
    return sweep_files.document(items)


# -- the step ----------------------------------------------------------------------------------------------------------


def test_one_gpu_computes_six_flop_a_parameter_and_token_and_moves_adams_states() -> None:
    model = TrainingModel(1e9, seq=100, dtype="float16")
    step = scale(model=model, gpus=[1], **H100).curves[0].rows[0].step
    assert step.compute_s == pytest.approx(6 * 1e9 * 100 / 989e12, rel=0.01)
    assert step.optimizer_s == pytest.approx(28 * 1e9 / 3.35e12, rel=0.01)
    assert step.all_reduce_s == step.tensor_s == step.bubble_s == 0


def test_float32_training_moves_twenty_eight_bytes_a_parameter_too() -> None:
    model = TrainingModel(1e9, seq=1, dtype="float32")
    step = scale(model=model, gpus=[1], **H100).curves[0].rows[0].step
    assert step.optimizer_s == pytest.approx(28 * 1e9 / 3.35e12, rel=0.01)


def test_gradients_hide_behind_the_backward_pass_but_for_the_last_bucket() -> None:
    hidden = scale(model=SEVEN, gpus=[8], **H100).curves[0].rows[0].step
    shown = scale(model=SEVEN, gpus=[8], overlap=0.0, **H100).curves[0].rows[0].step
    assert shown.all_reduce_s == shown.communicated_s
    assert hidden.all_reduce_s == pytest.approx(hidden.communicated_s / 32)  # a bucket a layer
    assert hidden.total_s < shown.total_s


def test_zero_three_moves_half_as_much_again() -> None:
    plain, sharded = (
        scale(model=SEVEN, gpus=[64], overlap=0.0, split=Split(zero=stage), **H100).curves[0].rows[0].step
        for stage in (2, 3)
    )
    assert sharded.communicated_s == pytest.approx(1.5 * plain.communicated_s)
    assert sharded.optimizer_s == pytest.approx(plain.optimizer_s)


def test_a_pipeline_idles_for_its_stages_less_one_over_its_microbatches() -> None:
    model = f"{SEVEN},batch=64"
    plain = scale(model=model, gpus=[4], split=Split(pipeline=4), **H100).curves[0].rows[0].step
    chunks = scale(model=model, gpus=[4], split=Split(pipeline=4, interleave=2), **H100).curves[0].rows[0].step
    working = plain.compute_s + plain.elementwise_s
    assert plain.bubble_s == pytest.approx(3 / 64 * working)
    assert chunks.bubble_s == pytest.approx(plain.bubble_s / 2)


def test_weak_scaling_without_a_network_to_speak_of_is_perfect() -> None:
    rows = scale(model=SEVEN, gpus="1..1024", spec="h100-sxm5-80", links="1e20B/s@0s").curves[0].rows
    assert [row.efficiency for row in rows] == pytest.approx([1.0] * len(rows), rel=1e-6)


def test_a_million_gpus_take_no_time_and_no_special_case() -> None:
    rows = scale(model=SEVEN, gpus="1..1000000", **H100).curves[0].rows
    assert rows[-1].gpus == 1_000_000
    assert 0 < rows[-1].efficiency <= 1
    assert rows[-1].step.algorithm.startswith("double-tree")


def test_a_batch_that_runs_out_of_samples_is_named_as_the_reason() -> None:
    found = scale(
        model=f"{SEVEN},batch=64", gpus="1..256", spec="h100-sxm5-80", links="1e20B/s@0s", split=Split(zero=1)
    )
    stop = found.curves[0].stop
    assert stop is not None
    assert (stop.gpus, stop.beyond, stop.reason) == (64, 128, "batch")
    assert stop.gain == pytest.approx(1.0, abs=0.01)


def test_a_slow_network_is_named_as_the_reason() -> None:
    stop = scale(model=SEVEN, gpus="8..64", spec="h100-sxm5-80", links="nvlink4+1xeth10").curves[0].stop
    assert stop is not None
    assert (stop.gpus, stop.reason) == (8, "network")


def test_the_optimizers_traffic_is_named_as_memory() -> None:
    model = "params=7e9,layers=32,hidden=4096,seq=16,batch=4096,dtype=bf16"
    stop = scale(model=model, gpus="1..4096", spec="h100-sxm5-80", links="1e20B/s@0s").curves[0].stop
    assert stop is not None
    assert stop.reason == "memory"


def test_intervals_of_the_inputs_become_the_steps() -> None:
    found = scale([CPU, figures_of(ranks_doc(), "c.json")], model="params=1e8,seq=128,dtype=fp32", gpus=[1, 2])
    row = found.curves[0].rows[0]
    assert row.low_s < row.step.total_s < row.high_s
    assert scale(model=SEVEN, gpus=[1], **H100).curves[0].rows[0].low_s == pytest.approx(
        scale(model=SEVEN, gpus=[1], **H100).curves[0].rows[0].high_s
    )


# -- links -------------------------------------------------------------------------------------------------------------


def test_a_measured_all_reduce_is_reproduced_at_its_own_ranks() -> None:
    fabric = measured_fabric(figures_of(ranks_doc(8), "c.json").all_reduce, None)
    assert fabric is not None
    for size in (1 << 10, 1 << 20, 1 << 28):
        assert all_reduce_s(fabric, 8, size, names=("ring",))[0] == pytest.approx(sweep_files.line(size), rel=1e-3)


def test_sweeps_inside_and_between_hosts_make_a_fabric_of_two_links() -> None:
    sweeps = [*figures_of(ranks_doc(4), "a").all_reduce, *figures_of(ranks_doc(2, hosts=2), "b").all_reduce]
    fabric = measured_fabric(sweeps, None)
    assert fabric is not None
    assert fabric.between is not None
    assert (fabric.gpus_per_node, fabric.place(16, 1)) == (4, (4, 4))


def test_the_hierarchy_is_the_sum_of_its_links() -> None:
    (fabric,) = parse_fabrics("100GB/s@1us+10GB/s@10us", 8)
    n, g, m = 1e9, 8, 4
    inside = 2 * (g - 1) * 1e-6 + 2 * (g - 1) / g * n / 100e9
    between = 2 * (m - 1) * 10e-6 + 2 * (m - 1) / m * n / g / 10e9
    assert all_reduce_s(fabric, 32, n, names=("ring",))[0] == pytest.approx(inside + between)


def test_ports_of_a_node_are_shared_by_its_gpus() -> None:
    each, shared = parse_fabrics("nvlink4+eth100,nvlink4+1xeth100", 8)
    far = [all_reduce_s(one, 16, 1e10)[0] - all_reduce_s(one, 8, 1e10)[0] for one in (each, shared)]
    assert far[1] / far[0] == pytest.approx(8, rel=0.01)


def test_links_side_by_side_say_what_infiniband_is_worth() -> None:
    fast, slow = scale(model=SEVEN, gpus="8..64", spec="h100-sxm5-80", links="nvlink4+ib-ndr,nvlink4+1xeth100").curves
    assert fast.rows[0].step.total_s == slow.rows[0].step.total_s  # one node
    assert fast.rows[-1].step.total_s < slow.rows[-1].step.total_s / 3


@pytest.mark.parametrize("text", ["", "a+b+c", "nvlink4+", "nvlinc4", "0xeth100", "eth100@-1us", "eth100@soon"])
def test_a_link_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_fabrics(text, 8)


def test_a_latency_may_be_given_with_the_link() -> None:
    assert spec_hop("eth100@14us").alpha_s.estimate == pytest.approx(14e-6)
    assert spec_hop("eth100").alpha_s.estimate > spec_hop("ib-ndr").alpha_s.estimate


# -- memory ------------------------------------------------------------------------------------------------------------


def test_seven_billion_parameters_fit_into_80_gib_only_divided() -> None:
    found = scale(model=SEVEN, gpus="1..64", **H100)
    assert not any(row.fits for row in found.curves[0].rows)
    assert [stage.fits_from for stage in found.stages] == [None, 4, 2, 2]


def test_without_a_shape_activations_are_unknown_not_nothing() -> None:
    kept = footprint(parse_model("params=1e9,seq=2048"), Split(), 1)
    assert kept.activations is None
    rows = scale(model="params=1e9,seq=2048,dtype=bf16", gpus=[1], **H100).curves[0].rows
    assert rows[0].fits is None
    assert scale(model="params=1e11,seq=2048,dtype=bf16", gpus=[1], **H100).curves[0].rows[0].fits is False


def test_tensor_and_pipeline_splits_divide_the_states() -> None:
    model = parse_model(SEVEN)
    whole, split = footprint(model, Split(), 1), footprint(model, Split(4, 2), 1)
    assert split.states == pytest.approx(whole.states / 8)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("params=0,seq=1", "params must be above 0"), ("params=-7e9,seq=1", "whole number"),
        ("params=1e9", "seq"), ("params=1e9,seq=0", "seq must be above 0"), ("parms=1,seq=1", "did you mean params"),
        ("params=1e9,seq=1,dtype=int8", "unknown dtype"), ("params=1e9,seq=1,batch=0", "batch must be above 0"),
        ("params", "no key=value"), ("seq=1", "give params"), ("params=1e99,seq=1", "at most"),
        ("params=1e9,seq=1,hidden=100,heads=3,layers=2", "does not divide"),
        ("params=1e9,seq=1,recompute=some", "unknown recompute"), ("layers=0,hidden=8,vocab=8,seq=1", "above 0"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_is_refused_by_the_key(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_model(text)


@pytest.mark.parametrize("text", ["0", "-4", "1..0", "x", "1.5", "1..1e9", "8..4"])
def test_counts_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_gpus(text)


def test_counts_double_and_keep_their_end_and_hold_whole_copies_of_the_model() -> None:
    assert parse_gpus("1..24") == (1, 2, 4, 8, 16, 24)
    assert parse_gpus("1..64", unit=8) == (8, 16, 32, 64)
    with pytest.raises(UsageError, match="multiple of 8"):
        parse_gpus("1..4", unit=8)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"links": None}, "how fast the GPUs are joined"), ({"spec": None}, "no bfloat16 GEMM"),
        ({"spec": "h1000"}, "unknown spec"), ({"overlap": 1.5}, "overlap"), ({"utilization": 0.0}, "utilization"),
        ({"split": Split(zero=4)}, "zero"), ({"split": Split(tensor=0)}, "tensor"),
        ({"split": Split(pipeline=64)}, "only 32 layers"), ({"split": Split(interleave=2)}, "pipeline"),
        ({"gpus_per_node": 0}, "gpus-per-node"), ({"device": "cuda:9"}, "not in these results"),
        ({"model": "params=1e9,seq=1", "split": Split(2)}, "layers and hidden"),
    ],
)  # fmt: skip
def test_what_cannot_be_modelled_is_refused_with_the_cure(more: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scale(**({"model": SEVEN, "gpus": [8], **H100} | more))


def test_a_result_without_the_models_gemm_names_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"no bfloat16 GEMM .*float32, float64.*--spec"):
        scale([CPU], model=SEVEN, gpus=[1], links="ib-ndr")


def test_one_rank_measured_is_no_network() -> None:
    with pytest.raises(UsageError, match="at least 2 ranks"):
        scale([CPU, figures_of(ranks_doc(1), "c.json")], model="params=1e8,seq=1,dtype=fp32", gpus=[1])


# -- laws --------------------------------------------------------------------------------------------------------------

N = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


LAWS = [(amdahl, (0.02,), "amdahl"), (gustafson, (0.1,), "gustafson"), (universal, (0.02, 1e-4), "universal")]


@pytest.mark.parametrize(("capacity", "values", "name"), LAWS)
def test_a_law_is_found_again_in_what_it_made(capacity: Any, values: tuple[float, ...], name: str) -> None:
    exact = 100 * capacity(np.array(N), *values)
    found = [_fit_with_noise(exact, seed, name) for seed in range(30)]
    for index, truth in enumerate((100.0, *values)):
        held = [ends is not None and ends[0] <= truth <= ends[1] for ends in (ends[index] for _, ends in found)]
        assert sum(held) >= 25  # of 30, at 95%
    assert sum(first == name for first, _ in found) >= 25


def _fit_with_noise(exact: Any, seed: int, name: str) -> tuple[str, list[tuple[float, float] | None]]:
    """The best law's name, and the intervals of the law that made the runs."""
    runs = exact + 2 * np.random.default_rng(seed).standard_normal(len(N))
    laws = fit_laws(Counts(N, tuple(runs.tolist()), "x"))
    law = next(one for one in laws if one.name == name)
    return laws[0].name, [known.ci95 for known in law.parameters]


def test_perfect_scaling_has_no_serial_part_and_no_end() -> None:
    for law in fit_laws(Counts(N, tuple(10 * n for n in N), "x")):
        assert law.limit is None or law.limit > 1e6
        assert law.throughput(1) == pytest.approx(10)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus,throughput\n1,10\n-2,20\n", "line 3: gpus must be above 0"),
        ("gpus,throughput\n1,10\n2,-20\n", "line 3: throughput must be above 0"),
        ("gpus,throughput\n1,ten\n", "line 2: throughput is 'ten'"), ("nodes,time\n1,2\n", "must name gpus"),
        ("", "must name gpus"), ("gpus,throughput\n", "no runs"), ("gpus,time_s\n0.5,1\n", "at least 1"),
        ("gpus,throughput\n1\n", "is None|not a number"),
    ],
)  # fmt: skip
def test_runs_that_cannot_be_are_refused_by_the_line(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_counts(text, "counts.csv")


def test_times_count_as_throughput_and_order_does_not_matter() -> None:
    found = parse_counts("\ufeffgpus, time_s\n4, 2.5\n1, 10\n".lstrip("\ufeff"), "counts.csv")
    assert found == Counts((1.0, 4.0), (0.1, 0.4), "counts.csv")


def test_one_node_only_is_too_little_for_a_law() -> None:
    with pytest.raises(UsageError, match="3 different GPU counts"):
        fit_laws(Counts((1.0, 1.0), (1.0, 1.1), "counts.csv"))


# -- the command -------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["scale", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_the_table_tells_spec_from_measured_and_answers_the_three_questions(tmp_path: Path) -> None:
    counts = tmp_path / "counts.csv"
    counts.write_text("gpus,throughput\n1,100\n2,195\n4,370\n8,660\n16,1050\n")
    told = run("--spec", "h100-sxm5-80", "--links", "nvlink4+ib-ndr,nvlink4+1xeth100", "--gpus", "1..64",
               "--measured", str(counts))  # fmt: skip
    assert "A model on spec figures: no step was run for it." in told
    assert "Adding GPUs stops paying at 8" in told
    assert "is worth it against nvlink4+1xeth100 from 16 GPUs on" in told
    assert "A GPU has 80 GiB" in told
    assert "Laws fitted to" in told


def test_runs_alone_are_enough_for_the_laws(tmp_path: Path) -> None:
    counts, target = tmp_path / "counts.csv", tmp_path / "laws.json"
    counts.write_text("gpus,time_s\n1,100\n2,52\n4,28\n8,16\n")
    told = run("--measured", str(counts), "-o", str(target))
    assert "Amdahl fits best" in told
    assert len(json.loads(target.read_text())["laws"]) == 3


def test_one_count_has_no_end_to_find() -> None:
    assert "One count only" in run("--spec", "h100-sxm5-80", "--links", "ib-ndr", "--gpus", "8")


def test_measured_ranks_of_a_cpu_share_what_the_cpu_was_measured_at(tmp_path: Path) -> None:
    collective = tmp_path / "c.json"
    result.write(collective, ranks_doc(2))
    told = run(CPU, str(collective), "--model", "params=1e8,layers=12,hidden=768,seq=128,dtype=fp32", "--gpus", "1..8")
    assert "one of 2 ranks on a host" in told
    assert "all_reduce was measured at 2 ranks; beyond is the formula's word" in told
    whole, shared = (
        scale([CPU, *more], model="params=1e8,seq=128,dtype=fp32", gpus=[1], links=links).setting.rates
        for more, links in (((), "ib-ndr"), ((str(collective),), None))
    )
    assert shared.flop_per_s.estimate == pytest.approx(whole.flop_per_s.estimate / 2)


def test_the_json_has_every_row_and_its_origin(tmp_path: Path) -> None:
    target = tmp_path / "s.json"
    run("--spec", "h100-sxm5-80", "--links", "nvlink4+ib-ndr", "--gpus", "1..4", "-o", str(target))
    doc = json.loads(target.read_text())
    assert doc["origin"] == "model"
    assert [row["gpus"] for row in doc["curves"][0]["rows"]] == [1, 2, 4]
    row = doc["curves"][0]["rows"][-1]
    assert row["step_s"] == pytest.approx(row["step"]["samples"] / row["samples_per_s"])
    assert doc["setting"]["rates"]["flop_per_s"]["origin"] == "spec"


def test_wrong_use_ends_with_2_and_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["scale", "--gpus", "-4", "--spec", "h100-sxm5-80", "--links", "ib-ndr"]) == 2
    assert main(["scale", str(tmp_path / "none.json")]) == 2
    assert main(["scale", CPU, "-o", CPU]) == 2
    told = capsys.readouterr().err
    assert "no such file" in told
    assert "Traceback" not in told


def test_a_synthetic_result_is_never_called_measured(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    doc = result.read(CPU)
    result.write(file, doc | {"synthetic": True})
    told = run(str(file), "--links", "ib-ndr", "--model", "params=1e8,seq=128,dtype=fp32", "--gpus", "1,2")
    assert "synthetic" in told
    assert "measured figures" not in told


def test_result_files_helper_makes_a_gpu_without_a_gemm_and_it_is_refused() -> None:
    with pytest.raises(UsageError, match="no GEMM"):
        scale([figures_of(result_files.file(device=result_files.gpu()), "g.json")], gpus=[1], links="ib-ndr")
