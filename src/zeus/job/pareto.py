"""Figure 2's plane for a real job: time and energy of a run at each batch size and power limit, and what is best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from zeus.job.amount import ONE, Amount
from zeus.job.conversion import Book, convert
from zeus.job.trial import Outcome
from zeus.job.trial_index import Past
from zeus.job.units import NEWEST


@dataclass(frozen=True, slots=True)
class Point:
    """A batch size and a power limit, and what a run to the target is expected to take there."""

    batch_size: int
    limit_watts: float
    seconds: float
    joules: float
    is_default: bool  # the default size at the highest limit
    on_front: bool = False  # no other takes less of one and no more of the other


def points(past: Past, label: str) -> tuple[Point, ...]:
    """Mean epochs of the runs that reached the target, times an epoch on these GPUs at each limit that is known."""
    found = []
    for size, lengths in sorted(past.epochs().items()):
        mean, book = sum(lengths) / len(lengths), past.book(label, size)
        runs = _runs(past, label, size)
        for limit in book.limits():
            epoch = _epoch(runs, limit, book)
            if epoch is not None:
                usual = size == past.spec.default_batch_size and limit == past.top(label)
                found.append(Point(size, limit, mean * epoch.seconds, mean * epoch.joules, usual))
    return mark_front(found)


def mark_front(found: Iterable[Point]) -> tuple[Point, ...]:
    """Say which points no other one beats.

    >>> some = [Point(8, 250, 2.0, 5.0, True), Point(8, 150, 3.0, 4.0, False), Point(16, 250, 3.0, 6.0, False)]
    >>> [one.on_front for one in mark_front(some)]
    [True, True, False]
    """
    some = tuple(found)
    best, marked = float("inf"), set()
    for one in sorted(some, key=lambda point: (point.seconds, point.joules)):
        if one.joules < best:
            best = one.joules
            marked.add(one)
    return tuple(replace(one, on_front=one in marked) for one in some)


def _runs(past: Past, label: str, batch_size: int) -> list[tuple[Outcome, Amount]]:
    """The newest trials of this size on these GPUs, and what an epoch of today is of theirs.

    Those that reached the target count alone where there are any: warm-up then has its part in an epoch.
    """
    sound = [kept for kept in past.at(label, batch_size) if kept.told is not None and kept.told.epochs]
    reached = [kept for kept in sound if past.is_towards(kept)]
    return [
        (kept.told, past.today.use / past.level(kept.trial.ask.recurrence).use)
        for kept in (reached or sound)[-NEWEST:]
        if kept.told is not None
    ]


def _epoch(runs: Iterable[tuple[Outcome, Amount]], limit: float, book: Book) -> Amount | None:
    """An epoch of today at this limit."""
    use, epochs = Amount(), 0
    for run, growth in runs:
        there = convert(run, limit, book, ONE / growth)
        if there is not None:
            use, epochs = use + there.use * growth, epochs + run.epochs
    return use.times(1 / epochs) if epochs else None
