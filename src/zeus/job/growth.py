"""How much more an epoch uses than in the first recurrence, because the data grow.

The level of the first recurrence is 1. A later level is read off an epoch that ran before with the same batch size,
GPUs and power limit. A recurrence that ran only new combinations follows the trend around it. Between two known levels
it is interpolated. After the last one the trend continues. Before the first one, the trend is that of the first two
recurrences that can be compared.

    recurrence   1    2    3    4    5
    size         16   8    16   8    8        2 ran a new size: its level is interpolated from 1 and 3,
    level        1    ?    1.2  ?    ?        and then 4 and 5 are compared with 2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zeus.cost import ONE, ZERO, Use
from zeus.job.scatter import Scatter
from zeus.job.trial import Kept
from zeus.job.units import UNKNOWN_SPREAD

UNSEEN = Use(UNKNOWN_SPREAD, UNKNOWN_SPREAD)  # how much epochs scatter if no data show it
SEEN = 2.0  # standard errors above which epochs differ
NOISE = 0.02  # levels that differ by no more than this share are the same
LOOKED_AT = 50  # the last epochs of a curve that are compared


@dataclass(frozen=True, slots=True)
class Level:
    """What an epoch uses in one recurrence, divided by what the same epoch used in the first."""

    use: Use = ONE
    error: Use = ZERO  # relative: differences taken for noise, scatter of the epochs, half of a trend


class _Setting(NamedTuple):
    """Two epochs can be compared if all of this is equal."""

    gpu_model: str
    batch_size: int
    limit_watts: float
    cold: bool


class _Epoch(NamedTuple):
    """The mean epoch of one recurrence."""

    recurrence: int
    use: Use
    epochs: int
    scatter: Scatter  # of the epochs, divided by their mean


class _Pair(NamedTuple):
    """The same kind of epoch in two recurrences: the first that ran it, and this one."""

    then: _Epoch
    now: _Epoch

    @property
    def ratio(self) -> Use:
        return self.now.use / self.then.use

    def scatter(self, spread: Use) -> Use:
        """The relative error of the ratio if single epochs scatter by `spread`."""
        return spread.times(math.sqrt(1 / self.then.epochs + 1 / self.now.epochs))


def levels(tries: Iterable[Kept]) -> dict[int, Level]:
    """The level of each recurrence, by its number.

    Args:
        tries: All trials of a job, sorted by recurrence.
    """
    seen: dict[int, dict[_Setting, _Epoch]] = {}
    for kept in tries:
        seen.setdefault(kept.trial.ask.recurrence, {}).update(_epochs(kept))
    spread = sum((one.scatter for here in seen.values() for one in here.values()), Scatter()).deviation or UNSEEN
    firsts: dict[_Setting, _Epoch] = {}
    pairs: dict[int, list[_Pair]] = {}
    for recurrence, here in seen.items():
        pairs[recurrence] = [_Pair(firsts[setting], epoch) for setting, epoch in here.items() if setting in firsts]
        for setting, epoch in here.items():
            firsts.setdefault(setting, epoch)
    start = min((epoch.recurrence for epoch in firsts.values()), default=0)
    return _all(pairs, _sure(start, pairs, spread), spread)


def _sure(start: int, pairs: Mapping[int, Sequence[_Pair]], spread: Use) -> dict[int, Level]:
    """The levels of recurrences that can be compared with the first, directly or through others."""
    found = {start: Level()}
    for recurrence, here in pairs.items():
        comparable = [pair for pair in here if pair.then.recurrence in found]
        if comparable:
            found[recurrence] = _compare(comparable, found, spread)
    return found


def _all(pairs: Mapping[int, Sequence[_Pair]], sure: Mapping[int, Level], spread: Use) -> dict[int, Level]:
    """All levels: the sure ones, those compared with an earlier recurrence, and the others by the trend."""
    found: dict[int, Level] = {}
    ahead, coming = sorted(sure, reverse=True), _coming(pairs)
    last, level, newest = 0, Level(), None
    for recurrence, here in pairs.items():
        while ahead and ahead[-1] < recurrence:
            ahead.pop()
        if recurrence in sure:
            level = sure[recurrence]
        elif here:
            level = _compare(here, found, spread)
        elif ahead:
            between = (sure[ahead[-1]].use / level.use).each(math.log).times(1 / (ahead[-1] - last))
            level = _moved(level, between, recurrence - last)
        elif newest is not None:
            slope, span = _trend(newest, spread)
            level = _moved(level, slope, max(0, min(recurrence, newest.now.recurrence + span) - last))
        elif (later := coming[recurrence]) is not None:
            slope, span = _trend(later, spread)
            level = _moved(level, slope, max(0, recurrence - max(last, later.then.recurrence - span)))
        newest = _largest(here) or newest
        found[recurrence], last = level, recurrence
    return found


def _moved(level: Level, slope: Use, by: int) -> Level:
    """The level `by` recurrences later, if the trend holds."""
    change = slope.times(by)
    return Level(level.use * change.each(math.exp), level.error + abs(change).times(0.5))


def _coming(pairs: Mapping[int, Sequence[_Pair]]) -> dict[int, _Pair | None]:
    """For each recurrence, the largest pair of the next recurrence that has one."""
    found: dict[int, _Pair | None] = {}
    following = None
    for recurrence, here in reversed(list(pairs.items())):
        found[recurrence] = following
        following = _largest(here) or following
    return found


def _largest(pairs: Iterable[_Pair]) -> _Pair | None:
    """The pair with the most epochs."""
    return max(pairs, key=lambda pair: pair.now.epochs, default=None)


def _trend(pair: _Pair, spread: Use) -> tuple[Use, int]:
    """Log of the growth from one recurrence to the next, and for how many recurrences to extrapolate it.

    The trend is extrapolated no further than the distance it was measured over.
    """
    level, span = _compare([pair], {pair.then.recurrence: Level()}, spread), pair.now.recurrence - pair.then.recurrence
    return level.use.each(math.log).times(1 / span), span


def _compare(pairs: Iterable[_Pair], found: Mapping[int, Level], spread: Use) -> Level:
    """The mean level over these pairs, weighted by their epochs."""
    level, error, weights = ZERO, ZERO, 0
    for pair in pairs:
        before, scatter, weight = found[pair.then.recurrence], pair.scatter(spread), pair.now.epochs
        joules, of_joules = _without_noise(pair.ratio.joules, scatter.joules, spread is not UNSEEN)
        seconds, of_seconds = _without_noise(pair.ratio.seconds, scatter.seconds, spread is not UNSEEN)
        level += (before.use * Use(joules, seconds)).times(weight)
        error += before.error.hypot(Use(of_joules, of_seconds)).times(weight)
        weights += weight
    return Level(level.times(1 / weights), error.times(1 / weights))


def _without_noise(ratio: float, scatter: float, is_seen: bool) -> tuple[float, float]:
    """The ratio, or 1 if it differs only by noise, and its error. The scatter is a guess unless `is_seen`."""
    off = abs(ratio - 1)
    noise = max(NOISE, SEEN * scatter) if is_seen else NOISE
    return (1.0, min(off, scatter)) if off <= noise else (ratio, scatter)


def _epochs(kept: Kept) -> Mapping[_Setting, _Epoch]:
    """The mean epoch of a trial at each limit. The first epoch counts only if there is no other."""
    told = kept.told
    if told is None or not told.curve:
        return {}
    steady = told.curve[1:][-LOOKED_AT:]
    by_limit: dict[float, list[tuple[float, float]]] = {}
    for point in steady or told.curve:
        if point.limit_watts is not None and point.joules is not None and point.joules > 0 < point.seconds:
            by_limit.setdefault(point.limit_watts, []).append((point.joules, point.seconds))
    ask = kept.trial.ask
    return {
        _Setting(ask.gpu_model, kept.trial.batch_size, limit, not steady): _mean(ask.recurrence, points)
        for limit, points in by_limit.items()
    }


def _mean(recurrence: int, points: list[tuple[float, float]]) -> _Epoch:
    count = len(points)
    joules, seconds = (sum(some) / count for some in zip(*points, strict=True))
    of_joules = sum([(point[0] / joules - 1) ** 2 for point in points])
    of_seconds = sum([(point[1] / seconds - 1) ** 2 for point in points])
    return _Epoch(recurrence, Use(joules, seconds), count, Scatter(Use(of_joules, of_seconds), count - 1))
