"""Converts the cost bounds of a job's trials after its owner changed η.

What a trial used is stored in joules and seconds, so its cost is known for any η. Its bound is stored only as a cost
under the old η. It is converted with the trial's own ratio of new to old cost: the cost that the trial would have had
at its bound if it had continued in the same way.
"""

from __future__ import annotations

from zeus.job import Ending, Trial, replace
from zeus.ledger.charge import cost_of


def repriced(trial: Trial, new: float) -> Trial:
    """The trial as a policy must see it under the new η.

    A trial that was not run, because its first epoch did not fit, has no joules and seconds to convert. It becomes
    LOST, from which a policy learns nothing. If its size was profiled, the cost of an epoch is known for any η anyway.
    """
    outcome, decision, old = trial.outcome, trial.decision, trial.ask.eta
    if old == new or outcome is None or trial.ended is None:
        return trial
    if outcome.ending is Ending.STOPPED and not outcome.epochs:
        return Trial(ask=trial.ask, decision=decision, asked=trial.asked, lost=trial.ended)
    before, now = cost_of(trial, old), cost_of(trial, new)
    if before is None or now is None:  # its bound has no effect then; only next_epoch_cost would
        return replace(trial, outcome=replace(outcome, next_epoch_cost=None))
    if not (before > 0 and now > 0):
        return trial
    limit, following = decision.cost_limit, outcome.next_epoch_cost
    return replace(
        trial,
        decision=replace(decision, cost_limit=None if limit is None else limit * now / before),
        outcome=replace(outcome, next_epoch_cost=None if following is None else following * now / before),
    )
