"""Equations 8 and 9: what a policy cost more than the best pair of batch size and power limit would have."""

from __future__ import annotations

from collections.abc import Iterable

from zeus.errors import InputError
from zeus.simulate.workload import Workload


def best_pair(workload: Workload, eta: float) -> tuple[int, float]:
    """The (b, p) with the least expected cost, among sizes whose every run reaches the target."""
    pairs = [pair for pair in workload.pairs if workload.always_converges(pair[0])]
    if not pairs:
        raise InputError(
            f"{workload.name} on {workload.gpu}: no batch size reaches the target in every run, so that no best "
            "choice is defined. Raise max_epochs or relax the target."
        )
    return min(pairs, key=lambda pair: workload.cost_model(eta).cost(*workload.expected(*pair)))


def optimum(workload: Workload, eta: float) -> float:
    """The least expected cost over all (b, p), among sizes whose every run reaches the target."""
    return workload.cost_model(eta).cost(*workload.expected(*best_pair(workload, eta)))


def regrets(costs: Iterable[float], least: float) -> list[float]:
    """Equation 9 for each recurrence; below zero where the draw was lucky."""
    return [cost - least for cost in costs]


def cumulative(costs: Iterable[float], least: float) -> float:
    """Equation 8."""
    return sum(regrets(costs, least))
