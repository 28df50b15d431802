"""Optuna: energy and cost of each trial in its user attributes, and a pruner that bounds the cost of a trial."""

from __future__ import annotations

from typing import Any

from zeus.lazy import optional
from zeus.tuning.cost_bound import CostBound
from zeus.tuning.measured_trial import MeasuredTrial

with optional("zeus.tuning.optuna", "optuna", "Optuna"):
    from optuna.pruners import BasePruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial, TrialState


class OptunaTrial(MeasuredTrial):
    """A trial of an Optuna study. Its values go to `trial.user_attrs` after each pass of steps and at the end.

        def objective(trial):
            with OptunaTrial(trial, "resnet", batch_size=64) as measured:
                for epoch in range(10):
                    for batch in measured.steps(loader):
                        ...
                    trial.report(accuracy, epoch)
                    if trial.should_prune():
                        raise optuna.TrialPruned
            return accuracy, measured.cost

    Trials that were pruned or failed have the values too.

    Args:
        trial: The trial that Optuna passes to the objective.
        arguments: Those of `MeasuredTrial`, by place or by name.

    Raises:
        InputError: An argument is not valid.
    """

    def __init__(self, trial: Trial, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._trial = trial

    def _record(self) -> None:
        for name, value in self.values().items():
            self._trial.set_user_attr(name, value)

    def exceeds(self, beta: float = 2.0) -> bool:
        """Whether the trial has cost more than β times the cheapest completed one: the question of `CostPruner`.

        For studies with several objectives, in which Optuna has no `should_prune`.
        """
        return _exceeds(CostBound(beta), self._trial.study, self._trial.user_attrs)


class CostPruner(BasePruner):  # type: ignore[misc]
    """Prunes a trial once it has cost more than β times the cheapest completed trial of the study (§4.4).

    Only costs with the same η on the same GPUs are compared. A trial whose cost is not known is not pruned for it.

        optuna.create_study(pruner=CostPruner(2.0, also=optuna.pruners.MedianPruner()))

    Args:
        beta: β, at least 1.
        also: A pruner of the metric. A trial is pruned if either says so.

    Raises:
        InputError: `beta` is below 1.
    """

    def __init__(self, beta: float = 2.0, also: BasePruner | None = None) -> None:
        self._bound = CostBound(beta)
        self._also = also

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Called by `trial.should_prune()`."""
        if _exceeds(self._bound, study, trial.user_attrs):
            return True
        return self._also is not None and bool(self._also.prune(study, trial))


def _exceeds(bound: CostBound, study: Study, values: dict[str, object]) -> bool:
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return bound.is_exceeded(values, (one.user_attrs for one in completed))
