"""Predicts what the next epoch of a trial will use, from its own steady units or from earlier trials of its size.

A cold epoch is not used for a prediction, because libraries load and kernels are chosen in it. If steps can be seen, an
epoch is predicted from its steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from zeus.cost import Use
from zeus.job import Kind, UsageSegment
from zeus.ledger.units import UNSEEN, Unit, Units
from zeus.trial.knowledge import UNREAD, Knowledge, readable

OCTAVE = math.log(2.0)  # one standard deviation of log epoch use between a batch size and its half or double


class EpochEstimate(NamedTuple):
    """What an epoch is expected to use, and how uncertain that is."""

    use: Use
    spread: float  # relative standard deviation

    @property
    def least(self) -> Use:
        """The estimate minus one standard deviation."""
        return self.use.times(math.exp(-self.spread))


def next_epoch(
    known: Knowledge, own: Iterable[UsageSegment], limit: float | None, steps: int | None, evaluated: Use
) -> EpochEstimate | None:
    """The next epoch at this power limit; None if no steady unit is known.

    Args:
        known: What is known from earlier trials.
        own: The stretches of this trial.
        limit: The current power limit; None if it cannot be read.
        steps: Steps in an epoch, if they can be seen and counted.
        evaluated: What this trial's last evaluation used.
    """
    book, before = Units.of([readable(own)]), Units.of(known.trials)
    limit = UNREAD if limit is None else limit
    beside = evaluated if evaluated.seconds else _evaluation(book, before, known, limit)
    if steps:
        step = _unit(book, before, Kind.STEP, limit)
        use = known.step if step is None else step.use
        if use is not None:
            return EpochEstimate(use.times(steps) + beside, 0.0 if step is None else _spread(step))
    epoch = _unit(book, before, Kind.EPOCH, limit)
    return None if epoch is None else EpochEstimate(epoch.use + beside, _spread(epoch))


def first_epoch(known: Knowledge, steps: int | None, limit: float | None) -> EpochEstimate | None:
    """The first epoch, before anything of this trial was measured; None if nothing predicts it."""
    found = next_epoch(known, (), limit, steps, Use())
    if found is not None:
        return found
    if known.epoch is not None:
        return EpochEstimate(known.epoch, 0.0)
    return None if known.near is None else EpochEstimate(known.near, OCTAVE * max(1.0, known.octaves))


def evaluation(known: Knowledge, own: Iterable[UsageSegment], limit: float | None) -> Use:
    """What an evaluation will use, from this trial, earlier ones of its size, or another size; 0 if none is known."""
    return _evaluation(Units.of([readable(own)]), Units.of(known.trials), known, UNREAD if limit is None else limit)


def _evaluation(own: Units, before: Units, known: Knowledge, limit: float) -> Use:
    found = _unit(own, before, Kind.EVALUATION, limit)
    return found.use if found is not None else known.evaluation or Use()


def _unit(own: Units, known: Units, kind: Kind, limit: float) -> Unit | None:
    """A steady unit at this limit, from this trial or else from earlier ones; else from this trial at another limit."""
    for book in (own, known):
        if (found := book.unit(kind, limit)) is not None:
            return found
    return next((found for other in own.limits(kind) if (found := own.unit(kind, other)) is not None), None)


def _spread(unit: Unit) -> float:
    relative = unit.error / unit.use
    return max(relative.joules, relative.seconds, UNSEEN / unit.count)
