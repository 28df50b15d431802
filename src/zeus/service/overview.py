"""Many jobs at a glance: a brief of each, and their totals."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import reduce
from typing import Any, TypeVar

from zeus.client.policy_states import PolicyStateCache
from zeus.client.report import Digests
from zeus.client.report.brief import JobTotals, SavingSums
from zeus.client.report.digests import Totals
from zeus.client.report.energy import footprint
from zeus.client.report.fleet import fleet_of
from zeus.errors import InputError, ZeusError
from zeus.ledger.saving_text import saving_sentence
from zeus.service.job_list import ListedJob
from zeus.store import Store
from zeus.tariff.rates import Footprint, Prices, PricedSaving
from zeus.tariff.settings import prices

T = TypeVar("T")
Json = dict[str, Any]
log = logging.getLogger(__name__)

SECONDS = 1.0  # for which one request for the totals computes digests; the next one continues
MANY, OLDEST_SECONDS = 1_000, 5.0  # totals of more jobs are repeated for so long


class Overview:
    """Lists and totals of the jobs of a service. What takes long is in the store, for all workers."""

    def __init__(
        self, store: Store, states: PolicyStateCache | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._digests, self._clock = Digests(store, states, clock), clock
        self._computing = threading.Lock()
        self._last: tuple[float, Totals] | None = None  # until when, and what
        self._listed: tuple[Totals, list[ListedJob]] | None = None
        self._last_fleet: tuple[float, tuple[int, str], Json] = (-math.inf, (0, ""), {})

    def briefs(self, names: Iterable[str]) -> list[Json]:
        """The briefs of these jobs. A job that was removed meanwhile is left out."""
        return self._digests.briefs(prices(), names)

    def totals(self, seconds: float = SECONDS) -> Totals:
        """What each job adds to the totals. If many digests are missing, later calls compute the rest.

        Args:
            seconds: For how long this call may compute digests.
        """
        last = self._last
        if last is not None and self._clock() < last[0]:
            return last[1]
        begun, computes = self._clock(), self._computing.acquire(blocking=False)
        try:  # several requests at once would all compute the same
            found = self._digests.totals(prices(), seconds if computes else 0.0)
        finally:
            if computes:
                self._computing.release()
        self._last = (begun + OLDEST_SECONDS, found) if len(found.rows) > MANY and not found.uncounted else None
        return found

    def lately(self, seconds: float) -> Totals:
        """The last totals of many jobs, however old; if there are none, as `totals`."""
        return self.totals(seconds) if self._last is None else self._last[1]

    def listed(self, found: Totals) -> list[ListedJob]:
        """The jobs of these totals as lists know them. They are kept as long as the totals are."""
        kept = self._listed
        if kept is None or kept[0] is not found:
            kept = self._listed = (found, [ListedJob.of(name, one) for name, one in found.rows.items()])
        return kept[1]

    def fleet(self, weeks: int, last: str) -> Json:
        """What all jobs used and saved by week. If many digests are missing, later calls compute the rest."""
        until, wanted, told = self._last_fleet
        if self._clock() < until and wanted == (weeks, last):
            return told
        begun = self._clock()
        computes = self._computing.acquire(blocking=False)
        try:
            found = self._digests.weeks(SECONDS if computes else 0.0)
        finally:
            if computes:
                self._computing.release()
        told = fleet_of(found, weeks, last, prices())
        if len(found.rows) > MANY and not found.uncounted:
            self._last_fleet = (begun + OLDEST_SECONDS, (weeks, last), told)
        return told

    def summary(self) -> Json:
        """What all jobs together have used and saved."""
        found = self.totals()
        summed = totals(found.rows.values(), prices())
        return {**summed, "jobs": len(found.rows) + found.uncounted, "uncounted": found.uncounted}


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


def totals(rows: Iterable[JobTotals], prices: Prices) -> Json:
    """The totals of some jobs. A job whose saving is not known does not count in `jobs_with_saving`.

    >>> totals([], Prices())["saved_share"] is None
    True
    """
    rows = list(rows)
    savings = [row.saving for row in rows if row.saving is not None]
    saved, default = sum(one.joules for one in savings), sum(one.compared_joules for one in savings)
    paid = ((footprint(row.compared, prices) or Footprint(), row.saving) for row in rows if row.saving is not None)
    worth = PricedSaving.total([mean.worth(saving.joules, saving.joules_error)] for mean, saving in paid)
    used = [one for row in rows if (one := footprint(row.used, prices)) is not None]
    found = {
        "jobs": len(rows),
        "trials": sum(row.trials for row in rows),
        "recurrences": sum(row.recurrences for row in rows),
        "joules": sum(row.joules or 0.0 for row in rows),
        "jobs_with_saving": len(savings),
        "saved_joules": saved if savings else None,
        "saved_joules_error": math.hypot(*(one.joules_error for one in savings)) if savings else None,
        "saved_seconds": sum(one.seconds for one in savings) if savings else None,
        "saved_share": saved / default if default else None,
        "saved_sentence": _sentence(savings, worth) if savings and default else None,
        **asdict(worth),
        "footprint": reduce(Footprint.__add__, used).to_json() if used else None,
    }
    return {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in found.items()}


def _sentence(savings: list[SavingSums], worth: PricedSaving) -> str:
    """What several jobs saved together, in words. Errors of different jobs are independent."""
    energy = sum(one.joules for one in savings), math.hypot(*(one.joules_error for one in savings))
    time = sum(one.seconds for one in savings), math.hypot(*(one.seconds_error for one in savings))
    compared = sum(one.compared_joules for one in savings), sum(one.compared_seconds for one in savings)
    return saving_sentence(energy, time, compared, worth=worth)
