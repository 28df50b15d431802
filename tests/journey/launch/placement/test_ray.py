"""Recurrences on a real Ray: a whole run, a killed worker, a lost node, and a cancelled job."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launch_place import HOLD
from support.ray_place import RayCluster, RayPlace, processes_of, ray_folder
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.job import Ending
from zeus.service.auth import new
from zeus.store import open_store
from zeus.store.api import utc
from zeus.store.tokens import Scope

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install 'zeus-energy[ray]'", allow_module_level=True)

pytestmark = pytest.mark.peers
STORE = "http://127.0.0.1:7070"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A head node, a node with two GPUs, and a service, for all tests of this module."""
    with ray_folder() as here:
        made = RayCluster(here)
        try:
            database = f"sqlite:///{here}/served.db"
            serve = ["serve", "--port", "7070", "--store", database]
            kept, made.token = new("tests", Scope.REPORT, utc(0))
            open_store(database).tokens.add(kept)
            with (here / "serve.log").open("wb") as log:
                service = subprocess.Popen(
                    made.inside(sys.executable, "-m", "zeus.cli", *serve), env=made.env, stdout=log, stderr=log
                )
            made.start()
            made.add_node(gpus=2)
            eventually(lambda: "serving" in (here / "serve.log").read_text())
            yield made
        finally:
            made.close()
            service.wait()


@pytest.fixture
def place(cluster: RayCluster, tmp_path: Path) -> RayPlace:
    here = RayPlace(tmp_path, cluster, STORE, "virtual:v100x2?speed=40")
    here.job(name=tmp_path.name, more=f'[ray]\naddress = "{cluster.dashboard}"\ngpus = 2\n')
    here.script(before=HOLD)
    return here


def tries(place: RayPlace) -> list[tuple[int, Ending]]:
    store = open_store(f"sqlite:///{place.cluster.folder}/served.db")
    try:
        job = place.folder.name
        kept = store.trials(job) if job in store.pulse() else []
        return [(one.trial.ask.recurrence, one.trial.ending) for one in kept]
    finally:
        store.close()


def held(place: RayPlace) -> subprocess.Popen[str]:
    """A watched run whose script stands in its third epoch, at another power limit than the one found."""
    (place.folder / "hold").touch()
    watching = place.start("--on", "ray", "--watch", "--json")
    eventually(lambda: watching.poll() is not None or min(place.limits()) < 250.0)
    assert watching.poll() is None, watching.communicate()
    return watching


def ended(watching: subprocess.Popen[str], status: int) -> str:
    """What a watched run printed, and that it ended with this status."""
    said, told = watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == status, told
    (job,) = json.loads(said)["jobs"]
    assert job["exit_code"] == status
    return told


def workers(place: RayPlace) -> list[int]:
    return [pid for pid, name in processes_of(place.cluster.folder) if name.startswith("ray::NodeRun")]


def test_a_run_gets_its_gpus_and_its_store_and_no_secret_is_shown(place: RayPlace) -> None:
    done = place.run("--on", "ray", "--set", "gpus=1", "--watch")
    assert done.returncode == 0, done.stderr
    assert "GPUs 0." in done.stderr or "GPUs 1." in done.stderr
    assert "recurrence 1: batch size 16 reached the target" in done.stderr
    assert done.stdout.endswith(": succeeded\n")
    assert tries(place) == [(1, Ending.CONVERGED)]
    shown = place.cluster.call("curl", "--silent", f"{place.cluster.dashboard}/api/jobs/")
    assert "zeus.launch.placement.ray.driver" in shown
    assert place.cluster.token not in shown + done.stderr and STORE not in shown
    assert list((place.cluster.folder / "data" / "zeus" / "ray").iterdir()) == []
    assert place.limits() == [250.0, 250.0]


def test_a_killed_worker_is_replaced_and_the_recurrence_goes_on(place: RayPlace) -> None:
    watching = held(place)
    (worker,) = workers(place)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: (1, Ending.LOST) in tries(place))  # `zeus run` outlives its worker by what this takes
    (place.folder / "hold").unlink()
    told = ended(watching, 0)
    assert "the worker of the run, or its node, was lost" in told
    assert tries(place) == [(1, Ending.LOST), (1, Ending.CONVERGED)]
    assert place.limits() == [250.0, 250.0]


def test_a_lost_node_is_replaced_by_the_next_that_joins(place: RayPlace) -> None:
    watching = held(place)
    (worker,) = workers(place)
    raylet = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(raylet, signal.SIGKILL)  # Ray then kills what its workers have started, so nobody tells the store
    eventually(lambda: place.limits() == [250.0, 250.0])
    (place.folder / "hold").unlink()
    place.cluster.add_node(gpus=2)
    told = ended(watching, 0)
    assert told.count("zeus: running on ") == 2
    assert tries(place) == [(1, Ending.LOST), (1, Ending.CONVERGED)]
    assert place.limits() == [250.0, 250.0]


def test_a_stopped_job_restores_its_limit_and_says_what_it_used(place: RayPlace) -> None:
    watching = held(place)
    assert watching.stderr is not None
    (job,) = re.findall(r"zeus-\S+(?=\.)", watching.stderr.readline())
    place.cluster.call("ray", "job", "stop", "--address", place.cluster.dashboard, job)
    told = ended(watching, 143)
    assert "interrupted by SIGTERM" in told
    assert tries(place) == [(1, Ending.LOST)]
    assert place.limits() == [250.0, 250.0]


def test_without_enough_gpus_it_says_what_it_waits_for_and_ctrl_c_only_stops_watching(place: RayPlace) -> None:
    watching = place.start("--on", "ray", "--watch", "--set", "gpus=3")
    assert watching.stderr is not None
    (job,) = re.findall(r"zeus-\S+(?=\.)", watching.stderr.readline())
    eventually(lambda: "no node of the Ray cluster has 3 GPU and 1 CPU" in watching.stderr.readline())  # type: ignore[union-attr]
    watching.send_signal(signal.SIGINT)
    told = watching.communicate(timeout=PATIENCE_SECONDS)[1]
    assert (watching.returncode, f"job {job} goes on" in told) == (130, True)
    stopped = place.cluster.call("ray", "job", "stop", "--address", place.cluster.dashboard, job)
    assert "was stopped" in stopped
    assert tries(place) == []


def test_where_no_cluster_answers_it_says_which_address_to_give(place: RayPlace) -> None:
    done = place.run("--on", "ray", "--set", "address=http://127.0.0.1:9", RAY_ADDRESS=place.cluster.dashboard)
    assert done.returncode == 1
    assert "no Ray cluster answers at http://127.0.0.1:9 (" in done.stderr
    assert list((place.cluster.folder / "data" / "zeus" / "ray").glob("*")) == []
