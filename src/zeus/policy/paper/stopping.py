"""Early stopping (§4.4): no trial may cost more than β times the cheapest recurrence that reached the target."""

from __future__ import annotations

import math

import msgspec

from zeus.errors import InputError


class Cheapest(msgspec.Struct, frozen=True):
    """min C over the converged recurrences, or over the `window` most recent of them if that is not 0.

    Runs that did not converge do not count: a cheap failure must not lower the bound.

    >>> Cheapest(window=2).add(5.0).add(9.0).add(7.0).cost
    7.0
    """

    window: int = 0
    recent: tuple[float, ...] = ()  # without a window, only the minimum

    def add(self, cost: float) -> Cheapest:
        """The state after a recurrence converged; `cost` is the sum over its trials."""
        if not (math.isfinite(cost) and cost > 0):
            raise InputError(f"cost of a recurrence {cost!r}: give a finite number above 0.")
        if self.window:
            return Cheapest(self.window, (*self.recent, cost)[-self.window :])
        return Cheapest(0, (cost,)) if not self.recent or cost < self.recent[0] else self

    @property
    def cost(self) -> float | None:
        """Min C; None until a recurrence converges."""
        return min(self.recent) if self.recent else None


def cost_limit(cheapest: Cheapest, beta: float) -> float | None:
    """β·min C, the bound of each trial; None: no bound yet, or none at all (β is infinite)."""
    least = cheapest.cost
    return None if least is None or math.isinf(beta) else beta * least
