"""The state of the paper's policy: a value folded from a job's history, one event at a time.

Each GPU model has its own side, with its walk, bound and crashes. Observations are stored with the arm (the batch
size), so that they can be translated from one model to another (§7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from zeus.cost import Use, ceiling
from zeus.job import MAX_TRIES, Ending, Event, JobSpec, Outcome, Pardoned, Phase, Profiled, Trial
from zeus.ledger.charge import Tally, charge, spent
from zeus.policy.common import NOTHING, Running, Sample, all_crashed, check_order, one_ended
from zeus.policy.paper.pruning import Walk
from zeus.policy.paper.stopping import Cheapest, cost_limit
from zeus.policy.paper.transfer import Arm, Observation


class Side(msgspec.Struct, frozen=True):
    """The part of the state that belongs to one GPU model."""

    walk: Walk
    cheapest: Cheapest
    crashed: frozenset[int] = frozenset()
    # Sizes whose first epoch did not fit under the bound, and its cost.
    aside: Mapping[int, float] = {}
    looks: Mapping[int, int] = {}  # runs of each size that did an epoch and did not crash


class PaperState(msgspec.Struct, frozen=True):
    """A job's folded history. `observe` takes the same time for any length of history."""

    job: JobSpec
    rounds: int  # of pruning
    sequence: int = 0  # of the last event
    arms: Mapping[int, Arm] = {}
    sides: Mapping[str, Side] = {}
    epoch_costs: Mapping[str, Mapping[int, float]] = {}  # by GPU model, by size
    open: Mapping[int, Running] = {}  # by trial number
    unfinished: Mapping[int, Tally] = {}  # what recurrences that are not over have used

    # ------------------------------------------------------------------ queries

    def side(self, gpu_model: str) -> Side:
        """The side of this GPU model. A new one starts with the sizes that survived pruning on other models, if any."""
        if gpu_model in self.sides:
            return self.sides[gpu_model]
        done = [side.walk for side in self.sides.values() if side.walk.done and side.walk.sizes]
        if not done:
            walk = Walk.start(self.job.batch_sizes, self.job.default_batch_size, self.rounds)
        else:
            sizes = tuple(sorted({size for walk in done for size in walk.sizes}))
            walk = Walk.start(sizes, done[0].default, rounds=0)
        return Side(walk, Cheapest(self.job.window_size))

    def costs(self, size: int, gpu_model: str) -> Sample:
        """The costs of a size on this GPU model, including translated ones."""
        return self.all_costs((size,), gpu_model)[size]

    def all_costs(self, sizes: Iterable[int], gpu_model: str) -> dict[int, Sample]:
        """The costs of each size on this GPU model, including translated ones."""
        arms, epoch = self.arms, self.epoch_costs.get(gpu_model, {})
        return {size: arms[size].costs(gpu_model, epoch.get(size)) if size in arms else NOTHING for size in sizes}

    def limit(self, gpu_model: str) -> float | None:
        """β·min C. A job with a single size has no bound, because there is no other size to try."""
        return cost_limit(self.side(gpu_model).cheapest, self.job.beta) if len(self.job.batch_sizes) > 1 else None

    def fitting(self, sizes: Iterable[int], gpu_model: str, limit: float | None) -> list[int]:
        """The sizes without those of which not even one epoch fits under the bound. Unknown costs fit."""
        known, aside, most = self.epoch_costs.get(gpu_model, {}), self.side(gpu_model).aside, ceiling(limit)
        return [size for size in sizes if (known.get(size) or aside.get(size, 0.0)) <= most]

    def best_known(self, gpu_model: str) -> int:
        """The size with the lowest mean cost; before any size converged, the one nearest to the default."""
        side = self.side(gpu_model)
        usable = [size for size in self.job.batch_sizes if size not in side.crashed]
        if not usable:
            raise all_crashed(self.job, gpu_model)
        seen = {size: costs.mean for size, costs in self.all_costs(usable, gpu_model).items() if costs.count}
        converged = [size for size in seen if self.arms[size].converged]
        if converged:
            return min(converged, key=lambda size: (size not in side.walk.sizes, seen[size], size))
        return min(usable, key=lambda size: (abs(size - self.job.default_batch_size), size))

    def explored_by_another(self, gpu_model: str) -> bool:
        """Whether a running trial explores the walk's current size, and not for too long already."""
        current = self.side(gpu_model).walk.current
        return any(
            one.explores and one.arm == current and one.gpu_model == gpu_model and one.is_waited_for
            for one in self.open.values()
        )

    def looks(self, gpu_model: str) -> Mapping[int, int]:
        """`Side.looks`, plus the trials that are running."""
        looks = dict(self.side(gpu_model).looks)
        for one in self.open.values():
            if one.gpu_model == gpu_model:
                looks[one.arm] = looks.get(one.arm, 0) + 1
        return looks

    # ------------------------------------------------------------------ events

    def observe(self, event: Event) -> PaperState:
        """The state after the next event of the job's history."""
        check_order(self.job, self.sequence, event)
        match event:
            case Trial():
                return self._trial(event)
            case Profiled():
                epoch = charge(Use(event.joules, event.seconds), self.job.eta_knob, event.max_watts).cost
                here = {**self.epoch_costs.get(event.gpu_model, {}), event.batch_size: epoch}
                known = {**self.epoch_costs, event.gpu_model: here}
                return replace(self, sequence=event.sequence, epoch_costs=known)
            case Pardoned():
                sides = {model: _pardon(side, event) for model, side in self.sides.items()}
                return replace(self, sequence=event.sequence, sides=sides)

    def _trial(self, trial: Trial) -> PaperState:
        if trial.batch_size not in self.job.batch_sizes:  # asked before the job's sizes were revised
            return replace(self, sequence=trial.sequence)
        ending = trial.ending
        if ending is Ending.OPEN:
            return self._launch(trial)
        if trial.outcome is None or ending is Ending.LOST:
            left = {number: one for number, one in self.open.items() if number != trial.number}
            return replace(self, sequence=trial.sequence, open=left)
        return self._learn(trial, trial.outcome)

    def _launch(self, trial: Trial) -> PaperState:
        model, sides = trial.ask.gpu_model, self.sides
        if model not in sides:
            sides = {**sides, model: self.side(model)}
        one = Running(trial.batch_size, trial.decision.phase is Phase.PRUNING, model)
        return replace(self, sequence=trial.sequence, sides=sides, open={**self.open, trial.number: one})

    def _learn(self, trial: Trial, outcome: Outcome) -> PaperState:
        ask, size, ending = trial.ask, trial.batch_size, outcome.ending
        side, arms = self.side(ask.gpu_model), self.arms
        use = spent(outcome, self.job.eta_knob, ask.max_watts)
        cost = None if use is None else use.cost
        crashed, aside, looks = side.crashed, side.aside, side.looks
        if ending is Ending.CRASHED:
            crashed = crashed | {size}
        elif outcome.epochs:
            looks = {**looks, size: looks.get(size, 0) + 1}
        elif trial.decision.phase is not Phase.PRUNING and outcome.next_epoch_cost is not None:
            aside = {**aside, size: outcome.next_epoch_cost}

        observation = _observation(trial, outcome, cost)
        if observation is not None:
            arm = arms[size] if size in arms else Arm(self.job.window_size)
            arms = {**arms, size: arm.add(observation)}

        unfinished, cheapest = dict(self.unfinished), side.cheapest
        tally = unfinished.pop(ask.recurrence, Tally()).plus(use, ran=outcome.epochs > 0)
        if ending is not Ending.CONVERGED and ask.attempt < MAX_TRIES and not ask.last:
            unfinished[ask.recurrence] = tally
        elif ending is Ending.CONVERGED and tally.total is not None:
            cheapest = cheapest.add(tally.total.cost)
        walk = _walk_on(side.walk, trial, ending, cost)
        sides = {**self.sides, ask.gpu_model: Side(walk, cheapest, crashed, aside, looks)}
        running = one_ended(self.open, trial.number)
        return replace(self, sequence=trial.sequence, arms=arms, sides=sides, open=running, unfinished=unfinished)


def _observation(trial: Trial, outcome: Outcome, cost: float | None) -> Observation | None:
    """What the arm learns: the cost of this trial, not of its recurrence."""
    if cost is None or not outcome.epochs:
        return None
    match outcome.ending:
        case Ending.CONVERGED:
            return Observation(trial.ask.gpu_model, cost, outcome.epochs)
        case Ending.STOPPED | Ending.NOT_CONVERGED if trial.decision.phase is not Phase.PRUNING:
            # A stopped run must not look cheap.
            return Observation(trial.ask.gpu_model, max(cost, trial.decision.cost_limit or 0.0), None)
        case _:
            return None


def _walk_on(walk: Walk, trial: Trial, ending: Ending, cost: float | None) -> Walk:
    """The walk after a trial. Only the exploration of the current size moves it on; other runs only add their cost."""
    size, converged = trial.decision.batch_size, ending is Ending.CONVERGED
    if trial.decision.phase is Phase.PRUNING and not walk.done and size == walk.current:
        walk = walk.step(converged=converged, cost=cost)
    elif converged and cost is not None:
        walk = walk.learn(size, cost)
    return walk.without(size) if ending is Ending.CRASHED else walk


def _pardon(side: Side, event: Pardoned) -> Side:
    if event.batch_size not in side.crashed:
        return side
    looks = {size: n for size, n in side.looks.items() if size != event.batch_size}
    walk = side.walk.restore(event.batch_size)
    return replace(side, crashed=side.crashed - {event.batch_size}, walk=walk, looks=looks)
