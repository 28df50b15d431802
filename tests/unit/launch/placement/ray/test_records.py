"""The states of a Ray job, as exit codes and sentences."""

from __future__ import annotations

import pytest

from zeus.launch.placement.ray.records import RayJobState


@pytest.mark.parametrize(
    ("state", "code", "message", "status", "sentence"),
    [
        ("SUCCEEDED", 0, "Job finished successfully.", 0, "job a: succeeded"),
        ("FAILED", 3, "Job entrypoint command failed", 3, "job a: failed, exit code 3"),
        ("FAILED", None, "The node died.\nmore", 1, "job a: failed, exit code 1: The node died."),
        ("STOPPED", None, "", 143, "job a: stopped, exit code 143"),
    ],
)
def test_a_job_that_has_ended(state: str, code: int | None, message: str, status: int, sentence: str) -> None:
    job = RayJobState(id="a", state=state, driver_exit_code=code, message=message)
    assert (job.is_final, job.status, job.sentence) == (True, status, sentence)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_job_that_has_not_ended(state: str) -> None:
    job = RayJobState(id="a", state=state)
    assert (job.is_final, job.sentence) == (False, f"job a: {state.lower()}")
