"""The states of a Ray job, as exit codes and sentences."""

from __future__ import annotations

import pytest

from zeus.launch.placement.ray.records import read_job


@pytest.mark.parametrize(
    ("state", "code", "message", "status", "sentence"),
    [
        ("SUCCEEDED", 0, "Job finished successfully.", 0, "job a: succeeded"),
        ("FAILED", 3, "Job entrypoint command failed", 3, "job a: failed, exit code 3"),
        ("FAILED", None, "The node died.\nmore", 1, "job a: failed, exit code 1 (The node died)"),
        ("STOPPED", None, "", 143, "job a: stopped, exit code 143"),
        ("PENDING", None, "It waits.", None, "job a: pending"),
        ("RUNNING", None, "It runs.", None, "job a: running"),
    ],
)
def test_a_job_of_ray(state: str, code: int | None, message: str, status: int | None, sentence: str) -> None:
    job = read_job("a", state, code, message)
    assert (job.exit_code, job.sentence) == (status, sentence)
