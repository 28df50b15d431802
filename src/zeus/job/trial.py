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
from enum import StrEnum
from functools import cached_property
from typing import Annotated, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr

from zeus.cost import GPU_ONLY, LEAST, MOST, Include, counted_as, included
from zeus.job.checks import need
from zeus.job.hourly import HourlyUse
from zeus.job.spec import JobSpec, Target
from zeus.job.value import Above, Checked, Count, NotBelow, Number, Share, Squares, Whole, replace
from zeus.tariff.rates import Footprint

MAX_TRIES = 20  # trials after which a recurrence has failed
STRETCHES, POINTS = 1000, 2000  # that one outcome may have


class Phase(StrEnum):
    """Why a trial was given its batch size."""

    DEFAULT = "default"  # always the default
    PRUNING = "pruning"  # Algorithm 3, lines 1-9: its end moves the walk on
    CONCURRENT = "concurrent"  # the best size so far, while another trial explores
    SAMPLING = "sampling"  # Algorithm 1
    EXPLORING = "exploring"  # to learn what this size costs; stopped when that is no longer worth it
    UNBOUNDED = "unbounded"  # the best size so far without a bound, when nothing else would end the recurrence
    BASELINE = "baseline"  # the default size at the highest limit, to measure the default


class Decision(Checked, frozen=True):
    """The batch size of one trial, and the reason as a sentence for people."""

    batch_size: Whole
    phase: Phase
    reason: str
    cost_limit: Squares | None = None  # joules of cost (Equation 2); None: no bound


class Ending(StrEnum):
    """The state of a trial (drawn above)."""

    OPEN = "open"
    CONVERGED = "converged"
    STOPPED = "stopped"
    NOT_CONVERGED = "not_converged"
    CRASHED = "crashed"
    LOST = "lost"


class Kind(StrEnum):
    """The unit that a segment of training is measured in."""

    STEP = "step"
    EPOCH = "epoch"  # if steps cannot be seen, as in a watched script; includes evaluation
    EVALUATION = "evaluation"  # and anything else between the steps of an epoch
    SET_UP = "set_up"  # before the first epoch: reported, but not charged


class UsageSegment(Checked, frozen=True, array_like=True):
    """Sums over all units of one kind that ran at one power limit.

    The `squares` are sums over measurements of value² / units. The scatter of a unit follows from them.
    """

    kind: Kind
    limit_watts: NotBelow | None  # the same at both ends of each measurement; None: it changed or cannot be read
    cold: bool  # in the first epoch of its process
    count: Whole  # units
    joules: NotBelow | None  # None: unknown
    seconds: NotBelow
    measurements: Whole = 1  # measurements
    joules_squares: Squares = 0.0
    seconds_squares: Squares = 0.0

    @classmethod
    def of(
        cls, kind: Kind, limit: float | None, cold: bool, count: int, joules: float | None, seconds: float
    ) -> UsageSegment:
        """A segment of one measurement of `count` units.

        >>> two = UsageSegment.of(Kind.STEP, 250.0, False, 2, 100.0, 1.0)
        >>> two + UsageSegment.of(Kind.STEP, 250.0, False, 3, 140.0, 1.5)
        UsageSegment(kind=<Kind.STEP: 'step'>, limit_watts=250.0, cold=False, count=5, joules=240.0, seconds=2.5, \
measurements=2, joules_squares=11533.333333333332, seconds_squares=1.25)
        """
        squares = 0.0 if joules is None else joules * joules / count
        return cls(kind, limit, cold, count, joules, seconds, 1, squares, seconds * seconds / count)

    def __add__(self, other: UsageSegment) -> UsageSegment:
        known = self.joules is not None and other.joules is not None
        return UsageSegment(
            self.kind,
            self.limit_watts,
            self.cold,
            self.count + other.count,
            (self.joules or 0.0) + (other.joules or 0.0) if known else None,
            self.seconds + other.seconds,
            self.measurements + other.measurements,
            self.joules_squares + other.joules_squares,
            self.seconds_squares + other.seconds_squares,
        )


class EpochPoint(Checked, frozen=True, array_like=True):
    """One epoch of a learning curve. A curve keeps at most 1,000 points."""

    number: Whole
    metric: Number | None
    joules: Number | None
    seconds: Number
    limit_watts: Number | None


class Outcome(Checked, frozen=True, kw_only=True):
    """How a trial ended and what it used in total. Unknown energy is None, never 0."""

    ending: Ending
    joules: NotBelow | None = None
    seconds: NotBelow = 0.0
    epochs: Count = 0
    metric: Number | None = None
    next_epoch_cost: Squares | None = None  # of the epoch that did not fit under the bound, if there was one
    # What its units used at which limit, the latest last; empty: only the totals are known.
    stretches: Annotated[tuple[UsageSegment, ...], Meta(max_length=STRETCHES)] = ()
    curve: Annotated[tuple[EpochPoint, ...], Meta(max_length=POINTS)] = ()  # its epochs one by one
    found_watts: Above | None = None  # the power limit before Zeus changed it
    set_limits: bool = False  # whether Zeus set a power limit
    hourly: HourlyUse | None = None  # its energy by hour; None: neither a price nor a carbon intensity was given
    micro_batch_size: Whole | None = None  # samples on each GPU at once, if gradients were accumulated
    samples: Whole | None = None  # in an epoch: steps x batch size, or as the script reports them; None: unknown
    # Of its use, what was not training: starts that ran out of memory, and profiling before the first run.
    earlier_joules: NotBelow | None = 0.0
    earlier_seconds: NotBelow = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.ending is not Ending.OPEN, "ending", self.ending, "how the trial ended")
        if self.epochs:
            for name in ("joules", "seconds", "next_epoch_cost"):
                value = getattr(self, name)
                if value is not None and value < LEAST:
                    need(False, name, value, f"a number above 0, up to {MOST:g} (unknown energy is None)")
            return
        need(self.ending is not Ending.CONVERGED, "epochs", 0, "at least 1 for a trial that converged")
        unsaid = self.ending is Ending.STOPPED and self.next_epoch_cost is None
        need(not unsaid, "next_epoch_cost", None, "the cost of the first epoch, because the trial was not run")

    @property
    def limit_watts(self) -> float | None:
        """The limit at which its latest steps or epoch ran. None: it changed in between, or could not be read."""
        units = (one for one in reversed(self.stretches) if one.kind in (Kind.STEP, Kind.EPOCH))
        return next((one.limit_watts for one in units), None)

    @property
    def of_training(self) -> Outcome:
        """The same without what was used before the training, which a run at the default would not have used.

        >>> first = Outcome(ending=Ending.LOST, joules=9.0, seconds=3.0, earlier_joules=4.0, earlier_seconds=1.0)
        >>> first.of_training.joules, first.of_training.seconds
        (5.0, 2.0)
        """
        if not self.earlier_seconds:
            return self
        known = self.joules is not None and self.earlier_joules is not None
        joules = max(LEAST, (self.joules or 0.0) - (self.earlier_joules or 0.0)) if known else None
        seconds = max(LEAST, self.seconds - self.earlier_seconds)
        return replace(self, joules=joules, seconds=seconds, earlier_joules=0.0, earlier_seconds=0.0)

    @property
    def footprint(self) -> Footprint:
        """Money and carbon of its energy, at the rates that were known then."""
        if self.hourly is not None:
            return self.hourly.footprint
        return Footprint(math.nan if self.joules is None else self.joules)


class Gpus(Checked, frozen=True, dict=True):
    """The GPUs that a trial runs on, and whose energy its costs count.

    Costs on different numbers of GPUs, or with and without the CPU, are not comparable, but Epochs(b) holds for all.

    >>> Gpus("V100", 2, 500.0).label, Gpus("V100", 1, 250.0, ("gpu", "cpu")).label
    ('2 x V100', 'V100 + CPU')
    """

    model: str = ""
    count: Whole = 1
    max_watts: float = 0.0  # MAXPOWER: the highest limit that each supports, summed; it must be given
    include: Include = GPU_ONLY  # whose energy is counted

    def __post_init__(self) -> None:
        super().__post_init__()
        need(LEAST <= self.max_watts <= MOST, "max_watts", self.max_watts, "watts above 0")
        if self.include is not GPU_ONLY:
            force_setattr(self, "include", included(self.include))

    @cached_property
    def kind(self) -> str:
        """The model and what is counted with it: the name under which profiles are stored."""
        return self.model if self.include is GPU_ONLY else counted_as(self.model, self.include)

    @cached_property
    def label(self) -> str:
        """The name under which costs on these GPUs are stored."""
        return self.kind if self.count == 1 else f"{self.count} x {self.kind}"

    def on_nodes(self, nodes: int) -> Gpus:
        """The GPUs of a training on so many nodes, each with these.

        >>> Gpus("V100", 2, 500.0).on_nodes(2)
        Gpus(model='V100', count=4, max_watts=1000.0, include=('gpu',))
        """
        return replace(self, count=self.count * nodes, max_watts=self.max_watts * nodes)


class Ask(Checked, frozen=True, kw_only=True):
    """A request for the next trial of a job: its numbers, its GPUs and its goal."""

    number: Whole  # of the trial, from 1; never used twice in a job, even after a reset
    recurrence: Whole
    attempt: Whole = 1  # within the recurrence, from 1
    gpus: Gpus
    eta: Share  # for the costs and bounds of this trial
    last: bool = False  # the last attempt that the recurrence allows
    # Two stores, or a store and its restored backup, may hold different trials of one number: the id tells them apart.
    # Empty for a trial that began without its store.
    id: str = ""
    target: Target | None = None  # None: the job's target

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


class Trial(Checked, frozen=True, kw_only=True):
    """One attempt within a recurrence."""

    ask: Ask
    decision: Decision
    asked: Whole  # sequence number within the job, shared by asks, tells and losses
    lost: Whole | None = None
    ended: Whole | None = None
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lost is not None:
            need(self.asked < self.lost, "sequence numbers", (self.asked, self.lost), "asked before lost")
        if self.ended is not None:
            before = self.lost or self.asked
            need(before < self.ended, "sequence numbers", (before, self.ended), "asked before lost before ended")
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


class Origin(Checked, frozen=True):
    """Who runs a trial, and where. Empty: not known."""

    user: Annotated[str, Meta(max_length=200)] = ""
    host: Annotated[str, Meta(max_length=253)] = ""
    folder: Annotated[str, Meta(max_length=4096)] = ""


class TrialRecord(Checked, frozen=True, kw_only=True):
    """A trial as stored, with its times."""

    trial: Trial
    asked_at: str
    changed_at: str
    leased_until: str | None  # None: no longer open
    so_far: Outcome | None = None  # what it had used at its last renewal
    origin: Origin | None = None  # None: not known, as for a trial that an older Zeus opened

    @property
    def latest_outcome(self) -> Outcome | None:
        """The outcome, or else what the last renewal reported; None if nothing was reported."""
        return self.trial.outcome or self.so_far


class Profiled(Checked, frozen=True, kw_only=True):
    """What an epoch uses on a GPU model: profiled training at the best limit, and measured evaluation.

    EpochCost(b) follows from it for any η, so it remains known after the owner changes η.
    """

    sequence: Whole
    batch_size: Whole
    gpu_model: str = ""
    joules: Above
    seconds: Above
    max_watts: Above  # MAXPOWER of the GPUs it ran on, summed


class Pardoned(Checked, frozen=True, kw_only=True):
    """The owner allows a batch size that crashed to be offered again."""

    sequence: Whole
    batch_size: Whole


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
