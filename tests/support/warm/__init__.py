"""Python processes that start in milliseconds: copies of one that has imported Zeus, PyTorch or a framework already.

    warm = Warm(folder, os.getpid())
    subprocess.run([warm.python, "train.py"], env={**os.environ, "WARM_PYTHON": warm.address("torch")})

`warm.python` is a stand-in for the interpreter that runs its program in such a copy (python.c says when it does not).
A copy is no child of whoever started it. fixtures.py has what tests ask for; benchmarks use this too.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.paths import SOURCES
from support.waiting import eventually

HERE = Path(__file__).parent
REAL = sys.executable
UNWANTED = ("ZEUS_", "PYTHON", "LD_", "COVERAGE_")  # variables that a server does without; a copy gets its own
BIN = Path(REAL).parent  # where `zeus` and others lie

_ROOMS = (
    "client",
    "cli",
    "device",
    "job",
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
        self.python = folder / "bin" / "python"

    def address(self, kind: str) -> str:
        """The socket of a server with these packages, for WARM_PYTHON."""
        socket = self._folder / kind
        with (self._folder / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not socket.exists():
                self._compile(kind)
                self._start(socket, PACKAGES[kind])
        return str(socket)

    def _compile(self, kind: str) -> None:
        if not self.python.exists():
            self.python.parent.mkdir(exist_ok=True)
            new = self._folder / f"python.{kind}"  # threads may compile at once, each for another kind
            command = ["gcc", "-O1", f'-DREAL="{REAL}"', "-o", str(new), str(HERE / "python.c")]
            subprocess.run(command, check=True)
            new.rename(self.python)

    def _start(self, socket: Path, packages: Sequence[str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # none forks
        with socket.with_suffix(".log").open("wb") as log:
            server = subprocess.Popen(
                [REAL, "-P", str(HERE / "server.py"), str(socket), str(self._owner), str(self.python), *packages],
                env={**clean, **threads, "PYTHONPATH": str(SOURCES)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(lambda: socket.exists() or server.poll() is not None)
        assert server.poll() is None, socket.with_suffix(".log").read_text()
        server.returncode = 0  # it ends with its owner; nobody waits for it
