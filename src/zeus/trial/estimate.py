"""What the next epoch of a trial will use: from its own steady units, or from what earlier trials of its size used.

A cold epoch alone foretells nothing: libraries load and kernels are chosen in it. Where steps can be seen, the rest of
an epoch is foretold from the steps that were done in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from zeus.cost import Use
from zeus.job import Gpus, Kept, Kind, Outcome, Profiled, Stretch
from zeus.job.amount import ONE, Amount
from zeus.job.conversion import UNITS
from zeus.job.units import UNKNOWN_SPREAD, Unit, Units

OCTAVE = math.log(2.0)  # by which an epoch of half or twice the batch size may differ: one standard deviation


UNREAD = 0.0  # stands for the limit of a card that does not tell it
NEWEST_TRIALS = 20  # of a size, that say what its units use
CHANGED = 0.2  # share by which units differ that are of other data, or of another model


Trials: TypeAlias = tuple[tuple[Stretch, ...], ...]


class Estimate(NamedTuple):
    """What an epoch will use, and how sure that is."""

    use: Use
    spread: float  # relative, one standard deviation

    @property
    def least(self) -> Use:
        """The lower end: what one standard deviation leaves."""
        return self.use.times(math.exp(-self.spread))


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of a trial's epochs before it begins, from earlier trials of its job on the same GPUs."""

    trials: Trials = ()  # the stretches of earlier trials of its batch size, the oldest first
    step: Use | None = None  # a step at the limit that the trial will run at, from a power profile
    epoch: Use | None = None  # an epoch, where it was told as a whole
    near: Use | None = None  # an epoch of the nearest other size
    octaves: float = 0.0  # how far that is
    lines_end: bool | None = None  # an unmodified script's epoch lines end their epochs; None: not known


def gather(kept: Iterable[Kept], told: Iterable[Profiled], batch_size: int, gpus: Gpus) -> Knowledge:
    """What these facts of a job, the oldest first, tell of a trial of this size on these GPUs."""
    kept = list(kept)
    same = [one for one in kept if one.trial.batch_size == batch_size and one.trial.ask.gpus == gpus]
    stretches = [_readable(one.told.stretches) for one in same if one.told is not None and one.told.stretches]
    epochs = {one.batch_size: Use(one.joules, one.seconds) for one in told if one.gpu_model == gpus.label}
    others = sorted({*epochs} - {batch_size}, key=lambda size: (abs(math.log2(size / batch_size)), size))
    return Knowledge(
        trials=tuple(stretches[-NEWEST_TRIALS:]),
        epoch=epochs.get(batch_size),
        near=epochs[others[0]] if others else None,
        octaves=abs(math.log2(others[0] / batch_size)) if others else 0.0,
        lines_end=_lines_end(one.told for one in kept if one.told is not None),
    )


def _lines_end(told: Iterable[Outcome]) -> bool | None:
    """A script whose lines begin epochs has a set-up before the first; the same script says the same in each trial."""
    kinds = [{s.kind for s in one.stretches} for one in told if any(s.kind is Kind.EPOCH for s in one.stretches)]
    return None if not kinds else not any(Kind.SET_UP in some for some in kinds)


def is_due(trials: Trials, top: float) -> bool:
    """Whether the highest limit should be measured again, so that it stays known what the default uses.

    That is so where none of the newest trials ran there, or where units have changed since one last did.
    """
    newest: dict[_Sort, Amount] = {}
    seen = False
    for trial in reversed(trials):
        units = _units(trial)
        newest = newest or units
        if all(limit != top for _, limit, _ in units):
            continue
        seen = True
        both = newest.keys() & units.keys()
        steady = {sort for sort in both if not sort[2]}  # cold ones differ by where in the first epoch they lie
        if both:
            return any(not abs(newest[sort] / units[sort] - ONE).within(CHANGED) for sort in steady or both)
    return not seen and len(trials) >= NEWEST_TRIALS


_Sort: TypeAlias = tuple[Kind, float, bool]  # of a unit: kind, limit, cold


def _units(trial: Iterable[Stretch]) -> dict[_Sort, Amount]:
    """A mean unit of each sort that a trial had."""
    return {
        (one.kind, one.limit_watts, one.cold): Amount(one.joules / one.count, one.seconds / one.count)
        for one in trial
        if one.kind in UNITS and one.limit_watts and one.count and one.joules and one.seconds
    }


def next_epoch(
    known: Knowledge, own: Iterable[Stretch], limit: float | None, steps: int | None, evaluated: Use
) -> Estimate | None:
    """The next epoch at this limit; None where nothing steady is known of it.

    Args:
        known: From earlier trials.
        own: Of this trial.
        limit: In force; None where it cannot be read.
        steps: In an epoch, where they can be seen and counted.
        evaluated: What this trial's last evaluation used.
    """
    book, before, beside = Units.of([_readable(own)]), Units.of(known.trials), evaluated
    limit = UNREAD if limit is None else limit
    if not evaluated.seconds and (usual := _unit(book, before, Kind.EVALUATION, limit)) is not None:
        beside = Use(usual.joules, usual.seconds)
    if steps:
        step = _unit(book, before, Kind.STEP, limit)
        use = known.step if step is None else Use(step.joules, step.seconds)
        if use is not None:
            return Estimate(use.times(steps).plus(beside), 0.0 if step is None else _spread(step))
    epoch = _unit(book, before, Kind.EPOCH, limit)
    return None if epoch is None else Estimate(Use(epoch.joules, epoch.seconds).plus(beside), _spread(epoch))


def first_epoch(known: Knowledge, steps: int | None, limit: float | None) -> Estimate | None:
    """The first epoch, before anything of this trial was seen."""
    found = next_epoch(known, (), limit, steps, Use())
    if found is not None:
        return found
    if known.epoch is not None:
        return Estimate(known.epoch, 0.0)
    return None if known.near is None else Estimate(known.near, OCTAVE * max(1.0, known.octaves))


def _unit(own: Units, known: Units, kind: Kind, limit: float) -> Unit | None:
    """A steady unit: of this trial first, at the limit in force; else at any other that it ran at."""
    for book in (own, known):
        if (found := book.unit(kind, limit)) is not None:
            return found
    return next((found for other in own.limits(kind) if (found := own.unit(kind, other)) is not None), None)


def _readable(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Where no limit can be read there is but one, whatever it is."""
    return tuple(one if one.limit_watts is not None else replace(one, limit_watts=UNREAD) for one in stretches)


def _spread(unit: Unit) -> float:
    return max(unit.joules_error / unit.joules, unit.seconds_error / unit.seconds, UNKNOWN_SPREAD / unit.count)
