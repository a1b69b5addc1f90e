"""Job scripts: what a scheduler gets is what was meant, whatever names a user gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpumicro.__main__ import main
from gpumicro.cli import cli
from gpumicro.cluster.launch import LaunchPlan, launch_plan, launch_text
from gpumicro.cluster.launch_kubernetes import job_documents, mpijob_document
from gpumicro.cluster.yaml_text import yaml_text
from gpumicro.errors import UsageError

SCHEMAS = Path(__file__).parent / "data" / "schemas"
KUBERNETES = json.loads((SCHEMAS / "kubernetes-1.37.json").read_text(encoding="utf-8"))
IMAGE = "registry.example:5000/team/gpumicro:0.1"
HOSTILE = (
    "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "a\n#SBATCH --partition=theirs\nb",
    "$HOME", "$(HOME)", "$$", "${HOME}", "", " ", "*", "~", "-n", "\\", "a\\'b", "é☃\U0001f680", "!!", "{a,b}",
    "x{node}y", "{node}", "$((1+1))", ": - [", "\t", "&", "|", "> pwned",
)  # fmt: skip


def plan(*words: str, nodes: int = 2, gpus: int = 8, **more: Any) -> LaunchPlan:
    return launch_plan(words or ("roofline",), nodes, gpus, **more)


def definition(name: str) -> Any:
    """A validator of one definition of Kubernetes' schema."""
    return fastjsonschema.compile({"$ref": f"#/$defs/{name}", "$defs": KUBERNETES["$defs"]}, use_default=False)


def filled(text: str, variables: Mapping[str, str]) -> str:
    """What the kubelet makes of a command's word: `$(NAME)` filled in, `$$` one dollar
    (kubernetes.io: define a command and arguments for a container)."""
    return re.sub(
        r"\$(\$|\((.*?)\))", lambda m: "$" if m[1] == "$" else variables.get(m[2], m[0]), text, flags=re.DOTALL
    )


def seen_by(program: str, folder: Path, *more: str) -> str:
    """A fake program on PATH that keeps its arguments, each ended by a NUL, and runs those after `--` if asked to."""
    fakes = folder / "fakes"
    fakes.mkdir(exist_ok=True)
    kept = folder / f"{program}.words"
    path = fakes / program
    path.write_text("\n".join(["#!/bin/bash", f"printf '%s\\0' \"$@\" > '{kept}'", *more]) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return str(fakes)


def words_of(program: str, folder: Path) -> list[str]:
    return (folder / f"{program}.words").read_text(encoding="utf-8").split("\0")[:-1]


def bash(script: str, folder: Path, **variables: str) -> None:
    environment = {"PATH": f"{folder / 'fakes'}:{os.environ['PATH']}", "HOME": "/nowhere", "LC_ALL": "C.UTF-8"}
    subprocess.run(["bash", "-c", script], cwd=folder, env=environment | variables, check=True, timeout=30)
    assert not (folder / "pwned").exists()


def expected(number: str) -> list[str]:
    return ["roofline", *(word.replace("{node}", number) for word in HOSTILE)]


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


# -- Kubernetes --------------------------------------------------------------------------------------------------------

COMMANDS = (
    ("roofline",),
    ("collectives", "all_reduce"),
    ("roofline", "-o", "/out/{node}.json"),
    ("roofline", *HOSTILE),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[-1][:12])
@pytest.mark.parametrize("nodes", [1, 4])
def test_jobs_are_what_kubernetes_schema_allows(words: tuple[str, ...], nodes: int) -> None:
    made = plan(*words, nodes=nodes, image=IMAGE, namespace="team", volumes=(("results", "/out"),),
                environment=(("NCCL_DEBUG", "INFO"),))  # fmt: skip
    for document in job_documents(made):
        kind = {"Job": "io.k8s.api.batch.v1.Job", "Service": "io.k8s.api.core.v1.Service"}[document["kind"]]
        definition(kind)(document)
    job = job_documents(made)[-1]
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert (job["spec"]["completions"], job["spec"]["completionMode"]) == (nodes, "Indexed")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[-1][:12])
def test_mpijobs_are_what_the_operator_and_kubernetes_allow(words: tuple[str, ...]) -> None:
    document = mpijob_document(plan(*words, image=IMAGE, environment=(("NCCL_DEBUG", "INFO"),)))
    schema = json.loads((SCHEMAS / "mpijob-v2beta1.json").read_text(encoding="utf-8"))
    fastjsonschema.compile(schema, use_default=False)(document)
    replicas = document["spec"]["mpiReplicaSpecs"]
    for replica in replicas.values():
        definition("io.k8s.api.core.v1.PodTemplateSpec")(replica["template"])
    worker = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert (replicas["Worker"]["replicas"], worker["resources"]) == (2, {"limits": {"nvidia.com/gpu": 8}})
    command = replicas["Launcher"]["template"]["spec"]["containers"][0]["command"]
    ranks = 16 if words[0] == "collectives" else 2
    spread = ["-n", str(ranks), "--map-by", f"ppr:{ranks // 2}:node"]
    assert command[:8] == ["mpirun", "--allow-run-as-root", *spread, "-x", "NCCL_DEBUG"]


def test_the_schemas_refuse_what_is_misspelt() -> None:
    job = job_documents(plan(image=IMAGE))[0]
    job["spec"]["complettions"] = 3
    with pytest.raises(fastjsonschema.JsonSchemaException, match="complettions"):
        definition("io.k8s.api.batch.v1.Job")(job)


@pytest.mark.skipif("GPUMICRO_MPIJOB_CRD" not in os.environ, reason="GPUMICRO_MPIJOB_CRD names no copy of the CRD")
def test_mpijobs_against_the_operators_own_definition() -> None:
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    crd = yaml.safe_load(Path(os.environ["GPUMICRO_MPIJOB_CRD"]).read_text(encoding="utf-8"))
    schema = next(v for v in crd["spec"]["versions"] if v["name"] == "v2beta1")["schema"]["openAPIV3Schema"]

    def strict(part: Any) -> Any:
        """Kubernetes drops unknown properties in silence; here they are an error."""
        if isinstance(part, list):
            return [strict(item) for item in part]
        if not isinstance(part, dict):
            return part
        inner = {key: strict(value) for key, value in part.items()}
        return inner | ({"additionalProperties": False} if isinstance(inner.get("properties"), dict) else {})

    del schema["properties"]["metadata"]  # an object of any content, as the definition has it
    for words in COMMANDS:
        document = mpijob_document(plan(*words, image=IMAGE, volumes=(("results", "/out"),)))
        jsonschema.validate({key: value for key, value in document.items() if key != "metadata"}, strict(schema))


def test_pods_give_the_program_exactly_the_users_words(tmp_path: Path) -> None:
    seen_by("gpumicro", tmp_path)
    job = job_documents(plan("roofline", *HOSTILE, image=IMAGE, environment=(("VALUE", "$(HOME)"),)))[0]
    container = job["spec"]["template"]["spec"]["containers"][0]
    variables = {"HOME": "/root", "JOB_COMPLETION_INDEX": "3"}
    words = [filled(word, variables) for word in container["command"]]
    assert filled(container["env"][0]["value"], variables) == "$(HOME)"
    assert words[:2] == ["bash", "-c"]
    bash(words[2], tmp_path, JOB_COMPLETION_INDEX="3")
    assert words_of("gpumicro", tmp_path) == expected("3")


def test_ranks_of_several_pods_meet_by_the_services_name() -> None:
    service, job = job_documents(plan("collectives", name="probe", image=IMAGE))
    pod = job["spec"]["template"]["spec"]
    assert (service["metadata"]["name"], pod["subdomain"]) == ("probe", "probe")
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert "--rdzv-endpoint=probe-0.probe:29500" in pod["containers"][0]["command"]
    alone = job_documents(plan("collectives", nodes=1, image=IMAGE))
    assert [document["kind"] for document in alone] == ["Job"]
    command = alone[0]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["mpirun", "--allow-run-as-root", "-n", "8", "gpumicro", "collectives"]


def test_the_container_file_has_what_the_jobs_need() -> None:
    text = (Path(__file__).parents[1] / "Containerfile").read_text(encoding="utf-8")
    assert re.findall(r"^FROM (\S+)", text, re.M) == [
        "nvidia/cuda:${CUDA}-devel-ubuntu24.04", "nvidia/cuda:${CUDA}-base-ubuntu24.04",
    ]  # fmt: skip
    extras = re.search(r'EXTRAS="(.*)"', text)
    assert extras is not None
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = ", project, re.M) for extra in extras[1].split(","))
    for needed in ("openmpi-bin", "openssh-server", "/usr/local/bin/gpumicro", "fio"):
        assert needed in text


# -- YAML --------------------------------------------------------------------------------------------------------------

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]), max_size=60
)  # ten characters each at most, as they are escaped
VALUES = st.recursive(
    TEXTS | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=5))
def test_yaml_reads_back_as_what_was_written(document: dict[str, Any]) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    # a list within a list is what no manifest has
    if not nested_lists(document):
        assert yaml.safe_load(yaml_text(document)) == document


def nested_lists(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(nested_lists, value.values()))
    return isinstance(value, list) and any((isinstance(item, list) and item) or nested_lists(item) for item in value)


def test_jobs_read_back_from_their_yaml() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    made = plan("collectives", *HOSTILE, image=IMAGE, environment=(("VALUE", "\n---\nkind: Secret"),))
    assert list(yaml.safe_load_all(launch_text("k8s", made))) == job_documents(made)
    assert yaml.safe_load(launch_text("mpijob", made)) == mpijob_document(made)


def test_yaml_as_it_is_written() -> None:
    text = yaml_text({"on": "no", "a/b": [{"x": 1, "y": []}, "t\n"], "flag": True, "none": {}}, {"z": "ü"})
    assert text == ('"on": "no"\n"a/b":\n- x: 1\n  "y": []\n- "t\\x0a"\nflag: true\nnone: {}\n---\nz: "\\xfc"\n')
    with pytest.raises(ValueError, match="a key of 1026 characters"):
        yaml_text({"-" * 1024: 1})
    with pytest.raises(TypeError, match=r"cannot be written here: 1\.5"):
        yaml_text({"a": 1.5})


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"nodes": 0}, "--nodes must be at least 1, not 0"),
        ({"nodes": -4}, "--nodes must be at least 1, not -4"),
        ({"gpus": -1}, "--gpus-per-node must be at least 0, not -1"),
        ({"ranks_per_node": 0}, "--ranks-per-node must be at least 1, not 0"),
        ({"time_s": 0}, "--time must be at least 1, not 0"),
        ({"port": 70_000}, "--port must be between 1 and 65535"),
        ({"name": "a b"}, "--name 'a b': at most 50 small letters"),
        ({"name": "x\n#SBATCH --uid=0"}, "--name"),
        ({"name": "a" * 51}, "--name"),
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
        ({"volumes": (("/a", "b"),)}, "--volume /a=b"),
    ],
)
def test_names_that_a_scheduler_cannot_have_are_refused(more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        plan("roofline", **more)


def test_a_file_that_every_node_would_write_needs_the_nodes_number() -> None:
    for words in (("-o", "r.json"), ("--html=r.html",), ("--csv", "r.csv")):
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
