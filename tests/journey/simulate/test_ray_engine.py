"""`zeus simulate --engine ray`: the bytes of the local pool, whatever happens to workers, and nothing left behind."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ray_place import ALONE, RayCluster, processes_of, ray_folder, ray_variables
from support.waiting import PATIENCE_SECONDS, eventually

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install 'zeus-energy[ray]'", allow_module_level=True)

pytestmark = pytest.mark.peers
SWEEP = ("--gpu", "virtual:v100", "--policy", "paper,default", "--seeds", "3", "--recurrences", "20", "--json")


@pytest.fixture
def here() -> Iterator[Path]:
    with ray_folder() as folder:
        yield folder
        assert processes_of(folder) == []


def command(*args: str | Path) -> list[str]:
    return [*ALONE, sys.executable, "-m", "zeus.cli", "simulate", *map(str, args)]


def simulate(here: Path, *args: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*args),
        env=ray_variables(here),
        text=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


def started(here: Path, *args: str | Path) -> subprocess.Popen[str]:
    """A simulation on Ray that runs its first tasks, or has failed."""
    running = subprocess.Popen(
        command(*args, "--engine", "ray", "--workers", "2"),
        env=ray_variables(here), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    eventually(lambda: bool(workers(here)) or running.poll() is not None)
    return running


def cluster(here: Path, jobs: int) -> tuple[str | Path, ...]:
    """A command with one task for each of some groups."""
    table = here / "groups.csv"
    lines = [f"{group},{i * 50},{i * 50 + 10 * (group + 1) ** 2}" for group in range(8) for i in range(jobs)]
    table.write_text("\n".join(["group,start_time,end_time", *lines]) + "\n")
    return ("cluster", "--groups", table, "--gpu", "virtual:v100", "--policy", "paper,default", "--json")


def test_a_sweep_on_ray_prints_the_bytes_of_the_local_pool(here: Path) -> None:
    alone, pool = simulate(here, *SWEEP), simulate(here, *SWEEP, "--workers", "2")
    ray = simulate(here, *SWEEP, "--engine", "ray", "--workers", "2")
    assert ray.stdout == pool.stdout == alone.stdout
    assert "lost" not in ray.stderr


def test_a_killed_worker_changes_no_byte(here: Path) -> None:
    ask = cluster(here, 6_000)
    alone = simulate(here, *ask).stdout
    with started(here, *ask) as running:
        for worker in workers(here)[:1]:
            os.kill(worker, signal.SIGKILL)
        said, told = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 0, told
    assert said == alone


def test_ctrl_c_leaves_nothing_behind(here: Path) -> None:
    with started(here, *cluster(here, 20_000)) as running:
        running.send_signal(signal.SIGINT)
        said, told = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, said) == (130, ""), told
    eventually(lambda: processes_of(here) == [], lambda: str(processes_of(here)))


def test_a_cluster_at_an_address_is_used_and_left_running(here: Path) -> None:
    cluster = RayCluster(here)
    try:
        cluster.start(dashboard=False)
        sweep = (sys.executable, "-m", "zeus.cli", "simulate", *SWEEP, "--engine")
        said = cluster.call(*sweep, f"ray:{cluster.address}")
        cluster.call("ray", "status", "--address", cluster.address)
        lost = subprocess.run(
            cluster.inside(*sweep, "ray:127.0.0.1:6400"), env=cluster.env, text=True, capture_output=True, check=False
        )
    finally:
        cluster.close()
    assert said == simulate(here, *SWEEP).stdout
    assert lost.returncode == 1
    assert "zeus: no Ray cluster answers at 127.0.0.1:6400 (" in lost.stderr


def workers(here: Path) -> list[int]:
    """The processes of Ray that run a task now."""
    return [pid for pid, name in processes_of(here) if name.startswith("ray::_answer")]
