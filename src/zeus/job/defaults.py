"""The default: what a run with the default batch size at the highest power limit uses on some GPUs.

Each converged run of the default size is converted to the highest limit. The default is their mean, with its basis and
its standard error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce

from zeus.cost import ONE, ZERO, Use
from zeus.job.charge import Spent, charge
from zeus.job.conversion import UNITS, Book, Conversion
from zeus.job.growth import NOISE, Level
from zeus.job.scatter import Scatter
from zeus.job.spec import JobSpec
from zeus.job.units import UNKNOWN_SPREAD

# How much runs with the same settings differ, in epochs and so in use, by luck alone. In the paper's traces it is 10 to
# 12 % in four of six workloads (0 and 28 % in the others), and the paper speaks of up to 14 % (§3.1).
LUCK = Use(0.1, 0.1)
OUTDATED = 0.2  # if data changed by more than this share, newer converted runs replace measured ones


class Basis(StrEnum):
    """What a default or a saving is based on, best first."""

    MEASURED = "measured"  # runs entirely at the highest limit
    ESTIMATED = "estimated"  # runs converted to that limit, or to data that have grown
    AS_IT_RAN = "as_it_ran"  # runs at the limits they had: savings by power limits are not included


def weakest(some: Iterable[Basis]) -> Basis:
    """The weakest of these, which holds for all of them together.

    >>> weakest([Basis.ESTIMATED, Basis.MEASURED]).value
    'estimated'
    """
    return max(some, key=list(Basis).index, default=Basis.MEASURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """What a run with the default size and limit is expected to use on some GPUs at some time."""

    batch_size: int
    limit_watts: float | None  # the highest; None if the runs were not converted
    runs: int  # runs it is based on; all reached the target
    runs_measured: int  # those of them that were entirely at the highest limit
    epochs: float  # mean over the runs
    use: Spent
    basis: Basis
    scatter: Use = ZERO  # standard error of the mean over the runs
    conversion: Use = ZERO  # standard error of converting them to this limit and these data

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
    """A run of the default batch size that converged and whose energy is known."""

    recurrence: int
    epochs: int
    used: Use
    max_watts: float
    level: Level
    converted: Conversion | None  # to the highest limit; None if that is not possible

    @property
    def basis(self) -> Basis:
        if self.converted is None:
            return Basis.AS_IT_RAN
        return Basis.MEASURED if self.converted.measured else Basis.ESTIMATED

    @property
    def use(self) -> Use:
        """What it would have used at the highest limit, or what it did use if that is unknown."""
        return self.used if self.converted is None else self.converted.use

    @property
    def error(self) -> Use:
        return ZERO if self.converted is None else self.converted.error


@dataclass(frozen=True, slots=True)
class Defaults:
    """The default on one set of GPUs over time."""

    first: Default  # from runs converted to the data of the first recurrence
    own: Mapping[int, DefaultRun]  # by recurrence: runs of the default size, which are their own default
    eta: float
    max_watts: float
    _bounds: tuple[Use, Use]  # the lowest and the highest level of the runs

    @classmethod
    def of(
        cls,
        spec: JobSpec,
        max_watts: float,
        limit_watts: float | None,
        runs: Sequence[DefaultRun],
        today: Level,
        lengths: Mapping[int, Sequence[int]],
        warm_ups: Sequence[Use],
        book: Book,
    ) -> Defaults:
        """The default, computed from these runs of the default size.

        Args:
            spec: The job.
            max_watts: MAXPOWER of the GPUs, summed.
            limit_watts: The highest power limit of the GPUs.
            runs: All runs of known energy, oldest first; at least one.
            today: The level of the newest data.
            lengths: How many epochs the runs of each batch size needed.
            warm_ups: For each trial on these GPUs, of any size, what its first epoch used beyond a later one.
            book: For the default size.
        """
        chosen = _chosen(runs, today)
        limit = None if chosen[0].converted is None else limit_watts
        uses = [run.use / run.level.use for run in chosen]
        use = sum(uses, ZERO).times(1 / len(uses))
        others = [some for size, some in lengths.items() if size != spec.default_batch_size or len(uses) == 1]
        levels = [run.level.use for run in chosen]
        # A first run often takes longer to warm up than later ones.
        warming = (Scatter.of(warm_ups).deviation if len(uses) == 1 else None) or ZERO
        first = Default(
            batch_size=spec.default_batch_size,
            limit_watts=limit,
            runs=len(chosen),
            runs_measured=sum(run.basis is Basis.MEASURED for run in chosen),
            epochs=sum(run.epochs for run in chosen) / len(chosen),
            use=charge(use, spec.eta_knob, max_watts),
            basis=weakest(run.basis for run in chosen),
            scatter=(use * _spread([one / use for one in uses], others, book)).hypot(warming).times(len(uses) ** -0.5),
            conversion=sum((run.error / run.level.use for run in chosen), ZERO).times(1 / len(uses)),
        )
        own = {run.recurrence: run for run in runs if (run.converted is None) == (limit is None)}
        bounds = reduce(Use.least, levels), reduce(Use.most, levels)
        return cls(first, own, spec.eta_knob, max_watts, bounds)

    def at(self, level: Level) -> Default:
        """The default for data of this level."""
        first, use = self.first, Use(self.first.use.joules, self.first.use.seconds) * level.use
        same = all(abs(level.use / bound - ONE).within(NOISE) for bound in self._bounds)
        return replace(
            first,
            use=charge(use, self.eta, self.max_watts),
            basis=first.basis if same else weakest((first.basis, Basis.ESTIMATED)),
            scatter=first.scatter * level.use,
            conversion=first.conversion * level.use + use * level.error,
        )

    def compared(self, recurrence: int, level: Level) -> Default:
        """The default for a recurrence with data of this level.

        A recurrence that ran the default size is its own default. Its only error is that of the conversion.
        """
        run = self.own.get(recurrence)
        if run is None:
            return self.at(level)
        return replace(
            self.first,
            runs=1,
            runs_measured=int(run.basis is Basis.MEASURED),
            epochs=run.epochs,
            use=charge(run.use, self.eta, run.max_watts),
            basis=run.basis,
            scatter=ZERO,
            conversion=run.error,
        )


def _chosen(runs: Sequence[DefaultRun], newest: Level) -> tuple[DefaultRun, ...]:
    """The runs that the default is based on: the measured ones, else the converted ones, else all as they ran.

    If the data changed a lot since the measured runs, newer converted runs count too.
    """
    converted = tuple(run for run in runs if run.converted is not None)
    measured = tuple(run for run in converted if run.basis is Basis.MEASURED)
    recent = any(abs(newest.use / run.level.use - ONE).within(OUTDATED) for run in measured)
    if measured and (recent or measured[-1] == converted[-1]):
        return measured
    return converted or tuple(runs)


def _spread(uses: Sequence[Use], epochs: Iterable[Sequence[int]], book: Book) -> Use:
    """Relative standard deviation of what one run uses.

    Few runs say little about it, even if they are equal. So `LUCK` counts like one more deviation that was seen.

    Args:
        uses: What each run used, divided by their mean.
        epochs: How many epochs the runs of each other batch size needed, as more evidence of how runs scatter.
        book: For the default size. A single run is assumed to scatter as its units do.
    """
    scatter = Scatter.of(uses)
    for lengths in epochs:
        mean = sum(lengths) / len(lengths)
        scatter += Scatter.of([ONE.times(one / mean) for one in lengths])
    found = (scatter.deviation or ZERO).most((scatter + Scatter(LUCK * LUCK, 1)).root or ZERO)
    return found if len(uses) > 1 else found.most(_of_units(book))


def _of_units(book: Book) -> Use:
    known = [one for kind in UNITS if (one := book.units.spread(kind)) is not None]
    return known[0] if known else Use(UNKNOWN_SPREAD, UNKNOWN_SPREAD)
