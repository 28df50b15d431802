"""Measures what a hyperparameter search uses with Zeus and without, with real Optuna and real Ray Tune.

    python benchmarks/tuners.py                 both tuners, 30 trials each
    python benchmarks/tuners.py --eta 1         with another η
    python benchmarks/tuners.py --only optuna   one tuner

Each trial trains a small classifier with numpy, and each of its steps runs on a virtual GPU with a virtual clock. The
search maximises accuracy with a fixed seed, so that it tries the same hyperparameters with Zeus and without; this is
checked. The card's own counter and clock measure the whole search, including the profiling of power limits. Ray listens
on all interfaces of the machine while it runs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import head, row
from zeus.cost import CostModel
from zeus.device.find import machine
from zeus.tuning.measured_trial import MeasuredTrial

SAMPLES, CHECKED, EPOCHS = 12_800, 2_000, 10
BATCH_SIZES = [64, 128, 256]


@dataclass(frozen=True)
class Searched:
    """A whole search."""

    joules: float
    seconds: float
    tried: list[dict[str, Any]]  # the hyperparameters of each trial
    ended: int  # trials that were ended early
    best: float  # the best accuracy


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(SAMPLES + CHECKED, 20))
    labels = (points @ rng.normal(size=20) + rng.normal(size=len(points)) > 0).astype(float)
    return points, labels


def accuracies(measured: MeasuredTrial, rate: float, momentum: float, batch_size: int) -> Iterator[float]:
    """Train, and yield the accuracy after each epoch."""
    points, labels = data()
    rng = np.random.default_rng(1)
    weights, speed = np.zeros(20), np.zeros(20)
    for _ in range(EPOCHS):
        order = rng.permutation(SAMPLES).reshape(-1, batch_size)
        for batch in measured.steps(order):
            error = 1 / (1 + np.exp(-np.clip(points[batch] @ weights, -30, 30))) - labels[batch]
            speed = momentum * speed - rate * points[batch].T @ error / batch_size
            weights = weights + speed
        yield float(np.mean((points[SAMPLES:] @ weights > 0) == labels[SAMPLES:]))


def with_optuna(trials: int, mode: str, eta: float, profiles: Path) -> Searched:
    import optuna

    from zeus.tuning.optuna import OptunaTrial

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("learning_rate", 1e-4, 1.0, log=True)
        momentum = trial.suggest_float("momentum", 0.0, 0.99)
        batch_size = trial.suggest_categorical("batch_size", BATCH_SIZES)
        with OptunaTrial(trial, "classifier", batch_size, eta=eta, mode=mode, profiles=profiles) as measured:
            for epoch, accuracy in enumerate(accuracies(measured, rate, momentum, batch_size)):
                trial.report(accuracy, epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned
        return accuracy

    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(),
    )
    joules, seconds = used(lambda: study.optimize(objective, n_trials=trials))
    ended = sum(one.state is optuna.trial.TrialState.PRUNED for one in study.trials)
    return Searched(joules, seconds, [one.params for one in study.trials], ended, study.best_value)


def with_ray(trials: int, mode: str, eta: float, profiles: Path) -> Searched:
    from ray import tune
    from ray.tune.search.basic_variant import BasicVariantGenerator

    from zeus.tuning.ray_tune import RayTrial

    def train(config: dict[str, Any]) -> None:
        with RayTrial("classifier", config["batch_size"], eta=eta, mode=mode, profiles=profiles) as measured:
            for accuracy in accuracies(measured, config["learning_rate"], config["momentum"], config["batch_size"]):
                measured.report({"accuracy": accuracy})

    space = {
        "learning_rate": tune.loguniform(1e-4, 1.0),
        "momentum": tune.uniform(0.0, 0.99),
        "batch_size": tune.choice(BATCH_SIZES),
    }
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1, "gpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(
            search_alg=BasicVariantGenerator(random_state=0),
            scheduler=tune.schedulers.ASHAScheduler(metric="accuracy", mode="max", max_t=EPOCHS, grace_period=2),
            num_samples=trials,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(storage_path=str(profiles), verbose=0),
    )
    found: list[Any] = []
    joules, seconds = used(lambda: found.extend(tuner.fit()))
    failed = [one.error for one in found if one.error]
    if failed:
        raise SystemExit(f"{len(failed)} trials failed, the first with {failed[0]}")
    ended = sum(one.metrics["training_iteration"] < EPOCHS for one in found)
    return Searched(joules, seconds, [one.config for one in found], ended, max(o.metrics["accuracy"] for o in found))


def used(search: Callable[[], object]) -> tuple[float, float]:
    """What the card counts during a search."""
    (card,) = machine()
    joules, begin = card.energy(), card.clock.now()  # type: ignore[attr-defined]
    search()
    return card.energy() - joules, card.clock.now() - begin  # type: ignore[attr-defined]


def compare(name: str, search: Callable[..., Searched], trials: int, eta: float, folder: Path) -> None:
    off = search(trials, "off", eta, folder / f"{name}-off")
    on = search(trials, "optimize", eta, folder / f"{name}-on")
    if (on.tried, on.ended, on.best) != (off.tried, off.ended, off.best):
        raise SystemExit(f"{name}: the two searches did not train the same trials.")
    cost = CostModel(eta, sum(card.spec.max_watts for card in machine())).cost
    for label, one in (("without Zeus", off), ("with Zeus", on)):
        energy, time = one.joules / off.joules - 1, one.seconds / off.seconds - 1
        price = cost(one.joules, one.seconds) / cost(off.joules, off.seconds) - 1
        used_up = f"{one.joules / 3.6e6:.3f} kWh", f"{one.seconds / 3600:.2f} h"
        changes = (f"{100 * change:+.1f} %" for change in (energy, time, price))
        print(row(name, label, *used_up, *changes, f"{one.ended} of {trials}", f"{one.best:.4f}"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--eta", type=float, default=0.5)
    parser.add_argument("--gpu", default="virtual:v100?clock=virtual", help="a virtual GPU with a virtual clock")
    parser.add_argument("--only", choices=["optuna", "ray"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["ZEUS_GPU"] = args.gpu
        os.environ["ZEUS_VIRTUAL_STATE"] = str(folder / "cards")
        os.environ["ZEUS_KEEPER_STATE"] = str(folder / "keeper")
        print(head("tuner", "", "energy", "time", "energy", "time", "cost", "ended early", "best accuracy"))
        if args.only != "ray":
            compare("Optuna", with_optuna, args.trials, args.eta, folder)
        if args.only != "optuna":
            import ray

            ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
            try:
                compare("Ray Tune", with_ray, args.trials, args.eta, folder)
            finally:
                ray.shutdown()


if __name__ == "__main__":
    main()
