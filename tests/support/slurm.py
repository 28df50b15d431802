"""A real Slurm for tests: a controller and two nodes on this machine, each with two virtual GPUs.

It has its own munge with its own key and socket, its own ports on loopback, and its own folders. Everything that it
starts ends with it.

with SlurmCluster.start() as slurm:
    slurm.call("sbatch", "--wait", "--wrap", "hostname")
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType

import pytest

from support.launch_place import Place
from support.paths import ROOT, SOURCES
from support.served import hold_port
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.device.find import machine
from zeus.device.gpu import Gpu
from zeus.launch.placement.placement import Task
from zeus.launch.placement.slurm_records import read_scontrol
from zeus.settings import changed

LIBC = ctypes.CDLL(None)
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "srun", "munged")
NODES = ("n1", "n2")
GPUS = 2
CARD = f"virtual:v100x{GPUS}?speed=40&watched=idle"

CONF = """
ClusterName=zeus-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,nohold_on_prolog_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout={timeout}
KillWait=30
Prolog={folder}/prolog
Epilog={folder}/epilog
TaskProlog={folder}/task_prolog
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


class SlurmCluster(AbstractContextManager["SlurmCluster"]):
    """A controller and two nodes. The cards of a node are virtual, and only its jobs share them."""

    def __init__(self, *, timeout: int = 10, card: str = CARD) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zeus-slurm-"))  # short: the name of a socket may not be long
        self.folder.chmod(0o755)  # munge wants its socket to be reachable
        self._card = card
        self._ports = [hold_port() for _ in range(1 + len(NODES))]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._all = ExitStack()
        self._write(timeout)

    @classmethod
    def start(cls, *, timeout: int = 10, card: str = CARD) -> SlurmCluster:
        """A new one, whose nodes are idle.

        Raises:
            LookupError: Something is not installed, or this is not root; the message says what to do.
        """
        _check()
        cluster = cls(timeout=timeout, card=card)
        try:
            cluster.up()
        except BaseException:
            cluster.__exit__(None, None, None)
            raise
        return cluster

    @property
    def env(self) -> dict[str, str]:
        """For the programs of Slurm and those that call them."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def cards(self, node: str) -> dict[str, str]:
        """The variables that lead to the cards of a node."""
        return {
            "ZEUS_GPU": self._card,
            "ZEUS_VIRTUAL_STATE": str(self.folder / f"cards-{node}"),
            "ZEUS_KEEPER_STATE": str(self.folder / f"keeper-{node}"),
            "XDG_RUNTIME_DIR": str(self.folder / f"run-{node}"),  # for the locks of ranks
        }

    def _write(self, timeout: int) -> None:
        port, *ports = (str(door.getsockname()[1]) for door in self._ports)
        host = socket.gethostname().partition(".")[0]
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} CPUs=4 Gres=gpu:{GPUS}"
            for name, own in zip(NODES, ports, strict=True)
        ]
        text = CONF.format(host=host, port=port, folder=self.folder, timeout=timeout, nodes="\n".join(nodes))
        (self.folder / "slurm.conf").write_text(text)
        device = self.folder / "dev"
        device.mkdir()
        for number in range(GPUS):  # files of such names are what makes Slurm set CUDA_VISIBLE_DEVICES
            os.mknod(device / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # as /dev/null
        (self.folder / "gres.conf").write_text(f"Name=gpu File={device}/nvidia[0-{GPUS - 1}]\n")
        (self.folder / "state").mkdir()
        for node in NODES:
            self._spool(node).mkdir()
            (self.folder / f"run-{node}").mkdir(mode=0o700)
            lines = [f"{name}='{value}'" for name, value in self.cards(node).items()]
            lines += [f"PYTHONPATH='{SOURCES}'", f"ZEUS_COMMAND='{self.folder}/zeus'"]
            (self.folder / f"{node}.env").write_text("\n".join(lines) + "\n")
        self._script("zeus", f'exec {sys.executable} -m zeus.cli "$@"')
        for name in ("prolog", "epilog"):
            given = f'export ZEUS_SLURM_ENV="{self.folder}/$SLURMD_NODENAME.env"'
            to = f'"{self.folder}/{name}-$SLURMD_NODENAME.log" 2>&1'
            self._script(name, f'{given}\nexec "{ROOT}/deploy/slurm/{name}.sh" >>{to}')
        # A node's own cards: on a real cluster every node has them without a variable.
        names = " ".join(self.cards(NODES[0]))
        self._script(
            "task_prolog",
            f'. "{self.folder}/$SLURMD_NODENAME.env"\nfor name in {names}; do eval echo "export $name=\\$$name"; done',
        )

    def _script(self, name: str, text: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    # ------------------------------------------------------------------ its processes

    def up(self) -> None:
        """Start all, and wait until both nodes are idle."""
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        own = {"key-file": key, "socket": self.folder / "munge.socket", "pid-file": self.folder / "munge.pid"}
        own |= {"log-file": self.folder / "munge.log", "seed-file": self.folder / "munge.seed"}
        self._begin("munged", "munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in own.items()))
        eventually(own["socket"].exists, lambda: self.log("munged"))
        self._begin("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        eventually(lambda: all(self.state_of(node) == "IDLE" for node in NODES), self.told)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node, also after it was killed."""
        self._begin(node, "slurmd", "-D", "-N", node, folder=self._spool(node))

    def kill_node(self, node: str) -> None:
        """As if the node had failed: its slurmd is killed, and with it `zeus run` and what Slurm started it with."""
        self.kill_slurmd(node)
        for pid in self.steps(node):
            batch = [child for child in _children(pid) if "zeus.cli" in _command(child)]
            for one in (pid, *batch):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)

    def kill_slurmd(self, node: str) -> None:
        """Kill only the slurmd of a node. Its jobs go on."""
        slurmd = self._processes.pop(node)
        slurmd.kill()
        slurmd.wait(PATIENCE_SECONDS)

    def steps(self, node: str) -> list[int]:
        """The processes of Slurm that hold the steps of jobs on a node. They outlive its slurmd."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            with contextlib.suppress(OSError):
                if "slurmstepd" in _command(pid) and (folder / "cwd").readlink() == self._spool(node):
                    found.append(pid)
        return found

    def _spool(self, node: str) -> Path:
        """The working folder of a node's slurmd, which the processes that hold its steps inherit."""
        return self.folder / f"spool-{node}"

    def _begin(self, name: str, *command: str, folder: Path | None = None) -> None:
        with (self.folder / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [_program(command[0]), *command[1:]],
                env={**_clean(os.environ), **self.env},
                cwd=folder or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 nothing else is done in the child
            )

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, where: TracebackType | None
    ) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            if "slurmctld" in self._processes:
                self.call("scancel", "--user=root", check=False)
        for node in NODES:
            for pid in self.steps(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(PATIENCE_SECONDS)
        eventually(lambda: not any(map(self.steps, NODES)), lambda: "steps of Slurm live on after it")
        for door in self._ports:
            door.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------ asking it

    def call(self, program: str, *arguments: str, check: bool = True) -> str:
        """What a program of Slurm prints."""
        done = subprocess.run(
            [program, *arguments],
            env={**_clean(os.environ), **self.env},
            cwd=self.folder,  # where the output of a batch job goes
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, f"{program} {arguments}: {done.stderr}{self.told()}"
        return done.stdout

    def tasks(self, job: str) -> list[Task]:
        return read_scontrol(self.call("scontrol", "--oneliner", "show", "job", job))

    def until(self, job: str, *states: str) -> Task:
        """The job, once it is in one of these states."""
        eventually(lambda: self.tasks(job)[0].state in states, lambda: f"{self.tasks(job)}{self.told()}")
        return self.tasks(job)[0]

    def state_of(self, node: str) -> str:
        """The state of a node, such as IDLE."""
        return self.call("sinfo", "-h", "-N", "-n", node, "-o", "%T", check=False).partition("\n")[0].upper()

    def hurry(self, job: str) -> None:
        """Let a requeued job start at once: Slurm would let it wait for two minutes."""
        self.call("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)

    def limits(self, node: str) -> list[float]:
        """The power limits of a node's cards, in watts."""
        return [gpu.limit() for gpu in self._gpus(node)]

    def joules(self) -> float:
        """What all cards have used since the cluster was started, idle or not."""
        return sum(gpu.energy() for node in NODES for gpu in self._gpus(node))

    def throttle(self, node: str, watts: float) -> None:
        """Set the limit of a node's cards, as somebody else would."""
        for gpu in self._gpus(node):
            gpu.set_limit(watts)

    def _gpus(self, node: str) -> list[Gpu]:
        with changed(self.cards(node)):
            return machine()

    def log(self, name: str) -> str:
        files = [self.folder / f"{name}.out", self.folder / f"{name}.log"]
        return "".join(file.read_text()[-3000:] for file in files if file.exists())

    def told(self) -> str:
        """The ends of all logs, for a test that fails."""
        return "".join(f"\n--- {name}\n{self.log(name)}" for name in ("munged", "slurmctld", "slurmd-n1", "slurmd-n2"))


class SlurmPlace(Place):
    """A folder with a job file, from which jobs are submitted."""

    def __init__(self, folder: Path, cluster: SlurmCluster, store: str) -> None:
        super().__init__(folder)
        self.cluster = cluster
        for name in cluster.cards(NODES[0]):
            self.env.pop(name, None)
        self.env |= {**cluster.env, "ZEUS_STORE": store, "XDG_DATA_HOME": str(folder / "data")}

    def jobs(self, *arguments: str) -> str:
        """What `zeus jobs` prints."""
        command = [sys.executable, "-m", "zeus.cli", "jobs", *arguments]
        done = subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
        )
        return done.stdout


def _check() -> None:
    if missing := [name for name in PROGRAMS if not _program(name)]:
        raise LookupError(f"no Slurm on this machine ({missing[0]} is missing): apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        raise LookupError("a test of Slurm starts its daemons as root, and this is another user")


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


def _end_with_parent() -> None:
    """Let the kernel end this process when the one that started it is gone, however that ended."""
    LIBC.prctl(1, signal.SIGTERM, 0, 0, 0)


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if not name.startswith(("ZEUS_", "SLURM_", "CUDA_"))}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """One for all tests of a module."""
    try:
        cluster = SlurmCluster.start()
    except LookupError as missing:
        pytest.skip(str(missing))
    with cluster:
        yield cluster
