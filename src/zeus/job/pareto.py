"""Figure 2 for a real job: time and energy of a run at each batch size and power limit, and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from zeus.cost import ONE, Use
from zeus.job.conversion import Book, convert
from zeus.job.trial import Outcome
from zeus.job.trial_index import TrialIndex
from zeus.job.units import NEWEST


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A batch size, a power limit, and what a run to the target is expected to take with them."""

    batch_size: int
    limit_watts: float
    seconds: float
    joules: float
    is_default: bool = False  # the default size at the highest limit
    on_front: bool = False  # no other point is better in time or energy without being worse in the other

    @property
    def cells(self) -> tuple[int, float, float, float]:
        """A table row: batch size, limit, seconds and joules."""
        return self.batch_size, self.limit_watts, self.seconds, self.joules


def points(past: TrialIndex, label: str) -> tuple[ParetoPoint, ...]:
    """For each size and known limit on these GPUs: mean epochs to the target, times the use of one epoch."""
    found = []
    for size, lengths in sorted(past.epochs().items()):
        mean, book = sum(lengths) / len(lengths), past.book(label, size)
        runs = _runs(past, label, size)
        for limit in book.limits():
            epoch = _epoch(runs, limit, book)
            if epoch is not None:
                usual = size == past.spec.default_batch_size and limit == past.top(label)
                found.append(ParetoPoint(size, limit, mean * epoch.seconds, mean * epoch.joules, usual))
    return mark_front(found)


def mark_front(found: Iterable[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """The same points, with `on_front` set."""
    some = tuple(found)
    best = set(front(some))
    return tuple(replace(one, on_front=one in best) for one in some)


def front(found: Iterable[ParetoPoint]) -> list[ParetoPoint]:
    """The points that no other beats in both time and energy, fastest first.

    >>> kept = front([ParetoPoint(8, 250, 1.0, 3.0), ParetoPoint(8, 100, 2.0, 2.0), ParetoPoint(16, 250, 2.0, 4.0)])
    >>> [(one.batch_size, one.limit_watts) for one in kept]
    [(8, 250), (8, 100)]
    """
    kept: list[ParetoPoint] = []
    for one in sorted(found, key=lambda point: (point.seconds, point.joules)):
        if not kept or one.joules < kept[-1].joules:
            kept.append(one)
    return kept


def _runs(past: TrialIndex, label: str, batch_size: int) -> list[tuple[Outcome, Use]]:
    """The newest trials of this size on these GPUs, each with how much the data have grown since.

    If some reached the target, only those count, because their epochs contain the usual share of warm-up.
    """
    sound = [kept for kept in past.at(label, batch_size) if kept.told is not None and kept.told.epochs]
    reached = [kept for kept in sound if past.is_towards(kept)]
    return [
        (kept.told, past.today.use / past.level(kept.trial.ask.recurrence).use)
        for kept in (reached or sound)[-NEWEST:]
        if kept.told is not None
    ]


def _epoch(runs: Iterable[tuple[Outcome, Use]], limit: float, book: Book) -> Use | None:
    """The use of an epoch at this limit with today's data."""
    use, epochs = Use(), 0
    for run, growth in runs:
        there = convert(run, limit, book, ONE / growth)
        if there is not None:
            use, epochs = use + there.use * growth, epochs + run.epochs
    return use.times(1 / epochs) if epochs else None
