"""Equations 8 and 9: what a policy cost more than the best pair of batch size and power limit would have."""

from __future__ import annotations

from collections.abc import Iterable

from zeus.errors import InputError
from zeus.simulate.workload import Workload


def optimum(workload: Workload, eta: float) -> float:
    """The least expected cost over all (b, p), among sizes whose every run reaches the target."""
    model = workload.cost_model(eta)
    costs = [
        workload.epochs_charged(size) * model.cost(epoch.joules, epoch.seconds)
        for size in workload.sizes
        if workload.always_converges(size)
        for epoch in workload.profiles[size].slices
    ]
    if not costs:
        raise InputError(f"{workload.name} on {workload.gpu}: no batch size reaches the target in every run.")
    return min(costs)


def regrets(costs: Iterable[float], least: float) -> list[float]:
    """Equation 9 for each recurrence; below zero where the draw was lucky."""
    return [cost - least for cost in costs]


def cumulative(costs: Iterable[float], least: float) -> float:
    """Equation 8."""
    return sum(regrets(costs, least))
