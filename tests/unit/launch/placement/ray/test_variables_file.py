"""The file of a Ray job's variables, which may hold a token: only its owner reads it, and it does not stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeus.launch.placement.ray.variables_file import leave, remove_left, take, variables_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


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
