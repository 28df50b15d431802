"""Builds the history of a job step by step: asks, tells and losses, with the sequence numbers of a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from zeus.job import Ask, Ending, Event, Gpus, JobSpec, Outcome, Pardoned, Profiled, Trial, history
from zeus.policy.api import Policy
from zeus.policy.random_stream import Stream
from zeus.policy.registry import find_policy

State = TypeVar("State")

WATTS = 100.0


def job(**knobs: Any) -> JobSpec:
    """Three sizes, and η = 1 so that a cost is plain joules."""
    given = {"batch_sizes": (8, 16, 32), "default_batch_size": 16, "eta_knob": 1.0, **knobs}
    return JobSpec(job_id_prefix="story", **given)


def converged(cost: float, epochs: int = 4) -> Outcome:
    return Outcome(ending=Ending.CONVERGED, joules=cost, seconds=1.0, epochs=epochs, metric=0.9)


def stopped(cost: float, epochs: int = 2) -> Outcome:
    return Outcome(ending=Ending.STOPPED, joules=cost, seconds=1.0, epochs=epochs)


def not_run(first_epoch_cost: float) -> Outcome:
    return Outcome(ending=Ending.STOPPED, joules=0.0, epochs=0, next_epoch_cost=first_epoch_cost)


NOT_CONVERGED = Outcome(ending=Ending.NOT_CONVERGED, joules=50.0, seconds=1.0, epochs=100)
CRASHED = Outcome(ending=Ending.CRASHED)


class Story:
    """Drives a policy as a store would."""

    def __init__(self, spec: JobSpec, policy: Policy[Any] | None = None, seed: int = 0) -> None:
        self.policy = policy or find_policy("paper")
        self.job = spec
        self.seed = seed
        self.state = self.policy.start(spec)
        self.facts: list[Event] = []  # each trial once, as it stands at last
        self.events: list[Event] = []
        self.trials: list[Trial] = []
        self.recurrence = 0

    def next(self) -> int:
        return len(self.events) + 1

    def observe(self, event: Event) -> None:
        self.events.append(event)
        self.state = self.policy.observe(self.state, event)

    def ask(self, recurrence: int | None = None, gpu: str = "", last: bool = False, attempt: int = 1) -> Trial:
        if recurrence is None:
            self.recurrence += 1
            recurrence = self.recurrence
        ask = Ask(
            number=len(self.trials) + 1,
            recurrence=recurrence,
            attempt=attempt,
            gpus=Gpus(gpu, 1, WATTS),
            eta=self.job.eta_knob,
            last=last,
        )
        decision = self.policy.decide(self.state, Stream(self.seed, ask.number), ask)
        trial = Trial(ask=ask, decision=decision, asked=self.next())
        self.trials.append(trial)
        self.observe(trial)
        return trial

    def tell(self, trial: Trial, outcome: Outcome) -> None:
        now = self.trials[trial.number - 1].end(self.next(), outcome)
        self.trials[trial.number - 1] = now
        self.observe(now)

    def lose(self, trial: Trial) -> None:
        now = self.trials[trial.number - 1].lose(self.next())
        self.trials[trial.number - 1] = now
        self.observe(now)

    def profile(self, size: int, epoch_cost: float, gpu: str = "") -> None:
        self.observe(
            Profiled(
                sequence=self.next(), batch_size=size, gpu_model=gpu, joules=epoch_cost, seconds=1, max_watts=WATTS
            )
        )

    def pardon(self, size: int) -> None:
        self.observe(Pardoned(sequence=self.next(), batch_size=size))

    def run(self, costs: dict[int, Outcome], recurrences: int = 1, gpu: str = "") -> list[int]:
        """Recurrences in which each size always ends like this; the sizes tried."""
        tried = []
        for _ in range(recurrences):
            trial = self.ask(gpu=gpu)
            tried.append(trial.batch_size)
            attempt = 1
            while costs[trial.batch_size].ending is not Ending.CONVERGED and attempt < 20:
                self.tell(trial, costs[trial.batch_size])
                attempt += 1
                trial = self.ask(recurrence=trial.ask.recurrence, gpu=gpu, attempt=attempt)
                tried.append(trial.batch_size)
            self.tell(trial, costs[trial.batch_size])
        return tried


def fold(policy: Policy[State], job: JobSpec, facts: Iterable[Event]) -> State:
    """The state after all of these facts, given in any order."""
    state = policy.start(job)
    for event in history(facts):
        state = policy.observe(state, event)
    return state
