"""`zeus run --on kubernetes`: manifests that the published schemas accept, and that hold no secret."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.paths import ROOT
from zeus import __version__
from zeus.cli.main import main
from zeus.launch.job_file.placements import KubernetesSettings
from zeus.launch.placement.kubernetes import to_yaml
from zeus.launch.placement.kubernetes_manifests import Work, render

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`pip install kubernetes-validate` is needed")

JOB_FILE = """\
name = "Sentiment / nightly"
command = "python train.py --batch-size {batch_size}"  # Ωμέγα: "quotes", tabs	and colons
batch_sizes = [8, 16]
default_batch_size = 16
target_metric = 0.84
max_epochs = 10
[kubernetes]
image = "registry.example:5000/team/train:1.2"
namespace = "ml"
gpus = 2
claims = {"imagenet" = "/data"}
node_selector = {"gpu" = "a100"}
"""
DEPLOYED = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.29", "1.33", "1.37")

# Written from the fields that Kubeflow's definition of a PyTorchJob (kubeflow.org/v1) has.
COUNT = {"type": "integer", "minimum": 0}
REPLICA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["template"],
    "properties": {
        "replicas": COUNT,
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "template": {"type": "object"},
    },
}
PYTORCH_JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "kind": {"const": "PyTorchJob"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["pytorchReplicaSpecs"],
            "properties": {
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "backoffLimit": COUNT,
                        "cleanPodPolicy": {"enum": ["Running", "All", "None"]},
                        "ttlSecondsAfterFinished": COUNT,
                    },
                },
                "nprocPerNode": {"type": "string"},
                "pytorchReplicaSpecs": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"Master": REPLICA, "Worker": REPLICA},
                },
            },
        },
    },
}


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB_FILE)
    return path


def zeus(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return int(str(ended.value.code)), out, err


def printed(capsys: pytest.CaptureFixture[str], job_file: Path, *flags: object) -> list[dict[str, Any]]:
    status, out, err = zeus(capsys, "run", job_file, "--on", "kubernetes", *flags)
    assert (status, err) == (0, "")
    return list(yaml.safe_load_all(out))


def accept(manifest: dict[str, Any]) -> None:
    """Check a manifest against the published schemas. Unknown fields are errors."""
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    "flags", [(), ("--set", "kind=cronjob", "--set", "schedule=0 3 * * *")], ids=["job", "cronjob"]
)
def test_the_published_schemas_accept_a_job(
    capsys: pytest.CaptureFixture[str], job_file: Path, flags: tuple[str, ...]
) -> None:
    manifests = printed(capsys, job_file, "--recurrences", 3, *flags)
    assert [one["kind"] for one in manifests] == ["ConfigMap", "CronJob" if flags else "Job"]
    for manifest in manifests:
        accept(manifest)
    assert manifests[0]["data"]["job.toml"] == JOB_FILE


def test_the_schemas_would_notice_a_mistake(capsys: pytest.CaptureFixture[str], job_file: Path) -> None:
    _, job = printed(capsys, job_file)
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"]["runAsRoot"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        accept(job)


def test_a_pytorchjob_has_known_fields_and_pods_that_the_published_schemas_accept(
    capsys: pytest.CaptureFixture[str], job_file: Path
) -> None:
    job_file.write_text(JOB_FILE.replace("python train.py --batch-size {batch_size}", "torchrun train.py {epochs}"))
    config, job = printed(capsys, job_file, "--set", "kind=pytorchjob", "--set", "workers=3")
    accept(config)
    jsonschema.validate(job, PYTORCH_JOB)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert replicas["Worker"]["template"]["spec"]["containers"][0]["command"][-3:] == ["torchrun", "train.py", "10"]
    for replica in replicas.values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": replica["template"]["spec"]}
        accept(pod)
        assert [one["name"] for one in pod["spec"]["containers"]] == ["pytorch"]


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: str(path.name))
def test_the_published_schemas_accept_what_we_ship(path: Path) -> None:
    manifests = list(yaml.safe_load_all(path.read_text()))
    for manifest in manifests:
        accept(manifest)
    assert not [one for one in manifests if one["kind"] == "Secret"]


def test_what_we_ship_runs_the_image_that_the_recipe_builds() -> None:
    recipe = (ROOT / "deploy" / "container" / "build.sh").read_text()
    assert "zeus-energy:$version" in recipe and "--user 1000:1000" in recipe
    pods = [
        manifest["spec"]["template"]["spec"]
        for path in DEPLOYED
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest["kind"] in ("DaemonSet", "Deployment")
    ]
    assert {one["image"] for pod in pods for one in pod["containers"]} == {f"zeus-energy:{__version__}"}
    assert KubernetesSettings(image="train").user == 1000


def test_the_keeper_that_we_ship_serves_the_pods_that_we_render() -> None:
    [keeper] = [one for one in yaml.safe_load_all(DEPLOYED[0].read_text()) if one["kind"] == "DaemonSet"]
    [container] = keeper["spec"]["template"]["spec"]["containers"]
    command, usual = container["command"], KubernetesSettings(image="train")
    assert command[command.index("--socket") + 1] == usual.keeper_socket
    assert command[command.index("--group") + 1] == str(usual.keeper_group)
    [volume] = keeper["spec"]["template"]["spec"]["volumes"]
    assert volume["hostPath"]["path"] == usual.keeper_folder


def test_json_is_one_list_of_the_same_manifests(capsys: pytest.CaptureFixture[str], job_file: Path) -> None:
    flags = ("--set", "kind=cronjob", "--set", "schedule=@daily")  # its names do not change
    status, out, _ = zeus(capsys, "run", job_file, "--on", "kubernetes", "--json", *flags)
    told = json.loads(out)
    assert (status, told["kind"]) == (0, "List")
    assert told["items"] == printed(capsys, job_file, *flags)


def test_no_secret_of_this_machine_is_in_a_manifest_and_no_store_is_asked(
    capsys: pytest.CaptureFixture[str], job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_STORE", "http://:hidden-token@127.0.0.1:9")
    monkeypatch.setenv("ZEUS_TOKEN", "hidden-token")
    _, out, _ = zeus(capsys, "run", job_file, "--on", "kubernetes", "--set", "secret=team-store")
    assert "hidden-token" not in out and "127.0.0.1" not in out
    [container] = list(yaml.safe_load_all(out))[1]["spec"]["template"]["spec"]["containers"]
    store = next(one for one in container["env"] if one["name"] == "ZEUS_STORE")
    assert store["valueFrom"]["secretKeyRef"]["name"] == "team-store"


def test_what_is_set_wins_over_the_job_file(capsys: pytest.CaptureFixture[str], job_file: Path) -> None:
    given = ["image=other:2", "gpus=4", "node_selector.gpu=h100", "node_selector.zone=b", "kubernetes.namespace=prod"]
    job = printed(capsys, job_file, *(part for one in given for part in ("--set", one)))[1]
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "other:2"
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert pod["nodeSelector"] == {"gpu": "h100", "zone": "b"}
    assert job["metadata"]["namespace"] == "prod"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--on", "kubernetes", "--set", "namespace=Not Valid"), "namespace=Not Valid: give a name of small letters"),
        (("--on", "kubernetes", "--set", "node_selector=gpu"), "give a table of labels of nodes"),
        (("--on", "kubernetes", "--set", "schedule=@daily"), "schedule is for kind"),
        (("--on", "kubernetes", "--set", "kind=pytorchjob", "--set", "workers=2"), "{batch_size} in the command"),
        (("--on", "kubernetes", "--set", "imge=train"), "Did you mean 'image'?"),
        (("--on", "kubernetes", "--watch"), "--watch needs --on slurm or --on ray"),
    ],
)
def test_bad_values_are_refused_before_anything_is_printed(
    capsys: pytest.CaptureFixture[str], job_file: Path, flags: tuple[str, ...], why: str
) -> None:
    status, out, err = zeus(capsys, "run", job_file, *flags)
    assert (status, out) == (2, "")
    assert why in err


def test_a_dry_run_prints_the_manifests_too(capsys: pytest.CaptureFixture[str], job_file: Path) -> None:
    assert [one["kind"] for one in printed(capsys, job_file, "--dry-run")] == ["ConfigMap", "Job"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", ["1e3", "y", "0o17", "null", "12:30:45", "Ωμέγα 🔋", "a: b # c", "x" * 200, "- {}"])
def test_kubectl_reads_what_we_print_for_odd_names(
    capsys: pytest.CaptureFixture[str], job_file: Path, name: str
) -> None:
    text = JOB_FILE.replace("Sentiment / nightly", name)
    job_file.write_text(text.replace('{"gpu" = "a100"}', '{"gpu" = "1e3", "rack" = "y", "zone" = "0o17"}'))
    status, out, err = zeus(capsys, "run", job_file, "--on", "kubernetes")
    assert (status, err) == (0, "")
    read = subprocess.run(
        ["kubectl", "annotate", "--local", "--dry-run=client", "-f", "-", "read=yes", "-o", "json"],
        input=out,
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.returncode == 0, read.stderr
    found = json.JSONDecoder()
    config, end = found.raw_decode(read.stdout)
    job, _ = found.raw_decode(read.stdout[end:].lstrip())
    assert config["metadata"]["annotations"] == job["metadata"]["annotations"] == {"zeus/job-id": name, "read": "yes"}
    assert config["data"]["job.toml"] == job_file.read_text()
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "1e3", "rack": "y", "zone": "0o17"}


def expanded(text: str) -> str:
    """What Kubernetes makes of a text in a command or a variable, where no variable is known by any name but X."""
    return re.sub(r"\$(?:(\$)|\(X\))", lambda found: found[1] or "replaced", text)


@given(st.text("$()Xa", max_size=12))
def test_kubernetes_passes_a_workers_command_and_variables_on_unchanged(text: str) -> None:
    settings = KubernetesSettings(image="train", kind="pytorchjob", workers=1)
    work = Work("asr", "", ["zeus"], training=["sh", "-c", text], variables={"A": text})
    worker = render(settings, work, "0a1b2c")[1]["spec"]["pytorchReplicaSpecs"]["Worker"]
    [container] = worker["template"]["spec"]["containers"]
    assert expanded(container["command"][-1]) == text
    assert expanded(container["env"][-1]["value"]) == text


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_yaml_holds_any_job_file_unchanged(text: str) -> None:
    manifests = render(KubernetesSettings(image="train"), Work("asr", text, ["zeus"]), "0a1b2c")
    assert list(yaml.safe_load_all(to_yaml(manifests))) == manifests
