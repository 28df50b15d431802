"""What the default would have used: one model of a job's trials, in joules and seconds alike.

The default is a run with the default batch size b0 at the highest power limit. For trial i of size b on some GPUs, in
recurrence t:

    use_i      = W_i + N_i · e_i                               W_i: warm-up; N_i: epochs = Epochs(b) · luck
    log e_i    = a(GPUs, b, limit) + level(t) + noise_i        e_i: a steady epoch
    default(t) = W + Epochs(b0) · exp(a(GPUs, b0, highest) + level(t))

A recurrence that reached the target with b0 is compared with that run, moved to the highest limit
(`zeus.ledger.moving`). One that ran nothing but b0 is compared with all of its trials, whether it reached the target or
not.

Luck and noise are pooled over all sizes, with weak priors. Joules and seconds share the level of the data
(`zeus.ledger.levels`). Epochs(b) and the use of an epoch are smooth in log b. So runs of other sizes correct a lucky or
unlucky run of the default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from zeus.cost import Use
from zeus.job import Ending, JobSpec, TrialRecord
from zeus.ledger.levels import Levels, Periods, fit_levels
from zeus.ledger.moving import Moved, move
from zeus.ledger.runs import STEADY, Run, runs_of
from zeus.ledger.units import LATEST, RUNS, Floats, Spread, Units
from zeus.profile import PowerProfile

LUCK = 0.08  # assumed deviation of Epochs by luck; 13 % after widening. The paper's traces: 0 to 28 %, mostly 10 to 12
# What sizes have in common, in logarithms: a value that may be anything, a trend over octaves, a smooth curve; and what
# each size has of its own.
ANY, SLOPE, CURVE, OCTAVES, OWN = 10.0, 0.3, 0.6, 2.5, 0.15
BY_LIMIT = 0.5  # an epoch at another power limit uses this power of the ratio more or less
WARM = 0.3  # relative deviation of a warm-up
LEAST_EPOCHS = 0.01  # share of a run that is not warm-up, at least


class Basis(StrEnum):
    """What a default or a saving is based on, best first."""

    MEASURED = "measured"  # runs entirely at the highest limit, of data that did not change
    ESTIMATED = "estimated"  # runs moved to that limit, or to other data
    AS_IT_RAN = "as_it_ran"  # runs at the limits they had: savings by power limits are not included


def weakest(some: Iterable[Basis]) -> Basis:
    """The weakest of these, which holds for all of them together.

    >>> weakest([Basis.ESTIMATED, Basis.MEASURED]).value
    'estimated'
    """
    return max(some, key=list(Basis).index, default=Basis.MEASURED)


class Place(NamedTuple):
    """Where a default holds: the label of the GPUs, and the highest limit that was allowed on them, if known."""

    label: str
    top: float | None


class AtTop(NamedTuple):
    """What a run of the default size would have used at the highest limit; what it used, if that cannot be told."""

    use: Floats
    error: Floats
    basis: Basis

    def plus(self, other: AtTop) -> AtTop:
        """Both together."""
        return AtTop(self.use + other.use, self.error + other.error, weakest((self.basis, other.basis)))


class _Ran(NamedTuple):
    """A run of the default size."""

    run: Run
    at_top: AtTop

    @property
    def epoch(self) -> Floats:
        """The mean epoch at the highest limit, without warm-up."""
        use = self.at_top.use
        return np.maximum(use - self.run.warm, LEAST_EPOCHS * use) / self.run.outcome.epochs


@dataclass(frozen=True, slots=True)
class _Default:
    """The default at one place. Arrays hold joules and seconds."""

    epoch: Floats  # runs x 2: a steady epoch of each run of the default size, at the highest limit
    share: Floats  # how much each run counts: by its epochs, so that the default is the mean of equal runs
    when: Periods  # of each run
    noise: float  # standard error of the mean epoch, in units of the noise between runs
    warm: Floats
    warm_error: Floats
    error: Floats  # relative error of moving the runs to the highest limit
    runs: int  # that reached the target
    runs_measured: int
    basis: Basis


class Total(NamedTuple):
    """The default in some recurrences. Arrays hold joules and seconds."""

    each: Floats
    error: Floats  # standard error of the sum
    chance: Floats  # deviation of the sum by the luck and noise of these runs themselves
    bases: list[Basis]


class _Sum(NamedTuple):
    """The default at one place, added up over some recurrences. Arrays hold joules and seconds."""

    each: Floats  # recurrences x 2
    use: Floats  # hypotheses x 2: without warm-up
    slope: Floats  # hypotheses x 2 x periods: of `use` by the level of each period
    error: Floats  # of moving runs to the highest limit
    variance: Floats  # by noise and warm-up
    chance: Floats  # variance by the luck and noise of the recurrences themselves


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """What the default used in each recurrence, with a joint error."""

    levels: Levels
    places: Mapping[Place, _Default]  # where the default is known
    own: Mapping[tuple[int, Place], AtTop]  # by recurrence and place: b0 itself ran
    epochs: float  # Epochs(b0)
    epochs_error: float  # relative standard error
    luck: float  # relative deviation of the epochs of one run

    def is_own(self, recurrence: int, place: Place) -> bool:
        """Whether this recurrence is compared with its own runs of the default size."""
        return (recurrence, place) in self.own

    def growth_since(self, recurrence: int) -> float:
        """What an epoch uses today, divided by what it used in this recurrence."""
        return math.exp(float(self.levels.belief @ self.levels.mean[:, -1]) - self.levels.best(recurrence))

    def total(self, wanted: Sequence[tuple[int, Place]]) -> Total:
        """The default in each of these recurrences at these places, which are known.

        Luck, noise, warm-up and conversion of one default are the same error in all recurrences that use it, so these
        errors add up. Errors of the level follow from its covariance.
        """
        each, bases = np.zeros((len(wanted), 2)), [Basis.MEASURED] * len(wanted)
        error, variance, chance = np.zeros(2), np.zeros(2), np.zeros(2)
        others: dict[Place, list[int]] = {}
        for n, (recurrence, place) in enumerate(wanted):
            own = self.own.get((recurrence, place))
            if own is None:
                others.setdefault(place, []).append(n)
                bases[n] = self.places[place].basis
            else:
                each[n], bases[n] = own.use, own.basis
                error += own.error
        ways, periods = self.levels.mean.shape
        use, slope = np.zeros((ways, 2)), np.zeros((ways, 2, periods))
        for place, some in others.items():
            here = self._sum_at(self.places[place], [wanted[n][0] for n in some])
            each[some] = here.each
            use, slope = use + here.use, slope + here.slope
            error, variance, chance = error + here.error, variance + here.variance, chance + here.chance
        variance += self.levels.variance(use, slope)
        epochs = self.levels.belief @ use * self.epochs_error
        return Total(each, np.sqrt(variance + epochs**2 + error**2), np.sqrt(chance), bases)

    def _sum_at(self, default: _Default, recurrences: Sequence[int]) -> _Sum:
        """The default at one place in these recurrences."""
        levels, when = self.levels, self.levels.at(recurrences)
        start = default.share * np.exp(-levels.mean[:, default.when])  # hypotheses x runs
        rise = np.exp(levels.mean[:, when])  # hypotheses x recurrences
        run = self.epochs * start @ default.epoch  # hypotheses x 2: a default run at level 0, without warm-up
        steady = (levels.belief * rise.T) @ run  # recurrences x 2
        use = run * rise.sum(axis=1)[:, None]
        ways, periods = levels.mean.shape
        slope = np.zeros((ways, 2, periods))
        for way in range(ways):
            later = np.bincount(when, rise[way], periods) / rise[way].sum()
            before = np.bincount(default.when, start[way], periods) / start[way].sum()
            slope[way] = np.outer(use[way], later - before)
        expected = levels.belief @ use
        return _Sum(
            each=default.warm + steady,
            use=use,
            slope=slope,
            error=expected * default.error,
            variance=(expected * levels.noise * default.noise) ** 2 + (len(recurrences) * default.warm_error) ** 2,
            chance=(steady**2).sum(axis=0) * (self.luck**2 + levels.noise**2),
        )


def default_model(
    spec: JobSpec,
    records: Sequence[TrialRecord],
    places: Iterable[Place],
    profiles: Mapping[str, PowerProfile],
) -> DefaultModel | None:
    """The model of a job; None if the default size never reached the target with known energy.

    Args:
        spec: The job.
        records: Its trials that count, in order.
        places: Where its recurrences ran.
        profiles: The power profile of the default size, by label of the GPUs.
    """
    runs = runs_of(records)
    mine = [run for run in runs if run.size == spec.default_batch_size]
    if not any(run.reached(spec) for run in mine):
        return None
    levels = fit_levels(runs, (record.trial.ask.recurrence for record in records))
    found, own = dict[Place, _Default](), dict[tuple[int, Place], AtTop]()
    for place in places:
        here = [run for run in mine if run.record.trial.ask.gpu_model == place.label]
        if not any(run.reached(spec) for run in here):
            continue
        at_top = _at_top(here, place.top, levels, profiles.get(place.label))
        whole = [one for one in at_top if one.run.record.trial.ending in (Ending.CONVERGED, Ending.NOT_CONVERGED)]
        moved = [one for one in whole if one.at_top.basis is not Basis.AS_IT_RAN]
        if not any(one.run.reached(spec) for one in moved):
            moved = [one for one in whole if one.run.reached(spec)]
        others = [run for run in runs if run.setting[0] == place.label and run.size != spec.default_batch_size]
        ended = [one for one in moved if one.run.reached(spec)]
        found[place] = _default(moved, ended, others, levels, all_moved=len(moved) == len(whole))
        own |= {(number, place): one for number, one in _own(spec, records, place.label, at_top).items()}
    lengths: dict[int, list[float]] = {}
    for run in runs:
        if run.reached(spec):
            lengths.setdefault(run.size, []).append(run.outcome.epochs)
    return DefaultModel(levels, found, own, *_epochs(lengths, spec.default_batch_size))


def _own(spec: JobSpec, records: Sequence[TrialRecord], label: str, at_top: Iterable[_Ran]) -> dict[int, AtTop]:
    """The recurrences on these GPUs that are compared with trials of their own: by number.

    A trial that tells too little about its epochs counts as it ran.
    """
    others = {record.trial.ask.recurrence for record in records if record.trial.batch_size != spec.default_batch_size}
    moved = {one.run.record.trial.number: one.at_top for one in at_top}
    found: dict[int, AtTop] = {}
    for record in records:
        trial, number = record.trial, record.trial.ask.recurrence
        told = None if record.latest_outcome is None else record.latest_outcome.of_training
        is_default = trial.batch_size == spec.default_batch_size and trial.ask.gpu_model == label
        reached = trial.ending is Ending.CONVERGED and trial.ask.is_for(spec)
        if is_default and told is not None and told.joules is not None and (number not in others or reached):
            as_it_ran = AtTop(np.array([told.joules, told.seconds]), np.zeros(2), Basis.AS_IT_RAN)
            one = moved.get(trial.number, as_it_ran)
            found[number] = found[number].plus(one) if number in found else one
    return found


def _epochs(lengths: Mapping[int, Sequence[float]], size: int) -> tuple[float, float, float]:
    """Epochs(b) of this size, its relative standard error, and the relative deviation of one run.

    Args:
        lengths: The epochs that the runs of each size needed; at least one of this size.
        size: Which size.
    """
    means = {one: sum(some) / len(some) for one, some in lengths.items()}
    spread = sum((Spread.of([n / means[one] for n in some]) for one, some in lengths.items()), Spread())
    prior = LUCK * math.sqrt(1 - 1 / means[size]) + 0.01  # a single epoch leaves no room for luck
    luck = spread.deviation(prior, RUNS)
    logs = {one: (math.log(mean), luck**2 / len(lengths[one])) for one, mean in means.items()}
    correction, error = _smoothed(logs, size)
    return means[size] * math.exp(correction), error, luck


def _correction(runs: Sequence[Run], size: int, levels: Levels) -> Floats:
    """By how much an epoch of this size should be corrected, because an epoch's use is smooth in log b.

    Args:
        runs: Runs of all sizes on the same GPUs.
        size: Which size.
        levels: Of the data.
    """
    own = [run for run in runs if run.size == size]
    kind = STEADY if any(run.setting[3] == STEADY for run in own) else own[0].setting[3]
    sums: dict[int, Floats] = {}  # by size: weight, and weighted sums of log joules, log seconds and log limit
    for run in runs:
        limit = max(run.setting[2] or 0.0, 1.0)  # 1: unknown
        if run.setting[3] == kind:
            level = levels.best(run.recurrence)
            logs = np.log([*run.epoch, limit]) - [level, level, 0.0]
            sums[run.size] = sums.get(run.size, np.zeros(4)) + run.weight * np.array([1.0, *logs])
    means = {one: some[1:] / some[0] for one, some in sums.items()}
    found = []
    for quantity, noise in enumerate(levels.noise):
        values = {
            one: (mean[quantity], noise**2 / sums[one][0] + (BY_LIMIT * (mean[2] - means[size][2])) ** 2)
            for one, mean in means.items()
        }
        found.append(_smoothed(values, size)[0])
    return np.exp(found)


def _smoothed(logs: Mapping[int, tuple[float, float]], size: int) -> tuple[float, float]:
    """What to add to the value of this size, given that neighbouring sizes are alike; and the error of the sum.

    The values are a Gaussian process over log b, seen with noise. The own value counts more, the less noise it has.

    Args:
        logs: By size: the mean of a logarithm, and the variance of that mean.
        size: Which size.

    >>> correction, _ = _smoothed({8: (2.0, 0.01), 16: (2.4, 0.04), 32: (2.0, 0.01)}, 16)
    >>> -0.4 < correction < -0.1
    True
    """
    octaves, own = np.log2(np.array(list(logs), float) / size), list(logs).index(size)
    mean, noise = np.array(list(logs.values())).T
    apart = octaves[:, None] - octaves
    alike = ANY**2 + SLOPE**2 * np.outer(octaves, octaves) + CURVE**2 * np.exp(-0.5 * (apart / OCTAVES) ** 2)
    alike += OWN**2 * np.eye(len(logs))
    gain = np.linalg.solve(alike + np.diag(noise), alike[own])
    variance = float(alike[own, own] - gain @ alike[own])
    return float(gain @ (mean - mean[own])), math.sqrt(max(0.0, variance))


def _at_top(runs: Sequence[Run], top: float | None, levels: Levels, profile: PowerProfile | None) -> list[_Ran]:
    """The runs, each moved to the highest limit if it can be."""
    latest = [run for run in runs if run.outcome.stretches][-LATEST:]
    growth = [math.exp(levels.best(latest[-1].recurrence) - levels.best(run.recurrence)) for run in latest]
    units = Units.of([run.outcome.stretches for run in latest], growth, Use(*levels.noise), profile)
    return [_ran(run, None if top is None else move(run.outcome, top, units)) for run in runs]


def _ran(run: Run, moved: Moved | None) -> _Ran:
    if moved is None:
        return _Ran(run, AtTop(run.total, np.zeros(2), Basis.AS_IT_RAN))
    use, error = (np.array([one.joules, one.seconds]) for one in (moved.use, moved.error))
    return _Ran(run, AtTop(use, error, Basis.MEASURED if moved.measured else Basis.ESTIMATED))


def _warm_up(ended: Sequence[_Ran], others: Iterable[Run]) -> tuple[Floats, Floats]:
    """The warm-up of the default, and its error.

    The first process on a machine may warm up for longer than all later ones, and it often runs the default. So runs
    of other sizes have a say: they are expected to warm up for the same time, or for as many epochs. In a run of one
    epoch, the warm-up cannot be told from the rest.
    """
    own, count = np.mean([one.run.warm for one in ended], axis=0), len(ended)
    error = WARM * own / math.sqrt(count)
    seen = [run for run in others if run.setting[3] == STEADY]
    if not seen or any(one.run.setting[3] != STEADY for one in ended):
        return own, error
    epoch = np.mean([one.epoch for one in ended], axis=0)
    as_long = np.mean([run.warm for run in seen], axis=0)
    as_many = epoch * np.mean([run.warm / run.epoch for run in seen], axis=0)
    expected = np.where(abs(as_long - own) < abs(as_many - own), as_long, as_many)
    doubt = (own - expected) / (1 + count)
    return own - doubt, np.hypot(error, doubt)


def _default(
    moved: Sequence[_Ran], ended: Sequence[_Ran], others: Sequence[Run], levels: Levels, *, all_moved: bool
) -> _Default:
    """The default from these runs, of which those that ended reached the target.

    Args:
        moved: Runs of the default size.
        ended: Those of them that reached the target.
        others: Runs of other sizes on the same GPUs.
        levels: Of the data.
        all_moved: Whether these are all runs of the default size.
    """
    correction = _correction([*(one.run for one in moved), *others], moved[0].run.size, levels)
    warm, warm_error = _warm_up(ended, others)
    longest = max(one.run.outcome.epochs for one in ended)
    share = np.array([float(min(longest, one.run.outcome.epochs)) for one in moved])
    share /= share.sum()
    basis = weakest(one.at_top.basis for one in moved)
    return _Default(
        epoch=correction * np.array([one.epoch for one in moved]),
        share=share,
        when=levels.at([one.run.recurrence for one in moved]),
        noise=math.sqrt(sum(part**2 / one.run.weight for part, one in zip(share, moved, strict=True))),
        warm=warm,
        warm_error=warm_error,
        error=share @ np.array([one.at_top.error / one.at_top.use for one in moved]),
        runs=len(ended),
        runs_measured=sum(one.at_top.basis is Basis.MEASURED for one in ended),
        basis=weakest((basis, Basis.ESTIMATED)) if levels.changed or not all_moved else basis,
    )
