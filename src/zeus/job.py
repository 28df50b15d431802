"""The words that everything speaks: a recurring job, what was decided for one of its trials, and how that trial ended.

A recurrence of a job is a row of trials, each one attempt with one batch size, until one reaches the target:

    ask ──▶ OPEN ──tell──▶ CONVERGED        reached the target: its recurrence is over
             │             STOPPED          the next epoch would have crossed the cost limit: try again
             │             NOT_CONVERGED    max_epochs without reaching the target: try again
             │             CRASHED          it failed or ran out of memory: try again, never with this size
             └──lease──▶ LOST ──late tell──▶ any of the four above
               lapses

Only these facts are kept. What a policy believes is folded from them, in the order of their sequence numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from zeus.errors import InputError

MAX_TRIES = 20  # of one recurrence, after which it has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training that recurs, and what its owner wants of it.

    >>> job = JobSpec(job_id_prefix="asr", batch_sizes=[8, 16, 32], default_batch_size=16)
    >>> job.batch_sizes, job.id == JobSpec(job_id_prefix="asr", batch_sizes=[32, 8, 16], default_batch_size=16).id
    ((8, 16, 32), True)
    """

    job_id: str | None = None
    job_id_prefix: str
    batch_sizes: tuple[int, ...]
    default_batch_size: int
    eta_knob: float = 0.5
    beta_knob: float = 2.0
    target_metric: float = 0.5
    higher_is_better_metric: bool = True
    max_epochs: int = 100
    num_pruning_rounds: int = 2
    window_size: int = 0  # 0: nothing is forgotten
    mab_prior_mean: float = 0.0
    mab_prior_precision: float = 0.0  # 0: flat, nothing is known before the first run
    mab_num_explorations: int = 2
    mab_seed: int | None = None
    policy: str = "structured"
    power_limits: tuple[float, ...] = ()  # watts; empty: all in steps of 25 W

    def __post_init__(self) -> None:
        _need(bool(self.job_id_prefix) or bool(self.job_id), "job_id_prefix", self.job_id_prefix, "a name")
        sizes = tuple(self.batch_sizes)
        whole = bool(sizes) and all(_whole(size, 1) for size in sizes)
        _need(whole, "batch_sizes", self.batch_sizes, "one whole number or more, each at least 1")
        _need(len(set(sizes)) == len(sizes), "batch_sizes", self.batch_sizes, "each size once")
        object.__setattr__(self, "batch_sizes", tuple(sorted(sizes)))
        _need(self.default_batch_size in sizes, "default_batch_size", self.default_batch_size, f"one of {list(sizes)}")
        _need(_finite(self.eta_knob) and 0 <= self.eta_knob <= 1, "eta_knob", self.eta_knob, "a number from 0 to 1")
        _need(
            _finite(self.beta_knob) and self.beta_knob >= 1,
            "beta_knob",
            self.beta_knob,
            "a number of at least 1; below it the cheapest run could not be repeated",
        )
        _need(_finite(self.target_metric), "target_metric", self.target_metric, "a finite number")
        _need(_whole(self.max_epochs, 1), "max_epochs", self.max_epochs, "a whole number of at least 1")
        for name, least in (("num_pruning_rounds", 0), ("window_size", 0), ("mab_num_explorations", 1)):
            _need(_whole(getattr(self, name), least), name, getattr(self, name), f"a whole number of at least {least}")
        _need(_finite(self.mab_prior_mean), "mab_prior_mean", self.mab_prior_mean, "a cost in joules")
        sound = _finite(self.mab_prior_precision) and self.mab_prior_precision >= 0
        _need(sound, "mab_prior_precision", self.mab_prior_precision, "1/variance of the prior, or 0 for a flat one")
        _need(self.mab_seed is None or _whole(self.mab_seed, 0), "mab_seed", self.mab_seed, "a whole number or None")
        limits = tuple(self.power_limits)
        sound = all(_finite(watts) and watts > 0 for watts in limits) and len(set(limits)) == len(limits)
        _need(sound, "power_limits", self.power_limits, "watts above 0, each once, or nothing for all limits")
        object.__setattr__(self, "power_limits", tuple(sorted(limits, reverse=True)))

    @property
    def id(self) -> str:
        """`job_id`, or the prefix with a hash of what makes this job this job, so that it is found again next time.

        What its owner may tune on the way (η, β, the window, max_epochs, the policy) is not part of it.
        """
        if self.job_id is not None:
            return self.job_id
        identity = [self.batch_sizes, self.default_batch_size, self.target_metric, self.higher_is_better_metric]
        return f"{self.job_id_prefix}-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]}"

    def reached(self, metric: float) -> bool:
        """Whether this metric meets the target."""
        return metric >= self.target_metric if self.higher_is_better_metric else metric <= self.target_metric


class Phase(StrEnum):
    """Why a trial was given its batch size."""

    DEFAULT = "default"  # always the default
    PRUNING = "pruning"  # Algorithm 3, lines 1-9: its end moves the walk on
    CONCURRENT = "concurrent"  # the best known, while another trial explores
    SAMPLING = "sampling"  # Algorithm 1
    EXPLORING = "exploring"  # to learn what this size costs; stopped once that is not worth it
    UNBOUNDED = "unbounded"  # the best known with no bound, where nothing else would end the recurrence


@dataclass(frozen=True, slots=True)
class Decision:
    """The batch size of one trial, and the reason in words."""

    batch_size: int
    phase: Phase
    reason: str
    cost_limit: float | None = None  # joules of cost (Equation 2); None: no bound


class Ending(StrEnum):
    """How a trial stands (drawn above)."""

    OPEN = "open"
    CONVERGED = "converged"
    STOPPED = "stopped"
    NOT_CONVERGED = "not_converged"
    CRASHED = "crashed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a trial ended and what it used, in all. Unknown energy is None, never 0."""

    ending: Ending
    joules: float | None = None
    seconds: float = 0.0
    epochs: int = 0
    metric: float | None = None
    next_epoch_cost: float | None = None  # of the epoch that did not fit under the limit, where one did not

    def __post_init__(self) -> None:
        _need(self.ending is not Ending.OPEN, "ending", self.ending, "how the trial ended")
        _need(_whole(self.epochs, 0), "epochs", self.epochs, "a whole number of at least 0")
        ran = self.epochs > 0
        if not ran:
            _need(self.ending is not Ending.CONVERGED, "epochs", 0, "at least 1 for a trial that converged")
            unsaid = self.ending is Ending.STOPPED and self.next_epoch_cost is None
            _need(not unsaid, "next_epoch_cost", None, "what the first epoch would have cost, as it was not run")
        used = (("joules", self.joules), ("seconds", self.seconds), ("next_epoch_cost", self.next_epoch_cost))
        for name, value in used:
            if value is not None and not (_finite(value) and (value > 0 if ran else value >= 0)):
                _need(False, name, value, "a finite number above 0 (energy that is not known is None)")
        _need(self.metric is None or _finite(self.metric), "metric", self.metric, "a finite number, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Somebody is about to run this job: which trial that is, and where it would run."""

    number: int  # of the trial within its job, from 1
    recurrence: int  # from 1
    attempt: int = 1  # within the recurrence, from 1
    gpu_model: str = ""
    max_watts: float  # MAXPOWER of the GPUs it would run on, summed
    last: bool = False  # no further attempt follows: end the recurrence well

    def __post_init__(self) -> None:
        _need(_whole(self.number, 1), "number", self.number, "a whole number of at least 1")
        _need(_whole(self.recurrence, 1), "recurrence", self.recurrence, "a whole number of at least 1")
        _need(_whole(self.attempt, 1), "attempt", self.attempt, "a whole number of at least 1")
        _need(_finite(self.max_watts) and self.max_watts > 0, "max_watts", self.max_watts, "watts above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One attempt at a recurrence, as it stands now."""

    ask: Ask
    decision: Decision
    asked: int  # sequence number within the job, shared by asks, tells and losses
    lost: int | None = None
    ended: int | None = None
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        before = self.asked
        for mark in (self.lost, self.ended):
            if mark is not None:
                _need(before < mark, "sequence numbers", (before, mark), "asked before lost before ended")
                before = mark
        told = self.outcome is not None and self.outcome.ending is not Ending.LOST
        _need(told == (self.ended is not None), "outcome", self.outcome, "one with `ended`, none before")

    @property
    def number(self) -> int:
        """Its number within the job."""
        return self.ask.number

    @property
    def batch_size(self) -> int:
        """The decided one."""
        return self.decision.batch_size

    @property
    def ending(self) -> Ending:
        """Where it is in the picture above."""
        if self.outcome is not None:
            return self.outcome.ending
        return Ending.OPEN if self.lost is None else Ending.LOST

    @property
    def sequence(self) -> int:
        """When it came to stand so."""
        return self.ended or self.lost or self.asked

    def lose(self, sequence: int, outcome: Outcome | None = None) -> Trial:
        """Its lease lapsed; what it had reported by then may be kept for the summary."""
        _need(self.ending is Ending.OPEN, "trial", self.number, f"an open one; this one is {self.ending}")
        _need(outcome is None or outcome.ending is Ending.LOST, "outcome", outcome, "one that says LOST")
        return replace(self, lost=sequence, outcome=outcome)

    def end(self, sequence: int, outcome: Outcome) -> Trial:
        """It told how it ended, in time or late."""
        if self.outcome is not None and self.outcome.ending is not Ending.LOST:
            _need(False, "trial", self.number, f"an open or lost one; this one is {self.ending}")
        _need(outcome.ending is not Ending.LOST, "outcome", outcome, "how it ended; a loss is `lose`")
        return Trial(
            ask=self.ask, decision=self.decision, asked=self.asked, lost=self.lost, ended=sequence, outcome=outcome
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What an epoch uses became known on a GPU model: profiled training at the best limit, and measured evaluation.

    EpochCost(b) follows from it for any η, so that it stays known when the owner changes η.
    """

    sequence: int
    batch_size: int
    gpu_model: str = ""
    joules: float
    seconds: float
    max_watts: float  # MAXPOWER of the GPUs it ran on, summed

    def __post_init__(self) -> None:
        for name in ("joules", "seconds", "max_watts"):
            value = getattr(self, name)
            _need(_finite(value) and value > 0, name, value, "a finite number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pardoned:
    """The owner says that a size which crashed may be offered again."""

    sequence: int
    batch_size: int


Event: TypeAlias = Trial | Profiled | Pardoned  # a trial stands for its latest change


def history(facts: Iterable[Event]) -> list[Event]:
    """What happened, in order: each trial as it stood when it was asked for, lost and ended."""
    events: list[Event] = []
    for fact in facts:
        if isinstance(fact, Trial):
            asked = Trial(ask=fact.ask, decision=fact.decision, asked=fact.asked)
            events.append(asked)
            if fact.lost is not None:
                said = fact.outcome if fact.ending is Ending.LOST else None
                events.append(asked.lose(fact.lost, said))
            if fact.ended is not None:
                events.append(fact)
        else:
            events.append(fact)
    return sorted(events, key=lambda event: event.sequence)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_NUMBER = (int, float)


def _finite(value: object) -> bool:
    return isinstance(value, _NUMBER) and not isinstance(value, bool) and math.isfinite(value)


def _need(sound: bool, name: str, value: object, wanted: str) -> None:
    if not sound:
        raise InputError(f"{name}={value!r}: give {wanted}.")
