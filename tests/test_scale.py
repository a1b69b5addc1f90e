"""`scale`: the parts of a step, where more GPUs stop paying and why, which link, what fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sweep_files

from gpumicro.cluster.fabric import all_reduce_s, measured_fabric, parse_fabrics, spec_hop
from gpumicro.cluster.figures import figures_of
from gpumicro.cluster.footprint import Split, footprint
from gpumicro.cluster.scale import scale
from gpumicro.cluster.training import TrainingModel, parse_model
from gpumicro.errors import UsageError

CPU = str(Path(__file__).parent / "data" / "roofline-cpu.json")
SEVEN = "params=7e9,layers=32,hidden=4096,seq=4096,dtype=bf16"
H100: Any = {"spec": "h100-sxm5-80", "links": "nvlink4+ib-ndr"}


# -- the step ---------------------------------------------------------------------------------------------------------


def test_one_gpu_computes_six_flop_a_parameter_and_token_and_moves_adams_states() -> None:
    model = TrainingModel(1e9, seq=100, dtype="float16")
    step = scale(model=model, gpus=[1], **H100).curves[0].rows[0].step
    assert step.compute_s == pytest.approx(6 * 1e9 * 100 / 989e12, rel=0.01)
    assert step.optimizer_s == pytest.approx(28 * 1e9 / 3.35e12, rel=0.01)
    assert step.all_reduce_s == step.tensor_s == step.bubble_s == 0


def test_a_convolutions_flop_may_be_given() -> None:
    step = scale(model="params=25.6e6,seq=1,flop=24.6e9,batch=256,dtype=fp16", gpus=[1], **H100).curves[0].rows[0].step
    assert step.compute_s == pytest.approx(256 * 24.6e9 / 989e12, rel=0.01)


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
    found = scale(
        [CPU, figures_of(sweep_files.between(), "c.json")], model="params=1e8,seq=128,dtype=fp32", gpus=[1, 2]
    )
    row = found.curves[0].rows[0]
    assert row.low_s < row.step.total_s < row.high_s
    assert scale(model=SEVEN, gpus=[1], **H100).curves[0].rows[0].low_s == pytest.approx(
        scale(model=SEVEN, gpus=[1], **H100).curves[0].rows[0].high_s
    )


# -- links ------------------------------------------------------------------------------------------------------------


def test_a_measured_all_reduce_is_reproduced_at_its_own_ranks() -> None:
    fabric = measured_fabric(figures_of(sweep_files.between(8), "c.json").all_reduce, None)
    assert fabric is not None
    for size in (1 << 10, 1 << 20, 1 << 28):
        assert all_reduce_s(fabric, 8, size, names=("ring",))[0] == pytest.approx(sweep_files.line(size), rel=1e-3)


def test_sweeps_inside_and_between_hosts_make_a_fabric_of_two_links() -> None:
    sweeps = [
        *figures_of(sweep_files.between(4), "a").all_reduce,
        *figures_of(sweep_files.between(2, hosts=2), "b").all_reduce,
    ]
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


def test_a_measured_node_may_be_joined_by_links_of_a_spec() -> None:
    inside = measured_fabric(figures_of(sweep_files.between(8), "c.json").all_reduce, None)
    (fabric,) = parse_fabrics("measured+ib-ndr", 4, inside)
    assert fabric.inside.origin == "imported"
    assert fabric.between is not None
    assert fabric.between.origin == "spec"
    assert fabric.place(32, 1) == (8, 4)
    with pytest.raises(UsageError, match="no all_reduce can be used"):
        parse_fabrics("measured+ib-ndr", 4)


@pytest.mark.parametrize("text", ["", "a+b+c", "nvlink4+", "nvlinc4", "0xeth100", "eth100@-1us", "eth100@soon"])
def test_a_link_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_fabrics(text, 8)


def test_a_latency_may_be_given_with_the_link() -> None:
    assert spec_hop("eth100@14us").alpha_s.estimate == pytest.approx(14e-6)
    assert spec_hop("eth100").alpha_s.estimate > spec_hop("ib-ndr").alpha_s.estimate


# -- memory -----------------------------------------------------------------------------------------------------------


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
