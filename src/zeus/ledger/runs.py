"""What each trial of a job tells about its epochs, in a form that can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from zeus.cost import ONE, ZERO, Use
from zeus.job import Ending, JobSpec, Kind, Outcome, TrialRecord
from zeus.ledger.units import LATEST, Floats, Row, within_runs

WITHIN = 0.25  # variance of one epoch within a run, as a share of the variance between runs
COLD, STEADY, TOTAL = "cold", "steady", "total"  # what the mean epoch of a run is known from


class Run(NamedTuple):
    """What one trial tells the model. Arrays hold joules and seconds."""

    record: TrialRecord
    outcome: Outcome
    recurrence: int
    size: int
    setting: tuple[str, int, float | None, str]  # epochs are compared if this is equal: GPUs, size, limit, kind of mean
    warm: Floats
    epoch: Floats  # the mean epoch at the limit of the setting
    measurements: int  # epochs behind it
    samples: tuple[float, float] | None  # the fewest and the most in an epoch; None if not counted
    steady: Mapping[float, Row]  # its epochs but the first, by limit

    @property
    def weight(self) -> float:
        return 1 / (1 + WITHIN / self.measurements)

    @property
    def total(self) -> Floats:
        return np.array([self.outcome.joules, self.outcome.seconds])

    def reached(self, job: JobSpec) -> bool:
        """Whether it reached the job's current target."""
        return self.record.trial.ending is Ending.CONVERGED and self.record.trial.ask.is_for(job)


def runs_of(records: Iterable[TrialRecord]) -> list[Run]:
    """What these trials tell. Epochs at different limits are moved to one, as far as runs have limits in common."""
    runs = [run for record in records if (run := _run(record)) is not None]
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        if run.steady:
            groups.setdefault(run.setting[:2], []).append(run)
    moved = {id(run): run for run in runs}
    for (label, size), some in groups.items():
        walks = [dict(run.steady) for run in some if len(run.steady) > 1][-LATEST:]
        left = Counter(limit for run in some for limit in run.steady)
        while left:
            limit = left.most_common(1)[0][0]
            ratios = {limit: (ONE, ZERO)} | (within_runs(walks, limit) if any(limit in one for one in walks) else {})
            for run in some:
                if limit in run.steady or ratios.keys() & run.steady.keys():
                    epoch = _at_limit(run.steady, ratios)
                    moved[id(run)] = run._replace(epoch=epoch, setting=(label, size, limit, STEADY))
            for one in ratios:
                left.pop(one, None)
    return list(moved.values())


def _at_limit(steady: Mapping[float, Row], ratios: Mapping[float, tuple[Use, Use]]) -> Floats:
    """The mean epoch of a run, moved to one limit by these ratios."""
    logs, units = np.zeros(2), 0
    for limit, row in steady.items():
        if limit in ratios:
            use = row.each * ratios[limit][0]
            logs, units = logs + row.units * np.log([use.joules, use.seconds]), units + row.units
    return np.exp(logs / units)


def _run(record: TrialRecord) -> Run | None:
    """What this trial tells; None if it completed no epoch, or if its energy is unknown."""
    told, ask = None if record.latest_outcome is None else record.latest_outcome.of_training, record.trial.ask
    if told is None or not told.joules or not told.seconds or not told.epochs:
        return None
    whole = record.trial.ending in (Ending.CONVERGED, Ending.NOT_CONVERGED)  # the others may end within an epoch
    points = [one for one in told.curve if one.joules and one.joules > 0 < one.seconds]
    first = points[0] if points and points[0].number == 1 else None
    by_limit: dict[float, list[tuple[float, float]]] = {}
    for one in points:
        if one.number > 1 and one.limit_watts is not None:
            by_limit.setdefault(one.limit_watts, []).append((one.joules or 0.0, one.seconds))
    steady = {watts: Row.of(uses) for watts, uses in by_limit.items()}
    warm, limit, kind, measurements = np.zeros(2), None, TOTAL, told.epochs
    if steady:
        kind, measurements = STEADY, sum(row.units for row in steady.values())
        most = max(steady, key=lambda watts: steady[watts].units)
        each = steady[most].each
        epoch = np.array([each.joules, each.seconds])
        if first is not None:
            same = steady.get(first.limit_watts or 0.0, steady[most]).each
            warm = np.maximum(((first.joules or 0.0) - same.joules, first.seconds - same.seconds), 0.0)
    elif first is not None:
        limit, kind, measurements, epoch = first.limit_watts, COLD, 1, np.array([first.joules, first.seconds])
    elif whole:
        epoch = np.array([told.joules, told.seconds]) / told.epochs
    else:
        return None
    setting, samples = (ask.gpu_model, record.trial.batch_size, limit, kind), _samples(record, told)
    return Run(record, told, ask.recurrence, setting[1], setting, warm, epoch, measurements, samples, steady)


def _samples(record: TrialRecord, told: Outcome) -> tuple[float, float] | None:
    """Bounds of the samples in an epoch. If steps were counted, the last of them may have held fewer, or been left."""
    if told.samples is None:
        return None
    doubt = record.trial.batch_size if any(one.kind is Kind.STEP for one in told.stretches) else 0
    return max(0.0, told.samples - doubt), told.samples + doubt
