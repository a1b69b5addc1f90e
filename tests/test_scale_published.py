"""The formulas of `scale` against tables that others published; tests/data/scaling has them with their sources."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumicro.cluster.footprint import Split, footprint, layer_activations
from gpumicro.cluster.laws import Counts, fit_laws
from gpumicro.cluster.scale import Row, scale
from gpumicro.cluster.training import TrainingModel, parameters

FOLDER = Path(__file__).parent / "data" / "scaling"
TOKENS, VOCABULARY, A100_FLOP_PER_S = 2048, 51200, 312e12


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    assert found["source"]
    return found


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def gpt(row: dict[str, Any], **more: Any) -> TrainingModel:
    """The GPT of a row of NVIDIA's tables."""
    params = parameters(row["layers"], row["hidden"], VOCABULARY, TOKENS)
    shape = {"layers": row["layers"], "hidden": row["hidden"], "heads": row["heads"], "vocab": VOCABULARY}
    return TrainingModel(params, TOKENS, dtype="bfloat16", batch=row["batch"], **shape, **more)


def on_selene(model: TrainingModel, row: dict[str, Any], utilization: float) -> Row:
    """DGX A100 nodes with a port of HDR InfiniBand a GPU."""
    split = Split(row["tensor"], row["pipeline"], interleave=row.get("interleave", 1))
    found = scale(model=model, gpus=[row["gpus"]], spec="a100-sxm4-80", links="nvlink3+ib-hdr", split=split,
                  utilization=utilization)  # fmt: skip
    return found.curves[0].rows[0]


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["7.5B", "128B", "1T"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_model_states_are_those_of_the_zero_papers_table(name: str, stage: int) -> None:
    table = load("zero")
    model = TrainingModel(table["models"][name], TOKENS, dtype="float16")
    for degree, printed in zip(table["degrees"], table["gigabytes"][name][str(stage)], strict=True):
        last_digit = 10.0 ** -len(printed.partition(".")[2])
        ours = footprint(model, Split(zero=stage), degree).states / 1e9
        assert ours == pytest.approx(float(printed), abs=last_digit), (degree, printed)


def test_without_zero_every_device_keeps_sixteen_bytes_a_parameter() -> None:
    model = TrainingModel(7.5e9, TOKENS, dtype="float16")
    assert {footprint(model, Split(), degree).states / 1e9 for degree in (1, 64, 1024)} == {120.0}


def test_selective_recomputation_and_sequence_parallelism_bring_activations_to_a_fifth_as_published() -> None:
    for row in rows(load("recomputation")):
        model = gpt(row)
        both = layer_activations(model, Split(row["tensor"]))
        alone = layer_activations(replace(model, recompute="none"), Split(row["tensor"], sequence_parallel=False))
        assert both is not None
        assert alone is not None
        assert 0.15 < both / alone < 0.205, row["name"]


# -- FLOP --------------------------------------------------------------------------------------------------------------


def test_parameters_and_flop_are_those_of_megatrons_table() -> None:
    for row in rows(load("megatron")):
        model = gpt(row, recompute="full")
        assert model.params / 1e9 == pytest.approx(row["billions"], abs=0.051)
        b, s, layers, h = row["batch"], TOKENS, row["layers"], row["hidden"]
        flop = 96 * b * s * layers * h**2 * (1 + s / (6 * h) + VOCABULARY / (16 * layers * h))  # its equation 3
        assert model.flop_per_token() * s * b == pytest.approx(flop, rel=0.02)


def test_training_takes_the_days_that_megatrons_authors_computed() -> None:
    for row in load("megatron")["training_days"]:
        model = TrainingModel(row["parameters"], TOKENS, recompute="full")
        seconds = model.flop_per_token() * row["tokens"] / (row["gpus"] * row["flop_per_s_gpu"])
        assert seconds / 86400 == pytest.approx(row["days"], abs=0.6)


def test_the_utilization_of_published_iteration_times_is_the_published_one() -> None:
    for row in rows(load("recomputation")):
        flop = gpt(row).model_flop_per_token() * TOKENS * row["batch"]
        used = flop / (row["iteration_s"] * row["gpus"] * A100_FLOP_PER_S)
        assert 100 * used == pytest.approx(row["mfu_percent"], abs=0.3), row["name"]


# -- scaling -----------------------------------------------------------------------------------------------------------


def test_one_utilization_gives_megatrons_ten_models_from_32_to_3072_gpus_within_a_fifth() -> None:
    for row in rows(load("megatron")):
        model = gpt(row, micro=row["micro"], recompute="full")
        step = on_selene(model, row, utilization=0.54).step
        per_gpu = model.flop_per_token() * TOKENS * row["batch"] / step.total_s / row["gpus"]
        assert per_gpu / 1e12 == pytest.approx(row["tflop_per_s_gpu"], rel=0.2), row["billions"]


def test_strong_scaling_of_a_pipeline_loses_what_megatron_measured_within_2_percent() -> None:
    table = rows(load("megatron")["strong"])
    for hidden in (12288, 20480):
        same = [row for row in table if row["hidden"] == hidden]
        rates = [1 / on_selene(gpt(row, recompute="full"), row, 0.55).step.total_s / row["gpus"] for row in same]
        for rate, row in zip(rates[1:], same[1:], strict=True):
            published = row["tflop_per_s_gpu"] / same[0]["tflop_per_s_gpu"]
            assert rate / rates[0] == pytest.approx(published, rel=0.02), row["gpus"]


def test_weak_scaling_of_sharded_data_parallelism_is_as_measured_within_6_percent() -> None:
    first: dict[str, tuple[float, float]] = {}
    for row in rows(load("fsdp")):
        model = TrainingModel(
            row["params"], TOKENS, row["layers"], row["hidden"], row["heads"], dtype="bfloat16", micro=row["micro"],
            accumulate=row["accumulate"], recompute="full" if row["checkpointing"] else "none",
        )  # fmt: skip
        found = scale(model=model, gpus=[row["gpus"]], spec="a100-sxm4-40", links="nvlink3+8xib-hdr",
                      split=Split(zero=3), utilization=0.7)  # fmt: skip
        ours = found.curves[0].rows[0].samples_per_s / row["gpus"]
        base, published = first.setdefault(row["name"], (ours, row["tokens_per_s_gpu"]))
        assert ours / base == pytest.approx(row["tokens_per_s_gpu"] / published, rel=0.06), (row["name"], row["gpus"])


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["specsdm91", "raytracer"])
def test_the_universal_law_has_the_coefficients_that_the_usl_package_finds(name: str) -> None:
    data = load("universal")[name]
    laws = fit_laws(Counts(tuple(data["gpus"]), tuple(data["throughput"]), name))
    law = next(one for one in laws if one.name == "universal")
    assert law.value("one GPU") == pytest.approx(data["one GPU"], rel=1e-4)
    assert law.value("contention") == pytest.approx(data["contention"], rel=1e-3)
    assert law.value("coherency") == pytest.approx(data["coherency"], rel=1e-3, abs=1e-12)
    if "fitted" in data:
        assert [law.throughput(n) for n in data["gpus"]] == pytest.approx(data["fitted"], abs=0.6)
        assert law.peak is not None
        assert law.peak[0] == pytest.approx(data["peak"], abs=0.1)
        assert laws[0] is law  # throughput falls at the end: Amdahl's law cannot say that
    else:
        assert law.peak is None
        assert laws[0].name == "amdahl"  # the same fit with one parameter less
