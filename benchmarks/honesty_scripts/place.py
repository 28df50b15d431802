"""A folder with a store, virtual cards and a job of its own, and Zeus in it as a user types it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.paths import SOURCES
from support.warm import PACKAGES, Warm

T, R = TypeVar("T"), TypeVar("R")

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 300.0
NOT_REACHED, INTERRUPTED = 3, 130
KINDS = {"train_loader": "torch", "train_huggingface": "frameworks", "train_lightning": "frameworks"}
UNWANTED = ("ZEUS_", "CUDA_", "SLURM_", "RANK", "TOY", "PYTHONDONTWRITEBYTECODE")  # the last makes each start slow


class CannotRun(Exception):
    """Something that a cell needs is not installed here."""


class Failed(Exception):
    """A command did not do what a cell needs."""


class WarmStarts:
    """Starts scripts in copies of processes that have imported large packages; those end with this process."""

    def __init__(self) -> None:
        if shutil.which("gcc") is None:
            raise CannotRun("gcc is not installed")
        self._warm = Warm(Path(tempfile.mkdtemp(prefix="warm-")), os.getpid())
        self.python = str(self._warm.python)

    def address(self, script: str) -> str:
        needed = KINDS.get(script, "zeus")
        missing = [package for package in PACKAGES[needed] if find_spec(package.split(".")[0]) is None]
        if missing:
            raise CannotRun(f"{missing[0]} is not installed")
        return self._warm.address(needed)


def each(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """What the work makes of each, in order; one that is interrupted or asked to end begins no other."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    pool = ThreadPoolExecutor(workers)
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def wait_for(what: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise Failed("waited in vain")
        time.sleep(0.02)


def clean_env() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }


class Place:
    """Where a job is run; `warm` starts its scripts."""

    def __init__(self, folder: Path, warm: WarmStarts, **env: str) -> None:
        folder.mkdir(parents=True)
        self.folder, self.warm = folder, warm
        self.store = f"sqlite:///{folder / 'zeus.db'}"
        self.env = clean_env() | {"ZEUS_STORE": self.store, "ZEUS_KEEPER_STATE": str(folder / "keeper"), **env}
        self.env["WARM_PYTHON"] = warm.address("zeus")

    def use_card(self, gpu: str, limit: float | None = None) -> None:
        """Work on this card from here on; with a limit, on one that somebody has set to it."""
        name = "".join(letter if letter.isalnum() else "-" for letter in gpu)
        self.env |= {"ZEUS_GPU": f"virtual:{gpu}", "ZEUS_VIRTUAL_STATE": str(self.folder / f"cards-{name}")}
        if limit is not None:
            self.python("-c", f"from zeus.device.find import find; [gpu.set_limit({limit}) for gpu in find().values()]")

    def command(self, script: str, *arguments: str) -> list[str]:
        """What runs a training script here."""
        self.env["WARM_PYTHON"] = self.warm.address(script)
        return [self.warm.python, str(HERE / f"{script}.py"), *arguments]

    def write_job(self, script: str, arguments: str, metrics: str = "", **values: Any) -> None:
        """A job file."""
        command = " ".join([*self.command(script), arguments])
        lines = [f"{key} = {json.dumps(value)}" for key, value in {"name": "toy", "command": command, **values}.items()]
        (self.folder / "job.toml").write_text("\n".join(lines) + (f"\n[metrics]\n{metrics}\n" if metrics else "\n"))

    def run(self, recurrences: int) -> dict[str, Any]:
        """`zeus run --json`; what it reports."""
        done = self.zeus("run", "job.toml", "--json", "--recurrences", str(recurrences), accept=(0, NOT_REACHED))
        report: dict[str, Any] = json.loads(done)
        return report

    def run_and_end(self, how: str) -> None:
        """`zeus run`, ended in the middle of a training: "kill" or "interrupt"."""
        ledger = self.folder / "ledger.jsonl"
        before = ledger.read_text().count('"pause"')
        env = self.env | {"TOY": json.dumps(json.loads(self.env["TOY"]) | {"pause": 20.0})}
        with self._start(["-m", "zeus.cli", "run", "job.toml"], env) as process:
            wait_for(lambda: ledger.read_text().count('"pause"') > before)
            process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)  # a background job ignores SIGINT
            process.wait(timeout=TIMEOUT_SECONDS)
        time.sleep(1.5)  # the keeper puts the limit back within a second

    def show(self) -> dict[str, Any]:
        """`zeus jobs show --json`."""
        found: dict[str, Any] = json.loads(self.zeus("jobs", "show", "toy", "--json", "--last", "0"))
        return found

    def zeus(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> str:
        """The command line."""
        return self.python("-m", "zeus.cli", *arguments, accept=accept)

    def script(self, script: str, *arguments: str) -> str:
        """A training script by itself, without `zeus run`."""
        return self.python(*self.command(script, *arguments)[1:])

    def python(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> str:
        with self._start(list(arguments), self.env) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_SECONDS)
            except BaseException:
                process.kill()
                raise
        if process.returncode not in accept:
            raise Failed(f"exit code {process.returncode}: {(err or out).strip()[-1500:]}")
        return out

    def _start(self, arguments: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        command = [self.warm.python, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True)

    @contextmanager
    def served(self) -> Iterator[str]:
        """`zeus serve` on loopback for this store; its address."""
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            port = door.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "zeus.cli", "serve", "--port", str(port), "--store", self.store]
        with (self.folder / "serve.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=log, stderr=log)
        try:
            wait_for(lambda: _answers(url) or process.poll() is not None)
            if process.poll() is not None:
                raise CannotRun((self.folder / "serve.log").read_text().strip().splitlines()[-1])
            yield url
        finally:
            process.terminate()
            process.wait()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """A file of JSON lines that a script has written here."""
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5):
            return True
    except OSError:
        return False
