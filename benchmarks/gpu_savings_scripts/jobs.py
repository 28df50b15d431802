"""The three jobs, and the two stores of each: one that Zeus optimizes, and one that only measures the default."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent
SOURCES = SCRIPTS.parents[1] / "src"
TO_END_SECONDS = 40.0  # `zeus run` gives its command 10 s to end, and then kills it
NOT_REACHED = 3
SEEDS = {"structured": 1, "default": 2}  # so that the runs of the two stores have their own luck


class Cut(Exception):
    """A run was ended because its time was up. It carries the report of `zeus run`."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__("time is up")
        self.report = report


@dataclass(frozen=True, slots=True)
class Job:
    """A recurring job of one of the training scripts. `scale` multiplies the samples of an epoch."""

    name: str
    arguments: str
    batch_sizes: tuple[int, ...]
    default: int
    target: float
    max_epochs: int
    learning_rate: float  # at the default size; it grows with the root of the size
    higher_is_better: bool = True
    metrics: str = ""
    scale: float = 1.0

    def file(self, policy: str) -> str:
        """The job file. The script is named without its folder, so that the job is the same on every machine."""
        script = f"train_{self.name}.py {self.arguments}"
        values = {
            "name": self.name,
            "command": f"{{python}} {script} --seed {{seed}} --scale {self.scale:g}",
            "batch_sizes": self.batch_sizes,
            "default_batch_size": self.default,
            "target_metric": self.target,
            "higher_is_better": self.higher_is_better,
            "max_epochs": self.max_epochs,
            "policy": policy,
            "mab_seed": SEEDS[policy],
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        lines += ["[learning_rate]", f"base = {self.learning_rate}", 'rule = "sqrt"']
        return "\n".join([*lines, "[metrics]", self.metrics] if self.metrics else lines) + "\n"


JOBS = {
    job.name: job
    for job in (
        Job(
            "images",
            arguments="--batch-size {batch_size} --lr {learning_rate} --epochs {epochs}",
            batch_sizes=(64, 128, 256, 512, 1024),
            default=256,
            target=0.78,
            max_epochs=60,
            learning_rate=0.02,
            metrics="regex = 'accuracy=([0-9.]+)'\nepoch_regex = 'epoch ([0-9]+)/'",
        ),
        Job(
            "language",
            arguments="--lr {learning_rate} --epochs {epochs}",
            batch_sizes=(8, 16, 32, 64, 128),
            default=16,
            target=2.4,
            max_epochs=60,
            learning_rate=7e-4,
            higher_is_better=False,
        ),
        Job(
            "classifier",
            arguments="--lr {learning_rate}",
            batch_sizes=(32, 64, 128, 256, 512),
            default=128,
            target=0.83,
            max_epochs=60,
            learning_rate=1.5e-4,
        ),
    )
}


class JobStore:
    """A new store for one job, which goes on from an exported file if there is one."""

    def __init__(self, folder: Path, job: Job, policy: str, exported: Path) -> None:
        self.folder, self.job, self.exported = folder, job, exported
        folder.mkdir(parents=True)
        (folder / "job.toml").write_text(job.file(policy))
        paths = [str(SOURCES), os.environ.get("PYTHONPATH", "")]
        self._env = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "ZEUS_STORE": f"sqlite:///{folder / 'zeus.db'}",
            "ZEUS_LOG_DIR": str(folder / "logs"),
            "ZEUS_MODE": "off" if policy == "default" else "optimize",
            "ZEUS_READ_ONLY": "1",
            "ZEUS_QUIET": "1",
        }
        self.recurrences = 0
        if exported.exists():
            self._zeus("jobs", "import", str(exported))
            self.recurrences = len(self.converged())

    def run(self, until: float) -> dict[str, Any]:
        """Run one recurrence. Returns its row of the report.

        Raises:
            Cut: It did not end before `until`, which is a time of `time.monotonic()`.
        """
        call = [sys.executable, "-m", "zeus.cli", "run", str(self.folder / "job.toml"), "--json"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(call, cwd=SCRIPTS, env=self._env, stdout=pipe, stderr=pipe, text=True)
        is_cut = False
        try:
            out, wrong = process.communicate(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            is_cut = True
            process.send_signal(signal.SIGTERM)
            out, wrong = process.communicate(timeout=TO_END_SECONDS)
        report = json.loads(out) if out else {}
        if is_cut:
            raise Cut(report)
        if process.returncode == NOT_REACHED:
            raise SystemExit(f"{self.job.name}: {self.job.target} was not reached. Give an easier --target.")
        if process.returncode:
            raise SystemExit(f"{self.job.name}: `zeus run` ended with {process.returncode}.\n{wrong}")
        self.recurrences += 1
        row: dict[str, Any] = report["recurrences"][0]
        return row

    def export(self) -> None:
        """Replace the exported file as a whole."""
        new = self.folder / "new.jsonl"
        new.unlink(missing_ok=True)
        self._zeus("jobs", "export", "--output", str(new))
        self.exported.parent.mkdir(parents=True, exist_ok=True)
        beside = self.exported.with_suffix(".new")
        beside.write_bytes(new.read_bytes())
        beside.replace(self.exported)

    def show(self) -> dict[str, Any]:
        """What `zeus jobs show` reports."""
        found: dict[str, Any] = json.loads(self._zeus("jobs", "show", self.job.name, "--json", "--last", "0"))
        return found

    def converged(self) -> list[dict[str, Any]]:
        """The recurrences that reached the target."""
        return [one for one in self.show()["history"] if one["end"] == "converged"]

    def _zeus(self, *arguments: str) -> str:
        call = [sys.executable, "-m", "zeus.cli", *arguments]
        done = subprocess.run(call, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"`zeus {' '.join(arguments)}` ended with {done.returncode}.\n{done.stderr}")
        return done.stdout
