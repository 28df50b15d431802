"""What the next epoch of a trial will use: from its own steady units, or from what earlier trials of its size used.

A cold epoch alone foretells nothing: libraries load and kernels are chosen in it. Where steps can be seen, the rest of
an epoch is foretold from the steps that were done in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from zeus.cost import Use
from zeus.job import Kind, Stretch
from zeus.job.units import UNKNOWN_SPREAD, Unit, Units
from zeus.trial.knowledge import UNREAD, Knowledge, readable

OCTAVE = math.log(2.0)  # by which an epoch of half or twice the batch size may differ: one standard deviation


class EpochEstimate(NamedTuple):
    """What an epoch will use, and how sure that is."""

    use: Use
    spread: float  # relative, one standard deviation

    @property
    def least(self) -> Use:
        """The lower end: what one standard deviation leaves."""
        return self.use.times(math.exp(-self.spread))


def next_epoch(
    known: Knowledge, own: Iterable[Stretch], limit: float | None, steps: int | None, evaluated: Use
) -> EpochEstimate | None:
    """The next epoch at this limit; None where nothing steady is known of it.

    Args:
        known: From earlier trials.
        own: Of this trial.
        limit: In force; None where it cannot be read.
        steps: In an epoch, where they can be seen and counted.
        evaluated: What this trial's last evaluation used.
    """
    book, before, beside = Units.of([readable(own)]), Units.of(known.trials), evaluated
    limit = UNREAD if limit is None else limit
    if not evaluated.seconds and (usual := _unit(book, before, Kind.EVALUATION, limit)) is not None:
        beside = Use(usual.joules, usual.seconds)
    if steps:
        step = _unit(book, before, Kind.STEP, limit)
        use = known.step if step is None else Use(step.joules, step.seconds)
        if use is not None:
            return EpochEstimate(use.times(steps).plus(beside), 0.0 if step is None else _spread(step))
    epoch = _unit(book, before, Kind.EPOCH, limit)
    return None if epoch is None else EpochEstimate(Use(epoch.joules, epoch.seconds).plus(beside), _spread(epoch))


def first_epoch(known: Knowledge, steps: int | None, limit: float | None) -> EpochEstimate | None:
    """The first epoch, before anything of this trial was seen."""
    found = next_epoch(known, (), limit, steps, Use())
    if found is not None:
        return found
    if known.epoch is not None:
        return EpochEstimate(known.epoch, 0.0)
    return None if known.near is None else EpochEstimate(known.near, OCTAVE * max(1.0, known.octaves))


def _unit(own: Units, known: Units, kind: Kind, limit: float) -> Unit | None:
    """A steady unit: of this trial first, at the limit in force; else at any other that it ran at."""
    for book in (own, known):
        if (found := book.unit(kind, limit)) is not None:
            return found
    return next((found for other in own.limits(kind) if (found := own.unit(kind, other)) is not None), None)


def _spread(unit: Unit) -> float:
    return max(unit.joules_error / unit.joules, unit.seconds_error / unit.seconds, UNKNOWN_SPREAD / unit.count)
