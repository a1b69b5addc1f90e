"""Jobs for Kubernetes: what the schemas allow, what a container gets, and the YAML they are written in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launches import HOSTILE, IMAGE, bash, expected, plan, seen_by, words_of

from gpumicro.cluster.launch import launch_text
from gpumicro.cluster.launch_kubernetes import job_documents, mpijob_document
from gpumicro.cluster.yaml_text import yaml_text

SCHEMAS = Path(__file__).parent / "data" / "schemas"
KUBERNETES = json.loads((SCHEMAS / "kubernetes-1.37.json").read_text(encoding="utf-8"))


def definition(name: str) -> Any:
    """A validator of one definition of Kubernetes' schema."""
    return fastjsonschema.compile({"$ref": f"#/$defs/{name}", "$defs": KUBERNETES["$defs"]}, use_default=False)


def filled(text: str, variables: Mapping[str, str]) -> str:
    """What the kubelet makes of a command's word: `$(NAME)` filled in, `$$` one dollar
    (kubernetes.io: define a command and arguments for a container)."""
    return re.sub(
        r"\$(\$|\((.*?)\))", lambda m: "$" if m[1] == "$" else variables.get(m[2], m[0]), text, flags=re.DOTALL
    )


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


@settings(deadline=None, max_examples=60)
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
