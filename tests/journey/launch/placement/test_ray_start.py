"""What a job of Ray starts on its node: it takes its variables and becomes `zeus run`. Needs no Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

START = "zeus.launch.placement.ray_start"
TELLS = "import os; print(os.getcwd(), os.environ['ZEUS_STORE'])"


def start(variables: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", START, str(variables), str(folder), *command]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.fixture
def variables(tmp_path: Path) -> Path:
    file = tmp_path / "v.json"
    file.write_text(json.dumps({"ZEUS_STORE": "http://zeus:7070"}))
    return file


def test_a_run_has_its_variables_and_its_folder_and_the_file_is_gone(variables: Path, tmp_path: Path) -> None:
    done = start(variables, tmp_path, sys.executable, "-c", TELLS)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path} http://zeus:7070\n")
    assert "zeus: running on " in done.stderr
    assert not variables.exists()


def test_a_run_that_cannot_begin_says_why(variables: Path, tmp_path: Path) -> None:
    done = start(tmp_path / "none.json", tmp_path, "true")
    assert (done.returncode, "none.json cannot be read on this node" in done.stderr) == (1, True)
    done = start(variables, tmp_path, "/no/such")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        127,
        "zeus: /no/such cannot be run on this node: No such file or directory.",
    )
    variables.write_text("{}")
    done = start(variables, tmp_path / "none", "true")
    assert (done.returncode, f"this node does not see the folder {tmp_path / 'none'}" in done.stderr) == (1, True)
    assert not variables.exists()
