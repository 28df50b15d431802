"""What a recurring job has used and saved, by recurrence, compared with the default of its time.

A recurrence costs the sum of all its trials (Equation 2), under the η that the job has now; the policies count the
same way. Unknown is None, never 0. Every number about a job that Zeus shows comes from this module; what the default
would have used comes from `zeus.ledger.savings`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

import numpy as np

from zeus.cost import Use
from zeus.job import Ending, Gpus, JobSpec, TrialRecord, replace
from zeus.ledger.charge import Spent, Tally, charge
from zeus.ledger.pareto import ParetoPoint, points
from zeus.ledger.saving_text import is_seen
from zeus.ledger.savings import Basis, DefaultModel, Place, default_model, weakest
from zeus.profile import PowerProfile, ProfileKey

RECENT = 5  # the last recurrences, which show how the job runs now
MATURE = 10  # recurrences after which a saving should be seen
_BY_ITSELF = (Ending.NOT_CONVERGED, Ending.LOST)
NEXT = 10  # recurrences for which a better error is foretold


class RecurrenceEnd(StrEnum):
    """The state of a recurrence."""

    CONVERGED = "converged"
    OPEN = "open"  # a trial of it is running
    FAILED = "failed"  # all allowed trials missed the target
    UNFINISHED = "unfinished"  # nobody asked for the next trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """All trials of one recurrence together."""

    number: int
    end: RecurrenceEnd
    tries: int
    batch_size: int  # this and the next three: of the trial that converged, or else of the last one
    epochs: int
    gpu_model: str  # the label of its GPUs
    top_watts: float | None  # the highest power limit that was allowed on them then; None if unknown
    use: Spent | None  # None: unknown
    known_joules: float | None  # the energy that was reported, perhaps only a part; None if none was
    unknown_tries: int  # ended trials of unknown energy
    current: bool  # for the job's current target, and with the energy of what the job counts now
    lost: bool  # its trials ended by themselves, and no metric of it was ever seen

    @property
    def place(self) -> Place:
        """Where its default holds."""
        return Place(self.gpu_model, self.top_watts)


class Compared(NamedTuple):
    """The default that one recurrence is compared with."""

    use: Spent
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """What a run with the default size at the highest limit is expected to use on some GPUs with today's data."""

    batch_size: int
    limit_watts: float | None  # the highest; None if the runs could not be moved to it
    runs: int  # runs it is based on; all reached the target
    runs_measured: int  # those of them that were entirely at the highest limit
    epochs: float  # mean over the runs
    use: Spent
    basis: Basis
    joules_error: float  # standard errors of `use`
    seconds_error: float


@dataclass(frozen=True, slots=True)
class Saving:
    """The default's use minus the use of some recurrences.

    Only a recurrence that converged counts as a default run. What the others used is a loss.

    >>> Saving(Spent(30, 0, 25), Spent(100, 10, 500), 1, Basis.MEASURED, 3.0, 0.0).share
    0.3
    """

    saved: Spent
    default: Spent  # what the converged recurrences would have used
    recurrences: int
    basis: Basis  # the weakest of its parts
    joules_error: float  # standard errors of `saved`
    seconds_error: float

    @property
    def share(self) -> float:
        """The saved share of the default's energy."""
        return self.saved.joules / self.default.joules

    @property
    def time_share(self) -> float:
        """The saved share of the default's time."""
        return self.saved.seconds / self.default.seconds

    @property
    def cost_share(self) -> float:
        """The saved share of the default's cost."""
        return self.saved.cost / self.default.cost

    @property
    def share_error(self) -> float:
        """Standard error of `share`."""
        return self.joules_error / self.default.joules

    @property
    def time_share_error(self) -> float:
        """Standard error of `time_share`."""
        return self.seconds_error / self.default.seconds

    @property
    def difference_seen(self) -> bool:
        """Whether energy or time differs from the default's by two standard errors or more."""
        pairs = ((self.saved.joules, self.joules_error), (self.saved.seconds, self.seconds_error))
        wholes = (self.default.joules, self.default.seconds)
        return any(is_seen(*pair, of=whole) for pair, whole in zip(pairs, wholes, strict=True))


@dataclass(frozen=True, slots=True)
class JobLedger:
    """A job's recurrences, and the default for today's data on each set of GPUs where it is known."""

    recurrences: tuple[Recurrence, ...]
    defaults: Mapping[str, Default]
    _past: _Past = field(compare=False, repr=False)
    _model: DefaultModel | None = field(compare=False, repr=False)
    _compared: Mapping[int, Compared] = field(compare=False, repr=False)  # each recurrence's default

    @property
    def joules(self) -> float | None:
        """All known energy, including that of exploring and lost trials; None if none was reported."""
        known = [one.known_joules for one in self.recurrences if one.known_joules is not None]
        return sum(known) if known else None

    @property
    def unknown_tries(self) -> int:
        """Ended trials of unknown energy, which `joules` does not include."""
        return sum(one.unknown_tries for one in self.recurrences)

    @property
    def finished(self) -> tuple[Recurrence, ...]:
        """The recurrences that are over and can be compared: for the current target, and counting what counts now."""
        over = (one for one in self.recurrences if one.current and one.end is not RecurrenceEnd.OPEN)
        return tuple(one for one in over if not one.lost)

    @property
    def lost(self) -> tuple[Recurrence, ...]:
        """The recurrences that taught nothing, because no metric was ever seen, as with a wrong regular expression."""
        return tuple(one for one in self.recurrences if one.lost)

    @property
    def recent(self) -> tuple[Recurrence, ...]:
        """The last few recurrences that converged with known use, on the GPUs where the job last ran."""
        finished = self.finished
        here = [one for one in finished if one.gpu_model == finished[-1].gpu_model]
        sound = [one for one in here if one.end is RecurrenceEnd.CONVERGED and one.use is not None]
        return tuple(sound[-RECENT:])

    def default_of(self, recurrence: Recurrence) -> Compared | None:
        """The default for the GPUs, their highest limit and the data of this recurrence; None if unknown.

        A recurrence that converged with the default batch size is its own default.
        """
        return self._compared.get(recurrence.number)

    def why_no_default(self, gpu_model: str) -> str | None:
        """Why the default on these GPUs is not known; None if it is."""
        return None if gpu_model in self.defaults else self._past.why_no_default(gpu_model)

    def saving(self, recurrences: Iterable[Recurrence] | None = None) -> Saving | None:
        """What these recurrences, or all finished ones, saved against the default; None if there is no default."""
        some = self.finished if recurrences is None else recurrences
        known = [one for one in some if one.use is not None and one.number in self._compared]
        model = self._model
        if model is None:
            return None
        reached = [one for one in known if one.end is RecurrenceEnd.CONVERGED or model.is_own(one.number, one.place)]
        if not reached:
            return None
        used = sum((one.use for one in known if one.use is not None), Spent())
        default = sum((self._compared[one.number].use for one in reached), Spent())
        basis = weakest(self._compared[one.number].basis for one in reached)
        total = model.total([(one.number, one.place) for one in reached])
        error = np.maximum(total.error, total.chance)  # few runs beside many of the default may be lucky by chance
        return Saving(default - used, default, len(known), basis, *map(float, error))

    def surer(self) -> str | None:
        """How the job's saving could be known better; None if it is known well, or too few recurrences ran."""
        saving, finished = self.saving(), self.finished
        default = self.defaults.get(finished[-1].gpu_model) if finished else None
        if saving is None or default is None or len(finished) < MATURE or self._past.spec.baseline_every:
            return None
        seen = is_seen(saving.saved.seconds, saving.seconds_error)
        if seen or abs(saving.saved.joules) >= saving.joules_error or 5 * default.runs > len(finished):
            return None
        now, every = default.joules_error / default.use.joules, NEXT // 2
        then = now * math.sqrt(default.runs / (default.runs + NEXT // every))
        return (
            f"The error of the energy is larger than the saving. With `[baseline] every = {every}` in the job file, "
            f"{NEXT // every} of the next {NEXT} recurrences run the default, and the error of the default falls from "
            f"{now:.0%} to about {then:.0%}.".replace("%", " %")
        )

    def against(self, other: JobLedger) -> JobLedger:
        """This ledger, compared with the default that another job measured."""
        model = None if other._model is None else replace(other._model, own={})
        return _ledger(self._past, self.recurrences, model)

    def points(self, gpu_model: str) -> tuple[ParetoPoint, ...]:
        """Time and energy of a run at each batch size and power limit that is known on these GPUs."""
        return self._past.points(gpu_model, self._model)


def open_ledger(
    spec: JobSpec,
    records: Iterable[TrialRecord],
    profiles: Mapping[ProfileKey, PowerProfile] | None = None,
) -> JobLedger:
    """Add up a job's trials.

    Args:
        spec: The job as it is now.
        records: All of its trials, in any order. Trials for another target, or with another `include`, count only as
            used energy.
        profiles: Its power profiles.
    """
    past = _Past.of(spec, records, profiles or {})
    recurrences = tuple(
        past.recurrence(number, list(tries))
        for number, tries in groupby(past.tries, key=lambda record: record.trial.ask.recurrence)
    )
    places = dict.fromkeys([one.place for one in recurrences] + [past.place_now(label) for label in past.gpus])
    usual = {label: found for label in past.gpus if (found := past.profile(label, spec.default_batch_size)) is not None}
    return _ledger(past, recurrences, default_model(spec, past.tries, places, usual))


def _ledger(past: _Past, recurrences: tuple[Recurrence, ...], model: DefaultModel | None) -> JobLedger:
    if model is None:
        return JobLedger(recurrences, {}, past, None, {})
    spec, compared, defaults = past.spec, dict[int, Compared](), dict[str, Default]()
    known = [one for one in recurrences if one.place in model.places and one.current]
    total = model.total([(one.number, one.place) for one in known])
    for one, use, basis in zip(known, total.each, total.bases, strict=True):
        default = charge(Use(*map(float, use)), spec.eta_knob, past.gpus[one.gpu_model].max_watts)
        compared[one.number] = Compared(default, basis)
    for label, gpus in sorted(past.gpus.items()):
        place = past.place_now(label)
        if place in model.places:
            here = model.places[place]
            today = replace(model, own={}).total([(recurrences[-1].number, place)])
            defaults[label] = Default(
                batch_size=spec.default_batch_size,
                limit_watts=None if here.basis is Basis.AS_IT_RAN else place.top,
                runs=here.runs,
                runs_measured=here.runs_measured,
                epochs=model.epochs,
                use=charge(Use(*map(float, today.each[0])), spec.eta_knob, gpus.max_watts),
                basis=here.basis,
                joules_error=float(today.error[0]),
                seconds_error=float(today.error[1]),
            )
    return JobLedger(recurrences, defaults, past, model, compared)


@dataclass(frozen=True, slots=True)
class _Past:
    """A job's trials, and the newest facts about its GPUs."""

    spec: JobSpec
    tries: tuple[TrialRecord, ...]  # by recurrence, then by number
    profiles: Mapping[tuple[int, str, int], PowerProfile]  # by batch size, GPU model and number of GPUs
    gpus: Mapping[str, Gpus]  # by label, from the newest trial
    found: Mapping[str, float]  # by label: the power limit before Zeus changed it, from the newest trial

    @classmethod
    def of(cls, spec: JobSpec, records: Iterable[TrialRecord], profiles: Mapping[ProfileKey, PowerProfile]) -> _Past:
        tries = tuple(sorted(records, key=lambda record: (record.trial.ask.recurrence, record.trial.number)))
        gpus: dict[str, Gpus] = {}
        found: dict[str, float] = {}
        for record in sorted(tries, key=lambda record: record.trial.asked):
            label = record.trial.ask.gpu_model
            gpus[label] = record.trial.ask.gpus
            if record.latest_outcome is not None and record.latest_outcome.found_watts is not None:
                found[label] = record.latest_outcome.found_watts
        by_place = {(key.batch_size, key.gpu_model, key.gpu_count): profile for key, profile in profiles.items()}
        return cls(spec, tries, by_place, gpus, found)

    def profile(self, label: str, batch_size: int) -> PowerProfile | None:
        gpus = self.gpus[label]
        return self.profiles.get((batch_size, gpus.kind, gpus.count))

    def place_now(self, label: str) -> Place:
        """These GPUs with the highest power limit that is allowed on them now."""
        return Place(label, self._allowed(self.found.get(label)))

    def _allowed(self, found: float | None) -> float | None:
        return None if found is None else max((w for w in self.spec.power_limits if w <= found), default=found)

    def recurrence(self, number: int, tries: Sequence[TrialRecord]) -> Recurrence:
        spec, tally, silent = self.spec, Tally(), 0
        for record in tries:
            tally = tally.add(record.latest_outcome, spec.eta_knob, record.trial.ask.max_watts)
            silent += record.trial.ending is Ending.OPEN and (
                record.latest_outcome is None or record.latest_outcome.joules is None
            )
        reached = [record for record in tries if record.trial.ending is Ending.CONVERGED]
        last = (reached or tries)[-1]
        label, found = (
            last.trial.ask.gpu_model,
            None if last.latest_outcome is None else last.latest_outcome.found_watts,
        )
        return Recurrence(
            number=number,
            end=RecurrenceEnd.CONVERGED if reached else _unreached(tries),
            tries=len(tries),
            batch_size=last.trial.batch_size,
            epochs=0 if last.latest_outcome is None else last.latest_outcome.epochs,
            gpu_model=label,
            # Machines differ, and owners change limits: the highest limit is that of the time.
            top_watts=self.place_now(label).top if found is None else self._allowed(found),
            use=tally.total,
            known_joules=tally.known_joules,
            unknown_tries=tally.unknown - silent,
            current=all(
                record.trial.ask.is_for(spec) and record.trial.ask.gpus.include == spec.include for record in tries
            ),
            lost=all(record.trial.ending in _BY_ITSELF for record in tries)
            and all(record.latest_outcome is None or record.latest_outcome.metric is None for record in tries),
        )

    def why_no_default(self, label: str) -> str:
        size = self.spec.default_batch_size
        reached = [
            record.trial.ask.gpu_model
            for record in self.tries
            if record.trial.batch_size == size
            and record.trial.ending is Ending.CONVERGED
            and record.trial.ask.is_for(self.spec)
        ]
        if label in reached:
            return "the default batch size has reached the target, but the energy of its runs is not known"
        where = f" on {label}" if reached and label else ""
        return f"the default batch size has not reached the target{where} yet"

    def points(self, label: str, model: DefaultModel | None) -> tuple[ParetoPoint, ...]:
        if label not in self.gpus:
            return ()
        profiles = {size: self.profile(label, size) for size in self.spec.batch_sizes}
        return points(self.spec, self.tries, self.place_now(label), profiles, model)


def _unreached(tries: Sequence[TrialRecord]) -> RecurrenceEnd:
    if any(record.trial.ending is Ending.OPEN for record in tries):
        return RecurrenceEnd.OPEN
    return RecurrenceEnd.FAILED if any(record.trial.ask.last for record in tries) else RecurrenceEnd.UNFINISHED
