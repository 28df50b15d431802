"""What a recurring job has used and saved, by recurrence, compared with the default of its time.

A recurrence costs the sum of all its trials (Equation 2), under the η that the job has now; the policies count the
same way. Unknown is None, never 0. Every number about a job that Zeus shows comes from this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from itertools import groupby

from zeus.cost import Use
from zeus.job.charge import Spent, Tally, overshoot, spent
from zeus.job.defaults import Basis, Default, Defaults, weakest
from zeus.job.pareto import ParetoPoint, points
from zeus.job.spec import JobSpec
from zeus.job.trial import Ending, Kept
from zeus.job.trial_index import TrialIndex
from zeus.job.units import Units
from zeus.profile import PowerProfile, ProfileKey

__all__ = [
    "Basis",
    "Default",
    "JobLedger",
    "ParetoPoint",
    "Recurrence",
    "RecurrenceEnd",
    "Saving",
    "Spent",
    "Tally",
    "open_ledger",
    "overshoot",
    "spent",
    "totals",
]

RECENT = 5  # the last recurrences, which show how the job runs now
SEEN = 2.0  # standard errors above which a difference is real


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


@dataclass(frozen=True, slots=True)
class Saving:
    """The default's use minus the use of some recurrences.

    Only a recurrence that converged counts as a default run. What the others used is a loss.

    >>> one = Saving(Spent(50, 0, 25), Spent(100, 10, 500), 1, Basis.MEASURED, 3.0, 0.0)
    >>> other = Saving(Spent(0, 0, 0), Spent(100, 10, 500), 1, Basis.ESTIMATED, 4.0, 1.0)
    >>> (one + other).share, (one + other).joules_error, one.difference_seen, other.difference_seen
    (0.25, 5.0, True, False)
    """

    saved: Spent
    default: Spent  # what the converged recurrences would have used
    recurrences: int
    basis: Basis  # the weakest of its parts
    joules_error: float  # standard errors of `saved`
    seconds_error: float

    def __add__(self, other: Saving) -> Saving:
        return Saving(
            self.saved + other.saved,
            self.default + other.default,
            self.recurrences + other.recurrences,
            weakest((self.basis, other.basis)),
            math.hypot(self.joules_error, other.joules_error),
            math.hypot(self.seconds_error, other.seconds_error),
        )

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
    def difference_seen(self) -> bool:
        """Whether energy or time differs from the default's by two standard errors or more."""
        pairs = ((self.saved.joules, self.joules_error), (self.saved.seconds, self.seconds_error))
        return any(saved and abs(saved) >= SEEN * error for saved, error in pairs)


@dataclass(frozen=True, slots=True)
class JobLedger:
    """A job's recurrences, and the default for today's data on each set of GPUs where it is known."""

    recurrences: tuple[Recurrence, ...]
    defaults: Mapping[str, Default]
    past: TrialIndex = field(compare=False, repr=False)
    # By GPUs and by the highest limit that was allowed on them; the one that is allowed now comes last.
    _over_time: Mapping[str, dict[float | None, Defaults]] = field(compare=False, repr=False)

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
        return tuple(one for one in self.recurrences if one.current and one.end is not RecurrenceEnd.OPEN)

    @property
    def recent(self) -> tuple[Recurrence, ...]:
        """The last few recurrences that converged with known use, on the GPUs where the job last ran."""
        finished = self.finished
        here = [one for one in finished if one.gpu_model == finished[-1].gpu_model]
        sound = [one for one in here if one.end is RecurrenceEnd.CONVERGED and one.use is not None]
        return tuple(sound[-RECENT:])

    def default_of(self, recurrence: Recurrence) -> Default | None:
        """The default for the GPUs, their highest limit and the data of this recurrence; None if unknown.

        A recurrence that converged with the default batch size is its own default.
        """
        tops = self._over_time.get(recurrence.gpu_model)
        if not tops:
            return None
        here = tops.get(recurrence.top_watts) or next(reversed(tops.values()))
        return here.compared(recurrence.number, self.past.level(recurrence.number))

    def why_no_default(self, gpu_model: str) -> str | None:
        """Why the default on these GPUs is not known; None if it is."""
        return self.past.why_no_default(gpu_model)

    def saving(self, recurrences: Iterable[Recurrence] | None = None) -> Saving | None:
        """What these recurrences, or all finished ones, saved against the default; None if there is no default.

        Errors of recurrences with the same default add up, because each comparison is off by the same amount.
        """
        used, default, count, bases = Spent(), Spent(), 0, set[Basis]()
        errors: dict[str, tuple[Use, Use]] = {}
        for one in self.finished if recurrences is None else recurrences:
            usual = self.default_of(one)
            if usual is None or one.use is None:
                continue
            used, count = used + one.use, count + 1
            if one.end is RecurrenceEnd.CONVERGED:
                default += usual.use
                bases.add(usual.basis)
                scatter, conversion = errors.get(one.gpu_model, (Use(), Use()))
                errors[one.gpu_model] = (scatter + usual.scatter, conversion + usual.conversion)
        if not default.joules > 0:
            return None
        error = reduce(Use.hypot, (part for parts in errors.values() for part in parts))
        return Saving(default - used, default, count, weakest(bases), error.joules, error.seconds)

    def against(self, other: JobLedger) -> JobLedger:
        """This ledger, compared with the default that another job measured."""
        over_time = {
            label: {top: replace(some, own={}) for top, some in tops.items()}
            for label, tops in other._over_time.items()
        }
        return replace(self, defaults=other.defaults, _over_time=over_time)

    def units(self, batch_size: int, gpu_model: str) -> Units:
        """What a unit of this batch size uses at each power limit on these GPUs, with today's data."""
        return self.past.book(gpu_model, batch_size).units

    def top(self, gpu_model: str) -> float | None:
        """The highest power limit allowed on these GPUs, in watts; None if unknown."""
        return self.past.top(gpu_model)

    def points(self, gpu_model: str) -> tuple[ParetoPoint, ...]:
        """Time and energy of a run at each batch size and power limit that is known on these GPUs."""
        return points(self.past, gpu_model)


def open_ledger(
    spec: JobSpec,
    kepts: Iterable[Kept],
    profiles: Mapping[ProfileKey, PowerProfile] | None = None,
) -> JobLedger:
    """Add up a job's trials.

    Args:
        spec: The job as it is now.
        kepts: All of its trials, in any order. Trials for another target, or with another `include`, count only as
            used energy.
        profiles: Its power profiles.
    """
    past = TrialIndex.of(spec, kepts, profiles or {})
    rows = tuple(
        _recurrence(past, number, list(tries))
        for number, tries in groupby(past.tries, key=lambda kept: kept.trial.ask.recurrence)
    )
    over_time = past.defaults()
    now = {label: next(reversed(tops.values())).at(past.today) for label, tops in over_time.items()}
    return JobLedger(rows, now, past, over_time)


def totals(ledgers: Iterable[JobLedger]) -> Saving | None:
    """The sum of what several jobs saved; None if no job has a default to compare with."""
    known = [saving for ledger in ledgers if (saving := ledger.saving()) is not None]
    return reduce(Saving.__add__, known) if known else None


def _recurrence(past: TrialIndex, number: int, tries: Sequence[Kept]) -> Recurrence:
    spec, tally, silent = past.spec, Tally(), 0
    for kept in tries:
        tally = tally.add(kept.told, spec.eta_knob, kept.trial.ask.max_watts)
        silent += kept.trial.ending is Ending.OPEN and (kept.told is None or kept.told.joules is None)
    reached = [kept for kept in tries if kept.trial.ending is Ending.CONVERGED]
    last = (reached or tries)[-1]
    return Recurrence(
        number=number,
        end=RecurrenceEnd.CONVERGED if reached else _unreached(tries),
        tries=len(tries),
        batch_size=last.trial.batch_size,
        epochs=0 if last.told is None else last.told.epochs,
        gpu_model=last.trial.ask.gpu_model,
        top_watts=past.top_of(last),
        use=tally.total,
        known_joules=tally.known_joules,
        unknown_tries=tally.unknown - silent,
        current=all(kept.trial.ask.is_for(spec) and kept.trial.ask.gpus.include == spec.include for kept in tries),
    )


def _unreached(tries: Sequence[Kept]) -> RecurrenceEnd:
    if any(kept.trial.ending is Ending.OPEN for kept in tries):
        return RecurrenceEnd.OPEN
    return RecurrenceEnd.FAILED if any(kept.trial.ask.last for kept in tries) else RecurrenceEnd.UNFINISHED
