"""Regret (Equations 8 and 9): how much more a policy cost than the best batch size and power limit."""

from __future__ import annotations

from collections.abc import Iterable

from zeus.errors import InputError
from zeus.simulate.workload import Workload


def best_pair(workload: Workload, eta: float) -> tuple[int, float]:
    """The (b, p) with the least expected cost, among sizes whose runs all reach the target."""
    pairs = [pair for pair in workload.pairs if workload.always_converges(pair[0])]
    if not pairs:
        raise InputError(
            f"{workload.name} on {workload.gpu}: no batch size reaches the target in every run, so there is no best "
            "choice. Raise max_epochs or relax the target."
        )
    return min(pairs, key=lambda pair: workload.cost_model(eta).of(workload.expected(*pair)))


def optimum(workload: Workload, eta: float) -> float:
    """The least expected cost over all (b, p), among sizes whose runs all reach the target."""
    return workload.cost_model(eta).of(workload.expected(*best_pair(workload, eta)))


def regrets(costs: Iterable[float], least: float) -> list[float]:
    """Equation 9: the regret of each recurrence. It is negative if a run needed fewer epochs than expected."""
    return [cost - least for cost in costs]


def cumulative(costs: Iterable[float], least: float) -> float:
    """Equation 8: the sum of all regrets."""
    return sum(regrets(costs, least))
