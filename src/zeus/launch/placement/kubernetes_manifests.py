"""The manifests of a job: a ConfigMap with its job file, and the Job, CronJob or PyTorchJob that runs `zeus run`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zeus.errors import InputError
from zeus.launch.job_file.placements import KubernetesSettings

Json = dict[str, Any]
JOB_FOLDER, TEMPORARY, SHARED_MEMORY = "/etc/zeus-job", "/tmp", "/dev/shm"
JOB_FILE = f"{JOB_FOLDER}/job.toml"
MOST_BYTES = 1_000_000  # a ConfigMap holds 1 MiB, with its names
MOST_NAME = 52  # the longest name of a CronJob; also leaves room for what the controllers append to others
# After SIGTERM, at worst: 10 s for the command to end, 30 s to kill it with all that it started, 10 s for the keeper to
# restore the limit, 33 s for the store to take the result. And some to spare.
GRACE_SECONDS = 120
KEEP_SECONDS = 7 * 24 * 3600  # finished Jobs are removed after this time; what they found out is in the store
PYTORCH = "pytorch"  # Kubeflow looks for a container of this name
# A worker trains with every trial of the master. Kubeflow ends it when the master is done. A shell that is the first
# process of a container ignores SIGTERM unless it says otherwise.
FOLLOW = """\
trap 'kill -TERM $child; wait $child; exit 143' TERM
while true; do "$@" & child=$!; wait $child; sleep 1; done
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What to run.

    Args:
        job_id: The id of the job in the store.
        job_file: The text of the job file.
        command: Runs `zeus run` on JOB_FILE: one recurrence if this is a Job or a CronJob, and all of them if it is a
            PyTorchJob.
        training: The command of the job itself, for the workers of a PyTorchJob.
        variables: What [env] of the job file sets, for them too.
        recurrences: How often to run the job, or how often each time that a CronJob is due.
    """

    job_id: str
    job_file: str
    command: Sequence[str]
    training: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    recurrences: int = 1


def render(settings: KubernetesSettings, work: Work, suffix: str) -> list[Json]:
    """The manifests, in the order in which they must be applied.

    Args:
        settings: How the pods are made.
        work: What they run.
        suffix: Makes the names of this run its own. A CronJob has none, so that it can be applied again.
    """
    job_id, job_file, recurrences = work.job_id, work.job_file, work.recurrences
    if len(job_file.encode()) > MOST_BYTES:
        raise InputError(
            f"--on kubernetes: the job file has {len(job_file.encode())} bytes, and a ConfigMap holds 1 MiB. "
            "Move long values to files of the image."
        )
    name = (
        dns_label(job_id)
        if settings.kind == "cronjob"
        else f"{dns_label(job_id, MOST_NAME - 1 - len(suffix))}-{suffix}"
    )
    metadata: Json = {"name": name}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    labels = {"app.kubernetes.io/name": "zeus-run", "app.kubernetes.io/instance": dns_label(job_id)}
    metadata["labels"] = {**labels, "app.kubernetes.io/managed-by": "zeus"}
    metadata["annotations"] = {"zeus/job-id": job_id}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"job.toml": job_file}}
    pod = {"metadata": {"labels": labels}, "spec": _pod(settings, name, work.command)}
    match settings.kind:
        case "job":
            whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": _job(pod, recurrences)}
        case "cronjob":
            spec = {
                "schedule": settings.schedule,
                "concurrencyPolicy": "Forbid",  # a recurrence that is not over would share its GPUs with the next
                "jobTemplate": {"metadata": {"labels": labels}, "spec": _job(pod, recurrences)},
            }
            whole = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}
        case _:
            spec = _pytorch_job(pod, settings, work)
            whole = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}
    return [config, whole]


def dns_label(text: str, most: int = MOST_NAME) -> str:
    """A name that Kubernetes accepts. If it had to be changed, the hash of the text keeps it apart from others.

    >>> dns_label("sentiment"), dns_label("Team A/asr")
    ('sentiment', 'team-a-asr-b6a147')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain == text and len(text) <= most and text[0].isalpha():
        return text
    plain = plain if plain[:1].isalpha() else f"job-{plain}".rstrip("-")
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{plain[: most - 1 - len(mark)].rstrip('-')}-{mark}"


def _job(pod: Json, recurrences: int) -> Json:
    return {
        "completions": recurrences,  # a pod runs one recurrence, so a pod that is moved repeats no other
        "parallelism": 1,
        "backoffLimit": 0,  # Zeus itself tries other batch sizes, and knows when it is no use
        "podFailurePolicy": {  # but a pod that had to make room was not at fault
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "ttlSecondsAfterFinished": KEEP_SECONDS,
        "template": pod,
    }


def _pytorch_job(pod: Json, settings: KubernetesSettings, work: Work) -> Json:
    [container] = pod["spec"]["containers"]

    def replica(changes: Json) -> Json:
        spec = {**pod["spec"], "containers": [{**container, "name": PYTORCH, **changes}]}
        return {"restartPolicy": "Never", "template": {**pod, "spec": spec}}

    replicas = {"Master": {"replicas": 1, **replica({})}}
    if settings.workers:
        variables = [{"name": name, "value": _literal(text)} for name, text in work.variables.items()]
        follow = ["sh", "-c", FOLLOW, "sh", *map(_literal, work.training)]
        changes = {"command": follow, "env": [*container["env"], *variables]}
        replicas["Worker"] = {"replicas": settings.workers, **replica(changes)}
    return {
        "nprocPerNode": str(max(1, settings.gpus)),  # for torchrun
        "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": KEEP_SECONDS},
        "pytorchReplicaSpecs": replicas,
    }


def _pod(settings: KubernetesSettings, config: str, command: Sequence[str]) -> Json:
    gpus = settings.gpus
    spec: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,  # a training asks nothing of Kubernetes
        "enableServiceLinks": False,  # a Service called zeus would set variables that begin with ZEUS_
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            "runAsGroup": settings.user,
            "fsGroup": settings.user,
            "supplementalGroups": [settings.keeper_group],  # the keeper lends to members of this group
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, gpus, command)],
        "volumes": [
            {"name": "job", "configMap": {"name": config}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            # Made if the node has none: the training then runs, and only observes.
            {"name": "keeper", "hostPath": {"path": settings.keeper_folder, "type": "DirectoryOrCreate"}},
            *({"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim, _ in _claims(settings)),
        ],
    }
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if gpus:
        spec["tolerations"] = [{"key": settings.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}]
    return spec


def _container(settings: KubernetesSettings, gpus: int, command: Sequence[str]) -> Json:
    def secret(key: str, optional: bool) -> Json:
        return {"valueFrom": {"secretKeyRef": {"name": settings.secret, "key": key, "optional": optional}}}

    container: Json = {
        "name": "zeus",
        "image": settings.image,
        "command": list(command),
        "env": [
            {"name": "ZEUS_STORE", **secret("ZEUS_STORE", optional=False)},
            {"name": "ZEUS_TOKEN", **secret("ZEUS_TOKEN", optional=True)},
            {"name": "ZEUS_KEEPER", "value": _literal(settings.keeper_socket)},
            {"name": "HOME", "value": TEMPORARY},  # the rest of the file system is read-only
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "job", "mountPath": JOB_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": TEMPORARY},
            {"name": "shm", "mountPath": SHARED_MEMORY},  # workers of a data loader pass batches through it
            {"name": "keeper", "mountPath": settings.keeper_folder, "readOnly": True},
            *({"name": name, "mountPath": folder} for name, _, folder in _claims(settings)),
        ],
    }
    if gpus:
        container["resources"] = {"limits": {settings.gpu_resource: gpus}}
    return container


def _literal(text: str) -> str:
    """The text as Kubernetes must be given it: in commands and variables it replaces $(NAME), and $$ by one $."""
    return text.replace("$", "$$")


def _claims(settings: KubernetesSettings) -> list[tuple[str, str, str]]:
    """The volume, the claim and the folder of each claim."""
    return [(f"claim-{number}", claim, folder) for number, (claim, folder) in enumerate(settings.claims.items())]
