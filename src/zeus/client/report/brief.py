"""A job as one row in a list of jobs, and its part in the totals of all jobs.

    trials that ended ──▶ Digest, which the store keeps ──▶ brief, part in the totals
                              trials that run, rates of the reader ──┘

A digest takes long to compute, because it needs all trials of its job. What changes without a fact is left out of it,
and added when it is read: what running trials have reported, and what energy costs.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from zeus.client.policy_states import PolicyStateCache
from zeus.client.report.energy import Energy, Hours, energy_of, footprint, is_flat, without_hours
from zeus.client.report.job_report import JobReport, report
from zeus.client.report.json import (
    default_json,
    footprint_json,
    origin_json,
    priced_saving,
    recurrence_json,
    saving_json,
    watts_of,
)
from zeus.client.report.standing import UNREADABLE, is_loss, standing, state_of, why_failing
from zeus.client.report.weeks import JobWeeks, cells_of
from zeus.errors import InputError, NotKnown, StoreError, ZeusError
from zeus.job import Ending, TrialRecord, replace
from zeus.ledger.charge import Spent
from zeus.ledger.ledger import JobLedger, Recurrence
from zeus.store.api import Digest, Store
from zeus.tariff.rates import Prices

log = logging.getLogger(__name__)

Json = dict[str, Any]
LISTED = ("owner", "gpu_model", "last_run_at", "failures", "failing")
NO_PRICES = Prices()  # of a reader who gives no rates


class SavingSums(msgspec.Struct, frozen=True, array_like=True):
    """The saving of a job, as far as it can be added to that of others."""

    joules: float
    joules_error: float
    compared_joules: float
    seconds: float
    seconds_error: float
    compared_seconds: float


class Listing(msgspec.Struct, frozen=True, array_like=True):
    """What lists are filtered and sorted by, beside the totals."""

    owner: str = ""
    gpu_model: str | None = None
    last_run_at: str | None = None
    failures: int = 0
    failing: bool = False
    running: int = 0  # trials; not stored


class JobTotals(msgspec.Struct, frozen=True, array_like=True):
    """What a job adds to the totals."""

    trials: int
    recurrences: int
    joules: float | None
    cost: float
    endings: dict[str, int]
    saving: SavingSums | None
    used: Energy = ()  # of all trials
    compared: Energy = ()  # of the recurrences of its saving
    listing: Listing = Listing()

    def with_running(self, running: Iterable[TrialRecord]) -> JobTotals:
        """Also with what trials that run have reported."""
        running = list(running)
        return replace(
            self,
            joules=_joules(self.joules, running),
            used=(*self.used, *energy_of(running)),
            listing=replace(self.listing, running=len(running)),
        )


class _Row(msgspec.Struct, array_like=True):
    """A brief without running trials and rates, and the energy of the recurrences that it prices."""

    brief: Json
    last: msgspec.Raw  # this and the next are read only for a reader who gives rates
    recent: msgspec.Raw


class _Hours(msgspec.Struct, array_like=True):
    """The hours of each part of the energies above, which only rates that differ by the hour need."""

    used: list[Hours]
    compared: list[Hours]
    last: list[Hours]
    recent: list[Hours]


class JobDigest(NamedTuple):
    """What the store keeps of a job for lists and totals."""

    totals: JobTotals  # this and the next three: from the trials that ended
    brief: Json
    last: Energy
    recent: Energy
    running: Sequence[TrialRecord] = ()  # not stored
    weeks: JobWeeks = JobWeeks()  # empty: not read

    @classmethod
    def of(cls, report: JobReport, *, weeks: bool = True) -> JobDigest:
        """The digest of a job, from its trials that ended. Without `weeks`, this part is not computed."""
        ledger, following = report.settled, report.following
        running, ended = list[TrialRecord](), list[TrialRecord]()
        for kept in report.trials:
            (running if kept.trial.ending is Ending.OPEN else ended).append(kept)
        finished, recent = ledger.finished, ledger.recent
        last = finished[-1] if finished else None
        default = None if last is None else ledger.defaults.get(last.gpu_model)
        energies = [_compared(ledger, finished, ended), _compared(ledger, recent, ended), _of([last], ended)]
        compared, lately, at_last = energies
        saving = saving_json(ledger.saving(), footprint(compared, NO_PRICES))
        used, costs = energy_of(ended), [None if one.use is None else one.use.cost for one in finished]
        endings = dict(sorted(Counter(kept.trial.ending.value for kept in report.trials).items()))
        brief: Json = {
            "job": report.job.id,
            "policy": report.job.spec.policy,
            "phase": report.phase,
            "recurrences": len(ledger.recurrences),
            "trials": len(report.trials),
            "batch_size": None if following is None else following.batch_size,
            "running": [],
            "last": None if last is None else recurrence_json(ledger, last, footprint(at_last, NO_PRICES)),
            "recent": _recent(recent),
            "default": default_json(default),
            "default_why_not": None if default is not None else ledger.why_no_default(last.gpu_model if last else ""),
            "saving": saving,
            "recent_saving": saving_json(ledger.saving(recent), footprint(lately, NO_PRICES)),
            "surer": ledger.surer(),
            "lost": _lost(ledger.lost),
            "joules": ledger.joules,
            "footprint": footprint_json(footprint(used, NO_PRICES)),
            "unknown_tries": ledger.unknown_tries,
            "endings": endings,
            "costs": costs,
            "changed_at": max((kept.changed_at for kept in report.trials), default=report.job.at),
            "remark": report.stuck,
            "max_epochs": report.job.spec.max_epochs,
        }
        brief |= standing(report, brief)
        sums = None if saving is None else SavingSums(**{name: saving[name] for name in SavingSums.__struct_fields__})
        totals = JobTotals(
            len(report.trials),
            len(ledger.recurrences),
            ledger.joules,
            sum(filter(None, costs)),
            endings,
            sums,
            used,
            compared,
            Listing(*(brief[name] for name in LISTED)),
        )
        by_week = _weeks(report, brief, ended) if weeks else JobWeeks()
        return cls(totals, brief, at_last, lately, running, by_week)

    def shown(self, prices: Prices) -> Json:
        """The brief, with what running trials have reported, for a reader who pays these prices."""
        row, running = dict(self.brief), self.running
        if prices.is_given or running:
            energy = (*self.totals.used, *energy_of(running))
            row["footprint"] = footprint_json(footprint(energy, prices))
        if prices.is_given:
            if row["last"] is not None:
                row["last"] = {**row["last"], "footprint": footprint_json(footprint(self.last, prices))}
            for name, paid in (("saving", self.totals.compared), ("recent_saving", self.recent)):
                if row[name] is not None:
                    row[name] = priced_saving(row[name], footprint(paid, prices))
        if running:
            row["running"] = [{**_running(kept), "max_epochs": row["max_epochs"]} for kept in running]
            row["joules"] = _joules(row["joules"], running)
        row["state"] = state_of(row)
        return row

    def to_store(self, stamp: str) -> Digest:
        """This digest as the store keeps it."""
        totals = self.totals
        energies = [totals.used, totals.compared, self.last, self.recent]
        hours = _Hours(*([part.hours for part in energy] for energy in energies))
        used, compared, last, recent = map(without_hours, energies)
        row = (self.brief, last, recent)
        texts = (replace(totals, used=used, compared=compared), row, hours, self.weeks)
        return Digest(stamp, *(msgspec.json.encode(one).decode() for one in texts))


_totals = msgspec.json.Decoder(JobTotals)
_row = msgspec.json.Decoder(_Row)
_hours = msgspec.json.Decoder(_Hours)
_energy = msgspec.json.Decoder(Energy)
_decode_weeks = msgspec.json.Decoder(JobWeeks).decode


def totals_from_store(kept: Digest, prices: Prices) -> JobTotals:
    """What a job adds to the totals, without its running trials."""
    totals = _totals.decode(kept.totals)
    if is_flat(prices):
        return totals
    hours = _hours.decode(kept.hours)
    used, compared = _with_hours(totals.used, hours.used), _with_hours(totals.compared, hours.compared)
    return replace(totals, used=used, compared=compared)


def brief_from_store(kept: Digest, running: Sequence[TrialRecord], prices: Prices) -> Json:
    """The brief of a job for a reader who pays these prices."""
    row = _row.decode(kept.brief)
    if not running and not prices.is_given:
        return {**row.brief, "state": state_of(row.brief)}
    last, recent = _energy.decode(row.last), _energy.decode(row.recent)
    if not is_flat(prices):
        hours = _hours.decode(kept.hours)
        last, recent = _with_hours(last, hours.last), _with_hours(recent, hours.recent)
    return JobDigest(totals_from_store(kept, prices), row.brief, last, recent, running).shown(prices)


def weeks_from_store(kept: Digest) -> JobWeeks:
    """What a job used and saved by week."""
    return _decode_weeks(kept.weeks)


def _weeks(report: JobReport, brief: Json, ended: list[TrialRecord]) -> JobWeeks:
    saving = brief["saving"]
    losing = saving is not None and is_loss(saving["joules"], saving["joules_error"], saving["compared_joules"])
    return JobWeeks(
        brief["owner"],
        brief["last_run_at"],
        saving["sentence"] if saving is not None and losing else "",
        why_failing(brief) if brief["failing"] else "",
        cells_of(report.settled, ended),
    )


def brief(report: JobReport, prices: Prices = NO_PRICES) -> Json:
    """A job as one row in a list of jobs."""
    return JobDigest.of(report, weeks=False).shown(prices)


def digest_of(store: Store, job_id: str, states: PolicyStateCache | None = None) -> JobDigest:
    """The digest of a job in this store. A job that cannot be read gets one that says why.

    Raises:
        NotKnown: There is no such job.
        StoreError: The store did not answer.
    """
    try:
        found = JobDigest.of(report(store, job_id, states))
        json.dumps(found.brief, allow_nan=False)
        return found
    except (NotKnown, StoreError):
        raise
    except Exception as wrong:  # damaged facts can break anything; the other jobs must still be listed
        if not isinstance(wrong, InputError):
            log.warning("job %r cannot be read", job_id, exc_info=True)
        return JobDigest(JobTotals(0, 0, None, 0.0, {}, None), unreadable(job_id, wrong), (), ())


def unreadable(job_id: str, wrong: Exception) -> Json:
    """The brief of a job that another version of Zeus wrote, or whose facts are damaged."""
    names = ("policy", "recurrences", "trials", "batch_size", "last", "recent", "default", "saving")
    unknown = dict.fromkeys(
        (*names, "recent_saving", "surer", "lost", "joules", "footprint", "unknown_tries", "changed_at")
    )
    told = {"job": job_id, "phase": "unreadable", "endings": {}, "costs": [], "running": []}
    why = f"cannot be read: {wrong if isinstance(wrong, ZeusError) else repr(wrong)}"
    return {**unknown, **UNREADABLE, **told, "default_why_not": f"the job {why}", "remark": why}


def _compared(ledger: JobLedger, some: Iterable[Recurrence], trials: Iterable[TrialRecord]) -> Energy:
    """The energy of those of these recurrences that a saving is about."""
    return _of((one for one in some if one.use is not None and ledger.default_of(one) is not None), trials)


def _of(recurrences: Iterable[Recurrence | None], trials: Iterable[TrialRecord]) -> Energy:
    numbers = {one.number for one in recurrences if one is not None}
    return energy_of(kept for kept in trials if kept.trial.ask.recurrence in numbers)


def _with_hours(energy: Energy, hours: list[Hours]) -> Energy:
    return tuple(replace(part, hours=one) for part, one in zip(energy, hours, strict=True))


def _joules(ended: float | None, running: Iterable[TrialRecord]) -> float | None:
    known = [
        kept.latest_outcome.joules
        for kept in running
        if kept.latest_outcome is not None and kept.latest_outcome.joules is not None
    ]
    return sum(known, ended or 0.0) if known else ended


def _running(kept: TrialRecord) -> Json:
    """A trial that runs, and what it has reported."""
    ask, told = kept.trial.ask, kept.latest_outcome
    return {
        "number": ask.number,
        "recurrence": ask.recurrence,
        "attempt": ask.attempt,
        "batch_size": kept.trial.batch_size,
        "epochs": None if told is None else told.epochs,
        "metric": None if told is None else told.metric,
        "joules": None if told is None else told.joules,
        "asked_at": kept.asked_at,
        **origin_json(kept),
        "watts": watts_of(kept),
        "gpu_model": ask.gpu_model,
        "gpus": ask.gpus.count,
    }


def _recent(some: tuple[Recurrence, ...]) -> Json | None:
    """The batch size that the latest recurrences mostly ran, and their mean use."""
    uses = [one.use for one in some if one.use is not None]
    if not uses:
        return None
    size = Counter(one.batch_size for one in some).most_common(1)[0][0]
    return {"recurrences": len(uses), "batch_size": size, **structs.asdict(sum(uses, Spent()).times(1 / len(uses)))}


def _lost(some: tuple[Recurrence, ...]) -> Json | None:
    """What was used by recurrences of which no metric was ever seen; None if there is no such recurrence."""
    known = [one.known_joules for one in some if one.known_joules is not None]
    return {"recurrences": len(some), "joules": sum(known) if known else None} if some else None
