"""How much the data of a job have changed: the level of an epoch's use in each recurrence, in logarithms.

Four explanations compete: no change, a trend, one jump, a random walk. Each is weighted by how well it explains epochs
of equal settings. If the samples of an epoch are counted, the level follows them instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from zeus.job import Kind
from zeus.ledger.runs import Run
from zeus.ledger.units import NOISE, RUNS, Floats, Spread

Periods = np.ndarray[Any, np.dtype[np.intp]]  # the number of a period, by recurrence or by run

BELIEF = {"none": 0.70, "trend": 0.12, "jump": 0.10, "walk": 0.08}  # in how data grow, before anything is seen
TREND, JUMP, WALK = 0.03, 0.5, 0.03  # assumed deviations of the log level: a recurrence, at once, a recurrence
COUNTED = 0.05  # of these beliefs in growth if samples are counted
TAUS = np.geomspace(0.01, 0.4, 9)  # possible deviations of the epochs from which the level is read
TAU_BELIEF = np.exp(-0.5 * (np.log(TAUS / 0.06) / 0.9) ** 2)
PERIODS, LAST_PERIODS = 40, 12  # a long past is divided into so many periods; the last recurrences stand alone
ALONE, DISTRUSTED = 0.7, 1e-3  # a run that is off by more, in logarithms, unlike its neighbours; what it counts then
CHANGED = 0.5  # data are said to have changed if "none" is believed less than this
SAMPLES_CHANGED = 0.02  # or if counted samples differ by more than this share


@dataclass(frozen=True, slots=True)
class Levels:
    """The log level of each period under each hypothesis that is still believed."""

    recurrences: Periods  # their numbers, in order
    period: Periods  # of each of them
    belief: Floats  # hypotheses
    mean: Floats  # hypotheses x periods
    factors: tuple[Floats, ...]  # of each hypothesis: its covariance is factor · factorᵀ
    noise: Floats  # deviation of an epoch between runs, in joules and seconds
    changed: bool  # whether the data have changed

    def at(self, recurrences: Sequence[int]) -> Periods:
        """The periods of these recurrences. One that is not known, of another job, is in the period next to it."""
        places = np.searchsorted(self.recurrences, recurrences)
        found: Periods = self.period[np.minimum(places, len(self.period) - 1)]
        return found

    def variance(self, use: Floats, slope: Floats) -> Floats:
        """The variance of a sum, because the level is not known exactly.

        Args:
            use: The sum under each hypothesis: hypotheses x 2.
            slope: Its derivative by the level of each period: hypotheses x 2 x periods.
        """
        variance, centre = np.zeros(2), self.belief @ use
        for belief, one, by, factor in zip(self.belief, use, slope, self.factors, strict=True):
            variance += belief * ((one - centre) ** 2 + ((by @ factor) ** 2).sum(axis=1))
        return variance

    def best(self, recurrence: int) -> float:
        """The expected log level."""
        return float(self.belief @ self.mean[:, self.at([recurrence])[0]])


def fit_levels(runs: Sequence[Run], recurrences: Iterable[int]) -> Levels:
    """The levels in these recurrences, from the epochs of these runs. The mean of each setting is free."""
    numbers = np.array(sorted({*recurrences}))
    period = _periods(len(numbers))
    when = period[np.searchsorted(numbers, [run.recurrence for run in runs])]
    periods = int(period[-1]) + 1
    samples, doubt = _counted(runs, numbers, period)
    number: dict[object, int] = {}
    setting = np.array([number.setdefault(run.setting, len(number)) for run in runs])
    logs = np.log([run.epoch for run in runs]) - samples[when][:, None]
    weight = np.array([run.weight for run in runs]) * _trust(logs, setting, when)
    # Weights by setting and period: with them, the mean of each setting drops out of the equations.
    by_setting = np.zeros((len(number), periods))
    np.add.at(by_setting, (setting, when), weight)
    sums = by_setting.sum(axis=1)
    means = np.stack([np.bincount(setting, weight * one) for one in logs.T], axis=1) / sums[:, None]
    off = logs - means[setting]
    series = off @ _shares(logs, setting, when)
    precision = np.diag(by_setting.sum(axis=0)) - by_setting.T @ (by_setting / sums[:, None])
    pull = np.bincount(when, weight * series, periods)
    freedom = len(runs) - len(number)
    base = -freedom * np.log(TAUS) - float(weight @ series**2) / (2 * TAUS**2) + np.log(TAU_BELIEF)
    beliefs, mean, factors = [], [], []
    for belief, way in _hypotheses(period, doubt, counted=bool(np.ptp(samples)), seen=freedom > 0):
        value, vectors = np.linalg.eigh(way.T @ precision @ way)
        pulled = vectors.T @ (way.T @ pull)
        shrink = 1 / (1 + np.maximum(value, 0.0) / TAUS[:, None] ** 2)  # taus x directions
        centre = pulled / TAUS[:, None] ** 2 * shrink
        evidence = base + 0.5 * (centre * pulled / TAUS[:, None] ** 2 + np.log(shrink)).sum(axis=1)
        by_tau = np.exp(evidence - evidence.max())
        beliefs.append(math.log(belief) + evidence.max() + math.log(by_tau.sum()))
        by_tau /= by_tau.sum()
        middle = by_tau @ centre
        mean.append(way @ vectors @ middle)
        factors.append(way @ vectors * np.sqrt(by_tau @ (shrink + (centre - middle) ** 2)))
    chance = np.exp(np.array(beliefs) - max(beliefs))
    kept = chance > 1e-3 * chance.max()
    chance, none = chance[kept] / chance[kept].sum(), float(chance[0] / chance.sum())
    level, factors = np.array(mean)[kept], [one for one, keep in zip(factors, kept, strict=True) if keep]
    best = chance @ level
    rest = off - (best[when] - (by_setting @ best / sums)[setting])[:, None]
    spent = sum(c * min(one.shape[1], 2) for c, one in zip(chance, factors, strict=True))
    free = max(0.0, freedom - spent)
    squares = (weight[:, None] * rest**2).sum(axis=0)
    noise = np.array([Spread(one, free).deviation(prior, RUNS) for one, prior in zip(squares, NOISE, strict=True)])
    changed = none < CHANGED or float(np.ptp(samples)) > SAMPLES_CHANGED
    return Levels(numbers, period, chance, level + samples, tuple(factors), noise, changed)


def _periods(recurrences: int) -> Periods:
    """The period of each recurrence."""
    older = max(0, recurrences - LAST_PERIODS)
    if older <= PERIODS:
        return np.arange(recurrences)
    return np.concatenate([np.arange(older) * PERIODS // older, PERIODS + np.arange(LAST_PERIODS)])


def _trust(logs: Floats, setting: Periods, when: Periods) -> Floats:
    """How much each run counts: hardly, if it is far from the runs of its setting before and after it.

    Such a run hung, or shared its GPUs. If the data had changed, the run after it would show that too.
    """
    order = np.lexsort((when, setting))
    trust = np.ones(len(logs))
    for some in np.split(order, np.flatnonzero(np.diff(setting[order])) + 1):
        if len(some) > 2:
            mine = logs[some]
            around = np.stack([np.roll(mine, 1, axis=0), mine, np.roll(mine, -1, axis=0)])
            around[0, 0], around[2, -1] = mine[2], mine[-3]
            off = np.abs(mine - np.median(around, axis=0))
            usual = np.maximum(np.median(off, axis=0), ALONE / 5)
            trust[some] = np.where((off > 5 * usual).any(axis=1), DISTRUSTED, 1.0)
    return trust


def _shares(logs: Floats, setting: Periods, when: Periods) -> Floats:
    """How much joules and seconds count for the level: more if runs of one setting that follow each other agree."""
    order = np.lexsort((when, setting))
    pairs = np.diff(setting[order]) == 0
    jumps = np.diff(logs[order], axis=0)[pairs]
    spread = (np.array(NOISE) ** 2 * RUNS + (jumps**2).sum(axis=0) / 2) / (RUNS + pairs.sum())
    shares: Floats = (1 / spread) / (1 / spread).sum()
    return shares


def _hypotheses(period: Periods, doubt: Floats, *, counted: bool, seen: bool) -> list[tuple[float, Floats]]:
    """How the data may have grown: the belief in each way, and a matrix that makes levels of standard normals."""
    periods = int(period[-1]) + 1
    ways = [(BELIEF["none"], doubt[:, None])]
    if periods == 1 or not seen:
        return ways
    scale = COUNTED if counted else 1.0
    middle = np.array([np.flatnonzero(period == one).mean() for one in range(periods)])
    ways.append((scale * BELIEF["trend"], TREND * middle[:, None]))
    for begin in range(1, periods):
        ways.append(
            (scale * BELIEF["jump"] / (periods - 1), JUMP * (np.arange(periods) >= begin)[:, None].astype(float))
        )
    steps = np.sqrt(np.diff(middle, prepend=middle[0]))
    ways.append((scale * BELIEF["walk"], WALK * np.tril(np.ones((periods, periods))) * steps))
    return ways


def _counted(runs: Sequence[Run], numbers: Periods, period: Periods) -> tuple[Floats, Floats]:
    """The log level of each period by counted samples, and its error. 0 if too few runs counted theirs.

    Samples change only where they must: as long as one number of samples explains all runs, it holds. Evaluation may
    grow with the training data or not, so the level is half-way between, with that doubt.
    """
    periods = int(period[-1]) + 1
    bounds: dict[int, tuple[float, float]] = {}
    for run in runs:
        if run.samples is not None:
            low, high = bounds.get(run.recurrence, (0.0, math.inf))
            both = max(low, run.samples[0]), min(high, run.samples[1])
            bounds[run.recurrence] = both if both[0] <= both[1] else run.samples
    if len(bounds) < 0.5 * len({run.recurrence for run in runs}) or _is_counted_in_steps(runs):
        return np.zeros(periods), np.zeros(periods)
    parts: list[tuple[int, float, float]] = []  # the first recurrence, and the bounds from it on
    for recurrence, (low, high) in sorted(bounds.items()):
        if parts and max(parts[-1][1], low) <= min(parts[-1][2], high):
            begin, least, most = parts.pop()
            parts.append((begin, max(least, low), min(most, high)))
        else:
            parts.append((recurrence, low, high))
    part = np.searchsorted([one[0] for one in parts], numbers, side="right") - 1
    logs = np.log([(low + high) / 2 for _, low, high in parts])[np.maximum(part, 0)]
    level = np.bincount(period, logs) / np.bincount(period)
    share = _training_share(runs)
    return (1 + share) / 2 * (level - level[0]), (1 - share) / 2 * (level - level[0])


def _is_counted_in_steps(runs: Iterable[Run]) -> bool:
    """Whether an epoch has the same number of steps for any size. Then its samples say nothing about the data."""
    counted = [(run.size, sum(run.samples) / 2) for run in runs if run.samples is not None]
    votes = 0
    for (size, samples), (next_size, next_samples) in pairwise(counted):
        if size != next_size:
            change = math.log(next_samples / samples)
            votes += 1 if abs(change - math.log(next_size / size)) < abs(change) else -1
    return votes > 0


def _training_share(runs: Iterable[Run]) -> float:
    """The share of training in an epoch; the rest is evaluation."""
    parts = {Kind.STEP: 0.0, Kind.EVALUATION: 0.0}
    for run in runs:
        for one in run.outcome.stretches:
            if one.kind in parts and one.joules and not one.cold:
                parts[one.kind] += one.joules
    return parts[Kind.STEP] / sum(parts.values()) if parts[Kind.STEP] else 1.0
