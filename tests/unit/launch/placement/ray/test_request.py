"""What is asked of Ray: whole GPUs, a command that a shell reads as it was meant, and no secret."""

from __future__ import annotations

import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zeus.launch.placement.ray.request import RayJob, request

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1)


def job(**given: Any) -> RayJob:
    usual = {"id": "zeus-asr-5f0c", "name": "asr", "folder": "/home/me", "command": ["python", "-m", "zeus.cli", "run"]}
    return RayJob(**{**usual, "variables": "/home/me/v.json", **given})


@given(TEXTS, TEXTS)
def test_a_shell_reads_the_entrypoint_as_it_was_meant(variables: str, folder: str) -> None:
    words = shlex.split(request(job(variables=variables, folder=folder))["entrypoint"])
    command = ["python", "-m", "zeus.cli", "run"]
    assert words == ["exec", "python", "-m", "zeus.launch.placement.ray.start", variables, folder, *command]


def test_ray_places_the_run_by_what_it_needs() -> None:
    asked = request(job(gpus=2, cpus=0.5, resources={"accelerator_type:A100": 0.001}))
    assert (asked["entrypoint_num_gpus"], asked["entrypoint_num_cpus"]) == (2, 0.5)
    assert asked["entrypoint_resources"] == {"accelerator_type:A100": 0.001}
