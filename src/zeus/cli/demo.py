"""`zeus demo`: shows a recurring job that gets cheaper. It needs no GPU and no set-up.

    First 5 runs of the default, for comparison. Then 30 recurrences:

    ask ──▶ train (PyTorch, ZeusDataLoader) ──▶ tell ──▶ the target is reached
     ▲                                           │
     └── stopped early: another batch size ──────┘

The model and its training are real. The GPU is a virtual V100, whose time and power are modelled. The demo does not
touch the user's GPUs or store.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zeus import settings
from zeus.cli import demo_text
from zeus.cli.output import print_json
from zeus.client.local import LocalJobs
from zeus.errors import ZeusError
from zeus.job import JobSpec, Outcome, Trial, replace
from zeus.lazy import require

if TYPE_CHECKING:
    from zeus.monitor import ZeusMonitor
    from zeus.store import Store

GPU = "virtual:v100?clock=virtual&load=shufflenetv2"
RECURRENCES = 30
BASE_LEARNING_RATE = 0.4  # at the default batch size
JOB = JobSpec(
    job_id="demo",
    job_id_prefix="demo",
    batch_sizes=(128, 256, 512, 1024, 2048, 4096, 8192),
    default_batch_size=1024,
    target_metric=0.78,
    max_epochs=16,
    mab_seed=0,
)
DEFAULT_JOB = replace(JOB, job_id="demo-default", policy="default")
DEFAULT_RUNS = 5  # of the default at the highest limit, for comparison
Say = Callable[[str], None]


@click.command()
@click.option(
    "--recurrences",
    type=click.IntRange(min=1),
    default=RECURRENCES,
    show_default=True,
    help="How often to run the job.",
)
@click.option("--default-runs", type=click.IntRange(min=1), default=DEFAULT_RUNS, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def demo(recurrences: int, default_runs: int, as_json: bool) -> None:
    """Train a small model many times on a virtual V100, and watch Zeus find a better batch size and power limit."""
    report = run(recurrences, default_runs, lambda line: click.echo(line, err=as_json))
    if as_json:
        print_json(report)


def run(recurrences: int, default_runs: int, echo: Say) -> dict[str, Any]:
    """Run the demo and return its report, which is also written to a folder of its own."""
    require("zeus demo", "torch", "PyTorch", "torch")
    began = time.monotonic()
    folder = _new_folder()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        echo(line)

    with tempfile.TemporaryDirectory(prefix="zeus-demo-") as cards, _environment(folder, Path(cards)):
        report = _recur(folder, recurrences, default_runs, say)
    report["folder"], report["elapsed_seconds"] = str(folder), time.monotonic() - began
    for line in demo_text.result(report):
        say(line)
    (folder / "report.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    (folder / "report.txt").write_text("".join(f"{line}\n" for line in lines))
    return report


def _recur(folder: Path, recurrences: int, default_runs: int, say: Say) -> dict[str, Any]:
    import torch

    from zeus.client.report import full, report
    from zeus.monitor import ZeusMonitor
    from zeus.store import open_store

    store, monitor = open_store(_store_url(folder)), ZeusMonitor()
    gpu = monitor.gpus[0]
    before, threads = gpu.limit(), torch.get_num_threads()
    torch.set_num_threads(1)  # the model is so small that more threads would be slower
    try:
        for line in demo_text.opening(JOB, gpu.spec.name, default_runs):
            say(line)
        with settings.changed({"ZEUS_MODE": "off"}):
            _run_job(store, monitor, DEFAULT_JOB, default_runs, say)
        for line in demo_text.heading(f"With Zeus, {recurrences} recurrences:"):
            say(line)
        limits = _run_job(store, monitor, JOB, recurrences, say)
    finally:
        torch.set_num_threads(threads)
    usual, found = report(store, DEFAULT_JOB.id), report(store, JOB.id)
    summary = full(replace(found, ledger=found.ledger.against(usual.ledger)))
    for row in summary["tries"]:
        row["limit_watts"] = limits.get(row["number"])
    store.close()
    after = gpu.limit()
    monitor.close()
    cards = {"gpu": gpu.spec.name, "limit_before_watts": before, "limit_after_watts": after}
    return {**cards, "store": _store_url(folder), **summary}


def _run_job(store: Store, monitor: ZeusMonitor, spec: JobSpec, recurrences: int, say: Say) -> dict[int, float | None]:
    """Run recurrences in this process. Return the power limit of each trial."""
    from zeus.client.recurring import RecurringJob
    from zeus.launch.recurrence import recur
    from zeus.monitor.gpus_of import gpus_of

    job, gpus, limits = RecurringJob.register(LocalJobs(store), spec), gpus_of(monitor), dict[int, float | None]()

    def train(trial: Trial) -> Outcome:
        limits[trial.number] = _train(job.spec, trial)
        outcome = job.trial(trial.number).outcome
        assert outcome is not None, "the loader tells the outcome of its trial"
        return outcome

    def changed(trial: Trial) -> None:
        if trial.outcome is not None:
            say(demo_text.line(trial, limits.get(trial.number), job.spec.eta_knob))

    for _ in range(recurrences):
        recur(job, gpus, train, on_change=changed)
    return limits


def _train(spec: JobSpec, trial: Trial) -> float | None:
    """Run one trial as `zeus run` would, but in this process, as PyTorch takes seconds to load."""
    from zeus.cli.demo_training import train
    from zeus.launch.job_file.values import trial_seed
    from zeus.launcher_env import LauncherEnv
    from zeus.training.learning_rate import scale

    size = trial.batch_size
    rate = scale(BASE_LEARNING_RATE, spec.default_batch_size, size, "sqrt")
    orders = LauncherEnv(
        job_id=spec.id,
        trial=trial.number,
        batch_size=size,
        learning_rate=rate,
        cost_limit=trial.decision.cost_limit,
        eta=spec.eta_knob,
        target_metric=spec.target_metric,
        max_epochs=spec.max_epochs,
        seed=trial_seed(spec.mab_seed, trial.number),
    )
    with settings.changed(orders.variables()):
        return train(size, rate, spec.max_epochs, spec.target_metric, orders.seed or 0)


def _new_folder() -> Path:
    """Create `$XDG_DATA_HOME/zeus/demo`. It holds only the last demo, so an existing folder is replaced."""
    from zeus.store.address import default_path

    folder = default_path().parent / "demo"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except OSError as failed:
        raise ZeusError(f"cannot create {folder}: {failed.strerror}. Set XDG_DATA_HOME to another folder.") from failed
    return folder


def _store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'zeus.db'}"


@contextmanager
def _environment(folder: Path, cards: Path) -> Iterator[None]:
    """The demo's own virtual GPU, keeper and store, without the user's settings."""
    ours = {
        "ZEUS_CONFIG": "",
        "ZEUS_GPU": GPU,
        "ZEUS_VIRTUAL_STATE": str(cards / "cards"),
        "ZEUS_KEEPER_STATE": str(cards / "keeper"),
        "ZEUS_STORE": _store_url(folder),
        "XDG_DATA_HOME": str(cards / "data"),  # training keeps its own files here
        "ZEUS_QUIET": "1",
    }
    theirs = [name for name in settings.HERE if name.startswith("ZEUS_")] + ["CUDA_VISIBLE_DEVICES"]
    with settings.changed({**dict.fromkeys(theirs), **ours}):
        yield
