"""[slurm], [ray] and [kubernetes]: `--set` overrides a key, and is checked as the job file is."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.launch.job_file.placements import PLACEMENTS, override
from zeus.launch.job_file.reader import parse_job_file

JOB = """\
name = "asr"
command = "python train.py {batch_size}"
batch_sizes = [8, 16]
default_batch_size = 16
target_metric = 0.84
max_epochs = 10
"""
GOOD = [
    ("slurm.partition", "gpu", "gpu"),
    ("slurm.time", "10", "10"),
    ("slurm.time", "12:00:00", "12:00:00"),  # TOML would read a time of the day
    ("slurm.constraint", "a100&ib", "a100&ib"),
    ("slurm.array", "1-10%2", "1-10%2"),
    ("slurm.nodes", "2", 2),
    ("slurm.options", '["--qos=long"]', ["--qos=long"]),
    ("ray.address", "http://head:8265", "http://head:8265"),
    ("ray.cpus", "0.5", 0.5),
    ("ray.resources", '{"accelerator_type:A100" = 0.001}', {"accelerator_type:A100": 0.001}),
    ("kubernetes.image", f"ghcr.io/x/y@sha256:{'0a' * 32}", f"ghcr.io/x/y@sha256:{'0a' * 32}"),
    ("kubernetes.image", '"team/train:1.2"', "team/train:1.2"),
    ("kubernetes.gpus", "0", 0),
    ("kubernetes.schedule", "0 3 * * *", "0 3 * * *"),
    ("kubernetes.keeper_socket", "/run/zeus-power/k.sock", "/run/zeus-power/k.sock"),
    ("kubernetes.claims", '{data = "/data"}', {"data": "/data"}),
]


@pytest.mark.parametrize(("key", "text", "value"), GOOD)
def test_a_value_is_that_of_a_job_file_but_needs_no_quotes(key: str, text: str, value: Any) -> None:
    place, _, name = key.partition(".")
    assert override(place, {}, [f"{key}={text}"]) == override(place, {}, [f"{name}={text}"]) == {name: value}


def test_the_last_of_several_wins_over_the_others_and_over_the_job_file() -> None:
    table = {"partition": "long", "nodes": 4}
    assert override("slurm", table, ["nodes=2", "nodes=3"]) == {"partition": "long", "nodes": 3}
    assert table == {"partition": "long", "nodes": 4}


def test_one_entry_of_a_table_is_set_and_the_others_stay() -> None:
    table = {"node_selector": {"zone": "b"}}
    wanted = {"node_selector": {"zone": "b", "nvidia.com/gpu.count": "8"}}
    assert override("kubernetes", table, ["node_selector.nvidia.com/gpu.count=8"]) == wanted
    assert override("ray", {}, ["ray.resources.tpu=2"]) == {"resources": {"tpu": 2}}
    assert table == {"node_selector": {"zone": "b"}}


@pytest.mark.parametrize(
    ("place", "text", "why"),
    [
        ("slurm", "partition", "--set partition: give KEY=VALUE"),
        ("slurm", "partiton=gpu", r"--set partiton: partiton is not known in \[slurm\]. Did you mean 'partition'"),
        ("slurm", "image=train", r"image is not known in \[slurm\]. It is a key of \[kubernetes\]"),
        ("slurm", "ray.gpus=2", r"--set ray.gpus: this run is --on slurm, so only keys of \[slurm\] count"),
        ("slurm", "partition.x=gpu", "partition of .slurm. is not a table"),
        ("slurm", "options.x=1", "options of .slurm. is not a table"),
        ("kubernetes", "claims.data=data", "--set kubernetes.claims.data=data: give a table of claims and absolute"),
    ],
)
def test_a_key_that_cannot_be_set_is_refused_with_what_may_have_been_meant(place: str, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        override(place, {}, [text])


BAD = [
    ("slurm", "array", '"all"', "give task numbers"),
    ("slurm", "array", r'"1-3\n#SBATCH --uid=0"', "give task numbers"),
    ("slurm", "partition", r'"gpu\nrm -rf /"', "on one line"),
    ("slurm", "options", '["qos=long"]', "options of sbatch"),
    ("slurm", "options", r'["--qos=long\nrm -rf /"]', "options of sbatch"),
    ("slurm", "nodes", "0", "at least 1"),
    ("ray", "gpus", "0", "at least 1"),
    ("ray", "gpus", "0.5", "Zeus measures and limits whole GPUs"),
    ("ray", "gpus", "nan", "Zeus measures and limits whole GPUs"),
    ("ray", "cpus", "-1", "at least 0"),
    ("ray", "cpus", "inf", "at least 0"),
    ("ray", "resources", '{tpu = "one"}', "numbers above 0"),
    ("ray", "resources", "{tpu = true}", "numbers above 0"),
    ("kubernetes", "image", '"two words"', "container image"),
    ("kubernetes", "kind", '"deployment"', '"job" or "cronjob" or "pytorchjob"'),
    ("kubernetes", "namespace", '"Team_A"', "small letters"),
    ("kubernetes", "namespace", f'"{"a" * 64}"', "small letters"),
    ("kubernetes", "service_account", '"me@here"', "small letters"),
    ("kubernetes", "gpus", "-1", "whole number of GPUs"),
    ("kubernetes", "workers", "-1", "whole number of pods"),
    ("kubernetes", "user", "0", "not root's 0"),
    ("kubernetes", "keeper_group", "4294967296", "not root's 0"),
    ("kubernetes", "node_selector", "{gpu = 100}", "labels of nodes"),
    ("kubernetes", "claims", '{data = "data"}', "absolute folders"),
    ("kubernetes", "claims", '{data = "/a/../b"}', "absolute folders"),
    ("kubernetes", "claims", '{Data = "/data"}', "absolute folders"),
    *(
        ("kubernetes", "keeper_socket", f'"{path}"', "the pod gets that folder")
        for path in (
            "keeper.sock",
            "/keeper.sock",
            "/run/keeper.sock",
            "/run/containerd/containerd.sock",
            "/proc/1/root/run/zeus/keeper.sock",
            "/run/zeus/../keeper.sock",
            "/run/zeus/..",
            "/run/zeusx/keeper.sock",
            "/run/zeus-a/../containerd/keeper.sock",
        )
    ),
]


@pytest.mark.parametrize(("place", "key", "value", "why"), BAD)
def test_a_wrong_value_is_refused_alike_in_the_file_and_by_set(place: str, key: str, value: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as in_file:
        parse_job_file(f"{JOB}[{place}]\n{key} = {value}\n")
    assert f"line 8: {key} = " in str(in_file.value)
    with pytest.raises(InputError, match=why) as by_set:
        override(place, {}, [f"{key}={value}"])
    assert str(by_set.value).startswith(f"--set {place}.{key}=")


def test_a_secret_that_was_given_instead_of_its_name_is_not_repeated() -> None:
    secret = "http://:zeus_1f0c_hidden@host:7070"
    with pytest.raises(InputError, match=r"line 8: secret: give the name of a Secret") as in_file:
        parse_job_file(f'{JOB}[kubernetes]\nsecret = "{secret}"\n')
    with pytest.raises(InputError, match=r"--set kubernetes.secret: give the name of a Secret") as by_set:
        override("kubernetes", {}, [f"secret={secret}"])
    assert "hidden" not in str(in_file.value) + str(by_set.value)


@given(st.sampled_from([(place, key) for place, keys in PLACEMENTS.items() for key in keys]), st.text(max_size=30))
def test_whatever_is_set_would_be_accepted_in_a_job_file(which: tuple[str, str], text: str) -> None:
    place, key = which
    try:
        found = override(place, {}, [f"{key}={text}"])
    except InputError:
        return
    assert PLACEMENTS[place][key][0](found[key])
    assert found[key] == text or found[key] == tomllib.loads(f"value = {text}")["value"]
