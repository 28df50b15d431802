"""How a trial ends if all its epochs are known beforehand, without passing each event through the engine.

A replay of many recurrences uses it. A test checks that it agrees with `zeus.trial.engine`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from zeus.cost import CostModel, Use
from zeus.job import Ending, Outcome


def run_through(
    first: Use,
    rest: Use,
    done: int,
    last: int,
    *,
    reaches: bool,
    cost: CostModel,
    keep_going: Callable[[int, float], bool],
    monotone: bool,
) -> Outcome:
    """The outcome of a trial whose epochs are all known: what the engine would return, event by event.

    Args:
        first: What the first epoch uses.
        rest: What each later epoch uses.
        done: Epochs that run without asking the policy.
        last: The epoch in which the trial reaches its target, or max_epochs.
        reaches: Whether it reaches its target.
        cost: Equation 2.
        keep_going: The policy: after this many epochs, may the next begin, which would bring the cost to this?
        monotone: Whether the policy, after it refuses once, always refuses. Then it is asked less often.
    """

    def may_begin(epochs: int) -> bool:
        after = Use(first.joules + epochs * rest.joules, first.seconds + epochs * rest.seconds)
        return keep_going(epochs, cost.of(after))

    if not monotone:
        epochs = next((n for n in range(done, last) if not may_begin(n)), last)
    elif done >= last or may_begin(last - 1):  # then it said yes before, too
        epochs = last
    else:
        epochs = done + bisect_left(range(done, last), True, key=lambda n: not may_begin(n))
    joules = first.joules + (epochs - 1) * rest.joules if epochs else 0.0
    seconds = first.seconds + (epochs - 1) * rest.seconds if epochs else 0.0
    if epochs == last:
        ending = Ending.CONVERGED if reaches else Ending.NOT_CONVERGED
        return Outcome(ending=ending, joules=joules, seconds=seconds, epochs=epochs)
    following = cost.of(rest if epochs else first)
    return Outcome(ending=Ending.STOPPED, joules=joules, seconds=seconds, epochs=epochs, next_epoch_cost=following)
