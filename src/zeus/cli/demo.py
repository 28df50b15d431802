"""`zeus demo`: the whole of Zeus in a minute, on a virtual GPU and with no set-up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click

from zeus.cli.output import joules, print_json

GPU = "virtual:v100?clock=virtual&load=shufflenetv2"
BATCH_SIZE = 1024
SAMPLES = 50_000


@click.command()
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def demo(as_json: bool) -> None:
    """Train a small model on a virtual V100, measure it, and show what its power limit is worth."""
    report = run()
    if as_json:
        print_json(report)
    else:
        _tell(report)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch under one limit."""

    limit_watts: float
    seconds: float
    joules: float
    loss: float


def run() -> dict[str, Any]:
    """One epoch under each of three limits: the model is real (a softmax regression in numpy), the GPU is not."""
    import tempfile
    from pathlib import Path

    from zeus.device.keeper import Lease, lend
    from zeus.monitor import ZeusMonitor

    with tempfile.TemporaryDirectory(prefix="zeus-demo-") as folder:
        os.environ["ZEUS_GPU"] = GPU
        os.environ["ZEUS_VIRTUAL_STATE"] = str(Path(folder) / "cards")
        os.environ["ZEUS_KEEPER_STATE"] = str(Path(folder) / "keeper")
        monitor = ZeusMonitor(log_file=Path(folder) / "windows.csv")
        gpu = monitor.gpus[0]
        found = gpu.limit()
        model = _Model()
        lease = lend([gpu])
        epochs = []
        for limit in (250.0, 175.0, 125.0):
            if isinstance(lease, Lease):
                lease.set_limit(limit)
            with monitor.window("epoch") as window:
                loss = model.epoch(gpu)
            epochs.append(Epoch(gpu.limit(), window.seconds, window.joules, loss))
        if isinstance(lease, Lease):
            lease.release()
        monitor.close()
        return {
            "gpu": gpu.spec.name,
            "workload": "ShuffleNet-v2 on CIFAR-100, batch size 1024 (the GPU's time and power are modelled)",
            "epochs": [
                {"limit_watts": e.limit_watts, "seconds": e.seconds, "joules": e.joules, "loss": e.loss} for e in epochs
            ],
            "limit_before_watts": found,
            "limit_after_watts": gpu.limit(),
        }


class _Model:
    """Softmax regression on generated data, so that something is really learnt while the virtual GPU works."""

    def __init__(self, features: int = 32, classes: int = 10) -> None:
        import numpy as np

        self.random = np.random.default_rng(0)
        self.centres = self.random.normal(size=(classes, features))
        self.weights = np.zeros((features, classes))

    def epoch(self, gpu: Any) -> float:
        import numpy as np

        from zeus.device.virtual import step

        loss = 0.0
        for _ in range(SAMPLES // BATCH_SIZE):
            labels = self.random.integers(len(self.centres), size=BATCH_SIZE)
            inputs = self.centres[labels] + self.random.normal(size=(BATCH_SIZE, self.centres.shape[1]))
            scores = inputs @ self.weights
            scores -= scores.max(axis=1, keepdims=True)
            shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            loss = float(-np.log(shares[np.arange(BATCH_SIZE), labels] + 1e-12).mean())
            shares[np.arange(BATCH_SIZE), labels] -= 1
            self.weights -= 0.1 * inputs.T @ shares / BATCH_SIZE
            step([gpu], BATCH_SIZE)
        return loss


def _tell(report: dict[str, Any]) -> None:
    click.echo(f"Virtual {report['gpu']}: {report['workload']}")
    first = report["epochs"][0]
    for e in report["epochs"]:
        energy, time = e["joules"] / first["joules"] - 1, e["seconds"] / first["seconds"] - 1
        beside = "" if e is first else f"   energy {energy:+.0%}, time {time:+.0%}"
        click.echo(
            f"  limit {e['limit_watts']:3.0f} W: one epoch {e['seconds']:5.1f} s, {joules(e['joules']):>8}, "
            f"loss {e['loss']:.3f}{beside}"
        )
    click.echo(
        f"The limit was {report['limit_before_watts']:g} W before and is {report['limit_after_watts']:g} W again."
    )
