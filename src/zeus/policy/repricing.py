"""After its owner changed η, a job's costs are in another unit, and so must be the bounds that its trials ran under.

What a trial used is kept in joules and seconds: its cost is known for any η. Its bound is a cost and no more, in the
unit of the η that it was decided under. It is brought into the unit of now by the trial's own power: the cost that it
would have had at its bound, had it gone on as it ran.
"""

from __future__ import annotations

from dataclasses import replace

from zeus.cost import CostModel
from zeus.job import Ending, Trial


def repriced(trial: Trial, new: float) -> Trial:
    """The trial as it is to be folded under the new η, which it was not decided under.

    One that was not run, as not even one epoch fitted, says nothing in joules and seconds. It is taken as lost, and
    teaches nothing; what an epoch costs is known under any η where it was profiled.
    """
    outcome, decision, old = trial.outcome, trial.decision, trial.ask.eta
    if old == new or outcome is None or trial.ended is None:
        return trial
    if outcome.ending is Ending.STOPPED and not outcome.epochs:
        return Trial(ask=trial.ask, decision=decision, asked=trial.asked, lost=trial.ended)
    if outcome.joules is None:  # without a cost of its own nobody looks at its bound, but at its next epoch's cost
        return replace(trial, outcome=replace(outcome, next_epoch_cost=None))
    before, now = (CostModel(eta, trial.ask.max_watts).cost(outcome.joules, outcome.seconds) for eta in (old, new))
    if not (before > 0 and now > 0):
        return trial
    limit, following = decision.cost_limit, outcome.next_epoch_cost
    return replace(
        trial,
        decision=replace(decision, cost_limit=None if limit is None else limit * now / before),
        outcome=replace(outcome, next_epoch_cost=None if following is None else following * now / before),
    )
