"""`zeus demo`: Zeus in a few seconds, on a virtual GPU and with no set-up."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from zeus.cli.output import joules, known, print_json

GPU = "virtual:v100?clock=virtual&load=shufflenetv2"
BATCH_SIZE = 1024
STEPS = 50_000 // BATCH_SIZE
EPOCHS = 8


@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def demo(as_json: bool) -> None:
    """Train a small model on a virtual V100, find its best power limit while it trains, and show what that is worth."""
    report = run()
    if as_json:
        print_json(report)
    else:
        _tell(report)


def run() -> dict[str, Any]:
    """The model is real (a softmax regression in numpy); the GPU's time and power are modelled."""
    from zeus.cost import CostModel
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
    from zeus.training.session import Session
    from zeus.training.summary import sentence

    with tempfile.TemporaryDirectory(prefix="zeus-demo-") as folder:
        os.environ["ZEUS_GPU"] = GPU
        os.environ["ZEUS_VIRTUAL_STATE"] = str(Path(folder) / "cards")
        os.environ["ZEUS_KEEPER_STATE"] = str(Path(folder) / "keeper")
        for name in ("ZEUS_MODE", "ZEUS_READ_ONLY", "ZEUS_KEEPER", "CUDA_VISIBLE_DEVICES"):
            os.environ.pop(name, None)
        monitor = ZeusMonitor()
        gpu = monitor.gpus[0]
        before = gpu.limit()
        optimizer = GlobalPowerLimitOptimizer(monitor)
        cost = CostModel(0.5, optimizer.max_watts)
        session = Session(monitor, optimizer, cost, max_epochs=EPOCHS, batch_size=BATCH_SIZE)
        model, loss = _Model(), math.nan
        for _ in session.epochs():
            session.begin_steps()
            for loss in model.steps(gpu):  # noqa: B007
                session.step_end()
            session.end_steps()
        summary, profile = session.summary, optimizer.profile
        rows = [] if profile is None else profile.slices
        saving = summary.saving
        report = {
            "gpu": gpu.spec.name,
            "workload": f"ShuffleNet-v2 on CIFAR-100, batch size {BATCH_SIZE} (the GPU's time and power are modelled)",
            "profile": [
                {
                    "limit_watts": s.limit_watts,
                    "seconds_per_epoch": s.seconds / s.steps * STEPS,
                    "joules_per_epoch": s.joules / s.steps * STEPS,
                    "cost_per_epoch": cost.cost(s.joules, s.seconds) / s.steps * STEPS,
                }
                for s in rows
            ],
            "best_limit_watts": optimizer.best_limit,
            "epochs": summary.epochs,
            "loss": known(loss),
            "joules": known(summary.joules),
            "seconds": summary.seconds,
            "saved_joules": None if saving is None else saving.joules,
            "saved_share": None if saving is None else saving.share,
            "summary": sentence(summary),
            "limit_before_watts": before,
            "limit_after_watts": gpu.limit(),
        }
        monitor.close()
        return report


class _Model:
    """Softmax regression on generated data, so that something is really learnt while the virtual GPU works."""

    def __init__(self, features: int = 32, classes: int = 10) -> None:
        import numpy as np

        self.random = np.random.default_rng(0)
        self.centres = self.random.normal(size=(classes, features))
        self.weights = np.zeros((features, classes))

    def steps(self, gpu: Any) -> Iterator[float]:
        """One epoch's training steps; the loss of each."""
        import numpy as np

        from zeus.device.virtual import step

        for _ in range(STEPS):
            labels = self.random.integers(len(self.centres), size=BATCH_SIZE)
            inputs = self.centres[labels] + self.random.normal(size=(BATCH_SIZE, self.centres.shape[1]))
            scores = inputs @ self.weights
            scores -= scores.max(axis=1, keepdims=True)
            shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            loss = float(-np.log(shares[np.arange(BATCH_SIZE), labels] + 1e-12).mean())
            shares[np.arange(BATCH_SIZE), labels] -= 1
            self.weights -= 0.1 * inputs.T @ shares / BATCH_SIZE
            step([gpu], BATCH_SIZE)
            yield loss


def _tell(report: dict[str, Any]) -> None:
    click.echo(f"Virtual {report['gpu']}: {report['workload']}")
    click.echo("Power limits tried in the first epochs, while the model trained:")
    best = report["best_limit_watts"]
    for row in report["profile"]:
        mark = "  <- best" if row["limit_watts"] == best else ""
        click.echo(
            f"  {row['limit_watts']:4.0f} W  {row['seconds_per_epoch']:6.2f} s, {joules(row['joules_per_epoch']):>8} "
            f"an epoch; cost {joules(row['cost_per_epoch']):>8}{mark}"
        )
    click.echo(f"zeus: {report['summary']}")
    click.echo(
        f"The limit was {report['limit_before_watts']:g} W before and is {report['limit_after_watts']:g} W again."
    )
