"""A policy of your own: each batch size once, then the cheapest so far.

Compare it with others, or name it in a job file (policy = "own_policy:Cheapest"):

PYTHONPATH=examples zeus simulate --gpu virtual:v100 --workload BERT-SA --policy own_policy:Cheapest,paper,default
"""

from dataclasses import dataclass, replace

from zeus.job import Decision, Ending, JobSpec, Phase, Trial
from zeus.ledger.charge import cost_of


@dataclass(frozen=True)
class State:
    job: JobSpec
    costs: tuple = ()  # (cost, batch size) of each trial that has ended


class Cheapest:
    name, version = "cheapest", 1

    def start(self, job):
        return State(job)

    def observe(self, state, event):
        if not isinstance(event, Trial) or event.ended is None:
            return state
        cost = cost_of(event, state.job.eta_knob) if event.ending is Ending.CONVERGED else None
        return replace(state, costs=(*state.costs, (cost or float("inf"), event.batch_size)))

    def decide(self, state, rng, ask):
        tried = {size for _, size in state.costs}
        for size in state.job.batch_sizes:
            if size not in tried:
                return Decision(size, Phase.PRUNING, f"{size} was never tried")
        return Decision(min(state.costs)[1], Phase.SAMPLING, "the cheapest so far")

    def keep_going(self, state, trial, epochs, cost):
        return epochs < state.job.max_epochs
