"""What is asked of Ray, what it answers, and the file of variables, which may hold a token. Needs no cluster."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.job import JobSpec
from zeus.launch.job_file.values import JobFile
from zeus.launch.placement.ray import Ray, entrypoint, read_job
from zeus.launch.placement.ray_start import leave, remove_left, take, variables_file
from zeus.launch.placement.submission import Submission

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1)
COMMAND = ["python", "-m", "zeus.cli", "run"]


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))


@given(TEXTS, TEXTS)
def test_a_shell_reads_the_entrypoint_as_it_was_meant(variables: str, folder: str) -> None:
    parts = shlex.split(entrypoint(COMMAND, variables, folder))
    assert parts == ["exec", "python", "-m", "zeus.launch.placement.ray_start", variables, folder, *COMMAND]


def ray(**settings: Any) -> Ray:
    spec = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8,), default_batch_size=8)
    file = JobFile(spec=spec, command=("train",), env={"TOKEN": "secret"})
    return Ray(Submission(file=file, path=Path("/home/me/job.toml"), folder=Path("/home/me"), settings=settings))


def test_ray_places_the_run_by_what_it_needs() -> None:
    place = ray(gpus=2, cpus=0.5, resources={"accelerator_type:A100": 0.001})
    asked = place.request
    assert (asked["entrypoint_num_gpus"], asked["entrypoint_num_cpus"]) == (2, 0.5)
    assert asked["entrypoint_resources"] == {"accelerator_type:A100": 0.001}
    assert place.needs == "2 GPU, 0.5 CPU and 0.001 accelerator_type:A100"


@pytest.mark.parametrize(
    ("state", "code", "message", "status", "sentence"),
    [
        ("SUCCEEDED", 0, "Job finished successfully.", 0, "job a: succeeded"),
        ("FAILED", 3, "Job entrypoint command failed", 3, "job a: failed, exit code 3"),
        ("FAILED", None, "The node died.\nmore", 1, "job a: failed, exit code 1 (The node died)"),
        ("STOPPED", None, "", 143, "job a: stopped, exit code 143"),
        ("PENDING", None, "It waits.", None, "job a: pending"),
        ("RUNNING", None, None, None, "job a: running"),
    ],
)
def test_a_job_of_ray(state: str, code: int | None, message: str | None, status: int | None, sentence: str) -> None:
    job = read_job("a", state, code, message)
    assert (job.exit_code, job.sentence) == (status, sentence)


def test_the_job_gets_what_was_left_and_nobody_else_does() -> None:
    leave(file := variables_file("a"), {"ZEUS_TOKEN": "secret"})
    assert file.stat().st_mode & 0o077 == 0
    assert take(file) == {"ZEUS_TOKEN": "secret"}
    assert not file.exists()


def test_the_file_of_a_job_that_was_stopped_before_it_started_is_removed_and_no_other() -> None:
    remove_left(lambda job: True)  # there is no folder yet
    for job in ("stopped", "waiting"):
        leave(variables_file(job), {"ZEUS_TOKEN": "secret"})
    remove_left(lambda job: job == "stopped")
    assert [variables_file(job).exists() for job in ("stopped", "waiting")] == [False, True]
