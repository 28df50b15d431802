"""A policy chooses batch sizes. It is a value with a name, a version and four pure functions.

    state = policy.start(job)
    state = policy.observe(state, event)                  # folding a whole history = replaying it
    decision = decided(policy, state, job, ask)           # random draws from the trial's own `Stream(seed, number)`
    policy.keep_going(state, trial, epochs, cost)         # asked before each epoch, and inside one that will not fit

A job stores the name and version of its policy. Its state is always folded with that version. A change that may change
a decision is a new version.

A policy may set `monotone = True`: after it refuses to keep going, it also refuses with more epochs and a higher cost.
A replay of such a policy asks it less often.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from zeus.errors import InputError
from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.policy.common import Rng
from zeus.policy.random_stream import Stream

State = TypeVar("State")


class Policy(Protocol[State]):
    """A way to choose batch sizes. `State` is an immutable value that only the policy understands."""

    @property
    def name(self) -> str:
        """The name that a job gives in `JobSpec.policy`."""

    @property
    def version(self) -> int:
        """Increases with every change that could change a decision."""

    def start(self, job: JobSpec) -> State:
        """The state before the first event."""

    def observe(self, state: State, event: Event) -> State:
        """The state after one more event. This takes the same time for any length of history."""

    def decide(self, state: State, rng: Rng, ask: Ask) -> Decision:
        """The batch size for this ask. InputError if none is left to offer."""

    def keep_going(self, state: State, trial: Trial, epochs: int, cost: float) -> bool:
        """Whether a trial that did `epochs` epochs may begin the next, after which it would have cost `cost`."""


def decided(policy: Policy[State], state: State, job: JobSpec, ask: Ask) -> Decision:
    """The policy's decision, or the default if this recurrence must measure it (`baseline_every`)."""
    every, size = job.baseline_every, job.default_batch_size
    if every and ask.attempt == 1 and ask.recurrence % every == 0:
        which = "every recurrence" if every == 1 else f"one recurrence in {every}"
        reason = f"{which} measures the default: {size} at the highest power limit"
        return Decision(size, Phase.BASELINE, reason)
    decision = policy.decide(state, Stream(job.mab_seed, ask.number), ask)
    if not isinstance(decision, Decision):  # a policy of somebody else may return anything
        raise InputError(f"policy {policy.name!r} decided {decision!r}: let decide() return a zeus.job.Decision.")
    if decision.batch_size not in job.batch_sizes:
        raise InputError(
            f"policy {policy.name!r} chose batch size {decision.batch_size}, and the job has {list(job.batch_sizes)}."
        )
    return decision
