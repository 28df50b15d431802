"""A folder with a job file, a tiny script and a virtual card, and a helper that runs `zeus run` in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS, eventually
from support.warm import BIN
from zeus.launch.job_file.reader import read_job_file
from zeus.launch.launcher import Launcher
from zeus.store import Store, open_store
from zeus.store.memory import MemoryStore

# Works on the virtual card as a kernel would on a real one, and otherwise knows nothing of Zeus.
SCRIPT = """
import os, pathlib, signal, sys, time
from zeus.device.find import find
from zeus.device.virtual import step

size, style = int(sys.argv[1]), sys.argv[2]
needed = {8: 3, 16: 4, 32: 3, 64: 99}[size]
pathlib.Path("pid").write_text(str(os.getpid()))
gpus = list(find().values())

def train(epoch):
    for _ in range(int(os.environ.get("STEPS", "40")) * (10 if size == 64 else 1)):
        step(gpus, size)
    return 0.9 * min(1.0, epoch / needed)
"""
# Put before the lines of a script: it stops inside its third epoch for as long as the file `hold` is there.
HOLD = f"""
own_train, until = train, time.monotonic() + {PATIENCE_SECONDS}
def train(epoch):
    while epoch == 3 and pathlib.Path("hold").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return own_train(epoch)
"""
LINES = {
    "end, then metric": 'metric = train(epoch); print(f"epoch {epoch} done"); print(f"acc={metric}")',
    "metric, then end": 'metric = train(epoch); print(f"acc={metric}"); print(f"epoch {epoch} done")',
    "end with metric": 'metric = train(epoch); print(f"epoch {epoch} done, acc={metric}")',
    "begin": 'print(f"epoch {epoch} of 6"); metric = train(epoch); print(f"acc={metric}")',
    "metric alone": 'metric = train(epoch); print(f"acc={metric}")',
    "file": """
    metric = train(epoch)
    with open("metrics.jsonl", "a") as file: print(f'{{"epoch": {epoch}, "metric": {metric}}}', file=file)""",
}
FOUND = {
    "begin": r"regex = 'acc=(\S+)'" + "\n" + r"epoch_regex = 'epoch (\d+) of'",
    "metric alone": r"regex = 'acc=(\S+)'",
    "file": 'file = "metrics.jsonl"',
}
USUAL = r"regex = 'acc=(\S+)'" + "\n" + r"epoch_regex = 'epoch (\d+) done'"


class Place:
    """Where a job is run."""

    def __init__(self, folder: Path, gpu: str = "virtual:v100?speed=40&watched=idle") -> None:
        self.folder = folder
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ZEUS_", "CUDA_", "SLURM_", "RANK"))}
        self.env = {
            **clean,
            "ZEUS_GPU": gpu,
            "ZEUS_VIRTUAL_STATE": str(folder / "cards"),
            "ZEUS_KEEPER_STATE": str(folder / "keeper"),
            "ZEUS_STORE": f"sqlite:///{folder / 'zeus.db'}",
            "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(BIN), os.environ["PATH"]]),
        }

    def script(self, style: str = "end, then metric", before: str = "", after: str = "", epochs: int = 6) -> None:
        """A script that writes its lines in this style."""
        loop = f"for epoch in range(1, {epochs + 1}):\n    {LINES[style].strip()}\n"
        (self.folder / "train.py").write_text(f"{SCRIPT}\n{before}\n{loop}\n{after}\n")

    def job(self, style: str = "end, then metric", more: str = "", metrics: str | None = None, **values: Any) -> None:
        """A job file for it."""
        given = {
            "name": "toy",
            "command": "python train.py {batch_size} x",
            "batch_sizes": [16, 32],
            "default_batch_size": 16,
            "target_metric": 0.9,
            "max_epochs": 6,
            "beta": 1000.0,  # what a busy machine makes of real time stops nothing
            "policy": "paper",  # which stops a run for nothing but that
            "mab_seed": 0,
            **values,
        }
        found = FOUND.get(style, USUAL) if metrics is None else metrics
        top = "\n".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
        (self.folder / "job.toml").write_text(f"{top}\n{more}\n" + (f"[metrics]\n{found}\n" if found else ""))

    def line(self, command: str, *arguments: str) -> list[str]:
        """The command line of a command of Zeus about the job file."""
        return [sys.executable, "-m", "zeus.cli", command, "job.toml", *arguments]

    def start(self, *arguments: str, command: str = "run", **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.line(command, *arguments),
            env={**self.env, **env},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, command: str = "run", **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, command=command, **env)
        try:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:  # left alone it would disturb the tests that follow
            process.terminate()
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
            logs = "\n".join(file.read_text(errors="replace") for file in self.folder.rglob("*.log"))
            pytest.fail(f"{process.args} did not end within {PATIENCE_SECONDS:g} s: {out}\n{err}\n{logs}")
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def report(self, *arguments: str, status: int = 0, **env: str) -> dict[str, Any]:
        """What a run reports as JSON, which must be all that stands on its stdout."""
        done = self.run("--json", *arguments, **env)
        assert done.returncode == status, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def launcher(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        mask: str = "",
        grace: float | None = None,
        store: Store | None = None,
    ) -> Launcher:
        """The same in this process, which spares starting one; its store is gone with it."""
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name, value in (self.env | ({"CUDA_VISIBLE_DEVICES": mask} if mask else {})).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.folder)
        return Launcher(read_job_file(Path("job.toml")), store=store or MemoryStore(), grace=grace)

    def store(self) -> Store:
        return open_store(self.env["ZEUS_STORE"])

    def pid(self) -> int:
        """The script's, once it runs."""
        file = self.folder / "pid"
        eventually(lambda: file.exists() and file.read_text() != "")
        return int(file.read_text())


def tries(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for recurrence in report["recurrences"] for one in recurrence["tries"]]


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def parent(pid: int) -> int:
    """The process that it belongs to; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def guards(script: int, run: int) -> list[int]:
    """The processes between a script and its `zeus run`, the nearest to the script first."""
    found, pid = list[int](), parent(script)
    while pid not in (run, 1, 0):
        found.append(pid)
        pid = parent(pid)
    return found
