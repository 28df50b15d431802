"""Python processes that start in milliseconds: copies of one that has imported Zeus, PyTorch or a framework already.

A test asks for a fixture: `warm`, `warm_torch` or `warm_frameworks`. Then `sys.executable`, and `python` on the PATH of
a `Place`, is a stand-in that runs its program in such a copy (python.c says when it does not). Tests whose subject is a
process itself (its signals, terminal, kills, memory or imports) do without: a copy is no child of whoever started it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.waiting import eventually

HERE = Path(__file__).parent
REAL = sys.executable
BIN = Path(REAL).parent  # where `zeus` and others lie

_ROOMS = (
    "cli",
    "device",
    "job",
    "jobs",
    "launch",
    "monitor",
    "optimizer",
    "policy",
    "service",
    "simulate",
    "store",
    "tariff",
    "trial",
)
_ZEUS = ("numpy", "zeus", *(f"zeus.{room}.*" for room in _ROOMS))
_TORCH = ("torch", "torch.distributed", "torch.utils.data", "torch.nn.parallel", "zeus.training.loader")
_FRAMEWORKS = ("transformers", "transformers.trainer", "accelerate", "lightning.pytorch")
PACKAGES = {"zeus": _ZEUS, "torch": (*_ZEUS, *_TORCH), "frameworks": (*_ZEUS, *_TORCH, *_FRAMEWORKS)}


class Warm:
    """The stand-in and its servers, in one folder. Each server starts when it is first asked for.

    Args:
        folder: Of this user alone, and short: a socket's name may not be long. Processes may share it.
        owner: The servers end with this process.
    """

    def __init__(self, folder: Path, owner: int) -> None:
        self._folder, self._owner = folder, owner
        self._servers: list[subprocess.Popen[bytes]] = []
        self.python = folder / "bin" / "python"

    def address(self, kind: str) -> Path | None:
        """The socket of a server with these packages. None: there is no C compiler, so programs start as usual."""
        socket = self._folder / kind
        if socket.exists():
            return socket
        if shutil.which("gcc") is None:
            return None
        with (self._folder / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not socket.exists():
                self._compile()
                self._start(socket, PACKAGES[kind])
        return socket

    def _compile(self) -> None:
        if not self.python.exists():
            self.python.parent.mkdir(exist_ok=True)
            new = self._folder / f"python.{os.getpid()}"
            command = ["gcc", "-O1", f'-DREAL="{REAL}"', "-o", str(new), str(HERE / "python.c")]
            subprocess.run(command, check=True)
            new.rename(self.python)

    def _start(self, socket: Path, packages: Sequence[str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ZEUS_", "PYTHON", "LD_"))}
        threads = {
            f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")
        }  # a thread does not survive a fork
        with socket.with_suffix(".log").open("wb") as log:
            server = subprocess.Popen(
                [REAL, "-P", str(HERE / "server.py"), str(socket), str(self._owner), str(self.python), *packages],
                env={**clean, **threads},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._servers.append(server)
        eventually(lambda: socket.exists() or server.poll() is not None)
        assert server.poll() is None, socket.with_suffix(".log").read_text()


_warm: Warm | None = None


def warm_here() -> Warm:
    """The one of this run of tests, shared by all its workers."""
    global _warm
    if _warm is None:
        owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        folder = Path(tempfile.gettempdir()) / f"zeus-warm-{os.getuid()}-{owner}"
        folder.mkdir(mode=0o700, exist_ok=True)
        _warm = Warm(folder, owner)
    return _warm


def _use(kind: str, patch: pytest.MonkeyPatch) -> None:
    warm = warm_here()
    address = warm.address(kind)
    if address is not None:
        patch.setenv("WARM_PYTHON", str(address))
        patch.setattr(sys, "executable", str(warm.python))


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start with Zeus imported."""
    _use("zeus", monkeypatch)


@pytest.fixture
def cold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start as everywhere else, though those of other tests in its file do not."""
    for name in {"warm", "warm_torch", "warm_frameworks"} & {*request.fixturenames}:
        request.getfixturevalue(name)
    monkeypatch.delenv("WARM_PYTHON", raising=False)
    monkeypatch.setattr(sys, "executable", REAL)


@pytest.fixture
def warm_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start with Zeus and PyTorch imported."""
    _use("torch", monkeypatch)


@pytest.fixture
def warm_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start with Zeus, PyTorch, Hugging Face and Lightning imported."""
    _use("frameworks", monkeypatch)
