"""Figure 2 for a real job: time and energy of a run at each batch size and power limit, and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zeus.cost import Use
from zeus.job import Ending, JobSpec, Outcome, TrialRecord, replace
from zeus.ledger.moving import move
from zeus.ledger.savings import DefaultModel, Place
from zeus.ledger.units import LATEST, NEWEST, UNITS, Units
from zeus.profile import PowerProfile


class _Run(NamedTuple):
    outcome: Outcome
    reached: bool  # the target
    growth: float  # what an epoch uses today, divided by what it used then


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


def points(
    spec: JobSpec,
    tries: Iterable[TrialRecord],
    place: Place,
    profiles: Mapping[int, PowerProfile | None],
    model: DefaultModel | None,
) -> tuple[ParetoPoint, ...]:
    """For each size and known limit on these GPUs: mean epochs to the target, times the use of one epoch.

    Args:
        spec: The job.
        tries: Its trials, oldest first.
        place: The GPUs, and the highest limit on them.
        profiles: Their power profiles, by batch size.
        model: Tells how much the data have grown; None if that is unknown.
    """
    lengths: dict[int, list[int]] = {}
    here: dict[int, list[_Run]] = {}
    for record in tries:
        size, told = record.trial.batch_size, record.latest_outcome
        if told is None or not told.epochs:
            continue
        reached = record.trial.ending is Ending.CONVERGED and record.trial.ask.is_for(spec)
        if reached:
            lengths.setdefault(size, []).append(told.epochs)
        if record.trial.ask.gpu_model == place.label:
            growth = 1.0 if model is None else model.growth_since(record.trial.ask.recurrence)
            here.setdefault(size, []).append(_Run(told, reached, growth))
    found = []
    for size, epochs in sorted(lengths.items()):
        runs = here.get(size, [])[-LATEST:]
        growths = [run.growth for run in runs]
        units = Units.of([run.outcome.stretches for run in runs], growths, profile=profiles.get(size))
        # Of runs that reached the target, epochs contain the usual share of warm-up.
        newest = ([run for run in runs if run.reached] or runs)[-NEWEST:]
        for limit in sorted({limit for kind in UNITS for limit in units.limits(kind)}, reverse=True):
            moved = [(run, there) for run in newest if (there := move(run.outcome, limit, units)) is not None]
            if moved:
                use = sum((there.use.times(run.growth) for run, there in moved), Use())
                mean = use.times(sum(epochs) / len(epochs) / sum(run.outcome.epochs for run, _ in moved))
                usual = size == spec.default_batch_size and limit == place.top
                found.append(ParetoPoint(size, limit, mean.seconds, mean.joules, usual))
    return mark_front(found)


def mark_front(found: Iterable[ParetoPoint]) -> tuple[ParetoPoint, ...]:
    """The same points, with `on_front` set."""
    some = tuple(found)
    best = set(front(some))
    return tuple(replace(one, on_front=one in best) for one in some)


def front(found: Iterable[ParetoPoint]) -> list[ParetoPoint]:
    """The points that no other beats in both time and energy, fastest first.

    >>> best = front([ParetoPoint(8, 250, 1.0, 3.0), ParetoPoint(8, 100, 2.0, 2.0), ParetoPoint(16, 250, 2.0, 4.0)])
    >>> [(one.batch_size, one.limit_watts) for one in best]
    [(8, 250), (8, 100)]
    """
    best: list[ParetoPoint] = []
    for one in sorted(found, key=lambda point: (point.seconds, point.joules)):
        if not best or one.joules < best[-1].joules:
            best.append(one)
    return best
