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


def supervisor(place: RayPlace) -> int:
    """The worker of Ray that has started the run."""
    (pid,) = [pid for pid, name in processes_of(place.cluster.folder) if name.startswith("ray::JobSupervisor")]
    return pid


def job_of(watching: subprocess.Popen[str]) -> str:
    """The id of the job that is watched."""
    assert watching.stderr is not None
    (job,) = re.findall(r"zeus-\S+(?=\.)", watching.stderr.readline())
    return str(job)


def state_of(place: RayPlace, job: str) -> str:
    told = place.cluster.call("curl", "--silent", f"{place.cluster.dashboard}/api/jobs/{job}")
    return str(json.loads(told)["status"])


def variables_left(place: RayPlace) -> list[Path]:
    return list((place.cluster.folder / "data" / "zeus" / "ray").glob("*"))


def test_a_run_gets_its_gpus_and_its_store_and_no_secret_is_shown(place: RayPlace) -> None:
    done = place.run("--on", "ray", "--set", "gpus=1", "--watch")
    assert done.returncode == 0, done.stderr
    assert "GPUs 0." in done.stderr or "GPUs 1." in done.stderr
    assert "recurrence 1: batch size 16 reached the target" in done.stderr
    assert done.stdout.endswith(": succeeded\n")
    assert tries(place) == [(1, Ending.CONVERGED)]
    shown = place.cluster.call("curl", "--silent", f"{place.cluster.dashboard}/api/jobs/")
    assert "zeus.launch.placement.ray_start" in shown
    assert place.cluster.token not in shown + done.stderr and STORE not in shown
    assert variables_left(place) == []
    assert place.limits() == [250.0, 250.0]


def test_a_job_whose_worker_is_killed_restores_its_limit_and_another_continues_it(place: RayPlace) -> None:
    watching = held(place)
    job = job_of(watching)
    os.kill(supervisor(place), signal.SIGKILL)
    told = ended(watching, 1)
    assert f"To continue it, submit it again with ZEUS_RUN_ID={job}" in told
    eventually(lambda: place.limits() == [250.0, 250.0])
    (place.folder / "hold").unlink()
    again = place.run("--on", "ray", "--watch", ZEUS_RUN_ID=job)
    assert again.returncode == 0, again.stderr
    assert tries(place) == [(1, Ending.LOST), (1, Ending.CONVERGED)]
    assert place.limits() == [250.0, 250.0]


def test_a_job_whose_node_is_lost_restores_its_limit_and_another_continues_it_elsewhere(place: RayPlace) -> None:
    watching = held(place)
    job = job_of(watching)
    raylet = int(Path(f"/proc/{supervisor(place)}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(raylet, signal.SIGKILL)
    assert f"ZEUS_RUN_ID={job}" in ended(watching, 1)
    eventually(lambda: place.limits() == [250.0, 250.0])
    (place.folder / "hold").unlink()
    place.cluster.add_node(gpus=2)
    again = place.run("--on", "ray", "--watch", ZEUS_RUN_ID=job)
    assert again.returncode == 0, again.stderr
    assert tries(place) == [(1, Ending.LOST), (1, Ending.CONVERGED)]
    assert place.limits() == [250.0, 250.0]


def test_a_stopped_job_restores_its_limit_and_says_what_it_used(place: RayPlace) -> None:
    watching = held(place)
    job = job_of(watching)
    place.cluster.call("ray", "job", "stop", "--address", place.cluster.dashboard, job)
    told = ended(watching, 143)
    assert "interrupted by SIGTERM" in told
    assert tries(place) == [(1, Ending.LOST)]
    assert place.limits() == [250.0, 250.0]


def test_without_enough_gpus_it_says_what_it_waits_for_and_ctrl_c_only_stops_watching(place: RayPlace) -> None:
    watching = place.start("--on", "ray", "--watch", "--set", "gpus=3")
    job = job_of(watching)
    assert watching.stderr is not None
    assert watching.stderr.readline() == f"job {job}: pending (waits until 3 GPU and 1 CPU are free on one node)\n"
    assert len(variables_left(place)) == 1
    watching.send_signal(signal.SIGINT)
    told = watching.communicate(timeout=PATIENCE_SECONDS)[1]
    assert (watching.returncode, f"job {job} goes on" in told) == (130, True)
    place.cluster.call("ray", "job", "stop", "--no-wait", "--address", place.cluster.dashboard, job)
    place.cluster.add_node(gpus=3)  # Ray stops a job that waits as soon as it can start it
    eventually(lambda: state_of(place, job) == "STOPPED")
    assert tries(place) == []
    assert place.run("--on", "ray", "--watch", "--set", "gpus=1").returncode == 0
    assert variables_left(place) == []  # the next submission removes that of a job that did not start


def test_where_no_cluster_answers_it_says_which_address_to_give(place: RayPlace) -> None:
    done = place.run("--on", "ray", "--set", "address=http://127.0.0.1:9", RAY_ADDRESS=place.cluster.dashboard)
    assert done.returncode == 1
    assert "no Ray cluster answers at http://127.0.0.1:9 (" in done.stderr
    assert variables_left(place) == []
