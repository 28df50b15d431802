"""Searches with real Ray Tune on a virtual GPU. A program: it prints what came out as JSON.

Run it where loopback is the only interface, because Ray listens on all.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def train(config: dict[str, Any]) -> None:
    from zeus.device.find import machine
    from zeus.monitor import ZeusMonitor
    from zeus.tuning.ray_tune import RayTrial

    monitor = ZeusMonitor(gpus={}) if config.get("blind") else None
    with RayTrial("resnet", 64, monitor=monitor) as measured:
        if config.get("blind"):
            measured.report({"cost": measured.cost})
        if "meet" in config:
            wait_for_the_other(Path(config["meet"]))
        limits: list[float] = []
        for _ in range(config["epochs"]):
            for _ in measured.steps(range(300)):
                limit = machine({"ZEUS_GPU": config["card"]})[0].limit()
                if not limits or limits[-1] != limit:
                    limits.append(limit)
            measured.report({"limits": list(limits)})
            if config.get("fail"):
                raise ZeroDivisionError("the user's own fault")


def wait_for_the_other(folder: Path) -> None:
    """Wait until two trials are in their blocks."""
    (folder / str(time.monotonic_ns())).touch()
    deadline = time.monotonic() + 120
    while len([*folder.iterdir()]) < 2:
        assert time.monotonic() < deadline, "the other trial did not come"
        time.sleep(0.02)


def main(folder: Path, card: str) -> None:
    import ray
    from ray import tune

    from zeus.device.find import machine
    from zeus.tuning.ray_tune import CostStopper

    (gpu,) = machine()

    def search(
        config: dict[str, Any], share: float = 1, stop: tune.Stopper | None = None, **goal: str
    ) -> dict[str, Any]:
        before = gpu.energy()
        results = tune.Tuner(
            tune.with_resources(train, {"cpu": 0.5, "gpu": share}),
            param_space={"card": card, **config},
            run_config=tune.RunConfig(storage_path=str(folder), verbose=0, stop=stop),
            tune_config=tune.TuneConfig(**goal),
        ).fit()
        named = ("zeus/", "training_iteration", "limits")
        return {
            "trials": [{k: v for k, v in (one.metrics or {}).items() if k.startswith(named)} for one in results],
            "errors": [str(one.error) for one in results if one.error],
            "best": results.get_best_result().metrics["zeus/cost"] if goal and not results.errors else None,
            "joules": gpu.energy() - before,
            "limit": gpu.limit(),
        }

    meet = folder / "meet"
    meet.mkdir(parents=True)
    together = {"epochs": 2, "meet": str(meet), "number": tune.grid_search([1, 2])}
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        found = {
            "in turn": search(
                {"epochs": tune.grid_search([3, 2, 9, 2])}, stop=CostStopper(2), metric="zeus/cost", mode="min"
            ),
            "failing": search({"epochs": 3, "fail": True}),
            "together": search(together, share=0.5),
            "without a gpu": search({"epochs": 1, "blind": True}),
        }
    finally:
        ray.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
