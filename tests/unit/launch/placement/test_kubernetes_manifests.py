"""What the manifests of a job say: names, security, retries, and the time to end well."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.waiting import PATIENCE_SECONDS, eventually
from zeus.client.resilient.retry import look
from zeus.errors import InputError
from zeus.launch.job_file.placements import KINDS, KubernetesSettings
from zeus.launch.placement.kubernetes_manifests import (
    GRACE_SECONDS,
    MOST_NAME,
    Work,
    dns_label,
    render,
)
from zeus.launch.process.child import gone_seconds
from zeus.settings.types import TimeLimits

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # also the name of a Service
JOB_FILE = 'name = "asr"\ncommand = "python train.py"\n'


def rendered(recurrences: int = 1, **settings: Any) -> list[dict[str, Any]]:
    if settings.get("kind") == "cronjob":
        settings = {"schedule": "@daily", **settings}
    command = ["python3", "-m", "zeus.cli", "run", "/etc/zeus-job/job.toml", "--recurrences", "1"]
    work = Work("asr", JOB_FILE, command, ["torchrun", "train.py", "$(date)"], {"PRICE": "$(HOME)"}, recurrences)
    return render(KubernetesSettings(image="train:1", **settings), work, "0a1b2c")


def pods(whole: dict[str, Any]) -> list[dict[str, Any]]:
    match whole["kind"]:
        case "Job":
            return [whole["spec"]["template"]["spec"]]
        case "CronJob":
            return [whole["spec"]["jobTemplate"]["spec"]["template"]["spec"]]
        case _:
            return [one["template"]["spec"] for one in whole["spec"]["pytorchReplicaSpecs"].values()]


@given(st.text(min_size=1, max_size=200), st.integers(20, MOST_NAME))
def test_every_job_gets_a_name_that_kubernetes_accepts(text: str, most: int) -> None:
    name = dns_label(text, most)
    assert NAME.fullmatch(name)
    assert len(name) <= most


@given(st.text("aA-_/ 1", min_size=1, max_size=80), st.text("aA-_/ 1", min_size=1, max_size=80))
def test_two_jobs_have_two_names(one: str, other: str) -> None:
    assert (dns_label(one) == dns_label(other)) is (one == other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_has_the_least_rights(kind: str) -> None:
    for pod in pods(rendered(kind=kind)[1]):
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # a Service "zeus" would set ZEUS_PORT


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_reaches_the_keeper_and_nothing_else_of_its_node(kind: str) -> None:
    for pod in pods(rendered(kind=kind, keeper_socket="/run/zeus-power/k.sock", keeper_group=42)[1]):
        [container] = pod["containers"]
        [host] = [volume for volume in pod["volumes"] if "hostPath" in volume]
        assert host["hostPath"]["path"] == "/run/zeus-power"
        [mount] = [one for one in container["volumeMounts"] if one["name"] == host["name"]]
        assert (mount["mountPath"], mount["readOnly"]) == ("/run/zeus-power", True)
        assert {"name": "ZEUS_KEEPER", "value": "/run/zeus-power/k.sock"} in container["env"]
        assert pod["securityContext"]["supplementalGroups"] == [42]


def test_kubernetes_does_not_repeat_what_zeus_gave_up_but_moves_a_pod_that_was_evicted() -> None:
    job = rendered(recurrences=5)[1]["spec"]
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert (job["completions"], job["parallelism"]) == (5, 1)
    [rule] = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore" and rule["onPodConditions"][0]["type"] == "DisruptionTarget"


def test_a_pod_has_the_time_to_end_its_training_restore_limits_and_tell_the_store() -> None:
    limits, telling = TimeLimits(), look()
    slowest = limits.grace + gone_seconds(limits) + limits.keeper_answer + telling.tries + telling.answer
    assert slowest <= GRACE_SECONDS
    assert pods(rendered()[1])[0]["terminationGracePeriodSeconds"] == GRACE_SECONDS


def test_the_job_file_travels_beside_the_job() -> None:
    config, job = rendered()
    assert config["data"] == {"job.toml": JOB_FILE}
    [volume] = [one for one in pods(job)[0]["volumes"] if "configMap" in one]
    assert volume["configMap"]["name"] == config["metadata"]["name"] == job["metadata"]["name"] == "asr-0a1b2c"


def test_a_cronjob_keeps_its_name_so_that_it_can_be_applied_again() -> None:
    assert {one["metadata"]["name"] for one in rendered(kind="cronjob")} == {"asr"}


def test_gpus_claims_and_nodes_are_asked_for() -> None:
    given = {"gpus": 2, "gpu_resource": "amd.com/gpu", "claims": {"data": "/data"}, "node_selector": {"gpu": "a100"}}
    [pod] = pods(rendered(**given, service_account="trainer", namespace="ml")[1])
    [container] = pod["containers"]
    assert container["resources"] == {"limits": {"amd.com/gpu": 2}}
    assert {"name": "claim-0", "mountPath": "/data"} in container["volumeMounts"]
    assert {"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}} in pod["volumes"]
    assert pod["nodeSelector"] == {"gpu": "a100"}
    assert pod["serviceAccountName"] == "trainer"
    assert {one["metadata"]["namespace"] for one in rendered(namespace="ml")} == {"ml"}
    assert "resources" not in pods(rendered(gpus=0)[1])[0]["containers"][0]


def test_a_job_file_that_no_configmap_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="ConfigMap holds 1 MiB"):
        render(KubernetesSettings(image="train"), Work("asr", "# " + "x" * 1_100_000, ["zeus"]), "0a1b2c")


def test_the_master_of_a_pytorchjob_runs_zeus_and_its_workers_the_training_again_and_again() -> None:
    replicas = rendered(kind="pytorchjob", workers=3)[1]["spec"]["pytorchReplicaSpecs"]
    assert (replicas["Master"]["replicas"], replicas["Worker"]["replicas"]) == (1, 3)
    commands = {name: one["template"]["spec"]["containers"][0]["command"] for name, one in replicas.items()}
    assert commands["Master"][:4] == ["python3", "-m", "zeus.cli", "run"]
    assert commands["Worker"][-3:] == ["torchrun", "train.py", "$$(date)"]  # Kubernetes would replace $(date)
    variables = replicas["Worker"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PRICE", "value": "$$(HOME)"} in variables
    assert set(rendered(kind="pytorchjob")[1]["spec"]["pytorchReplicaSpecs"]) == {"Master"}


def test_a_worker_repeats_the_training_until_it_is_told_to_end(tmp_path: Path) -> None:
    worker = rendered(kind="pytorchjob", workers=1)[1]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    command = [*worker["containers"][0]["command"][:4], "sh", "-c", f"echo >> {tmp_path}/turns"]
    process = subprocess.Popen(command)
    turns = tmp_path / "turns"
    eventually(lambda: turns.exists() and len(turns.read_text()) >= 2)
    process.terminate()
    assert process.wait(PATIENCE_SECONDS) == 143


def test_an_image_is_needed() -> None:
    with pytest.raises(InputError, match=r"no image is given.*--set image=NAME"):
        KubernetesSettings()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kind": "cronjob"}, "needs a schedule"),
        ({"schedule": "@daily"}, "schedule is for kind"),
        ({"workers": 2}, "workers is for kind"),
    ],
)
def test_keys_of_one_kind_are_for_that_kind(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        KubernetesSettings(**{"image": "train", **given})
