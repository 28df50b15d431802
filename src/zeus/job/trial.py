"""The facts of a recurring job: what was decided for each trial, how it ended and what it used.

A recurrence is a sequence of trials, each one attempt with one batch size, until one reaches the target:

    ask ──▶ OPEN ──tell──▶ CONVERGED        reached the target: its recurrence is over
             │             STOPPED          the next epoch would have crossed the cost limit: try again
             │             NOT_CONVERGED    max_epochs without reaching the target: try again
             │             CRASHED          it failed or ran out of memory: try again, never with this size
             └──lease──▶ LOST ──late tell──▶ any of the four above
               lapses

Only these facts are stored. A policy folds its state from them, in the order of their sequence numbers. Each fact is
complete: a trial carries its η, its GPUs and the power limits that its units ran at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from zeus.cost import GPU_ONLY, Include, counted_as, counted_in, included
from zeus.job.checks import LEAST, MOST, is_number, need, need_whole
from zeus.job.hourly import HourlyUse
from zeus.job.spec import JobSpec, Target
from zeus.tariff.rates import Footprint

MAX_TRIES = 20  # trials after which a recurrence has failed


class Phase(StrEnum):
    """Why a trial was given its batch size."""

    DEFAULT = "default"  # always the default
    PRUNING = "pruning"  # Algorithm 3, lines 1-9: its end moves the walk on
    CONCURRENT = "concurrent"  # the best size so far, while another trial explores
    SAMPLING = "sampling"  # Algorithm 1
    EXPLORING = "exploring"  # to learn what this size costs; stopped when that is no longer worth it
    UNBOUNDED = "unbounded"  # the best size so far without a bound, when nothing else would end the recurrence
    BASELINE = "baseline"  # the default size at the highest limit, to measure the default


@dataclass(frozen=True, slots=True)
class Decision:
    """The batch size of one trial, and the reason as a sentence for people."""

    batch_size: int
    phase: Phase
    reason: str
    cost_limit: float | None = None  # joules of cost (Equation 2); None: no bound

    def __post_init__(self) -> None:
        need_whole("batch_size", self.batch_size, 1)
        sound = self.cost_limit is None or is_number(self.cost_limit, 0, MOST * MOST)
        need(sound, "cost_limit", self.cost_limit, "a cost in joules, or None for no bound")


class Ending(StrEnum):
    """The state of a trial (drawn above)."""

    OPEN = "open"
    CONVERGED = "converged"
    STOPPED = "stopped"
    NOT_CONVERGED = "not_converged"
    CRASHED = "crashed"
    LOST = "lost"


class Kind(StrEnum):
    """The unit that a stretch of training is measured in."""

    STEP = "step"
    EPOCH = "epoch"  # if steps cannot be seen, as in a watched script; includes evaluation
    EVALUATION = "evaluation"  # and anything else between the steps of an epoch
    SET_UP = "set_up"  # before the first epoch: reported, but not charged


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sums over all units of one kind that ran at one power limit.

    The `squares` are sums over measurements of value² / units. The scatter of a unit follows from them.
    """

    kind: Kind
    limit_watts: float | None  # the same at both ends of each measurement; None: it changed or cannot be read
    cold: bool  # in the first epoch of its process
    count: int  # units
    joules: float | None  # None: unknown
    seconds: float
    looks: int = 1  # measurements
    joules_squares: float = 0.0
    seconds_squares: float = 0.0

    def __post_init__(self) -> None:
        need_whole("count", self.count, 1)
        need_whole("looks", self.looks, 1)
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
        """A stretch of one measurement of `count` units.

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
    """One epoch of a learning curve. A curve keeps at most 1,000 points."""

    number: int  # from 1
    metric: float | None
    joules: float | None
    seconds: float
    limit_watts: float | None

    def __post_init__(self) -> None:
        need_whole("number", self.number, 1)
        need(is_number(self.seconds), "seconds", self.seconds, "a finite number")
        for name in ("metric", "joules", "limit_watts"):
            value = getattr(self, name)
            need(value is None or is_number(value), name, value, "a finite number, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a trial ended and what it used in total. Unknown energy is None, never 0."""

    ending: Ending
    joules: float | None = None
    seconds: float = 0.0
    epochs: int = 0
    metric: float | None = None
    next_epoch_cost: float | None = None  # of the epoch that did not fit under the bound, if there was one
    stretches: tuple[Stretch, ...] = ()  # what its units used at which limit; empty: only the totals are known
    curve: tuple[EpochPoint, ...] = ()  # its epochs one by one
    found_watts: float | None = None  # the power limit before Zeus changed it
    set_limits: bool = False  # whether Zeus set a power limit
    hourly: HourlyUse | None = None  # its energy by hour; None: neither a price nor a carbon intensity was given
    micro_batch_size: int | None = None  # samples on each GPU at once, if gradients were accumulated
    samples: int | None = None  # in an epoch: steps x batch size, or as the script reports them; None: unknown

    def __post_init__(self) -> None:
        need(self.ending is not Ending.OPEN, "ending", self.ending, "how the trial ended")
        need_whole("epochs", self.epochs, 0)
        ran = self.epochs > 0
        if not ran:
            need(self.ending is not Ending.CONVERGED, "epochs", 0, "at least 1 for a trial that converged")
            unsaid = self.ending is Ending.STOPPED and self.next_epoch_cost is None
            need(not unsaid, "next_epoch_cost", None, "the cost of the first epoch, because the trial was not run")
        least, most = LEAST if ran else 0, MOST * MOST  # of a cost, which is a product
        for name, value in (("joules", self.joules), ("seconds", self.seconds)):
            if value is not None and not is_number(value, least):
                need(False, name, value, f"a number above 0, up to {MOST:g} (unknown energy is None)")
        sound = self.next_epoch_cost is None or is_number(self.next_epoch_cost, least, most)
        need(sound, "next_epoch_cost", self.next_epoch_cost, f"a number above 0, up to {most:g}, or None")
        need(self.found_watts is None or is_number(self.found_watts, LEAST), "found_watts", self.found_watts, "watts")
        need(self.metric is None or is_number(self.metric), "metric", self.metric, "a finite number, or None")
        for name in ("micro_batch_size", "samples"):
            if getattr(self, name) is not None:
                need_whole(name, getattr(self, name), 1)

    @property
    def footprint(self) -> Footprint:
        """Money and carbon of its energy, at the rates that were known then."""
        if self.hourly is not None:
            return self.hourly.footprint
        return Footprint(math.nan if self.joules is None else self.joules)


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that a trial runs on, and whose energy its costs count.

    Costs on different numbers of GPUs, or with and without the CPU, are not comparable, but Epochs(b) holds for all.

    >>> Gpus("V100", 2, 500.0).label, Gpus("V100", 1, 250.0, ("gpu", "cpu")).label
    ('2 x V100', 'V100 + CPU')
    """

    model: str = ""
    count: int = 1
    max_watts: float = 0.0  # MAXPOWER: the highest limit that each supports, summed
    include: Include = GPU_ONLY  # whose energy is counted

    def __post_init__(self) -> None:
        if self.include is not GPU_ONLY:
            object.__setattr__(self, "include", included(self.include))
        need_whole("gpus", self.count, 1)
        need(is_number(self.max_watts, LEAST), "max_watts", self.max_watts, "watts above 0")

    @property
    def kind(self) -> str:
        """The model and what is counted with it: the name under which profiles are stored."""
        return self.model if self.include is GPU_ONLY else counted_as(self.model, self.include)

    @property
    def label(self) -> str:
        """The name under which costs on these GPUs are stored."""
        return self.kind if self.count == 1 else f"{self.count} x {self.kind}"

    def on_nodes(self, nodes: int) -> Gpus:
        """The GPUs of a training on so many nodes, each with these.

        >>> Gpus("V100", 2, 500.0).on_nodes(2)
        Gpus(model='V100', count=4, max_watts=1000.0, include=('gpu',))
        """
        return replace(self, count=self.count * nodes, max_watts=self.max_watts * nodes)

    @classmethod
    def of_label(cls, label: str, max_watts: float) -> Gpus:
        """The GPUs of a fact of version 0.1, which has only their label.

        >>> Gpus.of_label("2 x V100", 500.0)
        Gpus(model='V100', count=2, max_watts=500.0, include=('gpu',))
        """
        count, times, name = label.partition(" x ")
        number, kind = (int(count), name) if times and count.isdecimal() else (1, label)
        model, include = counted_in(kind)
        return cls(model, number, max_watts, include)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for the next trial of a job: its numbers, its GPUs and its goal."""

    number: int  # of the trial, from 1; never used twice in a job, even after a reset
    recurrence: int  # from 1
    attempt: int = 1  # within the recurrence, from 1
    gpus: Gpus
    eta: float  # for the costs and bounds of this trial
    last: bool = False  # the last attempt that the recurrence allows
    # Two stores, or a store and its restored backup, may hold different trials of one number: the id tells them apart.
    # Empty if version 0.1 asked for the trial.
    id: str = ""
    target: Target | None = None  # None, as from a service of version 0.1: the job's target

    def __post_init__(self) -> None:
        need_whole("number", self.number, 1)
        need_whole("recurrence", self.recurrence, 1)
        need_whole("attempt", self.attempt, 1)
        need(is_number(self.eta, 0, 1), "eta", self.eta, "a number from 0 to 1")

    def is_for(self, job: JobSpec) -> bool:
        """Whether it is for the job's current target. Runs for another target say nothing about its costs."""
        return self.target is None or self.target == job.target

    @property
    def gpu_model(self) -> str:
        """The label of its GPUs, under which costs are stored."""
        return self.gpus.label

    @property
    def max_watts(self) -> float:
        """MAXPOWER of its GPUs, summed."""
        return self.gpus.max_watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One attempt within a recurrence."""

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
        has_ended = self.outcome is not None and self.outcome.ending is not Ending.LOST
        need(has_ended == (self.ended is not None), "outcome", self.outcome, "one with `ended`, none before")

    @property
    def number(self) -> int:
        return self.ask.number

    @property
    def id(self) -> str:
        """Unique over all stores."""
        return self.ask.id

    @property
    def batch_size(self) -> int:
        return self.decision.batch_size

    @property
    def ending(self) -> Ending:
        """The state of the trial, as drawn at the top of this module."""
        if self.outcome is not None:
            return self.outcome.ending
        return Ending.OPEN if self.lost is None else Ending.LOST

    @property
    def sequence(self) -> int:
        """The sequence number of its latest change."""
        return self.ended or self.lost or self.asked

    def lose(self, sequence: int, outcome: Outcome | None = None) -> Trial:
        """The trial after its lease has lapsed, with what it had reported until then."""
        need(self.ending is Ending.OPEN, "trial", self.number, f"an open one; this one is {self.ending}")
        need(outcome is None or outcome.ending is Ending.LOST, "outcome", outcome, "one that says LOST")
        return replace(self, lost=sequence, outcome=outcome)

    def end(self, sequence: int, outcome: Outcome) -> Trial:
        """The trial after a tell, in time or late."""
        if self.outcome is not None and self.outcome.ending is not Ending.LOST:
            need(False, "trial", self.number, f"an open or lost one; this one is {self.ending}")
        need(outcome.ending is not Ending.LOST, "outcome", outcome, "how it ended; a loss is `lose`")
        return Trial(
            ask=self.ask, decision=self.decision, asked=self.asked, lost=self.lost, ended=sequence, outcome=outcome
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A trial as stored, with its times."""

    trial: Trial
    asked_at: str
    changed_at: str
    leased_until: str | None  # None: no longer open
    so_far: Outcome | None = None  # what it had used at its last renewal

    @property
    def told(self) -> Outcome | None:
        """The outcome, or else what the last renewal reported; None if nothing was reported."""
        return self.trial.outcome or self.so_far


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What an epoch uses on a GPU model: profiled training at the best limit, and measured evaluation.

    EpochCost(b) follows from it for any η, so it remains known after the owner changes η.
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
    """The owner allows a batch size that crashed to be offered again."""

    sequence: int
    batch_size: int


Event: TypeAlias = Trial | Profiled | Pardoned  # a trial represents its latest change


def history(facts: Iterable[Event]) -> list[Event]:
    """All events in order. A trial appears once for each change: when it was asked for, lost and ended."""
    events: list[Event] = []
    for fact in facts:
        if isinstance(fact, Trial):
            asked = Trial(ask=fact.ask, decision=fact.decision, asked=fact.asked)
            events.append(asked)
            if fact.lost is not None:
                reported = fact.outcome if fact.ending is Ending.LOST else None
                events.append(asked.lose(fact.lost, reported))
            if fact.ended is not None:
                events.append(fact)
        else:
            events.append(fact)
    return sorted(events, key=lambda event: event.sequence)
