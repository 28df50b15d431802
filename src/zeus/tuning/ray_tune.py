"""Ray Tune: energy and cost of each trial in its results, and a stopper that bounds the cost of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.lazy import optional
from zeus.tuning.cost_bound import CostBound
from zeus.tuning.measured_trial import MeasuredTrial

with optional("zeus.tuning.ray_tune", "ray", "Ray Tune"):
    from ray import tune


class RayTrial(MeasuredTrial):
    """A trial of Ray Tune. It takes the arguments of `MeasuredTrial`. Make it inside the function that Ray calls.

    def train(config):
        with RayTrial("resnet", config["batch_size"]) as measured:
            for epoch in range(10):
                for batch in measured.steps(loader):
                    ...
                measured.report({"accuracy": accuracy})
    """

    def report(self, metrics: Mapping[str, Any], checkpoint: tune.Checkpoint | None = None) -> None:
        """`ray.tune.report` with the values of this trial added, so that `zeus/cost` can be the metric of the search.

        It waits for the sensors, usually 0.1 s. If Ray stops the trial, it does so inside this call.

        Args:
            metrics: The metrics of your own.
            checkpoint: As for `ray.tune.report`.
        """
        tune.report({**metrics, **self.values()}, checkpoint=checkpoint)


class CostStopper(tune.Stopper):  # type: ignore[misc]
    """Stops a trial once it has cost more than β times the cheapest completed trial of the search (§4.4).

        tune.Tuner(train, run_config=tune.RunConfig(stop=CostStopper(2.0)))

    It can be combined with any scheduler. A trial that a scheduler or a stopper has ended is not a completed one. Only
    costs with the same η on the same GPUs are compared. A trial whose cost is not known is not stopped for it.

    Args:
        beta: β, at least 1.

    Raises:
        InputError: `beta` is below 1.
    """

    def __init__(self, beta: float = 2.0) -> None:
        self._bound = CostBound(beta)
        self._completed: list[Mapping[str, Any]] = []

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Called by Ray with each result. The last one of a trial that ended by itself comes again as `done`."""
        if result.get("done"):
            self._completed.append({name: value for name, value in result.items() if name.startswith("zeus/")})
            return False
        return self._bound.is_exceeded(result, self._completed)

    def stop_all(self) -> bool:
        """Always False: the search itself goes on."""
        return False
