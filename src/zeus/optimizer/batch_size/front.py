"""Figure 2's plane for a real job: time and energy of a run at each batch size and power limit, and what is best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from zeus.job import Ending, Profiled
from zeus.optimizer.batch_size.summary import epoch_at_limits
from zeus.profile import PowerProfile
from zeus.store.api import Job, Kept


@dataclass(frozen=True, slots=True)
class Point:
    """A batch size and a power limit, and what a run to the target is expected to take there."""

    batch_size: int
    limit_watts: float
    seconds: float
    joules: float
    is_default: bool  # the default size at the highest limit
    on_front: bool = False  # no other takes less of one and no more of the other


def points(
    job: Job, trials: Iterable[Kept], epochs: Mapping[int, Profiled], profiles: Mapping[int, PowerProfile]
) -> tuple[Point, ...]:
    """Mean epochs of the runs that reached the target, times an epoch at each measured limit."""
    lengths: dict[int, list[int]] = {}
    for kept in trials:
        trial = kept.trial
        if trial.ending is Ending.CONVERGED and trial.outcome is not None and trial.asked > job.since:
            lengths.setdefault(trial.batch_size, []).append(trial.outcome.epochs)
    found = []
    for size in sorted(set(lengths) & set(epochs) & set(profiles)):
        mean = sum(lengths[size]) / len(lengths[size])
        known = epoch_at_limits(job.spec, epochs[size], profiles[size])
        for limit, use in known.items():
            usual = size == job.spec.default_batch_size and limit == max(profiles[size].limits)
            found.append(Point(size, limit, mean * use.seconds, mean * use.joules, usual))
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
