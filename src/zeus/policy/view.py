"""What a policy believes about each batch size, as a table for the command line, the service and the page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from zeus.job import Ending, Event, JobSpec, Outcome, Pardoned, Trial
from zeus.ledger.charge import cost_of
from zeus.policy.common import Sample
from zeus.policy.paper.state import PaperState
from zeus.policy.paper.thompson import Belief, Certain, Gaussian, beliefs
from zeus.policy.structured.normal import exp
from zeus.policy.structured.state import StructuredState

VAGUE = 1.0  # a belief with a larger standard deviation of its log cost is not shown


class Standing(StrEnum):
    """Whether a batch size is still offered."""

    OFFERED = "offered"
    UNTRIED = "untried"
    PRUNED = "pruned"  # it did not reach the target
    ASIDE = "aside"  # not even one epoch of it fits under the bound
    CRASHED = "crashed"  # not offered again until the owner allows it


@dataclass(frozen=True, slots=True)
class SizeView:
    """One batch size: its believed mean cost, in joules, and the runs behind it."""

    batch_size: int
    standing: Standing
    runs: int  # runs that did at least one epoch and did not crash
    converged: int  # those that reached the target, within the window if there is one
    mean: float | None  # None: unknown
    spread: float | None  # standard deviation of the belief about the mean; 0: certain


def view(state: object, job: JobSpec, events: Iterable[Event], gpu_model: str) -> tuple[SizeView, ...]:
    """What a policy in this state believes about each size on this GPU model; one row for each size, ascending."""
    if isinstance(state, PaperState):
        return _of_past(state, gpu_model)
    rows = from_events(job, events, gpu_model)
    return _of_knowledge(state, rows, gpu_model) if isinstance(state, StructuredState) else rows


def from_events(job: JobSpec, events: Iterable[Event], gpu_model: str) -> tuple[SizeView, ...]:
    """Rows from the trials alone, for a policy without a view of its own: costs of converged runs, and crashes."""
    runs, costs = Counter[int](), dict.fromkeys(job.batch_sizes, Sample())
    converged, crashed = Counter[int](), set[int]()
    for event in events:
        match event:
            case Pardoned(batch_size=size):
                crashed.discard(size)
            case Trial(outcome=Outcome() as outcome) if event.ended is not None and event.ask.gpu_model == gpu_model:
                size, cost = event.batch_size, cost_of(event, job.eta_knob)
                if outcome.ending is Ending.CRASHED:
                    crashed.add(size)
                elif outcome.epochs:
                    runs[size] += 1
                if outcome.ending is Ending.CONVERGED:
                    converged[size] += 1
                    if cost is not None and size in costs:
                        costs[size] = costs[size].add(cost)
    rows = []
    for size, seen in costs.items():
        standing = Standing.CRASHED if size in crashed else Standing.OFFERED if runs[size] else Standing.UNTRIED
        mean = seen.mean if seen.count else None
        spread = math.sqrt(seen.variance / seen.count) if seen.count > 1 else None
        rows.append(SizeView(size, standing, runs[size], converged[size], mean, spread))
    return tuple(rows)


def _of_knowledge(state: StructuredState, rows: tuple[SizeView, ...], gpu_model: str) -> tuple[SizeView, ...]:
    """The rows of the structured policy: the cost of a run from its curves of Epochs and EpochCost."""
    epochs, costs = state.lessons.belief, state.epoch_costs(gpu_model)
    shown = []
    for arm, row in enumerate(rows):
        standing, mean, spread = row.standing, None, None
        if (gpu_model, arm) in state.crashed:
            standing = Standing.CRASHED
        elif state.is_dead(arm) and state.converged:  # until one size converges, all are still offered
            standing = Standing.PRUNED
        deviation = math.sqrt(epochs.var[arm] + costs.var[arm])
        if deviation < VAGUE:
            mean = exp(state.log_cost(arm, gpu_model))
            spread = mean * deviation
        shown.append(replace(row, standing=standing, mean=mean, spread=spread))
    return tuple(shown)


def _of_past(state: PaperState, gpu_model: str) -> tuple[SizeView, ...]:
    """The rows of the paper's policy: Algorithm 2's posterior of each size."""
    job = state.job
    prior = Gaussian(job.mab_prior_mean, job.mab_prior_precision)
    arms = beliefs({size: state.costs(size, gpu_model) for size in job.batch_sizes}, prior)
    rows = []
    for size in job.batch_sizes:
        arm = state.arms.get(size)
        seen = None if arm is None else arm.seen.get(gpu_model)
        runs, converged = state.side(gpu_model).looks.get(size, 0), 0 if seen is None else seen.epochs.count
        rows.append(SizeView(size, _standing(state, size, gpu_model), runs, converged, *_spread(arms[size])))
    return tuple(rows)


def _standing(state: PaperState, size: int, gpu_model: str) -> Standing:
    side = state.side(gpu_model)
    if size in side.crashed:
        return Standing.CRASHED
    # A walk drops failed sizes only at the end of its round. Until then they are neither ahead nor converged.
    gone = size not in side.walk.sizes or not (side.walk.done or size in side.walk.ahead or size in side.walk.converged)
    if gone:
        return Standing.PRUNED
    if not state.fitting((size,), gpu_model, state.limit(gpu_model)):
        return Standing.ASIDE
    return Standing.OFFERED if side.looks.get(size) else Standing.UNTRIED


def _spread(belief: Belief) -> tuple[float | None, float | None]:
    match belief:
        case Certain(mean):
            return mean, 0.0
        case Gaussian(mean, precision) if precision > 0:
            return mean, 1 / math.sqrt(precision)
        case _:
            return None, None
