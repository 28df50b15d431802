"""A place for tests with real Ray: a network of its own, where Ray can listen on loopback only, and its own folders."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.launch_place import Place
from support.paths import ROOT, SOURCES
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.device.find import machine
from zeus.settings import changed

ALONE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@contextmanager
def ray_folder() -> Iterator[Path]:
    """A new folder with a short path, as the paths of Ray's sockets must be short. Skips where there is no network."""
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a network of its own: root, and the commands unshare and ip")
    made = Path(tempfile.mkdtemp(prefix="zeus-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def ray_variables(here: Path) -> Mapping[str, str]:
    """The environment of a program that starts Ray, with folders of its own below `here`."""
    (here / "ray").mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ZEUS_", "RAY_"))}
    return {
        **kept,
        "HOME": str(here),  # for Ray's results
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
        "RAY_AUTH_MODE": "disabled",
        "RAY_TMPDIR": str(here / "ray"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "XDG_DATA_HOME": str(here / "data"),
        "ZEUS_KEEPER_STATE": str(here / "keeper"),
        "ZEUS_VIRTUAL_STATE": str(here / "cards"),
    }


def processes_of(here: Path) -> list[tuple[int, str]]:
    """The processes that were started with the folders below `here`: their pids and what they call themselves."""
    mark, found = f"RAY_TMPDIR={here / 'ray'}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:  # it has just ended
            continue
    return found


class RayCluster:
    """A real Ray with a head node that has no GPU. Nodes with GPUs are added to it.

    All is in a network of its own, so the ports are always the same.
    """

    address = "127.0.0.1:6399"
    dashboard = "http://127.0.0.1:8265"
    token = ""  # for the store of the runs

    def __init__(self, here: Path) -> None:
        self.folder = here
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.env = {**ray_variables(here), "PATH": path}
        self._ports = itertools.count(52366)  # the nodes share an address, and Ray reads a job's log from its own node
        self._network = subprocess.Popen([*ALONE, "sleep", "infinity"])
        eventually(lambda: name_of(self._network.pid).startswith("sleep"))

    def inside(self, *command: str) -> list[str]:
        """A command in the network of this cluster."""
        return ["nsenter", f"--net=/proc/{self._network.pid}/ns/net", *command]

    def call(self, *command: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            self.inside(*command), env=self.env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *, dashboard: bool = True) -> None:
        """Start the head node."""
        own = ("--port", self.address.rpartition(":")[2], "--include-dashboard", str(dashboard).lower())
        self.call(
            "ray", "start", "--head", "--node-ip-address", "127.0.0.1", "--num-cpus", "2", "--num-gpus", "0", *own
        )

    def add_node(self, gpus: int) -> None:
        """Start a node with so many GPUs."""
        where = ("--address", self.address, "--node-ip-address", "127.0.0.1")
        own = ("--dashboard-agent-listen-port", str(next(self._ports)))
        self.call("ray", "start", *where, "--num-cpus", "2", "--num-gpus", str(gpus), *own)

    def close(self) -> None:
        """Kill all of it. `ray stop` would end every Ray of this machine."""

        def gone() -> bool:
            found = processes_of(self.folder)
            for pid, _ in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found

        eventually(gone)
        self._network.kill()
        self._network.wait()


class RayPlace(Place):
    """A folder with a job file, from which jobs are submitted to a cluster. Its cards are those of all nodes."""

    def __init__(self, folder: Path, cluster: RayCluster, store: str, gpu: str) -> None:
        super().__init__(folder, gpu)
        self.cluster = cluster
        self._cards = {name: self.env[name] for name in ("ZEUS_GPU", "ZEUS_VIRTUAL_STATE")}
        self.env = {**cluster.env, **self._cards, "ZEUS_STORE": store, "ZEUS_TOKEN": cluster.token}

    def line(self, command: str, *arguments: str) -> list[str]:
        """In the network of the cluster."""
        return self.cluster.inside(*super().line(command, *arguments))

    def limits(self) -> list[float]:
        """The power limits of the cards, in watts."""
        with changed(self._cards):
            return [gpu.limit() for gpu in machine()]


def name_of(pid: int) -> str:
    """What a process calls itself."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
