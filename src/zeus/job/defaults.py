"""The default: what a run with the default batch size at the highest power limit uses on some GPUs.

It is never read off one number. Each converged run of the default size is brought to the highest limit; the default is
their mean, and says what it rests on and how far off it may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from zeus.job.amount import ONE, ZERO, Amount, widening
from zeus.job.charge import Spent, charge
from zeus.job.conversion import UNITS, Book, Conversion
from zeus.job.growth import NOISE, Level
from zeus.job.spec import JobSpec
from zeus.job.units import UNKNOWN_SPREAD

OUTDATED = 0.2  # measured runs of data that have changed by more than this share give way to newer, converted ones


class Basis(StrEnum):
    """What a default or a saving rests on, the best first."""

    MEASURED = "measured"  # runs at the highest limit throughout
    ESTIMATED = "estimated"  # runs brought to that limit, or to data that have grown
    AS_IT_RAN = "as_it_ran"  # runs at the limits that they had: nothing is claimed for power limits


def weakest(some: Iterable[Basis]) -> Basis:
    """What is true of all of them together.

    >>> weakest([Basis.ESTIMATED, Basis.MEASURED]).value
    'estimated'
    """
    return max(some, key=list(Basis).index, default=Basis.MEASURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """What a run with the defaults uses on some GPUs at some time, expected over its runs."""

    batch_size: int
    limit_watts: float | None  # the highest; None where the runs are taken as they ran
    runs: int  # that it rests on; all reached the target
    runs_measured: int  # those of them that were at the highest limit throughout
    epochs: float  # of them on average
    use: Spent
    basis: Basis
    scatter: Amount = ZERO  # standard error of the mean over the runs
    conversion: Amount = ZERO  # standard error of bringing them to this limit and these data

    @property
    def joules_error(self) -> float:
        """Standard error of `use.joules`."""
        return self.scatter.hypot(self.conversion).joules

    @property
    def seconds_error(self) -> float:
        """Standard error of `use.seconds`."""
        return self.scatter.hypot(self.conversion).seconds


@dataclass(frozen=True, slots=True)
class DefaultRun:
    """A converged run of the default batch size that told its energy."""

    recurrence: int
    epochs: int
    used: Amount
    max_watts: float
    level: Level
    converted: Conversion | None  # None: it cannot be brought to the highest limit

    @property
    def basis(self) -> Basis:
        """What it is as a default."""
        if self.converted is None:
            return Basis.AS_IT_RAN
        return Basis.MEASURED if self.converted.measured else Basis.ESTIMATED

    @property
    def use(self) -> Amount:
        """What it would have used at the highest limit, or what it used where that is not known."""
        return self.used if self.converted is None else self.converted.use

    @property
    def error(self) -> Amount:
        """Standard error of that."""
        return ZERO if self.converted is None else self.converted.error


@dataclass(frozen=True, slots=True)
class Defaults:
    """The default on one set of GPUs, at any time: some runs, each brought to the data of the first recurrence."""

    batch_size: int
    limit_watts: float | None
    runs: int  # that it rests on
    runs_measured: int
    epochs: float  # their means
    use: Amount
    scatter: Amount  # its standard errors
    conversion: Amount
    own: Mapping[int, DefaultRun]  # recurrences that ran the default size, and are their own default
    eta: float
    max_watts: float
    _bounds: tuple[Amount, Amount]  # the lowest and the highest level of the runs

    @classmethod
    def of(
        cls,
        spec: JobSpec,
        max_watts: float,
        limit_watts: float | None,
        runs: Sequence[DefaultRun],
        today: Level,
        lengths: Mapping[int, Sequence[int]],
        warm_ups: Sequence[Amount],
        book: Book,
    ) -> Defaults:
        """The default by these runs of the default size.

        Args:
            spec: Of the job.
            max_watts: MAXPOWER of the GPUs, summed.
            limit_watts: The highest limit there.
            runs: All that told their energy, the oldest first; at least one.
            today: The level of the newest data.
            lengths: How many epochs the runs of each batch size needed.
            warm_ups: What the first epoch of each trial there used beyond a later one, whatever its batch size.
            book: Of the default size.
        """
        chosen = _chosen(runs, today)
        limit = None if chosen[0].converted is None else limit_watts
        uses = [run.use / run.level.use for run in chosen]
        use = sum(uses, ZERO).times(1 / len(uses))
        others = [some for size, some in lengths.items() if size != spec.default_batch_size or len(uses) == 1]
        levels = [run.level.use for run in chosen]
        return cls(
            batch_size=spec.default_batch_size,
            limit_watts=limit,
            runs=len(chosen),
            runs_measured=sum(run.basis is Basis.MEASURED for run in chosen),
            epochs=sum(run.epochs for run in chosen) / len(chosen),
            use=use,
            scatter=(use * _spread([one / use for one in uses], others, book))
            .hypot(_deviation(warm_ups) if len(uses) == 1 else ZERO)
            .times(len(uses) ** -0.5),
            conversion=sum((run.error / run.level.use for run in chosen), ZERO).times(1 / len(uses)),
            own={run.recurrence: run for run in runs if (run.converted is None) == (limit is None)},
            eta=spec.eta_knob,
            max_watts=max_watts,
            _bounds=(reduce(Amount.least, levels), reduce(Amount.most, levels)),
        )

    def at(self, level: Level) -> Default:
        """What is expected of a run with data of this level."""
        use = self.use * level.use
        same = all(abs(level.use / bound - ONE).within(NOISE) for bound in self._bounds)
        basis = Basis.AS_IT_RAN if self.limit_watts is None else Basis.MEASURED
        if self.limit_watts is not None and (self.runs_measured < self.runs or not same):
            basis = Basis.ESTIMATED
        return Default(
            batch_size=self.batch_size,
            limit_watts=self.limit_watts,
            runs=self.runs,
            runs_measured=self.runs_measured,
            epochs=self.epochs,
            use=charge(use, self.eta, self.max_watts),
            basis=basis,
            scatter=self.scatter * level.use,
            conversion=self.conversion * level.use + use * level.error,
        )

    def compared(self, recurrence: int, level: Level) -> Default:
        """The default of a recurrence with data of this level; one that ran the default size is its own.

        Only the conversion of its own run can be off.
        """
        run = self.own.get(recurrence)
        if run is None:
            return self.at(level)
        return Default(
            batch_size=self.batch_size,
            limit_watts=self.limit_watts,
            runs=1,
            runs_measured=int(run.basis is Basis.MEASURED),
            epochs=run.epochs,
            use=charge(run.use, self.eta, run.max_watts),
            basis=run.basis,
            conversion=run.error,
        )


def _chosen(runs: Sequence[DefaultRun], newest: Level) -> tuple[DefaultRun, ...]:
    """The runs that the default rests on: measured ones alone, else converted ones alone, else all as they ran.

    Measured runs of data that have since changed a lot do not stand alone where newer ones can be converted.
    """
    known = tuple(run for run in runs if run.converted is not None)
    measured = tuple(run for run in known if run.basis is Basis.MEASURED)
    recent = any(abs(newest.use / run.level.use - ONE).within(OUTDATED) for run in measured)
    if measured and (recent or measured[-1] == known[-1]):
        return measured
    return known or tuple(runs)


def _spread(uses: Sequence[Amount], epochs: Iterable[Sequence[int]], book: Book) -> Amount:
    """Relative standard deviation of what one run uses.

    Args:
        uses: Of each run that counts, over their mean.
        epochs: That the runs of each other batch size needed: a second look at how runs scatter.
        book: Of the default size. One run alone is taken to scatter as its units do.
    """
    squares, freedom = ZERO, len(uses) - 1
    for use in uses:
        squares += (use - ONE) * (use - ONE)
    for lengths in epochs:
        mean = sum(lengths) / len(lengths)
        square = sum((one / mean - 1) ** 2 for one in lengths)
        squares, freedom = squares + Amount(square, square), freedom + len(lengths) - 1
    found = squares.times(1 / freedom).each(math.sqrt).times(widening(freedom)) if freedom else ZERO
    return found if len(uses) > 1 else found.most(_of_units(book))


def _deviation(some: Sequence[Amount]) -> Amount:
    """Standard deviation of these; a first run is often slower to warm up than those that follow it."""
    if len(some) < 2:
        return ZERO
    mean = sum(some, ZERO).times(1 / len(some))
    squares = sum(((one - mean) * (one - mean) for one in some), ZERO)
    return squares.times(1 / (len(some) - 1)).each(math.sqrt).times(widening(len(some) - 1))


def _of_units(book: Book) -> Amount:
    known = [one for kind in UNITS if (one := book.units.spread(kind)) is not None]
    return known[0] if known else Amount(UNKNOWN_SPREAD, UNKNOWN_SPREAD)
