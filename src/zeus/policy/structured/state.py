"""The state of the structured policy: a value folded from a job's history, one event at a time.

Epochs(b) holds for the job on all GPUs. EpochCost(b) and crashes belong to a GPU model (§7). An arm is the index of a
batch size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace

from zeus.cost import Use
from zeus.job import MAX_TRIES, Ending, Event, JobSpec, Outcome, Pardoned, Phase, Profiled, Trial
from zeus.ledger.charge import charge, cost_of
from zeus.policy.common import Running, check_order, one_ended
from zeus.policy.structured.curve import EPOCH_COST, Belief, Estimate, learn, prior
from zeus.policy.structured.drift import THRESHOLD, Lessons
from zeus.policy.structured.normal import exp

EXACT = 1e-6  # variance of a profiled log EpochCost
STALE = 0.2  # difference in log EpochCost above which a profile must have been measured with other data
MEMORY = 4  # runs of a size over which the share that missed the target is averaged
WAITING, WORKING = 0.1, 0.4  # shares of MAXPOWER: a GPU that only waits draws the first, a busy one at least the second

Costs: TypeAlias = Mapping[str, Mapping[int, Estimate]]


class StructuredState(msgspec.Struct, frozen=True, dict=True):
    """A job's folded history. `observe` takes the same time for any length of history."""

    job: JobSpec
    lessons: Lessons
    sequence: int = 0
    costs: Costs = {}  # log EpochCost, by GPU model and arm
    slopes: Mapping[str, float] = {}  # expected of log EpochCost, per octave, by GPU model
    curves: Mapping[str, Belief] = {}  # derived from `costs` and `slopes`
    crashed: frozenset[tuple[str, int]] = frozenset()
    running: Mapping[int, Running] = {}  # by trial number
    failed: Mapping[int, tuple[int, ...]] = {}  # arms that failed, by unfinished recurrence
    missed: Mapping[int, float] = {}  # fading count of runs that missed the target, by arm
    ended: int = 0  # runs that reached the target
    ran: Mapping[int, int] = {}  # by arm: `ended` when a run of it last told something about Epochs
    alarmed: int = 0  # `ended` at the last alarm

    @classmethod
    def start(cls, job: JobSpec, alarm: bool = True) -> StructuredState:
        """The state before the first event. Without the alarm it does not detect drift."""
        threshold = THRESHOLD if alarm else math.inf
        return cls(job, Lessons(job.batch_sizes, job.default_batch_size, job.window_size, threshold=threshold))

    # ------------------------------------------------------------------ queries

    def arm(self, size: int) -> int:
        """The index of a size."""
        return self.job.batch_sizes.index(size)

    @property
    def converged(self) -> Mapping[int, int]:
        """How often each arm reached the target."""
        return self.lessons.counts

    def is_dead(self, arm: int) -> bool:
        """Whether an arm ran to max_epochs and never reached the target. It is not explored until the alarm rings."""
        return arm in self.missed and arm not in self.converged

    def unseen(self, arm: int) -> int:
        """Recurrences since an arm last told something about Epochs, or since the last alarm if that was later."""
        return self.ended - max(self.ran.get(arm, 0), self.alarmed)

    @property
    def in_flight(self) -> int:
        """Running trials, including the one being asked for."""
        return 1 + sum(one.is_waited_for for one in self.running.values())

    @property
    def exploring(self) -> set[int]:
        """Arms that running trials explore, on any GPU, because what they teach about Epochs holds for all."""
        return {one.arm for one in self.running.values() if one.explores and one.is_waited_for}

    def usable(self, gpu_model: str) -> list[int]:
        """Arms that have not crashed on this GPU model."""
        return [arm for arm in range(len(self.job.batch_sizes)) if (gpu_model, arm) not in self.crashed]

    def epoch_costs(self, gpu_model: str) -> Belief:
        """The belief about log EpochCost(b) on a GPU model. A new model starts with the curve of another."""
        curve_here = self.curves.get(gpu_model)
        return _epoch_costs(self.job, self.costs, gpu_model, 0.0) if curve_here is None else curve_here

    def log_cost(self, arm: int, gpu_model: str) -> float:
        """Log of the believed cost of reaching the target with this size, including runs that miss it."""
        return self._log_epochs[arm] + self.epoch_costs(gpu_model).mean[arm]

    @cached_property
    def _log_epochs(self) -> tuple[float, ...]:
        """Log of the epochs that each arm needs for one run that reaches the target, including runs that miss it."""
        found = list(self.lessons.belief.mean)
        for arm, missed in self.missed.items():
            runs = min(self.converged.get(arm, 1), MEMORY)
            found[arm] += math.log1p(missed / runs * self.job.max_epochs * exp(-found[arm]))
        return tuple(found)

    def best(self, gpu_model: str, usable: list[int]) -> int:
        """The converged arm with the lowest believed cost; if none converged, the arm nearest to the default."""
        known = [arm for arm in usable if arm in self.converged]
        if known:
            epochs, costs = self._log_epochs, self.epoch_costs(gpu_model).mean
            return min(known, key=lambda arm: (epochs[arm] + costs[arm], arm))
        default, sizes = self.job.default_batch_size, self.job.batch_sizes
        return min(usable, key=lambda arm: (self.missed.get(arm, 0.0), abs(math.log(sizes[arm] / default)), arm))

    # ------------------------------------------------------------------ events

    def observe(self, event: Event) -> StructuredState:
        """The state after the next event of the job's history."""
        check_order(self.job, self.sequence, event)
        if event.batch_size not in self.job.batch_sizes:  # from before the job's sizes were revised
            return replace(self, sequence=event.sequence, ended=self.ended + _reached(event))
        match event:
            case Profiled():
                epoch = charge(Use(event.joules, event.seconds), self.job.eta_knob, event.max_watts).cost
                slopes = {event.gpu_model: _slope(event), **self.slopes}
                now = replace(self, sequence=event.sequence, slopes=slopes)
                return now._profiled(event.gpu_model, event.batch_size, epoch)
            case Pardoned():
                arm = self.arm(event.batch_size)
                crashed = frozenset(one for one in self.crashed if one[1] != arm)
                return replace(self, sequence=event.sequence, crashed=crashed)
            case Trial():
                return replace(self, sequence=event.sequence)._trial(event)

    def _profiled(self, gpu_model: str, size: int, cost: float) -> StructuredState:
        known = {**self.costs.get(gpu_model, {}), self.arm(size): Estimate(math.log(cost), EXACT)}
        costs = {**self.costs, gpu_model: known}
        curves = {one: _epoch_costs(self.job, costs, one, self.slopes.get(one, 0.0)) for one in costs}
        return replace(self, costs=costs, curves=curves)

    def _trial(self, trial: Trial) -> StructuredState:
        if trial.ending is Ending.OPEN:
            arm = self.arm(trial.batch_size)
            explores = trial.decision.phase is Phase.EXPLORING or trial.decision.cost_limit is not None
            begun = Running(arm, explores, trial.ask.gpu_model, self.lessons.expected(arm))
            return replace(self, running={**self.running, trial.number: begun})
        if trial.outcome is None or trial.ending is Ending.LOST:
            return replace(self, running={n: one for n, one in self.running.items() if n != trial.number})
        return self._ended(trial, trial.outcome)

    def _ended(self, trial: Trial, outcome: Outcome) -> StructuredState:
        arm, model, recurrence = self.arm(trial.batch_size), trial.ask.gpu_model, trial.ask.recurrence
        converged = outcome.ending is Ending.CONVERGED
        ended = self.ended + converged
        failed = {r: arms for r, arms in self.failed.items() if r != recurrence}
        if not converged and trial.ask.attempt < MAX_TRIES and not trial.ask.last:
            failed[recurrence] = (*self.failed.get(recurrence, ()), arm)
        told = outcome.epochs > 1 or converged  # one epoch tells only what an epoch costs
        now = replace(
            self,
            running=one_ended(self.running, trial.number),
            failed=failed,
            ended=ended,
            ran={**self.ran, arm: ended} if told else self.ran,
        )
        if outcome.ending is Ending.CRASHED:
            return replace(now, crashed=self.crashed | {(model, arm)})
        cost = cost_of(trial, self.job.eta_knob)
        epoch = cost / outcome.epochs if cost is not None and outcome.epochs else outcome.next_epoch_cost
        if epoch and self._is_news(model, arm, epoch, outcome.epochs):
            now = now._profiled(model, trial.batch_size, epoch)
        missed = self.missed.get(arm, 0.0)
        if converged:
            begun = self.running.get(trial.number)
            lessons = self.lessons.converged(arm, outcome.epochs, begun.expected if begun else None)
            if lessons.alarms > self.lessons.alarms:  # sizes that missed the target get another chance
                return replace(now, lessons=lessons, missed={}, alarmed=ended)
            faded = {**self.missed, arm: missed * (1 - 1 / MEMORY)} if missed else self.missed
            return replace(now, lessons=lessons, missed=faded)
        if not outcome.epochs:
            return now
        if outcome.ending is Ending.NOT_CONVERGED:
            now = replace(now, missed={**self.missed, arm: missed + 1})
        return replace(now, lessons=self.lessons.stopped(arm, outcome.epochs))

    def _is_news(self, model: str, arm: int, epoch: float, epochs: int) -> bool:
        """Whether a run changes what an epoch costs: it was unknown, or the profile is off by more than STALE."""
        known = self.costs.get(model, {}).get(arm)
        if known is not None and not self.ended and self.job.start == "profiled":
            return False  # the cost of the first run holds that of profiling
        return known is None or (epochs > 1 and abs(math.log(epoch) - known.mean) > STALE)


def _reached(event: Event) -> bool:
    return isinstance(event, Trial) and event.outcome is not None and event.outcome.ending is Ending.CONVERGED


def _slope(first: Profiled) -> float:
    """Expected slope of log EpochCost per octave: while a GPU waits, twice the batch halves the cost of an epoch."""
    draws = first.joules / first.seconds / first.max_watts
    waits = (WORKING - draws) / (WORKING - WAITING)
    return round(-math.log(2) * min(max(waits, 0.0), 1.0), 2)


def _epoch_costs(job: JobSpec, costs: Costs, gpu_model: str, slope: float) -> Belief:
    """The belief about log EpochCost(b) on a GPU model. It begins with the curve of the model that is known best."""
    before = prior(job.batch_sizes, job.default_batch_size, EPOCH_COST, slope)
    own = costs.get(gpu_model, {})
    most = max(costs.values(), key=len, default=own)
    if len(most) > len(own):
        before = replace(before, means=np.array([learn(before, most).mean] * len(before.means)))
    return learn(before, own)
