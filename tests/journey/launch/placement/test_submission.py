"""`zeus run --on`: what is checked before anything is submitted. Needs no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.launch_place import Place
from zeus.errors import InputError

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path)
    here.job(more='[slurm]\npartition = "gpu"\narray = "1-4"\n[ray]\ngpus = 2\ncpus = 4\n')
    here.script()
    return here


def test_a_dry_run_prints_the_batch_script_and_submits_nothing(place: Place) -> None:
    flags = ("--set", "partition=long", "--recurrences", "3", "--off")
    done = place.run("--on", "slurm", "--dry-run", *flags, PATH="/nonexistent")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"#SBATCH --partition=long", "#SBATCH --array=1-4"} <= set(lines)
    assert lines[-1].startswith("exec ") and lines[-1].endswith(f"run {place.folder}/job.toml --recurrences 3 --off")


def test_a_dry_run_on_ray_prints_what_would_be_asked_and_no_secret(place: Place) -> None:
    given = {"ZEUS_STORE": "http://zeus:7070", "ZEUS_TOKEN": "zeus_s3cret", "XDG_DATA_HOME": str(place.folder / "data")}
    done = place.run("--on", "ray", "--dry-run", "--set", "gpus=1", **given)
    assert done.returncode == 0, done.stderr
    asked = json.loads(done.stdout)
    assert (asked["entrypoint_num_gpus"], asked["entrypoint_num_cpus"]) == (1, 4)
    assert asked["entrypoint"].endswith(f"run {place.folder}/job.toml --recurrences 1")
    assert "s3cret" not in done.stdout and "http" not in done.stdout
    assert not (place.folder / "data").exists()


def test_a_dry_run_as_json_is_nothing_but_json(place: Place) -> None:
    report = place.report("--on", "slurm", "--dry-run")
    assert report["place"] == "slurm" and report["script"].startswith("#!/bin/sh\n#SBATCH ")


def test_an_unmodified_script_is_refused_on_several_nodes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.job(more="[slurm]\nnodes = 2\n")
    done = place.run("--on", "slurm", "--dry-run")
    assert done.returncode == 2
    assert "[metrics] on 2 nodes: `zeus run` would measure only the GPUs of the first" in done.stderr
    monkeypatch.setenv("ZEUS_NODES", "2")  # as on the node, where sbatch may have been told by `options`
    with pytest.raises(InputError, match=r"\[metrics\] on 2 nodes"):
        place.launcher(monkeypatch)


def test_the_gpus_of_all_nodes_count(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.job(metrics="", command="python train.py {batch_size} {world_size}")
    monkeypatch.setenv("ZEUS_NODES", "2")
    launcher = place.launcher(monkeypatch)
    try:
        assert (launcher.gpus.count, launcher.gpus.max_watts) == (2, 500.0)
        start = launcher.first_start(launcher.job.ask(launcher.gpus))
        assert launcher.command(start)[-1] == "2"
        assert "ZEUS_NODES" not in launcher.environ(start, launcher.logs / "log")
    finally:
        launcher.close()
    place.job(metrics="", micro_batch_size="auto")
    with pytest.raises(InputError, match='"auto" on 2 nodes'):
        place.launcher(monkeypatch)


@pytest.mark.parametrize("where", ["slurm", "ray"])
def test_a_sqlite_file_is_refused_with_the_reason(place: Place, where: str) -> None:
    done = place.run("--on", where)
    assert done.returncode == 2
    assert "is a SQLite file. Its locks do not work between machines" in done.stderr


def test_without_the_programs_of_slurm_it_says_where_to_run_it(place: Place) -> None:
    done = place.run("--on", "slurm", ZEUS_STORE="http://127.0.0.1:9", PATH="/nonexistent")
    assert done.returncode == 2
    assert "sbatch is not found. Run this where" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--set", "partition=gpu"), "--set changes a key of [slurm], [ray], [kubernetes] and needs --on"),
        (("--watch",), "--watch needs --on"),
        (("--on", "slurm", "--set", "array=all"), "--set slurm.array=all: give task numbers"),
        (("--on", "slurm", "--set", "address=head:6379"), "It is a key of [ray]."),
        (("--on", "ray", "--set", "gpus=0.5"), "Zeus measures and limits whole GPUs"),
        (("--on", "ray", "--set", "slurm.array=1-3"), "only keys of [ray] count"),
    ],
)
def test_options_that_cannot_be_used_are_refused(place: Place, arguments: tuple[str, ...], why: str) -> None:
    done = place.run(*arguments)
    assert done.returncode == 2
    assert why in done.stderr
