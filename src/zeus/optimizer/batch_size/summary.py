"""What a recurring job has used and saved: its trials added up by recurrence, beside the default (b0, highest limit).

What is charged follows the accounting of the policies: a recurrence costs all of its tries together (Equation 2). A try
that was lost or crashed costs what it had reported; of any other, energy that is not known makes its recurrence's
energy not known. Not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from zeus.cost import CostModel
from zeus.job import Ending, JobSpec, Outcome, Profiled, Trial
from zeus.profile import PowerProfile
from zeus.store.api import Job, Kept

RECENT = 5  # recurrences that show what the job has come to


class End(StrEnum):
    """How a recurrence stands."""

    CONVERGED = "converged"
    OPEN = "open"  # a try of it is running
    FAILED = "failed"  # its tries are used up
    UNFINISHED = "unfinished"  # its next try was never asked for: somebody gave up


@dataclass(frozen=True, slots=True)
class Use:
    """Energy, time and cost of something, all of them known.

    >>> Use(3.0, 2.0, 1.0) + Use(1.0, 1.0, 1.0) - Use(2.0, 2.0, 2.0)
    Use(joules=2.0, seconds=1.0, cost=0.0)
    """

    joules: float = 0.0
    seconds: float = 0.0
    cost: float = 0.0  # Equation 2, in joules

    def __add__(self, other: Use) -> Use:
        return Use(self.joules + other.joules, self.seconds + other.seconds, self.cost + other.cost)

    def __sub__(self, other: Use) -> Use:
        return self + other.times(-1)

    def times(self, factor: float) -> Use:
        """So many of it."""
        return Use(self.joules * factor, self.seconds * factor, self.cost * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """All tries of one recurrence together."""

    number: int
    end: End
    tries: int
    batch_size: int  # of its last try, as are the next two
    epochs: int
    gpu_model: str
    use: Use | None  # None: not known
    known_joules: float | None  # what is known of its energy, be it all or not; None: nothing
    unknown_tries: int  # that are over, and whose energy nobody knows
    current: bool  # towards the target that the job has now


@dataclass(frozen=True, slots=True)
class Default:
    """What a run with the default batch size uses on a GPU model, expected over its runs.

    At the highest limit: the epochs it needed, times a profiled epoch, times what the profile says of that limit
    against the one the epoch ran at. Where no profile says it, `limit_watts` is None and the runs are taken as they
    ran, at the limit that Zeus chose, which makes the default look cheaper than it is.
    """

    batch_size: int
    limit_watts: float | None
    runs: int  # that reached the target
    epochs: float  # of them on average
    use: Use


@dataclass(frozen=True, slots=True)
class Saving:
    """Default minus used. Only recurrences that converged are worth a default run; what the others used is lost."""

    saved: Use
    default: Use  # what those that converged would have used
    recurrences: int

    @property
    def share(self) -> float:
        """Of the energy of the default."""
        return self.saved.joules / self.default.joules

    @property
    def time_share(self) -> float:
        """Of its time."""
        return self.saved.seconds / self.default.seconds


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job's recurrences, and the default on each GPU model where it is known."""

    recurrences: tuple[Recurrence, ...]
    defaults: Mapping[str, Default] = field(default_factory=dict)

    @property
    def joules(self) -> float | None:
        """All energy that is known, exploring and lost tries included; None where nothing has been reported."""
        heard = [one.known_joules for one in self.recurrences if one.known_joules is not None]
        return sum(heard) if heard else None

    @property
    def unknown_tries(self) -> int:
        """Tries that are over and whose energy nobody knows; it is not in `joules`."""
        return sum(one.unknown_tries for one in self.recurrences)

    @property
    def finished(self) -> tuple[Recurrence, ...]:
        """The recurrences towards the present target that are over."""
        return tuple(one for one in self.recurrences if one.current and one.end is not End.OPEN)

    @property
    def recent(self) -> tuple[Recurrence, ...]:
        """The last few that converged, and whose use is known, where the job last ran: what it has come to there."""
        finished = self.finished
        here = [one for one in finished if one.gpu_model == finished[-1].gpu_model]
        sound = [one for one in here if one.end is End.CONVERGED and one.use is not None]
        return tuple(sound[-RECENT:])

    def default_of(self, recurrence: Recurrence) -> Default | None:
        """The default where this recurrence ran."""
        return self.defaults.get(recurrence.gpu_model)

    def saving(self, recurrences: Iterable[Recurrence] | None = None) -> Saving | None:
        """What these saved against the default, or all finished ones; None where there is nothing to compare."""
        spent, default, count = Use(), Use(), 0
        for one in self.finished if recurrences is None else recurrences:
            usual = self.default_of(one)
            if usual is not None and one.use is not None:
                spent, count = spent + one.use, count + 1
                default += usual.use if one.end is End.CONVERGED else Use()
        return Saving(default - spent, default, count) if default.joules > 0 else None


def summarise(
    job: Job,
    trials: Sequence[Kept],
    epochs: Iterable[Profiled] = (),
    profiles: Mapping[str, PowerProfile] | None = None,
) -> JobSummary:
    """Add a job's trials up.

    Args:
        job: As registered.
        trials: All of them.
        epochs: What is known of an epoch of each size; the last of a size and GPU model counts.
        profiles: The power profile of the default batch size on each GPU model.
    """
    ordered = sorted(trials, key=lambda kept: (kept.trial.ask.recurrence, kept.trial.number))
    rows = [
        _recurrence(job, number, list(tries))
        for number, tries in groupby(ordered, key=lambda kept: kept.trial.ask.recurrence)
    ]
    runs = [kept for kept in ordered if _is_default_run(job, kept.trial)]
    latest = {one.gpu_model: one for one in epochs if one.batch_size == job.spec.default_batch_size}
    models = {kept.trial.ask.gpu_model for kept in trials}
    found = {model: _default(job.spec, model, runs, latest.get(model), (profiles or {}).get(model)) for model in models}
    return JobSummary(tuple(rows), {model: one for model, one in sorted(found.items()) if one is not None})


def _is_default_run(job: Job, trial: Trial) -> bool:
    is_default = trial.batch_size == job.spec.default_batch_size
    return is_default and trial.ending is Ending.CONVERGED and trial.asked > job.since


def said(kept: Kept) -> Outcome | None:
    """What a trial told of itself at its end, or last."""
    return kept.trial.outcome or kept.so_far


def use_of(spec: JobSpec, kept: Kept) -> Use | None:
    """What one try alone used; None where its energy is not known."""
    told = said(kept)
    if told is None or told.joules is None:
        return None
    return _charged(spec, kept.trial.ask.max_watts, told.joules, told.seconds)


def _charged(spec: JobSpec, max_watts: float, joules: float, seconds: float) -> Use:
    return Use(joules, seconds, CostModel(spec.eta_knob, max_watts).cost(joules, seconds))


def _recurrence(job: Job, number: int, tries: Sequence[Kept]) -> Recurrence:
    uses = {kept.trial.number: use_of(job.spec, kept) for kept in tries}
    heard = [use for use in uses.values() if use is not None]
    unknown = [kept.trial.ending for kept in tries if uses[kept.trial.number] is None]
    known = bool(heard) and all(ending in (Ending.LOST, Ending.CRASHED) for ending in unknown)
    total = sum(heard, Use())
    reached = [kept for kept in tries if kept.trial.ending is Ending.CONVERGED]
    last = (reached or tries)[-1]
    told = said(last)
    return Recurrence(
        number=number,
        end=End.CONVERGED if reached else _unreached(tries),
        tries=len(tries),
        batch_size=last.trial.batch_size,
        epochs=0 if told is None else told.epochs,
        gpu_model=last.trial.ask.gpu_model,
        use=total if known else None,
        known_joules=total.joules if heard else None,
        unknown_tries=sum(ending is not Ending.OPEN for ending in unknown),
        current=all(kept.trial.asked > job.since for kept in tries),
    )


def _unreached(tries: Sequence[Kept]) -> End:
    if any(kept.trial.ending is Ending.OPEN for kept in tries):
        return End.OPEN
    return End.FAILED if any(kept.trial.ask.last for kept in tries) else End.UNFINISHED


def _default(
    spec: JobSpec, model: str, runs: Sequence[Kept], epoch: Profiled | None, profile: PowerProfile | None
) -> Default | None:
    lengths = [told.epochs for kept in runs if (told := kept.trial.outcome) is not None]
    if not lengths:
        return None
    epochs = sum(lengths) / len(lengths)
    here = [use for kept in runs if kept.trial.ask.gpu_model == model and (use := use_of(spec, kept)) is not None]
    known = {} if epoch is None or profile is None else epoch_at_limits(spec, epoch, profile)
    top = None if profile is None else max(profile.limits, default=None)
    if epoch is not None and top is not None and top in known:
        beside = _set_up(spec, epoch.max_watts, [kept for kept in runs if kept.trial.ask.gpu_model == model], known)
        return Default(spec.default_batch_size, top, len(lengths), epochs, known[top].times(epochs) + beside)
    if not here:
        return None
    return Default(spec.default_batch_size, None, len(here), epochs, sum(here, Use()).times(1 / len(here)))


def _set_up(spec: JobSpec, max_watts: float, runs: Sequence[Kept], epoch: Mapping[float, Use]) -> Use:
    """What each of these runs used beside its epochs, set-up above all, which a run with the defaults would use too.

    Which limits their epochs ran at is not known, so that each is taken to have been the dearest: at least so much.
    """
    told = [one for kept in runs if (one := kept.trial.outcome) is not None and one.joules is not None]
    if not told:
        return Use()
    most, longest = max(use.joules for use in epoch.values()), max(use.seconds for use in epoch.values())
    joules = min(max(0.0, (one.joules or 0.0) - one.epochs * most) for one in told)
    seconds = min(max(0.0, one.seconds - one.epochs * longest) for one in told)
    return _charged(spec, max_watts, joules, seconds)


def epoch_at_limits(spec: JobSpec, epoch: Profiled, profile: PowerProfile) -> dict[float, Use]:
    """What an epoch uses at each limit that was measured, evaluation being taken to scale with the training steps.

    An epoch does not say which limit it ran at: the best one, or where Zeus may only observe the one it found, which
    is taken to be the highest. Its power does.
    """
    if not profile.slices:
        return {}
    high, best = profile.slices[0], profile.at(profile.best_limit(CostModel(spec.eta_knob, epoch.max_watts)))
    watts = epoch.joules / epoch.seconds
    ran = best if abs(best.watts - watts) < abs(high.watts - watts) else high
    if not ran.joules:
        return {}
    joules, seconds = epoch.joules * ran.steps / ran.joules, epoch.seconds * ran.steps / ran.seconds
    return {
        one.limit_watts: _charged(
            spec, epoch.max_watts, joules * one.joules / one.steps, seconds * one.seconds / one.steps
        )
        for one in profile.slices
    }
