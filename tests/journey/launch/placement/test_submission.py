"""`zeus run --on`: what is checked before anything is submitted. Needs no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.launch_place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path)
    here.job(more='[slurm]\npartition = "gpu"\narray = "1-4"\n')
    here.script()
    return here


def test_a_dry_run_prints_the_batch_script_and_submits_nothing(place: Place) -> None:
    done = place.run("--on", "slurm", "--dry-run", "--partition", "long", "--recurrences", "3", PATH="/nonexistent")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"#SBATCH --partition=long", "#SBATCH --array=1-4"} <= set(lines)
    assert lines[-1].startswith("exec ") and lines[-1].endswith(f"run {place.folder}/job.toml --recurrences 3")


def test_a_sqlite_file_is_refused_with_the_reason(place: Place) -> None:
    done = place.run("--on", "slurm")
    assert done.returncode == 2
    assert "is a SQLite file. Its locks do not work between machines" in done.stderr


def test_without_the_programs_of_slurm_it_says_where_to_run_it(place: Place) -> None:
    done = place.run("--on", "slurm", ZEUS_STORE="http://127.0.0.1:9", PATH="/nonexistent")
    assert done.returncode == 2
    assert "sbatch is not found. Run this where" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--partition", "gpu"), "--partition needs --on slurm"),
        (("--watch",), "--watch needs --on"),
        (("--on", "slurm", "--array", "all"), "array='all': give task numbers"),
    ],
)
def test_flags_that_cannot_be_used_are_refused(place: Place, arguments: tuple[str, ...], why: str) -> None:
    done = place.run(*arguments)
    assert done.returncode == 2
    assert why in done.stderr
