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

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

from zeus.errors import InputError
from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial, history
from zeus.optimizer.batch_size.paper import PaperPolicy
from zeus.optimizer.batch_size.past import Past
from zeus.optimizer.batch_size.stream import Stream
from zeus.optimizer.batch_size.structured import StructuredPolicy
from zeus.optimizer.batch_size.thompson import Rng

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


@dataclass(frozen=True, slots=True)
class DefaultPolicy:
    """Always the default batch size, whatever it costs: what Zeus is compared with."""

    name: str = "default"
    version: int = 1
    monotone: bool = True

    def start(self, job: JobSpec) -> Past:
        """Nothing has happened yet."""
        return Past(job, rounds=0)

    def observe(self, state: Past, event: Event) -> Past:
        """The next event of the job's history."""
        return state.observe(event)

    def decide(self, state: Past, rng: Rng, ask: Ask) -> Decision:
        """The default, unless it crashed."""
        default = state.job.default_batch_size
        if default in state.side(ask.gpu_model).crashed:
            raise InputError(
                f"job {state.job.id!r}: its default batch size {default} crashed or ran out of memory. Mend the "
                "training script, choose another default, or let policy 'structured' find one."
            )
        return Decision(default, Phase.DEFAULT, f"{default}, always the default")

    def keep_going(self, state: Past, trial: Trial, epochs: int, cost: float) -> bool:
        """Until max_epochs."""
        return epochs < state.job.max_epochs


_KNOWN: tuple[Policy[Any], ...] = (
    StructuredPolicy(),
    StructuredPolicy("structured:no-alarm", alarm=False),
    PaperPolicy(),
    PaperPolicy("paper:no-pruning", pruning=False),
    PaperPolicy("paper:no-early-stop", early_stop=False),
    DefaultPolicy(),
)
POLICIES: dict[tuple[str, int], Policy[Any]] = {(policy.name, policy.version): policy for policy in _KNOWN}


def find_policy(name: str, version: int | None = None) -> Policy[Any]:
    """The policy of this name, in this version or the newest.

    >>> find_policy("paper").version
    1
    """
    versions = [v for n, v in POLICIES if n == name]
    if version is None and versions:
        version = max(versions)
    if version is None or (name, version) not in POLICIES:
        near = get_close_matches(name, sorted({n for n, _ in POLICIES}), n=1)
        hint = f" Did you mean {near[0]!r}?" if near and near[0] != name else ""
        known = ", ".join(f"{n} (version {v})" for n, v in sorted(POLICIES))
        asked = f"policy {name!r}" + (f", version {version}" if version is not None else "")
        raise InputError(f"{asked} is not known.{hint} Known: {known}.")
    return POLICIES[name, version]


def decided(policy: Policy[State], state: State, job: JobSpec, ask: Ask) -> Decision:
    """The policy's decision, unless this recurrence is one of those that measure the defaults (`baseline_every`)."""
    every, size = job.baseline_every, job.default_batch_size
    if every and ask.attempt == 1 and ask.recurrence % every == 0:
        return Decision(size, Phase.BASELINE, f"{size} at the highest limit: one run in {every} measures the default")
    return policy.decide(state, Stream(job.mab_seed, ask.number), ask)


def fold(policy: Policy[State], job: JobSpec, facts: Iterable[Event]) -> State:
    """The state after all of these facts, given in any order."""
    state = policy.start(job)
    for event in history(facts):
        state = policy.observe(state, event)
    return state
