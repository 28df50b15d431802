"""What earlier trials of a job say about the epochs of a new trial, before it begins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from zeus.cost import ONE, Use
from zeus.job import Checked, Gpus, Kind, Outcome, Profiled, TrialRecord, UsageSegment, replace
from zeus.ledger.units import UNITS
from zeus.profile import nearest

UNREAD = 0.0  # stands for the power limit of a GPU on which it cannot be read
NEWEST_TRIALS = 20  # trials of a size that are used to predict its units
CHANGED = 0.2  # units that differ by more than this share ran with other data or another model

Trials: TypeAlias = tuple[tuple[UsageSegment, ...], ...]


class Knowledge(Checked, frozen=True):
    """What is known about a trial's epochs before it begins, from earlier trials of its job on the same GPUs."""

    trials: Trials = ()  # the stretches of earlier trials of its batch size, oldest first
    step: Use | None = None  # a step at the limit that the trial will run at, from a power profile
    epoch: Use | None = None  # an epoch, if it was reported as a whole
    near: Use | None = None  # an epoch of the nearest other size
    octaves: float = 0.0  # distance to that size
    lines_end: bool | None = None  # whether the lines of an unmodified script end its epochs; None: unknown
    evaluation: Use | None = None  # after an epoch, in the newest trial of the nearest other size that had one
    micro_batch_size: int | None = None  # samples that last fitted on each GPU at once; None: no trial accumulated


def gather(kept: Iterable[TrialRecord], told: Iterable[Profiled], batch_size: int, gpus: Gpus) -> Knowledge:
    """What these facts of a job, oldest first, say about a trial of this size on these GPUs."""
    kept = list(kept)
    same = [one for one in kept if one.trial.batch_size == batch_size and one.trial.ask.gpus == gpus]
    stretches = [
        readable(one.latest_outcome.stretches)
        for one in same
        if one.latest_outcome is not None and one.latest_outcome.stretches
    ]
    epochs = {one.batch_size: Use(one.joules, one.seconds) for one in told if one.gpu_model == gpus.label}
    return replace(
        from_epochs(epochs, batch_size),
        trials=tuple(stretches[-NEWEST_TRIALS:]),
        evaluation=_evaluation(kept, batch_size, gpus),
        lines_end=_lines_end(one.latest_outcome for one in kept if one.latest_outcome is not None),
        micro_batch_size=_micro_batch_size(kept, gpus),
    )


def from_epochs(epochs: Mapping[int, Use], batch_size: int) -> Knowledge:
    """What is known about a size from what an epoch of each of these sizes uses."""
    near = next(iter(nearest(batch_size, epochs)), batch_size)
    octaves = abs(math.log2(near / batch_size))
    return Knowledge(epoch=epochs.get(batch_size), near=None if not octaves else epochs[near], octaves=octaves)


def _evaluation(kept: Iterable[TrialRecord], batch_size: int, gpus: Gpus) -> Use | None:
    """What an evaluation used in the newest trial that had one on these GPUs, of the nearest other size."""
    newest: dict[int, Use] = {}
    for one in kept:
        if one.latest_outcome is not None and one.trial.ask.gpus == gpus:
            parts = [part for part in one.latest_outcome.stretches if part.kind is Kind.EVALUATION and part.joules]
            if parts:
                total = sum((Use(part.joules or 0.0, part.seconds) for part in parts), Use())
                newest[one.trial.batch_size] = total.times(1 / sum(part.count for part in parts))
    return next((newest[size] for size in nearest(batch_size, newest)), None)


def _lines_end(told: Iterable[Outcome]) -> bool | None:
    """Whether a script's lines end its epochs; None if unknown. Lines that begin epochs have a set-up before them."""
    kinds = [{s.kind for s in one.stretches} for one in told if any(s.kind is Kind.EPOCH for s in one.stretches)]
    return None if not kinds else not any(Kind.SET_UP in some for some in kinds)


def _micro_batch_size(kept: Iterable[TrialRecord], gpus: Gpus) -> int | None:
    """The newest micro batch size on as many GPUs of this model, for any batch size."""
    here = (gpus.model, gpus.count)
    told = [one.latest_outcome for one in kept if (one.trial.ask.gpus.model, one.trial.ask.gpus.count) == here]
    return next((one.micro_batch_size for one in reversed(told) if one is not None and one.micro_batch_size), None)


def is_due(trials: Trials, top: float) -> bool:
    """Whether the highest power limit should be measured again, to keep the default known.

    It should if none of the newest trials ran at it, or if units have changed since one did.
    """
    newest: dict[_Sort, Use] = {}
    seen = False
    for trial in reversed(trials):
        units = _units(trial)
        newest = newest or units
        if all(limit != top for _, limit, _ in units):
            continue
        seen = True
        both = newest.keys() & units.keys()
        steady = {sort for sort in both if not sort[2]}  # preferred: cold units vary within the first epoch
        if both:
            return any(not abs(newest[sort] / units[sort] - ONE).within(CHANGED) for sort in steady or both)
    return not seen and len(trials) >= NEWEST_TRIALS


_Sort: TypeAlias = tuple[Kind, float, bool]  # of a unit: kind, limit, cold


def _units(trial: Iterable[UsageSegment]) -> dict[_Sort, Use]:
    """The mean unit of each sort in a trial."""
    return {
        (one.kind, one.limit_watts, one.cold): Use(one.joules / one.count, one.seconds / one.count)
        for one in trial
        if one.kind in UNITS and one.limit_watts and one.count and one.joules and one.seconds
    }


def readable(stretches: Iterable[UsageSegment]) -> tuple[UsageSegment, ...]:
    """The stretches with UNREAD for a power limit that is not known, so that they can be compared."""
    return tuple(one if one.limit_watts is not None else replace(one, limit_watts=UNREAD) for one in stretches)
