"""What decides a batch size: a value with a name, a version and four pure functions.

    state = policy.start(job)
    state = policy.observe(state, event)                  # folding a whole history = replaying it
    decision = decided(policy, state, job, ask)           # with chance of the trial's own: `Stream(seed, number)`
    policy.keep_going(state, trial, epochs, cost)         # asked before each epoch, and inside one that will not fit

A job stores its policy's name and version, and is folded with that version for ever; versions count from 1.0 on.

A policy may also say `monotone = True`: once it does not keep going, it would not with more epochs and a higher cost
either. A replay then asks it only where that matters.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.policy.paper.thompson import Rng
from zeus.policy.random_stream import Stream

State = TypeVar("State")


class Policy(Protocol[State]):
    """A way to choose batch sizes. `State` is its own affair: an immutable value."""

    @property
    def name(self) -> str:
        """What a job calls it."""

    @property
    def version(self) -> int:
        """Changes whenever a decision could."""

    def start(self, job: JobSpec) -> State:
        """What is known before anything has happened."""

    def observe(self, state: State, event: Event) -> State:
        """What is known after one more event; its cost does not grow with the history."""

    def decide(self, state: State, rng: Rng, ask: Ask) -> Decision:
        """The batch size for this ask. InputError where none is left to offer."""

    def keep_going(self, state: State, trial: Trial, epochs: int, cost: float) -> bool:
        """Whether a trial that ran so many epochs may begin the next, after which it would have this cost."""


def decided(policy: Policy[State], state: State, job: JobSpec, ask: Ask) -> Decision:
    """The policy's decision, unless this recurrence is one of those that measure the defaults (`baseline_every`)."""
    every, size = job.baseline_every, job.default_batch_size
    if every and ask.attempt == 1 and ask.recurrence % every == 0:
        return Decision(size, Phase.BASELINE, f"{size} at the highest limit: one run in {every} measures the default")
    return policy.decide(state, Stream(job.mab_seed, ask.number), ask)
