"""Whichever program meets an error ends with the same exit code: 2 for bad input, 1 for a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zeus.device.find import no_gpu

pytestmark = pytest.mark.usefixtures("warm")

BAD_INPUT = {
    "zeus": ["zeus.cli", "jobs", "show", "asr", "--store", "sqlite:////nowhere/zeus.db"],
    "monitor": ["zeus.monitor", "power", "--update-period", "0"],
    "zeus keeper": ["zeus.cli", "keeper", "--socket", "{folder}/socket", "--group", "there-is-no-such-group"],
    "keeper": ["zeus.device.keeper", "--socket", "{folder}/socket", "--group", "there-is-no-such-group"],
}
FAILED = {
    "zeus": ["zeus.cli", "restore"],
    "monitor": ["zeus.monitor", "energy"],
    "zeus keeper": ["zeus.cli", "keeper", "--socket", "{folder}/socket", "--group", "root"],
    "keeper": ["zeus.device.keeper", "--socket", "{folder}/socket", "--group", "root"],
}


def run(folder: Path, arguments: list[str], *, broken: bool = False) -> subprocess.CompletedProcess[str]:
    """A program on a virtual GPU. If broken: no GPU is visible, and others can write to the keeper's folder."""
    notes = folder / "notes"
    notes.mkdir()
    notes.chmod(0o777 if broken else 0o700)
    environ = {
        **os.environ,
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "ZEUS_VIRTUAL_STATE": str(folder / "cards"),
        "ZEUS_KEEPER_STATE": str(notes),
        **({"CUDA_VISIBLE_DEVICES": ""} if broken else {}),
    }
    call = [sys.executable, "-m", *(one.format(folder=folder) for one in arguments)]
    return subprocess.run(call, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("program", BAD_INPUT)
def test_bad_input_ends_every_program_with_2(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, BAD_INPUT[program])
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", FAILED)
def test_a_failure_ends_every_program_with_1(tmp_path: Path, program: str) -> None:
    done = run(tmp_path, FAILED[program], broken=True)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_the_line_of_an_error_begins_with_the_name_of_the_program(tmp_path: Path) -> None:
    assert run(tmp_path, FAILED["zeus"], broken=True).stderr.startswith("zeus: the keeper's folder ")


@pytest.mark.parametrize("program", [["zeus.cli", "env"], ["zeus.cli", "monitor"], ["zeus.monitor", "energy"]])
def test_where_no_gpu_is_visible_every_program_says_it_in_the_same_words(tmp_path: Path, program: list[str]) -> None:
    done = run(tmp_path, program, broken=True)
    said = " ".join((done.stdout + done.stderr).split())
    assert no_gpu({"CUDA_VISIBLE_DEVICES": ""}) in said


def test_a_measured_command_is_told_so_too(tmp_path: Path) -> None:
    done = run(tmp_path, ["zeus.cli", "measure", "true"], broken=True)
    assert no_gpu({"CUDA_VISIBLE_DEVICES": ""}) in done.stderr
