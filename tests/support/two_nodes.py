"""Two nodes on one machine: network namespaces joined by a cable, each with its own host name, cards and keeper.

Needs root and the commands ip and unshare. torchrun listens only inside the two networks.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.paths import SOURCES, TESTS
from zeus.device.virtual import VirtualGpu
from zeus.device.virtual.machine import _shared_machine, parse
from zeus.device.virtual.state import FileState

GPU = "v100x2?load=resnet50"
FOUND_WATTS = 250.0
MASTER = "10.77.0.1"


def why_not() -> str:
    """Why there can be no such nodes here; empty if there can."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))):
        return "needs root, and the commands ip and unshare (packages iproute2 and util-linux)"
    name = f"zeus-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return "needs to make network namespaces, which this container does not allow"
    _ip("netns", "delete", name)
    return ""


@dataclass
class Node:
    """One node with two virtual cards."""

    number: int
    folder: Path
    name: str  # of its network
    cards: list[VirtualGpu] = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "run").mkdir(parents=True)
        self.cards = _shared_machine(parse(GPU), self.folder / "cards").gpus

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ZEUS_", "CUDA_", "SLURM_", "RANK"))}
        return {
            **kept,
            "GLOO_SOCKET_IFNAME": "cable",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(SOURCES), str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else torch's ranks cannot meet again after a restart
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "ZEUS_GPU": f"virtual:{GPU}",
            "ZEUS_KEEPER_STATE": str(self.folder / "keeper"),
            "ZEUS_VIRTUAL_STATE": str(self.folder / "cards"),
        }

    @property
    def inside(self) -> list[str]:
        """What to put before a command, so that it runs on this node."""
        rename = f'hostname node{self.number} && exec "$@"'
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", rename, "sh"]

    @property
    def limits(self) -> list[float]:
        """The limits in force. The cards are not locked for it, because a rank that is stopped may hold the lock."""
        return [card.limit_watts for card in self._state._read().cards]

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """A moment in which no rank holds the lock of the cards. Real cards have none."""
        with self._state._locked():
            yield
            time.sleep(0.1)

    @property
    def _state(self) -> FileState:
        state = self.cards[0].machine.holder
        assert isinstance(state, FileState)
        return state

    @property
    def is_restored(self) -> bool:
        return all(limit == FOUND_WATTS for limit in self.limits)


class TwoNodes:
    """Both nodes, and the training that runs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = [Node(n, folder / f"node{n}", f"zeus-{os.getpid()}-{n}") for n in (0, 1)]
        self.agents: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str, *options: str, **env: str) -> None:
        """Start torchrun on both nodes, with two ranks each."""
        for node in self.nodes:
            self.agents.append(self.agent(node, kind, *options, **env))

    def agent(self, node: Node, kind: str, *options: str, **env: str) -> subprocess.Popen[bytes]:
        meeting = ["--node-rank", str(node.number), "--master-addr", MASTER, "--master-port", "29500"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
        script = [str(TESTS / "support" / "node_rank.py"), str(self.folder), kind]
        with (self.folder / f"torchrun{node.number}.log").open("ab") as log:
            return subprocess.Popen(
                [*node.inside, *torchrun, *meeting, *options, *script],
                env=node.env | env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, seconds: float) -> bool:
        """Whether both ended by themselves within so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(agent.poll() is not None for agent in self.agents):
                return True
            time.sleep(0.05)
        return False

    def end(self) -> None:
        """Kill the launchers and the ranks. Ranks are in sessions of their own, so they are found by their pids."""
        for agent in self.agents:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
        for rank in range(4):
            with contextlib.suppress(ProcessLookupError, OSError):
                if b"node_rank.py" in Path(f"/proc/{self.pid(rank)}/cmdline").read_bytes():
                    os.kill(self.pid(rank), signal.SIGKILL)
        self.agents = []

    def pid(self, rank: int) -> int:
        return int((self.folder / f"rank{rank}.pid").read_text())

    def told(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"rank{rank}.json").read_text())
        return found

    def said(self, rank: int) -> list[str]:
        """The lines of Zeus on this rank's stderr."""
        file = self.folder / f"rank{rank}.stderr"
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        return [line for line in lines if line.startswith("zeus:")]

    def epochs(self, rank: int) -> int:
        """How many epochs this rank has finished."""
        file = self.folder / f"rank{rank}.epochs"
        return int(file.read_text() or 0) if file.exists() else 0

    def log(self) -> str:
        """What the launchers and the ranks printed, for a failed test."""
        files = [*self.folder.glob("torchrun*.log"), *self.folder.glob("rank*.stderr")]
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    @property
    def are_lowered(self) -> bool:
        """Whether all cards run at one limit below the one found."""
        limits = {limit for node in self.nodes for limit in node.limits}
        return len(limits) == 1 and limits.pop() < FOUND_WATTS

    def stop(self, rank: int) -> None:
        """Stop a rank (SIGSTOP)."""
        with self.nodes[rank // 2].quiet():
            os.kill(self.pid(rank), signal.SIGSTOP)

    def cut(self) -> None:
        """Pull the cable between the nodes."""
        _ip("-n", self.nodes[0].name, "link", "set", "cable", "down")


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[TwoNodes]:
    """Two nodes with a cable between them. All is gone at the end."""
    nodes = TwoNodes(folder)
    try:
        for node in nodes.nodes:
            _ip("netns", "add", node.name)
        one, other = (node.name for node in nodes.nodes)
        _ip("link", "add", "cable", "netns", one, "type", "veth", "peer", "name", "cable", "netns", other)
        for node in nodes.nodes:
            _ip("-n", node.name, "address", "add", f"10.77.0.{node.number + 1}/24", "dev", "cable")
            _ip("-n", node.name, "link", "set", "lo", "up")
            _ip("-n", node.name, "link", "set", "cable", "up")
        yield nodes
    finally:
        nodes.end()
        for node in nodes.nodes:
            subprocess.run(["ip", "netns", "delete", node.name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
