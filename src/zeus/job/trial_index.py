"""A job's trials, indexed by GPUs and batch size for the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zeus.cost import ZERO, Use
from zeus.job.conversion import Book, convert
from zeus.job.defaults import DefaultRun, Defaults
from zeus.job.growth import Level, levels
from zeus.job.spec import JobSpec
from zeus.job.trial import Ending, Gpus, Kept, Outcome
from zeus.job.units import Units
from zeus.profile import PowerProfile, ProfileKey

_Place = tuple[str, int]  # label of the GPUs, batch size


@dataclass(frozen=True, slots=True)
class TrialIndex:
    """All trials of a job, by recurrence, and by GPUs and batch size."""

    spec: JobSpec
    tries: tuple[Kept, ...]  # by recurrence, then by number
    profiles: Mapping[tuple[int, str, int], PowerProfile]  # by batch size, GPU model and number of GPUs
    _places: Mapping[_Place, Sequence[Kept]]  # in the order in which they were asked for
    _gpus: Mapping[str, Gpus]  # by label, from the newest trial
    _found: Mapping[str, float]  # by label: the power limit before Zeus changed it, from the newest trial
    _levels: Mapping[int, Level]
    _books: dict[_Place, Book] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, spec: JobSpec, kepts: Iterable[Kept], profiles: Mapping[ProfileKey, PowerProfile]) -> TrialIndex:
        tries = tuple(sorted(kepts, key=lambda kept: (kept.trial.ask.recurrence, kept.trial.number)))
        places: dict[_Place, list[Kept]] = {}
        gpus: dict[str, Gpus] = {}
        found: dict[str, float] = {}
        for kept in sorted(tries, key=lambda kept: kept.trial.asked):
            ask, label = kept.trial.ask, kept.trial.ask.gpu_model
            places.setdefault((label, kept.trial.batch_size), []).append(kept)
            gpus[label] = ask.gpus
            if kept.told is not None and kept.told.found_watts is not None:
                found[label] = kept.told.found_watts
        by_place = {(key.batch_size, key.gpu_model, key.gpu_count): profile for key, profile in profiles.items()}
        return cls(spec, tries, by_place, places, gpus, found, levels(tries))

    def level(self, recurrence: int) -> Level:
        """How much the data had grown by this recurrence."""
        return self._levels.get(recurrence, Level())

    @property
    def today(self) -> Level:
        """How much the data have grown by the last recurrence."""
        return self.level(self.tries[-1].trial.ask.recurrence) if self.tries else Level()

    def top(self, label: str) -> float | None:
        """The highest power limit allowed on these GPUs now, in watts; None if unknown."""
        return self._allowed(self._found.get(label))

    def top_of(self, kept: Kept) -> float | None:
        """The highest power limit that was allowed when this trial ran. Machines differ, and owners change limits."""
        found = None if kept.told is None else kept.told.found_watts
        return self.top(kept.trial.ask.gpu_model) if found is None else self._allowed(found)

    def _allowed(self, found: float | None) -> float | None:
        return None if found is None else max((w for w in self.spec.power_limits if w <= found), default=found)

    def at(self, label: str, batch_size: int) -> Sequence[Kept]:
        """The trials of this size on these GPUs, in the order in which they were asked for."""
        return self._places.get((label, batch_size), ())

    def book(self, label: str, batch_size: int) -> Book:
        """What is known about this size on these GPUs, with today's data."""
        place = (label, batch_size)
        if place not in self._books:
            kepts = [kept for kept in self.at(*place) if kept.told is not None and kept.told.stretches]
            stretches = [kept.told.stretches for kept in kepts if kept.told is not None]
            growth = [self.today.use / self.level(kept.trial.ask.recurrence).use for kept in kepts]
            self._books[place] = Book(Units.of(stretches, growth), self._profile(*place))
        return self._books[place]

    def is_towards(self, kept: Kept) -> bool:
        """Whether it reached the job's current target."""
        return kept.trial.ending is Ending.CONVERGED and kept.trial.ask.is_for(self.spec)

    def epochs(self) -> dict[int, list[int]]:
        """How many epochs the runs of each batch size needed for the current target, on any GPUs."""
        lengths: dict[int, list[int]] = {}
        for kept in self.tries:
            if self.is_towards(kept) and kept.told is not None:
                lengths.setdefault(kept.trial.batch_size, []).append(kept.told.epochs)
        return lengths

    def why_no_default(self, label: str) -> str | None:
        """Why the default on these GPUs is not known; None if it is."""
        if self._default_runs(label, None):
            return None
        size = self.spec.default_batch_size
        reached = [kept for kept in self.tries if kept.trial.batch_size == size and self.is_towards(kept)]
        if any(kept.trial.ask.gpu_model == label for kept in reached):
            return "the default batch size has reached the target, but the energy of its runs is not known"
        where = f" on {label}" if reached and label else ""
        return f"the default batch size has not reached the target{where} yet"

    def defaults(self) -> dict[str, dict[float | None, Defaults]]:
        """The default at each highest limit that was allowed, on each set of GPUs where the default size converged.

        The limit that is allowed now comes last.
        """
        lengths, found = self.epochs(), dict[str, dict[float | None, Defaults]]()
        for label, gpus in sorted(self._gpus.items()):
            book, warm_ups = self.book(label, self.spec.default_batch_size), self._warm_ups(label)
            tops = {self.top_of(kept) for kept in self.tries if kept.trial.ask.gpu_model == label}
            for top in (*(tops - {self.top(label)}), self.top(label)):
                if runs := self._default_runs(label, top):
                    found.setdefault(label, {})[top] = Defaults.of(
                        self.spec, gpus.max_watts, top, runs, self.today, lengths, warm_ups, book
                    )
        return found

    def _warm_ups(self, label: str) -> list[Use]:
        """What the first epoch of each trial on these GPUs used beyond a later one at the same power limit."""
        told = (kept.told for (place, _), some in self._places.items() if place == label for kept in some)
        return [one for outcome in told if outcome is not None and (one := _warm_up(outcome)) is not None]

    def _default_runs(self, label: str, top: float | None) -> list[DefaultRun]:
        """The converged runs of the default size, converted to this limit."""
        size = self.spec.default_batch_size
        book, today, runs = self.book(label, size), self.today.use, []
        for kept in self.at(label, size):
            told = kept.told
            if not self.is_towards(kept) or told is None or told.joules is None:
                continue
            level = self.level(kept.trial.ask.recurrence)
            converted = None if top is None else convert(told, top, book, level.use / today)
            used = Use(told.joules, told.seconds)
            ask = kept.trial.ask
            runs.append(DefaultRun(ask.recurrence, told.epochs, used, ask.max_watts, level, converted))
        return runs

    def _profile(self, label: str, batch_size: int) -> PowerProfile | None:
        gpus = self._gpus.get(label)
        return None if gpus is None else self.profiles.get((batch_size, gpus.kind, gpus.count))


def _warm_up(told: Outcome) -> Use | None:
    """What the first epoch used beyond the mean of later ones at its limit; None if there are none."""
    known = [point for point in told.curve if point.joules is not None and point.limit_watts is not None]
    later = [point for point in known[1:] if point.limit_watts == known[0].limit_watts]
    if not later or known[0] is not told.curve[0]:
        return None
    each = sum((Use(point.joules or 0.0, point.seconds) for point in later), ZERO).times(1 / len(later))
    return Use(known[0].joules or 0.0, known[0].seconds) - each
