"""The facts of a recurring job: what was decided for each of its trials, how it ended and what it used.

A recurrence of a job is a row of trials, each one attempt with one batch size, until one reaches the target:

    ask ──▶ OPEN ──tell──▶ CONVERGED        reached the target: its recurrence is over
             │             STOPPED          the next epoch would have crossed the cost limit: try again
             │             NOT_CONVERGED    max_epochs without reaching the target: try again
             │             CRASHED          it failed or ran out of memory: try again, never with this size
             └──lease──▶ LOST ──late tell──▶ any of the four above
               lapses

Only these facts are kept. What a policy believes is folded from them, in the order of their sequence numbers. A fact
stands alone: a trial says the η and the GPUs that it was decided for, and the power limits that its units ran at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from zeus.job.checks import LEAST, MOST, is_number, is_whole, need
from zeus.job.spec import JobSpec, Target

MAX_TRIES = 20  # of one recurrence, after which it has failed


class Phase(StrEnum):
    """Why a trial was given its batch size."""

    DEFAULT = "default"  # always the default
    PRUNING = "pruning"  # Algorithm 3, lines 1-9: its end moves the walk on
    CONCURRENT = "concurrent"  # the best known, while another trial explores
    SAMPLING = "sampling"  # Algorithm 1
    EXPLORING = "exploring"  # to learn what this size costs; stopped once that is not worth it
    UNBOUNDED = "unbounded"  # the best known with no bound, where nothing else would end the recurrence
    BASELINE = "baseline"  # the default size at the highest limit, to measure what Zeus is compared with


@dataclass(frozen=True, slots=True)
class Decision:
    """The batch size of one trial, and the reason in words."""

    batch_size: int
    phase: Phase
    reason: str
    cost_limit: float | None = None  # joules of cost (Equation 2); None: no bound

    def __post_init__(self) -> None:
        need(is_whole(self.batch_size, 1), "batch_size", self.batch_size, "a whole number of at least 1")
        sound = self.cost_limit is None or is_number(self.cost_limit, 0, MOST * MOST)
        need(sound, "cost_limit", self.cost_limit, "a cost in joules, or None for no bound")


class Ending(StrEnum):
    """How a trial stands (drawn above)."""

    OPEN = "open"
    CONVERGED = "converged"
    STOPPED = "stopped"
    NOT_CONVERGED = "not_converged"
    CRASHED = "crashed"
    LOST = "lost"


class Kind(StrEnum):
    """What a stretch of training is made of."""

    STEP = "step"
    EPOCH = "epoch"  # where steps cannot be seen: whatever lies between two lines of a script, evaluation included
    EVALUATION = "evaluation"  # and whatever else lies between the steps of an epoch
    SET_UP = "set_up"  # before the first epoch: told, but not charged


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sums over all units of one kind that ran at one power limit; never one row a step.

    `squares` hold the sum over measurements of value² / units, from which the scatter of a unit follows.
    """

    kind: Kind
    limit_watts: float | None  # in force at both ends of each measurement; None: it changed, or cannot be read
    cold: bool  # in the first epoch of its process
    count: int  # units
    joules: float | None  # None: not known
    seconds: float
    looks: int = 1  # measurements
    joules_squares: float = 0.0
    seconds_squares: float = 0.0

    def __post_init__(self) -> None:
        need(is_whole(self.count, 1) and is_whole(self.looks, 1), "count", self.count, "a whole number of at least 1")
        need(isinstance(self.cold, bool), "cold", self.cold, "true or false")
        for name in ("limit_watts", "joules"):
            value = getattr(self, name)
            need(value is None or is_number(value, 0), name, value, f"a number from 0 to {MOST:g}, or None")
        need(is_number(self.seconds, 0), "seconds", self.seconds, f"a number from 0 to {MOST:g}")
        for name in ("joules_squares", "seconds_squares"):
            need(is_number(getattr(self, name), 0, MOST * MOST), name, getattr(self, name), "a number of at least 0")

    @classmethod
    def of(
        cls, kind: Kind, limit: float | None, cold: bool, count: int, joules: float | None, seconds: float
    ) -> Stretch:
        """One measurement of so many units.

        >>> Stretch.of(Kind.STEP, 250.0, False, 2, 100.0, 1.0) + Stretch.of(Kind.STEP, 250.0, False, 3, 140.0, 1.5)
        Stretch(kind=<Kind.STEP: 'step'>, limit_watts=250.0, cold=False, count=5, joules=240.0, seconds=2.5, \
looks=2, joules_squares=11533.333333333332, seconds_squares=1.25)
        """
        squares = 0.0 if joules is None else joules * joules / count
        return cls(kind, limit, cold, count, joules, seconds, 1, squares, seconds * seconds / count)

    def __add__(self, other: Stretch) -> Stretch:
        known = self.joules is not None and other.joules is not None
        return Stretch(
            self.kind,
            self.limit_watts,
            self.cold,
            self.count + other.count,
            (self.joules or 0.0) + (other.joules or 0.0) if known else None,
            self.seconds + other.seconds,
            self.looks + other.looks,
            self.joules_squares + other.joules_squares,
            self.seconds_squares + other.seconds_squares,
        )


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """One epoch, for curves. Of more than 1,000 some are left out."""

    number: int  # from 1
    metric: float | None
    joules: float | None
    seconds: float
    limit_watts: float | None

    def __post_init__(self) -> None:
        need(is_whole(self.number, 1), "number", self.number, "a whole number of at least 1")
        need(is_number(self.seconds), "seconds", self.seconds, "a finite number")
        for name in ("metric", "joules", "limit_watts"):
            value = getattr(self, name)
            need(value is None or is_number(value), name, value, "a finite number, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a trial ended and what it used, in all. Unknown energy is None, never 0."""

    ending: Ending
    joules: float | None = None
    seconds: float = 0.0
    epochs: int = 0
    metric: float | None = None
    next_epoch_cost: float | None = None  # of the epoch that did not fit under the limit, where one did not
    stretches: tuple[Stretch, ...] = ()  # what its units used at which limit; empty: only the totals are known
    curve: tuple[EpochPoint, ...] = ()  # its epochs one by one
    found_watts: float | None = None  # the limit in force before Zeus touched it
    set_limits: bool = False  # whether anybody set one

    def __post_init__(self) -> None:
        need(self.ending is not Ending.OPEN, "ending", self.ending, "how the trial ended")
        need(is_whole(self.epochs, 0), "epochs", self.epochs, "a whole number of at least 0")
        ran = self.epochs > 0
        if not ran:
            need(self.ending is not Ending.CONVERGED, "epochs", 0, "at least 1 for a trial that converged")
            unsaid = self.ending is Ending.STOPPED and self.next_epoch_cost is None
            need(not unsaid, "next_epoch_cost", None, "what the first epoch would have cost, as it was not done")
        least, most = LEAST if ran else 0, MOST * MOST  # of a cost, which is a product
        for name, value in (("joules", self.joules), ("seconds", self.seconds)):
            if value is not None and not is_number(value, least):
                need(False, name, value, f"a number above 0, up to {MOST:g} (energy that is not known is None)")
        sound = self.next_epoch_cost is None or is_number(self.next_epoch_cost, least, most)
        need(sound, "next_epoch_cost", self.next_epoch_cost, f"a number above 0, up to {most:g}, or None")
        need(self.found_watts is None or is_number(self.found_watts, LEAST), "found_watts", self.found_watts, "watts")
        need(self.metric is None or is_number(self.metric), "metric", self.metric, "a finite number, or None")


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that a trial runs on.

    Another number of GPUs is another place: its costs are not comparable, and Epochs(b) carries over all the same.

    >>> Gpus("V100", 2, 500.0).label
    '2 x V100'
    """

    model: str = ""
    count: int = 1
    max_watts: float = 0.0  # MAXPOWER: the highest limit that each supports, summed

    def __post_init__(self) -> None:
        need(is_whole(self.count, 1), "gpus", self.count, "a whole number of at least 1")
        need(is_number(self.max_watts, LEAST), "max_watts", self.max_watts, "watts above 0")

    @property
    def label(self) -> str:
        """What costs on these GPUs are kept under."""
        return self.model if self.count == 1 else f"{self.count} x {self.model}"

    @classmethod
    def of_label(cls, label: str, max_watts: float) -> Gpus:
        """The GPUs that facts of version 0.1 name by their label alone.

        >>> Gpus.of_label("2 x V100", 500.0)
        Gpus(model='V100', count=2, max_watts=500.0)
        """
        count, times, name = label.partition(" x ")
        return cls(name, int(count), max_watts) if times and count.isdecimal() else cls(label, 1, max_watts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Somebody is about to run this job: which trial that is, where it would run, and what for."""

    number: int  # of the trial, from 1: no two trials of a job ever have the same, whatever was forgotten in between
    recurrence: int  # from 1
    attempt: int = 1  # within the recurrence, from 1
    gpus: Gpus
    eta: float  # that costs and bounds of this trial are of
    last: bool = False  # no further attempt follows: end the recurrence well
    # Of two trials with one number, as there are in a store and in another or a restored copy of it, this tells which
    # is meant. Empty: it was asked for by version 0.1.
    id: str = ""
    target: Target | None = None  # None: not told, as by a service of version 0.1; then it is the job's

    def __post_init__(self) -> None:
        need(is_whole(self.number, 1), "number", self.number, "a whole number of at least 1")
        need(is_whole(self.recurrence, 1), "recurrence", self.recurrence, "a whole number of at least 1")
        need(is_whole(self.attempt, 1), "attempt", self.attempt, "a whole number of at least 1")
        need(is_number(self.eta, 0, 1), "eta", self.eta, "a number from 0 to 1")

    def is_for(self, job: JobSpec) -> bool:
        """Whether it is for the target that the job has now. Runs towards another one tell nothing of its costs."""
        return self.target is None or self.target == job.target

    @property
    def gpu_model(self) -> str:
        """The label of its GPUs, which costs are kept under."""
        gpus = self.gpus
        return gpus.model if gpus.count == 1 else gpus.label

    @property
    def max_watts(self) -> float:
        """MAXPOWER of its GPUs, summed."""
        return self.gpus.max_watts


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
                need(before < mark, "sequence numbers", (before, mark), "asked before lost before ended")
                before = mark
        told = self.outcome is not None and self.outcome.ending is not Ending.LOST
        need(told == (self.ended is not None), "outcome", self.outcome, "one with `ended`, none before")

    @property
    def number(self) -> int:
        """Its number within the job."""
        return self.ask.number

    @property
    def id(self) -> str:
        """What no other trial anywhere has."""
        return self.ask.id

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
        need(self.ending is Ending.OPEN, "trial", self.number, f"an open one; this one is {self.ending}")
        need(outcome is None or outcome.ending is Ending.LOST, "outcome", outcome, "one that says LOST")
        return replace(self, lost=sequence, outcome=outcome)

    def end(self, sequence: int, outcome: Outcome) -> Trial:
        """It told how it ended, in time or late."""
        if self.outcome is not None and self.outcome.ending is not Ending.LOST:
            need(False, "trial", self.number, f"an open or lost one; this one is {self.ending}")
        need(outcome.ending is not Ending.LOST, "outcome", outcome, "how it ended; a loss is `lose`")
        return Trial(
            ask=self.ask, decision=self.decision, asked=self.asked, lost=self.lost, ended=sequence, outcome=outcome
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A trial and when things happened to it."""

    trial: Trial
    asked_at: str
    changed_at: str
    leased_until: str | None  # None: not open any more
    so_far: Outcome | None = None  # what it had used at its last renewal

    @property
    def told(self) -> Outcome | None:
        """What it told of itself at its end, or last; None where nothing was heard."""
        return self.trial.outcome or self.so_far


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
            need(is_number(value, LEAST), name, value, f"a number from {LEAST:g} to {MOST:g}")


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
