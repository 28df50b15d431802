"""Data that grow from recurrence to recurrence: by how much an epoch has come to use more than at first.

The level of a recurrence is 1 at the first one. An epoch of the same batch size, on the same GPUs and at the same power
limit as in an earlier recurrence says what it is now; where there is none, the last level stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zeus.job.amount import ONE, ZERO, Amount, widening
from zeus.job.trial import EpochPoint, Kept
from zeus.job.units import UNKNOWN_SPREAD

NOISE = 0.02  # levels that differ by no more than this share are the same
LOOKED_AT = 50  # epochs of a curve, the last ones


@dataclass(frozen=True, slots=True)
class Level:
    """What an epoch uses in one recurrence, over what the same epoch used in the first."""

    use: Amount = ONE
    error: Amount = ZERO  # relative: what was taken for noise, or the scatter of the epochs compared


class _Place(NamedTuple):
    """What must be the same for two epochs to be comparable."""

    gpu_model: str
    batch_size: int
    limit_watts: float
    cold: bool


class _Epoch(NamedTuple):
    """A mean epoch."""

    use: Amount
    epochs: int
    squares: Amount  # of relative deviations from the mean, summed


def levels(tries: Iterable[Kept]) -> dict[int, Level]:
    """The level of each recurrence, by its number.

    Args:
        tries: All of a job, sorted by recurrence.
    """
    seen: dict[int, dict[_Place, _Epoch]] = {}
    for kept in tries:
        here = seen.setdefault(kept.trial.ask.recurrence, {})
        here.update(_epochs(kept))
    spread = _spread(epoch for here in seen.values() for epoch in here.values())
    found: dict[int, Level] = {}
    anchors: dict[_Place, tuple[Level, _Epoch]] = {}
    last = Level()
    for recurrence, here in seen.items():
        known = [(*anchors[place], epoch) for place, epoch in here.items() if place in anchors]
        if known:
            last = _compare(known, spread)
        for place, epoch in here.items():
            anchors.setdefault(place, (last, epoch))
        found[recurrence] = last
    return found


def _compare(known: Iterable[tuple[Level, _Epoch, _Epoch]], spread: Amount) -> Level:
    """The mean of what each kind of epoch says, weighted by how many there are."""
    level, error, weights = Amount(), Amount(), 0
    for anchor, then, now in known:
        ratio = now.use / then.use
        scatter = spread.times(math.sqrt(1 / then.epochs + 1 / now.epochs))
        joules, of_joules = _told(ratio.joules, scatter.joules)
        seconds, of_seconds = _told(ratio.seconds, scatter.seconds)
        level += (anchor.use * Amount(joules, seconds)).times(now.epochs)
        error += anchor.error.hypot(Amount(of_joules, of_seconds)).times(now.epochs)
        weights += now.epochs
    return Level(level.times(1 / weights), error.times(1 / weights))


def _told(ratio: float, scatter: float) -> tuple[float, float]:
    """The ratio that counts, and its error."""
    return (1.0, abs(ratio - 1)) if abs(ratio - 1) <= NOISE else (ratio, scatter)


def _epochs(kept: Kept) -> Mapping[_Place, _Epoch]:
    """The mean epoch of a try at each limit; the first of a process only where there is no other."""
    told = kept.told
    if told is None or not told.curve:
        return {}
    steady = told.curve[1:][-LOOKED_AT:]
    by_limit: dict[float, list[EpochPoint]] = {}
    for point in steady or told.curve:
        if point.limit_watts is not None and point.joules and point.seconds:
            by_limit.setdefault(point.limit_watts, []).append(point)
    ask = kept.trial.ask
    return {
        _Place(ask.gpu_model, kept.trial.batch_size, limit, not steady): _mean(points)
        for limit, points in by_limit.items()
    }


def _mean(points: list[EpochPoint]) -> _Epoch:
    count = len(points)
    joules = sum(point.joules or 0.0 for point in points) / count
    seconds = sum(point.seconds for point in points) / count
    squares = Amount(
        sum(((point.joules or 0.0) / joules - 1) ** 2 for point in points),
        sum((point.seconds / seconds - 1) ** 2 for point in points),
    )
    return _Epoch(Amount(joules, seconds), count, squares)


def _spread(epochs: Iterable[_Epoch]) -> Amount:
    squares, freedom = Amount(), 0
    for epoch in epochs:
        if epoch.epochs > 1:
            squares, freedom = squares + epoch.squares, freedom + epoch.epochs - 1
    if not freedom:
        return Amount(UNKNOWN_SPREAD, UNKNOWN_SPREAD)
    return squares.times(1 / freedom).root().times(widening(freedom))
