"""Recurrences on a real Slurm of two nodes: arrays, preemption, cancellation, and a failed node."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.launch_place import HOLD
from support.paths import EXAMPLES
from support.postgres import PostgresServer
from support.slurm import NODES, SlurmCluster, SlurmPlace, slurm
from support.waiting import eventually
from zeus.job import Ending
from zeus.store import Store

pytestmark = pytest.mark.usefixtures("warm")

__all__ = ["slurm"]

SECRET = "s3cretpassword"


@pytest.fixture
def place(slurm: SlurmCluster, postgres: PostgresServer, tmp_path: Path) -> SlurmPlace:
    address = postgres.new_database().replace("postgres@", f"postgres:{SECRET}@")
    folder = tmp_path / """the "best" job's #1"""  # sbatch, scontrol and sh must all take it as one word
    folder.mkdir()
    here = SlurmPlace(folder, slurm, address)
    here.job()
    here.script(before=HOLD)
    return here


def submit(place: SlurmPlace, *arguments: str) -> str:
    report = place.report("--on", "slurm", "--set", "gres=gpu:2", *arguments)
    assert report["place"] == "slurm"
    job_id: str = report["jobs"][0]["id"]
    return job_id


def held(place: SlurmPlace, *arguments: str) -> tuple[str, str]:
    """A job whose script stands in its third epoch, and its node."""
    (place.folder / "hold").touch()
    job_id = submit(place, *arguments)
    node = place.cluster.until(job_id, "RUNNING").nodes
    eventually(lambda: epochs(place.store()) >= 1, place.cluster.told)
    eventually(lambda: min(place.cluster.limits(node)) < 250.0)
    return job_id, node


def epochs(store: Store) -> int:
    """Of the open trial, as last reported."""
    kept = [one for one in _trials(store) if one.trial.ending is Ending.OPEN and one.so_far is not None]
    return kept[0].so_far.epochs if kept and kept[0].so_far else 0


def _trials(store: Store) -> list[Any]:
    try:
        return store.trials("toy") if "toy" in store.pulse() else []
    finally:
        store.close()


def tries(place: SlurmPlace) -> list[tuple[int, Ending]]:
    return [(one.trial.ask.recurrence, one.trial.ending) for one in _trials(place.store())]


def charged(place: SlurmPlace) -> float:
    """The energy of all trials, which must all be known."""
    return sum(one.latest_outcome.joules for one in _trials(place.store()))


def test_an_array_runs_a_recurrence_in_each_task_and_the_example_shows_how(
    slurm: SlurmCluster, place: SlurmPlace
) -> None:
    shutil.copytree(EXAMPLES, place.folder / "examples")
    shutil.copy(EXAMPLES / "slurm_array.toml", place.folder / "job.toml")
    report = place.report("--on", "slurm", "--set", "array=1-2", "--watch")
    assert [one["state"] for one in report["jobs"]] == ["COMPLETED"] * 2
    full = json.loads(place.jobs("show", "slurm-array", "--json"))
    assert [(row["number"], row["end"]) for row in full["history"]] == [(n, "converged") for n in (1, 2)]
    for one in report["jobs"]:
        assert (place.folder / f"slurm-{one['id']}.out").exists()
        assert one["log"] == str(place.folder / f"slurm-{one['id']}.out")
    noted = {float(one["comment"].split()[1]) for one in report["jobs"]}
    assert noted == {round(row["joules"], 1) for row in full["history"]}
    assert all(slurm.limits(node) == [250.0, 250.0] for node in NODES)


def test_a_preempted_job_is_requeued_and_continues_its_recurrence(slurm: SlurmCluster, place: SlurmPlace) -> None:
    job_id, node = held(place)
    other = slurm.call(
        *("sbatch", "--parsable", "--partition=high", f"--nodelist={node}", "--gres=gpu:2", "--wrap=sleep 1")
    ).strip()
    eventually(lambda: tries(place) == [(1, Ending.LOST)], slurm.told)
    slurm.until(other, "RUNNING", "COMPLETED")
    assert slurm.limits(node) == [250.0, 250.0]
    (place.folder / "hold").unlink()
    slurm.hurry(job_id)
    task = slurm.until(job_id, "COMPLETED", "FAILED")
    assert (task.state, task.restarts) == ("COMPLETED", 1)
    assert tries(place) == [(1, Ending.LOST), (1, Ending.CONVERGED)]
    assert task.comment.startswith(f"zeus: {charged(place):.1f} J, ")
    assert 0 < charged(place) <= slurm.joules()
    assert all(slurm.limits(node) == [250.0, 250.0] for node in NODES)


def test_a_cancelled_job_restores_its_limit_and_says_what_it_used(slurm: SlurmCluster, place: SlurmPlace) -> None:
    job_id, node = held(place, "--set", "time=10")
    slurm.call("scancel", job_id)
    task = slurm.until(job_id, "CANCELLED")
    assert task.exit_code == 143
    assert tries(place) == [(1, Ending.LOST)]
    assert 0 < charged(place) <= slurm.joules()
    assert slurm.limits(node) == [250.0, 250.0]


def test_a_job_whose_node_fails_goes_on_elsewhere(slurm: SlurmCluster, place: SlurmPlace) -> None:
    job_id, node = held(place)
    slurm.kill_node(node)
    slurm.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=failed")  # Slurm finds out after 30 s
    eventually(lambda: slurm.limits(node) == [250.0, 250.0])
    assert tries(place) == [(1, Ending.OPEN)]  # nobody could tell
    (place.folder / "hold").unlink()
    eventually(lambda: slurm.tasks(job_id)[0].restarts == 1, slurm.told)
    slurm.hurry(job_id)
    task = slurm.until(job_id, "COMPLETED", "FAILED")
    assert (task.state, task.nodes != node) == ("COMPLETED", True)
    assert tries(place) == [(1, Ending.LOST), (1, Ending.CONVERGED)]
    assert 0 < charged(place) <= slurm.joules()
    slurm.start_node(node)
    eventually(lambda: slurm.state_of(node) == "IDLE", slurm.told)


def test_no_secret_is_in_the_script_the_queue_or_the_log(slurm: SlurmCluster, place: SlurmPlace) -> None:
    job_id = submit(place, "--recurrences", "1")
    said = slurm.call("scontrol", "--details", "show", "job", job_id)
    said += slurm.call("squeue", "--states=all", f"--jobs={job_id}", "--Format=all")
    said += slurm.call("scontrol", "write", "batch_script", job_id, "-")
    assert slurm.until(job_id, "COMPLETED", "FAILED").state == "COMPLETED"
    log = (place.folder / f"slurm-{job_id}.out").read_text()
    assert "ZEUS_RUN_ID" in said and "recurrence 1" in log
    assert SECRET not in said + log


def test_a_prolog_restores_what_was_left_behind_and_refuses_a_throttled_card(
    slurm: SlurmCluster, place: SlurmPlace
) -> None:
    node = NODES[0]
    slurm.throttle(node, 125.0)
    try:
        job_id = submit(place, "--set", "slurm.partition=high")
        eventually(lambda: slurm.state_of(node).startswith("DRAIN"), slurm.told)
        slurm.until(job_id, "PENDING")
        slurm.hurry(job_id)
        assert slurm.until(job_id, "COMPLETED", "FAILED").nodes != node
        assert "throttled to 125 W" in (slurm.folder / f"prolog-{node}.log").read_text()
    finally:
        slurm.throttle(node, 250.0)
        for state in ("DOWN", "RESUME"):  # Slurm may take minutes to see that the failed job has left the node
            slurm.call("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=test")


def test_what_slurm_refuses_is_an_error_with_its_words(place: SlurmPlace) -> None:
    done = place.run("--on", "slurm", "--set", "partition=nowhere")
    assert done.returncode == 1
    assert "sbatch failed" in done.stderr and "invalid partition" in done.stderr
