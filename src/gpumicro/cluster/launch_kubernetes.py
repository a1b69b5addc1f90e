"""A Kubernetes Job (batch/v1, Indexed) and a Kubeflow MPIJob (kubeflow.org/v2beta1) that run gpumicro.

One pod a node, each asking for the node's GPUs by `nvidia.com/gpu`, which NVIDIA's device plugin provides.
"""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from .launch import LaunchPlan, is_label, torchrun_words
from .yaml_text import yaml_text

GPU = "nvidia.com/gpu"
MOST_PODS = 100_000  # of an Indexed Job, as the API refuses more
_MPIRUN = ("mpirun", "--allow-run-as-root")  # the image's user is root
# an image with host keys of its own would give every pod the same: they are made here (Containerfile)
_SSHD = ("bash", "-c", "ssh-keygen -A && exec /usr/sbin/sshd -De")
_LABEL = "app.kubernetes.io/instance"


def job_yaml(plan: LaunchPlan) -> str:
    """A Job with one pod a node; ranks of several nodes meet through a headless Service, by torchrun."""
    return yaml_text(*job_documents(plan))


def job_documents(plan: LaunchPlan) -> list[dict[str, Any]]:
    """The documents of `job_yaml` as plain data."""
    if plan.nodes > MOST_PODS:
        raise UsageError(f"a Kubernetes Job has at most {MOST_PODS:,} pods that know their number, not {plan.nodes:,}")
    meets = plan.together and plan.nodes > 1
    pod = _pod(plan, _job_words(plan))
    if meets:
        pod["subdomain"] = plan.name
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(plan),
        "spec": {
            "completions": plan.nodes, "parallelism": plan.nodes, "completionMode": "Indexed", "backoffLimit": 0,
            "activeDeadlineSeconds": plan.time_s,
            "template": {"metadata": {"labels": {_LABEL: plan.name}}, "spec": pod | {"restartPolicy": "Never"}},
        },
    }  # fmt: skip
    return [_service(plan), job] if meets else [job]


def _job_words(plan: LaunchPlan) -> list[str]:
    if not plan.together:
        return plan.words("JOB_COMPLETION_INDEX")
    if plan.nodes == 1:
        return [*_MPIRUN, "-n", str(plan.ranks_per_node), *plan.words("OMPI_COMM_WORLD_RANK")]
    return torchrun_words(plan, f"{plan.name}-0.{plan.name}")  # the first pod's name under the Service


def _service(plan: LaunchPlan) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": _metadata(plan),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {_LABEL: plan.name}},
    }  # fmt: skip


def mpijob_yaml(plan: LaunchPlan) -> str:
    """An MPIJob: a launcher that runs mpirun, and a worker a node with sshd."""
    return yaml_text(mpijob_document(plan))


def mpijob_document(plan: LaunchPlan) -> dict[str, Any]:
    """The document of `mpijob_yaml` as plain data."""
    # sshd hands no variable of the pod on, so mpirun does
    passed = [word for key, _ in plan.environment for word in ("-x", key)]
    spread = ["-n", str(plan.ranks), "--map-by", f"ppr:{plan.ranks_per_node}:node"]
    launcher = _container(plan, [*_MPIRUN, *spread, *passed, *plan.words("OMPI_COMM_WORLD_RANK")], gpus=0)
    replicas = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [launcher]}}},
        "Worker": {
            "replicas": plan.nodes,
            "template": {
                "metadata": {"labels": {_LABEL: plan.name}}, "spec": _pod(plan, list(_SSHD)),
            },
        },
    }  # fmt: skip
    return {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": _metadata(plan),
        "spec": {
            "slotsPerWorker": plan.ranks_per_node, "mpiImplementation": "OpenMPI",
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0, "activeDeadlineSeconds": plan.time_s},
            "mpiReplicaSpecs": replicas,
        },
    }  # fmt: skip


def _metadata(plan: LaunchPlan) -> dict[str, Any]:
    where = {} if plan.namespace is None else {"namespace": plan.namespace}
    return {"name": plan.name, **where, "labels": {_LABEL: plan.name}}


def _pod(plan: LaunchPlan, words: list[str]) -> dict[str, Any]:
    """One container with the node's GPUs, apart from the others of the job, with room for NCCL in shared memory."""
    container = _container(plan, words, plan.gpus_per_node)
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    for number, (claim, path) in enumerate(plan.volumes):
        if not is_label(claim):
            raise UsageError(f"--volume {claim}={path}: {claim!r} is no name of a PersistentVolumeClaim")
        container["volumeMounts"].append({"name": f"volume-{number}", "mountPath": path})
        volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}})
    pod: dict[str, Any] = {"containers": [container], "volumes": volumes}
    if plan.nodes > 1:
        apart = {"labelSelector": {"matchLabels": {_LABEL: plan.name}}, "topologyKey": "kubernetes.io/hostname"}
        pod["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return pod


def _container(plan: LaunchPlan, words: list[str], gpus: int) -> dict[str, Any]:
    if plan.image is None:
        raise UsageError("Kubernetes needs --image: build one from the Containerfile and push it to your registry")
    container: dict[str, Any] = {"name": "gpumicro", "image": plan.image, "command": [_literal(word) for word in words]}
    if plan.environment:
        container["env"] = [{"name": key, "value": _literal(value)} for key, value in plan.environment]
    if gpus:
        container["resources"] = {"limits": {GPU: gpus}}
    return container


def _literal(text: str) -> str:
    """Kubernetes fills `$(NAME)` into commands and values, and takes `$$` for a dollar."""
    return text.replace("$", "$$")
