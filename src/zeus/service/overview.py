"""Many jobs at a glance: a brief of each, kept until its job changes, and their totals."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from zeus.client.folds import Folds
from zeus.client.report import brief_of, each_brief, unreadable
from zeus.errors import InputError, NotKnown, ZeusError
from zeus.job import Kept
from zeus.ledger.saving_text import saving_sentence
from zeus.store import Store
from zeus.tariff.rates import Footprint
from zeus.tariff.settings import prices

T = TypeVar("T")
Json = dict[str, Any]
log = logging.getLogger(__name__)

KEPT = 1_000  # briefs in memory, some kilobytes each; the store keeps all
SECONDS = 3.0  # for which one request computes briefs for the totals; the next request continues
MANY, REPEATS = 2_000, 20  # totals of more jobs are repeated for this many times as long as they took
REPORTED = ("number", "epochs", "metric", "joules")  # what an open trial's reports change in a brief


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """What was read from a brief, the pulse of its job, and what its open trials had reported.

    A report changes no pulse, so these trials are looked at again before the value is used.
    """

    stamp: str
    reports: tuple[tuple[Any, ...], ...]  # values of REPORTED
    value: T

    @classmethod
    def of(cls, stamp: str, brief: Json, value: T) -> Cached[T]:
        """The value, read from this brief."""
        return cls(stamp, tuple(tuple(row[name] for name in REPORTED) for row in brief["running"]), value)

    def is_fresh(self, store: Store, job_id: str, stamp: str) -> bool:
        """Whether the job has this pulse still, and its open trials have reported nothing new."""
        if self.stamp != stamp or not self.reports:
            return self.stamp == stamp
        try:
            return self.reports == tuple(_reported(kept) for kept in store.trials(job_id, running=True))
        except NotKnown:  # it was removed or reset meanwhile
            return False


def _reported(kept: Kept) -> tuple[Any, ...]:
    told = kept.told
    return (kept.trial.number, *(None if told is None else getattr(told, name) for name in REPORTED[1:]))


@dataclass(frozen=True, slots=True)
class Addend:
    """What a job adds to the totals: a small part of its brief."""

    job: str
    trials: int
    recurrences: int
    joules: float | None
    cost: float
    endings: tuple[tuple[str, int], ...]
    saving: tuple[Any, ...] | None  # values of SAVED
    footprint: Footprint | None

    @classmethod
    def of(cls, brief: Json) -> Addend:
        """The addend of a brief."""
        saving, footprint = brief["saving"], brief["footprint"]
        return cls(
            brief["job"],
            brief["trials"] or 0,
            brief["recurrences"] or 0,
            brief["joules"],
            sum(filter(None, brief["costs"])),
            tuple(brief["endings"].items()),
            None if saving is None else tuple(saving[name] for name in SAVED),
            None if footprint is None else Footprint.of_json(footprint),
        )


SAVED = (
    *("joules", "joules_error", "compared_joules", "seconds", "seconds_error", "compared_seconds"),
    *("money", "gco2e", "currency"),
)


@dataclass(frozen=True, slots=True)
class Addends:
    """The addends of all jobs, as far as they are known."""

    rows: list[Addend]
    jobs: int  # also those without a addend yet

    @property
    def totals(self) -> Json:
        """What all jobs together have used and saved."""
        return {**totals(self.rows), "jobs": self.jobs, "uncounted": self.jobs - len(self.rows)}


class Overview:
    """Briefs of jobs. A job is read again only after it has changed."""

    def __init__(self, store: Store, folds: Folds, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._folds, self._clock = store, folds, clock
        self._known: dict[str, Cached[Json]] = {}
        self._addends: dict[str, Cached[Addend]] = {}  # the one computed last is last
        self._lock, self._adding = threading.Lock(), threading.Lock()
        self._repeated: tuple[float, Addends] | None = None  # until when, and what

    def briefs(self, pulse: Mapping[str, str]) -> list[Json]:
        """The briefs of the jobs in `pulse`. A job that was removed meanwhile is left out."""
        with self._lock:
            cached = {name: self._known[name] for name in pulse if name in self._known}
        known = {name: one.value for name, one in cached.items() if one.is_fresh(self._store, name, pulse[name])}
        missing = {name: stamp for name, stamp in pulse.items() if name not in known}
        for name, brief in each_brief(self._store, missing, self._brief, prices()):
            known[name] = brief
            with self._lock:
                self._known[name] = Cached.of(missing[name], brief, brief)
                while len(self._known) > KEPT:
                    del self._known[next(iter(self._known))]
        return [known[name] for name in pulse if name in known]

    def each(self, pulse: Mapping[str, str]) -> Iterator[tuple[str, Json]]:
        """The briefs of the jobs in `pulse`, one after another. None is kept in memory."""
        return each_brief(self._store, pulse, self._brief, prices())

    def addends(self) -> Addends:
        """The addends of all jobs. If many are missing, some are computed now and the others by later calls."""
        with self._adding:  # several requests at once would all compute the same
            if self._repeated is not None and self._clock() < self._repeated[0]:
                return self._repeated[1]
            begun = self._clock()
            pulse = self._store.pulse()
            for name, brief in each_brief(self._store, self._outdated(pulse), self._brief, prices()):
                self._addends.pop(name, None)
                self._addends[name] = Cached.of(pulse[name], brief, Addend.of(brief))
                if self._clock() - begun > SECONDS:
                    break
            self._addends = {name: one for name, one in self._addends.items() if name in pulse}
            found = Addends([one.value for one in self._addends.values()], len(pulse))
            now = self._clock()
            repeats = REPEATS if len(found.rows) == found.jobs else 1  # incomplete totals are soon continued
            self._repeated = (now + repeats * (now - begun), found) if len(pulse) > MANY else None
            return found

    def _outdated(self, pulse: Mapping[str, str]) -> dict[str, str]:
        """The jobs to add, with their pulses: first those that never were, then those that were added longest ago."""
        new = {name: stamp for name, stamp in pulse.items() if name not in self._addends}
        changed = {
            name: pulse[name]
            for name, one in self._addends.items()
            if name in pulse and not one.is_fresh(self._store, name, pulse[name])
        }
        return new | changed

    def _brief(self, job_id: str) -> Json:
        try:
            return sound(job_id, lambda: brief_of(self._store, job_id, self._folds, prices()))
        except NotKnown:
            raise
        except InputError as wrong:
            return unreadable(job_id, wrong)


def sound(job_id: str, tell: Callable[[], T]) -> T:
    """What `tell` returns about a job, checked to be valid JSON.

    Raises:
        InputError: The job is damaged: `tell` failed, or returned a number that JSON cannot hold.
    """
    try:
        told = tell()
        json.dumps(told, allow_nan=False)
    except ZeusError:
        raise
    except Exception as wrong:
        log.warning("job %r is damaged", job_id, exc_info=True)
        raise InputError(f"job {job_id!r} is damaged: {wrong!r}. Import it again from an export.") from wrong
    return told


def totals(rows: Iterable[Addend]) -> Json:
    """The totals of some jobs. A job whose saving is not known does not count in `jobs_with_saving`.

    >>> totals([])["saved_share"] is None
    True
    """
    rows = list(rows)
    savings = [dict(zip(SAVED, row.saving, strict=True)) for row in rows if row.saving is not None]
    saved, default = (sum(one[name] for one in savings) for name in ("joules", "compared_joules"))
    used = [row.footprint for row in rows if row.footprint is not None]
    found = {
        "jobs": len(rows),
        "trials": sum(row.trials for row in rows),
        "recurrences": sum(row.recurrences for row in rows),
        "joules": sum(row.joules or 0.0 for row in rows),
        "jobs_with_saving": len(savings),
        "saved_joules": saved if savings else None,
        "saved_joules_error": math.hypot(*(one["joules_error"] for one in savings)) if savings else None,
        "saved_seconds": sum(one["seconds"] for one in savings) if savings else None,
        "saved_share": saved / default if default else None,
        "saved_sentence": _sentence(savings) if savings and default else None,
        **_worth(savings),
        "footprint": reduce(Footprint.__add__, used).to_json() if used else None,
    }
    return {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in found.items()}


def _sentence(savings: list[Json]) -> str:
    """What several jobs saved together, in words. Errors of different jobs are independent."""
    energy, time = (
        (sum(one[name] for one in savings), math.hypot(*(one[f"{name}_error"] for one in savings)))
        for name in ("joules", "seconds")
    )
    compared = [sum(one[f"compared_{name}"] for one in savings) for name in ("joules", "seconds")]
    return saving_sentence(energy, time, (compared[0], compared[1]))


def _worth(savings: list[Json]) -> Json:
    """The sums of money and carbon saved; None if a part is unknown, or if the money is in several currencies."""
    currencies = {one["currency"] for one in savings if one["money"] is not None}
    sums = {
        name: sum(one[name] for one in savings) if savings and all(one[name] is not None for one in savings) else None
        for name in ("money", "gco2e")
    }
    if len(currencies) > 1:
        sums["money"] = None
    return {**sums, "currency": currencies.pop() if len(currencies) == 1 else ""}
