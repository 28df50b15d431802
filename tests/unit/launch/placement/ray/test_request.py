"""What is asked of Ray: whole GPUs, a command that a shell reads as it was meant, and no secret."""

from __future__ import annotations

import json
import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zeus.launch.placement.ray.request import RayJob, request

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1)


def job(**given: Any) -> RayJob:
    usual = {"id": "zeus-asr-5f0c", "name": "asr", "folder": "/home/me", "command": ["python", "-m", "zeus.cli", "run"]}
    return RayJob(**{**usual, "run_id": "zeus-asr-5f0c", "variables": "/home/me/v.json", **given})


@given(TEXTS, TEXTS)
def test_a_shell_reads_the_entrypoint_as_it_was_meant(name: str, folder: str) -> None:
    words = shlex.split(request(job(name=name, folder=folder))["entrypoint"])
    assert words[:2] == ["exec", "python"]
    assert words[words.index("--name") + 1] == name
    assert words[words.index("--folder") + 1] == folder
    assert words[words.index("--") + 1 :] == ["python", "-m", "zeus.cli", "run"]


def test_resources_are_asked_for_as_they_were_given() -> None:
    words = shlex.split(request(job(gpus=2, cpus=0.5, resources={"accelerator_type:A100": 0.001}))["entrypoint"])
    assert words[words.index("--gpus") + 1] == "2"
    assert words[words.index("--cpus") + 1] == "0.5"
    assert json.loads(words[words.index("--resources") + 1]) == {"accelerator_type:A100": 0.001}
