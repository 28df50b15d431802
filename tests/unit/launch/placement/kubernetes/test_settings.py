"""[kubernetes]: what is refused, and how."""

from __future__ import annotations

from typing import Any

import pytest

from zeus.errors import InputError
from zeus.launch.placement.kubernetes.settings import KubernetesSettings

IMAGES = ["train", "team/train:1.2", "registry.example:5000/a/b:v1", f"ghcr.io/x/y@sha256:{'0a' * 32}"]


@pytest.mark.parametrize("image", IMAGES)
def test_references_of_images_are_taken(image: str) -> None:
    assert KubernetesSettings(image=image).image == image


def test_an_image_is_needed() -> None:
    with pytest.raises(InputError, match=r"no image is given.*--image"):
        KubernetesSettings()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"image": "two words"}, "image = 'two words'"),
        ({"kind": "deployment"}, "kind = 'deployment'.*job, cronjob, pytorchjob"),
        ({"namespace": "Team_A"}, "namespace = 'Team_A'"),
        ({"namespace": "a" * 64}, "namespace"),
        ({"service_account": "me@here"}, "service_account = 'me@here'"),
        ({"gpus": -1}, "gpus = -1"),
        ({"gpus": 0.5}, "gpus = 0.5.*whole"),
        ({"gpu_resource": "gpu"}, "gpu_resource = 'gpu'"),
        ({"user": 0}, "user = 0.*root"),
        ({"keeper_group": 2**32}, "keeper_group"),
        ({"node_selector": {"gpu": "a 100"}}, "node_selector"),
        ({"node_selector": {"gpu": 100}}, "node_selector"),
        ({"node_selector": {"no/such/label": "x"}}, "node_selector"),
        ({"claims": {"data": "data"}}, "claims.*absolute"),
        ({"claims": {"data": "/a/../b"}}, "claims"),
        ({"claims": {"data": "/"}}, "claims"),
        ({"claims": {"data": "/run"}}, "claims.*the pod uses /run/zeus"),
        ({"claims": {"data": "/tmp"}}, "claims.*the pod uses /tmp"),
        ({"claims": {"a": "/data", "b": "/data/more"}}, "claims.*the pod uses /data"),
        ({"claims": {"Data": "/data"}}, "claims = 'Data'"),
    ],
)
def test_a_value_that_kubernetes_would_refuse_is_refused_by_its_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        KubernetesSettings(**{"image": "train", **given})


@pytest.mark.parametrize(
    "path",
    [
        "keeper.sock",
        "/keeper.sock",
        "/run/keeper.sock",
        "/run/containerd/containerd.sock",
        "/proc/1/root/run/zeus/keeper.sock",
        "/run/zeus/../keeper.sock",
        "/run/zeusx/keeper.sock",
    ],
)
def test_a_pod_is_never_given_a_folder_of_its_node_that_others_use(path: str) -> None:
    with pytest.raises(InputError, match=r"keeper_socket.*the pod gets that folder"):
        KubernetesSettings(image="train", keeper_socket=path)


def test_a_secret_that_was_given_instead_of_its_name_is_not_repeated() -> None:
    with pytest.raises(InputError, match="not the name of a Secret") as refused:
        KubernetesSettings(image="train", secret="http://:zeus_1f0c_hidden@host:7070")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "schedule", ["0 3 * * *", "*/15 8-18 * * mon-fri", "0 0 1,15 JAN ?", "@hourly", "5/10 * * * 0"]
)
def test_schedules_of_kubernetes_are_taken(schedule: str) -> None:
    assert KubernetesSettings(image="train", kind="cronjob", schedule=schedule).schedule == schedule


WRONG = """
daily
@reboot
* * * *
60 * * * *
* 24 * * *
* * 0 * *
* * * 13 *
* * * * 7
*/0 * * * *
9-3 * * * *
"""


@pytest.mark.parametrize("schedule", WRONG.strip().splitlines())
def test_other_schedules_are_refused(schedule: str) -> None:
    with pytest.raises(InputError, match="schedule"):
        KubernetesSettings(image="train", kind="cronjob", schedule=schedule)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kind": "cronjob"}, "needs a schedule"),
        ({"schedule": "@daily"}, "schedule is for kind"),
        ({"workers": 2}, "workers is for kind"),
        ({"kind": "pytorchjob", "workers": -1}, "workers = -1"),
    ],
)
def test_keys_of_one_kind_are_for_that_kind(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        KubernetesSettings(**{"image": "train", **given})
