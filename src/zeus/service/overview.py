"""Many jobs at a glance: a brief of each, and their totals."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, reduce
from typing import Any, Generic, TypeVar

from zeus.client.policy_states import PolicyStateCache
from zeus.client.report import Digests
from zeus.client.report.brief import JobTotals, SavingSums
from zeus.client.report.digests import Counted
from zeus.client.report.energy import footprint
from zeus.client.report.fleet import fleet_of
from zeus.errors import InputError, ZeusError
from zeus.ledger.saving_text import saving_sentence
from zeus.service.job_list import ListedJob
from zeus.store import Store
from zeus.tariff.rates import Footprint, PricedSaving, Prices
from zeus.tariff.settings import prices

T = TypeVar("T")
Json = dict[str, Any]
log = logging.getLogger(__name__)

SECONDS = 1.0  # for which one request for the totals computes digests; the next one continues
MANY, OLDEST_SECONDS = 1_000, 5.0  # totals of more jobs are repeated for so long


class Sums:
    """What each job adds to the totals, and what follows from that, computed once."""

    def __init__(self, found: Counted[JobTotals]) -> None:
        self.rows, self.uncounted, self.outdated = found

    @cached_property
    def listed(self) -> list[ListedJob]:
        """The jobs as lists know them."""
        return [ListedJob.of(name, one) for name, one in self.rows.items()]

    @cached_property
    def summary(self) -> Json:
        """What all jobs together have used and saved."""
        summed = totals(self.rows.values(), prices())
        jobs = len(self.rows) + self.uncounted
        return {**summed, "jobs": jobs, "uncounted": self.uncounted, "outdated": self.outdated}


class Repeated(Generic[T]):
    """An answer that takes long to compute, and may be repeated for `OLDEST_SECONDS`.

    When half of that is over, the next request gets it once more, and a thread computes it anew. So only the first
    request after a pause waits.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._refreshing = clock, threading.Lock()
        self.last: T | None = None
        self._begun, self._key = -math.inf, ""

    def get(self, compute: Callable[[], tuple[T, bool]], key: str = "") -> T:
        """The answer to this key. `compute` returns it, and whether it may be repeated."""
        last, age = self.last, self._clock() - self._begun
        if last is None or key != self._key or age >= OLDEST_SECONDS:
            return self._compute(compute, key)
        if age >= OLDEST_SECONDS / 2 and self._refreshing.acquire(blocking=False):
            threading.Thread(target=self._refresh, args=(compute, key), daemon=True).start()
        return last

    def _refresh(self, compute: Callable[[], tuple[T, bool]], key: str) -> None:
        try:
            self._compute(compute, key)
        except ZeusError as wrong:  # whoever asks when it is too old is told
            log.info("the totals could not be read: %s", wrong)
        finally:
            self._refreshing.release()

    def _compute(self, compute: Callable[[], tuple[T, bool]], key: str) -> T:
        begun = self._clock()
        found, repeats = compute()
        self.last, self._begun, self._key = (found, begun, key) if repeats else (None, -math.inf, "")
        return found


class Overview:
    """Lists and totals of the jobs of a service. What takes long is in the store, for all workers."""

    def __init__(
        self, store: Store, states: PolicyStateCache | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._digests = Digests(store, states, clock)
        self._computing = threading.Lock()
        self._sums, self._fleet = Repeated[Sums](clock), Repeated[Json](clock)

    def briefs(self, names: Iterable[str]) -> list[Json]:
        """The briefs of these jobs. A job that was removed meanwhile is left out."""
        return self._digests.briefs(prices(), names)

    def totals(self, seconds: float = SECONDS) -> Sums:
        """What each job adds to the totals. If many digests are missing, later calls compute the rest.

        Args:
            seconds: For how long this call may compute digests.
        """

        def compute() -> tuple[Sums, bool]:
            with self._seconds(seconds) as given:
                found = Sums(self._digests.totals(prices(), given))
            return found, len(found.rows) > MANY and not found.uncounted

        return self._sums.get(compute)

    def summary(self) -> Json:
        """What all jobs together have used and saved."""
        return self.totals().summary

    def lately(self, seconds: float) -> Sums:
        """The last totals of many jobs, however old; if there are none, as `totals`."""
        return self._sums.last or self.totals(seconds)

    def fleet(self, weeks: int, last: str) -> Json:
        """What all jobs used and saved by week. If many digests are missing, later calls compute the rest."""

        def compute() -> tuple[Json, bool]:
            with self._seconds(SECONDS) as given:
                found = self._digests.weeks(given)
            return fleet_of(found, weeks, last, prices()), len(found.rows) > MANY and not found.uncounted

        return self._fleet.get(compute, f"{weeks} {last}")

    @contextmanager
    def _seconds(self, seconds: float) -> Iterator[float]:
        """For how long a request may compute digests: not at all while another does, as it would compute the same."""
        computes = self._computing.acquire(blocking=False)
        try:
            yield seconds if computes else 0.0
        finally:
            if computes:
                self._computing.release()


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
        "saved_sentence": _sentence(savings) if savings and default else None,
        **asdict(worth),
        "footprint": reduce(Footprint.__add__, used).to_json() if used else None,
    }
    return {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in found.items()}


def _sentence(savings: list[SavingSums]) -> str:
    """What several jobs saved together, in words. Errors of different jobs are independent."""
    energy = sum(one.joules for one in savings), math.hypot(*(one.joules_error for one in savings))
    time = sum(one.seconds for one in savings), math.hypot(*(one.seconds_error for one in savings))
    compared = sum(one.compared_joules for one in savings), sum(one.compared_seconds for one in savings)
    return saving_sentence(energy, time, compared)
