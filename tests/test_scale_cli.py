"""`gpumicro scale`: what it says, what it writes, and what it refuses with the cure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import result_files
import sweep_files
from click.testing import CliRunner

from gpumicro import result
from gpumicro.__main__ import main
from gpumicro.cli import cli
from gpumicro.cluster.figures import figures_of
from gpumicro.cluster.footprint import Split
from gpumicro.cluster.scale import parse_gpus, scale
from gpumicro.cluster.training import parse_model
from gpumicro.errors import UsageError

CPU = str(Path(__file__).parent / "data" / "roofline-cpu.json")
SEVEN = "params=7e9,layers=32,hidden=4096,seq=4096,dtype=bf16"
H100: Any = {"spec": "h100-sxm5-80", "links": "nvlink4+ib-ndr"}


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("params=0,seq=1", "params must be above 0"), ("params=-7e9,seq=1", "whole number"),
        ("params=1e9", "seq"), ("params=1e9,seq=0", "seq must be above 0"), ("parms=1,seq=1", "did you mean params"),
        ("params=1e9,seq=1,dtype=int8", "unknown dtype"), ("params=1e9,seq=1,batch=0", "batch must be above 0"),
        ("params", "no key=value"), ("", "seq"), ("seq=1", "give params"), ("params=1e99,seq=1", "at most"),
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
        ({"links": None}, "how fast the GPUs are joined"), ({"spec": None}, "give the result of"),
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
    with pytest.raises(UsageError, match=r"at least 2 ranks.*one rank has no link"):
        scale([CPU, figures_of(sweep_files.between(1), "c.json")], model="params=1e8,seq=1,dtype=fp32", gpus=[1])


# -- the command ------------------------------------------------------------------------------------------------------


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
    assert "nvlink4+ib-ndr: More GPUs pay up to 64" in told[: told.index("Figures of")]  # the first screen
    assert "nvlink4+1xeth100: Adding GPUs stops paying at 8" in told[: told.index("Figures of")]
    assert "is worth it against nvlink4+1xeth100 from 16 GPUs on" in told
    assert "A GPU has 80 GiB" in told
    assert "Laws fitted to" in told


def test_runs_alone_are_enough_for_the_laws(tmp_path: Path) -> None:
    counts, target = tmp_path / "counts.csv", tmp_path / "laws.json"
    counts.write_text("gpus,time_s\n1,100\n2,52\n4,28\n8,16\n")
    told = run("--measured", str(counts), "-o", str(target))
    assert "The Amdahl law fits best" in told
    assert len(json.loads(target.read_text())["laws"]) == 3


def test_what_comes_after_the_stop_is_said() -> None:
    spec = ("--spec", "h100-sxm5-80", "--gpus", "1..256")
    assert "It takes 128 to give more than 8 do" in run(*spec, "--links", "nvlink4+1xeth100", "--zero", "1")
    assert "No greater count here gives more." in run(*spec, "--links", "nvlink4+1xeth10")
    few = run(
        *spec, "--links", "nvlink4+ib-ndr", "--model", "params=1e8,seq=4096,dtype=bf16,batch=8", "--utilization", "0.01"
    )
    assert "give no more throughput" in few


def test_a_spec_link_between_measured_nodes_is_no_measured_figure(tmp_path: Path) -> None:
    collective = tmp_path / "c.json"
    result.write(collective, sweep_files.between(2))
    told = run(CPU, str(collective), "--links", "measured+ib-ndr", "--model", "params=1e8,seq=128,dtype=fp32")
    assert "A model on imported and measured and spec figures" in told


def test_a_result_that_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a long path would be cut at 80 columns
    verdict = {"name": "quiet machine", "passed": False, "text": "other processes ran"}
    result.write("r.json", result.read(CPU) | {"verdicts": [verdict]})
    told = run("r.json", "--links", "ib-ndr", "--model", "params=1e8,seq=128,dtype=fp32", "--gpus", "1,2")
    assert "r.json says itself that it failed: quiet machine: other processes ran" in told


def test_a_sheets_name_in_a_files_place_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "h100-sxm5-80"]) == 2
    assert "no file but the name of a data sheet: --spec h100-sxm5-80" in capsys.readouterr().err
    assert main(["scale", "nothing.json"]) == 2
    assert "nothing.json: no such file" in capsys.readouterr().err


def test_one_count_has_no_end_to_find() -> None:
    assert "One count only" in run("--spec", "h100-sxm5-80", "--links", "ib-ndr", "--gpus", "8")


def test_measured_ranks_of_a_cpu_share_what_the_cpu_was_measured_at(tmp_path: Path) -> None:
    collective = tmp_path / "c.json"
    result.write(collective, sweep_files.between(2))
    told = run(CPU, str(collective), "--model", "params=1e8,layers=12,hidden=768,seq=128,dtype=fp32", "--gpus", "1..8")
    assert "one of 2 ranks on a host" in told
    assert "imported: 2 ranks on 1 host" in told
    assert "all_reduce is known at 2 ranks; beyond is the formula's word" in told
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
