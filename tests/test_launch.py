"""Job scripts: what a scheduler gets is what was meant, whatever names a user gives."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from launches import HOSTILE, IMAGE, bash, expected, plan, seen_by, words_of

from gpumicro.__main__ import main
from gpumicro.cli import cli
from gpumicro.cluster.launch import launch_plan, launch_text
from gpumicro.errors import UsageError

# -- Slurm -------------------------------------------------------------------------------------------------------------


def test_slurm_gives_the_program_exactly_the_users_words(tmp_path: Path) -> None:
    seen_by("gpumicro", tmp_path)
    seen_by("srun", tmp_path, 'while [[ "$1" == --* ]]; do shift; done', 'exec "$@"')
    script = launch_text("slurm", plan("roofline", *HOSTILE, environment=(("VALUE", "$(touch pwned)\n'"),)))
    bash(script, tmp_path, SLURM_NODEID="7")
    assert words_of("gpumicro", tmp_path) == expected("7")


def test_slurm_directives_stand_before_the_first_command_and_hold_no_users_words() -> None:
    script = launch_text("slurm", plan("roofline", *HOSTILE, partition="gpu", account="lab", time_s=90_061))
    head, _, rest = script.partition("set -euo pipefail\n")
    lines = head.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert lines[1:] == [
        "#SBATCH --job-name=gpumicro", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=8",
        "#SBATCH --exclusive", "#SBATCH --partition=gpu", "#SBATCH --account=lab", "#SBATCH --time=1-01:01:01",
        "#SBATCH --output=gpumicro-%j.log",
    ]  # fmt: skip
    assert rest.startswith("srun ")


def test_collectives_get_a_rank_a_gpu_and_mpi() -> None:
    script = launch_text("slurm", plan("collectives", "all_reduce", image=IMAGE, volumes=(("/data", "/out"),)))
    assert "#SBATCH --ntasks-per-node=8" in script
    assert script.endswith(
        f"srun --kill-on-bad-exit=1 --mpi=pmix --container-image={IMAGE} --container-mounts=/data:/out "
        "gpumicro collectives all_reduce\n"
    )
    assert "gpus-per-node" not in launch_text("slurm", plan("roofline", gpus=0))
    assert "--mpi" not in launch_text("slurm", plan("roofline"))


def test_a_million_gpus_are_only_a_number() -> None:
    assert "#SBATCH --nodes=125000" in launch_text("slurm", plan(nodes=125_000))
    with pytest.raises(UsageError, match="at most 100,000 pods"):
        launch_text("k8s", plan(nodes=125_000, image=IMAGE))


# -- torchrun ----------------------------------------------------------------------------------------------------------


def test_torchrun_gives_the_program_exactly_the_users_words(tmp_path: Path) -> None:
    seen_by("gpumicro", tmp_path)
    seen_by("torchrun", tmp_path, 'while [[ "$1" == --* ]]; do shift; done', 'exec "$@"')
    made = plan("roofline", *HOSTILE, head="node-0", environment=(("VALUE", "$(touch pwned)"),))
    bash(launch_text("torchrun", made), tmp_path, GROUP_RANK="1")
    assert words_of("gpumicro", tmp_path) == expected("1")
    assert words_of("torchrun", tmp_path)[:6] == [
        "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node-0:29500", "--rdzv-id=gpumicro",
        "--nproc-per-node=1", "--no-python",
    ]  # fmt: skip


def test_torchrun_on_one_node_and_without_a_head() -> None:
    line = launch_text("torchrun", plan("collectives", nodes=1))
    assert line.splitlines()[1] == "torchrun --standalone --nproc-per-node=8 --no-python gpumicro collectives"
    with pytest.raises(UsageError, match="torchrun on 2 nodes needs --head HOST"):
        launch_text("torchrun", plan("collectives"))
    with pytest.raises(UsageError, match="torchrun starts no container"):
        launch_text("torchrun", plan("collectives", nodes=1, image=IMAGE))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"nodes": 0}, "--nodes must be at least 1, not 0"),
        ({"nodes": -4}, "--nodes must be at least 1, not -4"),
        ({"gpus": -1}, "--gpus-per-node must be at least 0, not -1"),
        ({"ranks_per_node": 0}, "--ranks-per-node must be at least 1, not 0"),
        ({"ranks_per_node": 8}, "--ranks-per-node 8: roofline runs once on a node"),
        ({"time_s": 0}, "--time must be at least 1, not 0"),
        ({"port": 70_000}, "--port must be between 1 and 65535"),
        ({"name": "a b"}, "--name 'a b': at most 50 small letters"),
        ({"name": "x\n#SBATCH --uid=0"}, "--name"),
        ({"name": "a" * 51}, "--name"),
        ({"name": "1job"}, "a letter first"),
        ({"time_s": 366 * 86400}, "--time must be at most a year"),
        ({"image": "x\ny"}, "--image"),
        ({"image": "-x"}, "--image"),
        ({"partition": "gpu\n#SBATCH --uid=0"}, "--partition"),
        ({"account": "--uid=0"}, "--account"),
        ({"namespace": "../x"}, "--namespace"),
        ({"head": "a;b"}, "--head"),
        ({"mpi": "$(id)"}, "--mpi"),
        ({"environment": (("A B", "x"),)}, "--env 'A B'"),
        ({"environment": (("A", "x\0"),)}, "holds a NUL"),
        ({"volumes": (("/a:ro", "/b"),)}, "--volume /a:ro=/b"),
        ({"volumes": (("/a", "/dev/shm"),)}, "something else stands at /dev/shm"),
        ({"volumes": (("/a", "/c"), ("/b", "/c"))}, "something else stands at /c"),
        ({"volumes": (("/a", "b"),)}, "--volume /a=b"),
    ],
)
def test_names_that_a_scheduler_cannot_have_are_refused(more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        plan("roofline", **more)


def test_a_file_that_every_node_would_write_needs_the_nodes_number() -> None:
    for words in (("-o", "r.json"), ("--html=r.html",), ("--csv", "r.csv"), ("-or.json",)):
        with pytest.raises(UsageError, match=r"2 nodes would all write 'r\.\w+': put \{node\} into its name"):
            plan("roofline", *words)
    plan("roofline", "-o", "r-{node}.json")
    plan("roofline", "-o", "r.json", nodes=1)
    plan("collectives", "-o", "r.json")  # rank 0 alone writes
    with pytest.raises(UsageError, match="say what to run after --"):
        launch_plan((), 2, 8)
    with pytest.raises(UsageError, match="not UTF-8"):
        plan("roofline", "\udcff")
    with pytest.raises(UsageError, match="needs --image"):
        launch_text("k8s", plan())
    with pytest.raises(UsageError, match="no name of a PersistentVolumeClaim"):
        launch_text("k8s", plan(image=IMAGE, volumes=(("/data", "/out"),)))
    with pytest.raises(UsageError, match="launch knows slurm, k8s, mpijob, torchrun, not 'lsf'"):
        launch_text("lsf", plan())


# -- the command -------------------------------------------------------------------------------------------------------

SLURM = ["launch", "slurm", "--nodes", "2", "--gpus-per-node", "8"]


def test_nothing_is_started_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{seen_by('sbatch', tmp_path, 'cat > sbatch.stdin')}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, [*SLURM, "--", "roofline", "-o", "r-{node}.json"])
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "sbatch.words").exists()
    again = CliRunner().invoke(cli, [*SLURM, "--submit", "--", "roofline", "-o", "r-{node}.json"])
    assert again.exit_code == 0, again.output
    assert (tmp_path / "sbatch.stdin").read_text(encoding="utf-8") == done.stdout


def test_kubectl_gets_the_job_and_a_refusal_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = seen_by("kubectl", tmp_path, "cat > kubectl.stdin", "exit 7")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    words = ["launch", "mpijob", "--nodes", "2", "--gpus-per-node", "8", "--image", IMAGE, "--submit", "-o", "job.yaml"]
    assert main([*words, "--", "collectives", "all"]) == 1
    assert words_of("kubectl", tmp_path) == ["create", "-f", "-"]
    assert (tmp_path / "kubectl.stdin").read_bytes() == (tmp_path / "job.yaml").read_bytes()


def test_a_missing_scheduler_and_wrong_words_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main([*SLURM, "--submit", "--", "roofline"]) == 3
    assert "sbatch is not on PATH, so nothing was submitted" in capsys.readouterr().err
    for words, what in (
        (["--", "rooflin"], "unknown command 'rooflin'; did you mean roofline"),
        (["--", "roofline", "--quik"], "--quik"),
        (["--", "collectives", "--iters", "many"], "not a valid integer"),
        (["--", "launch", "slurm"], "launch launches every command but itself"),
        (["--env", "NOVALUE", "--", "roofline"], "--env takes NAME=VALUE, not 'NOVALUE'"),
        (["--time", "30", "--", "roofline"], "'30' is no time; give its unit"),
        ([], "say what to run after --"),
    ):
        assert main([*SLURM, *words]) == 2
        assert what in capsys.readouterr().err
