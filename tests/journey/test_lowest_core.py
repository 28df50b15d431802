"""The core on the lowest versions that pyproject.toml allows, on every Python that it names and that is installed here.

A recurring job runs there and is shown, and a window is measured.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from support.environments import VERSIONS, environment, interpreter, lowest, project
from support.launch_place import Place
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """An interpreter with the lowest versions of what the core needs, and nothing else."""
    version: str = request.param
    return environment(interpreter(version), *lowest(version=version))


def zeus(python: Path, place: Place, *arguments: str) -> str:
    """What a command prints on its standard output."""
    done = subprocess.run(
        [python, "-m", "zeus.cli", *arguments],
        env=place.env, cwd=place.folder, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_runs_and_is_shown(python: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script()
    place.job(policy="structured")
    place.env["PATH"] = os.pathsep.join([str(python.parent), os.environ["PATH"]])

    ran = json.loads(zeus(python, place, "run", "job.toml", "--recurrences", "2", "--json"))
    assert [one["converged"] for one in ran["recurrences"]] == [True, True]
    assert "cost by recurrence" in zeus(python, place, "jobs", "show", "toy")
    assert json.loads(zeus(python, place, "jobs", "show", "toy", "--json"))["recurrences"] == 2

    measured = json.loads(zeus(python, place, "measure", "--json", "--", str(python), "-c", "pass"))
    assert measured["joules"] > 0


def test_every_version_that_is_named_is_tried() -> None:
    named = {line.rpartition(" ")[2] for line in project()["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert named == set(VERSIONS)
    assert project()["requires-python"] == f">={VERSIONS[0]}"
