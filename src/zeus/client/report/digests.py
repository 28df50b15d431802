"""Digests of many jobs: read from the store, and computed and stored where they are missing or outdated."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from zeus import __version__
from zeus.client.policy_states import PolicyStateCache
from zeus.client.report.brief import (
    JobDigest,
    JobTotals,
    brief_from_store,
    digest_of,
    totals_from_store,
    weeks_from_store,
)
from zeus.client.report.energy import is_flat
from zeus.client.report.weeks import JobWeeks
from zeus.errors import InputError, NotKnown, StoreError
from zeus.job import TrialRecord
from zeus.store.api import Digest, Glance, Store
from zeus.tariff.rates import Prices

T = TypeVar("T")
Json = dict[str, Any]
SHAPE = 3  # raise it when a digest says something else about the same facts
AT_ONCE = 100  # digests that are written together


class Counted(NamedTuple, Generic[T]):
    """Something about each job, how many jobs are not in it yet, and how many are in it as they were before."""

    rows: Mapping[str, T]
    uncounted: int = 0
    outdated: int = 0


class Digests:
    """Lists and totals of the jobs of a store.

    Args:
        store: Where the jobs are.
        states: The policies' states, to share them with others.
        clock: Shows seconds.
    """

    def __init__(
        self, store: Store, states: PolicyStateCache | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._states, self._clock = store, states or PolicyStateCache(), clock

    def briefs(self, prices: Prices, job_ids: Iterable[str] | None = None) -> list[Json]:
        """The briefs of these jobs in this order, or of all jobs by name. A job that is not there is left out."""
        found = self._store.glances(job_ids, hours=not is_flat(prices))
        names = sorted(found) if job_ids is None else [name for name in job_ids if name in found]
        missing = {name: found[name] for name in names if not _is_current(found[name])}
        fresh = dict(self._computed(missing))
        rows = []
        for name in names:
            if name in fresh:
                rows.append(fresh[name].shown(prices))
            elif name not in missing and (digest := found[name].digest) is not None:
                rows.append(brief_from_store(digest, found[name].running, prices))
        return rows

    def totals(self, prices: Prices, seconds: float) -> Counted[JobTotals]:
        """What each job adds to the totals. Missing digests are computed for so many seconds.

        Where that does not suffice, an outdated digest counts, and a job that has none is left out. The answer says so.
        """
        return self._rows(
            self._store.glances(briefs=False, hours=not is_flat(prices)),
            lambda digest: digest.totals.with_running(digest.running),
            lambda kept, running: totals_from_store(kept, prices).with_running(running),
            seconds,
        )

    def weeks(self, seconds: float) -> Counted[JobWeeks]:
        """What each job used and saved by week, like `totals`. Running trials count when they have ended."""
        found = self._store.glances(briefs=False, weeks=True)
        return self._rows(found, lambda digest: digest.weeks, lambda kept, _: weeks_from_store(kept), seconds)

    def _rows(
        self,
        found: Mapping[str, Glance],
        fresh_row: Callable[[JobDigest], T],
        kept_row: Callable[[Digest, Sequence[TrialRecord]], T],
        seconds: float,
    ) -> Counted[T]:
        """A row for each job that has a digest now, and how many have none."""
        begun = self._clock()
        missing = {name: one for name, one in found.items() if not _is_current(one)} if seconds > 0 else {}
        fresh = dict[str, T]()
        for name, digest in self._computed(dict(sorted(missing.items(), key=lambda pair: pair[1].digest is not None))):
            fresh[name] = fresh_row(digest)
            if self._clock() - begun > seconds:
                break
        rows = dict[str, T]()
        for name, one in found.items():
            if name in fresh:
                rows[name] = fresh[name]
            elif one.digest is not None and one.digest.stamp.startswith(_prefix()):
                rows[name] = kept_row(one.digest, one.running)
        outdated = sum(name not in fresh and not _is_current(found[name]) for name in rows)
        return Counted(rows, len(found) - len(rows), outdated)

    def refresh(self, job_id: str) -> None:
        """Compute and store the digest of a job, if it is missing or outdated."""
        found = self._store.glances([job_id])
        for _ in self._computed({name: one for name, one in found.items() if not _is_current(one)}):
            pass

    def _computed(self, missing: Mapping[str, Glance]) -> Iterator[tuple[str, JobDigest]]:
        """Compute the digests of these jobs, and store them. A job that was removed meanwhile is left out."""
        fresh = dict[str, Digest]()
        try:
            for name, one in missing.items():
                try:
                    digest = digest_of(self._store, name, self._states)
                except NotKnown:
                    continue
                if digest.brief["phase"] != "unreadable":  # another version of Zeus may read it
                    fresh[name] = digest.to_store(f"{_prefix()}{one.pulse}")
                yield name, digest
                if len(fresh) >= AT_ONCE:
                    self._keep(fresh)
        finally:  # also if the caller has seen enough
            self._keep(fresh)

    def _keep(self, fresh: dict[str, Digest]) -> None:
        if fresh:
            with contextlib.suppress(StoreError, InputError):  # it is busy or read-only; the next reader computes them
                self._store.keep_digests(fresh)
            fresh.clear()


def _is_current(one: Glance) -> bool:
    return one.digest is not None and one.digest.stamp == f"{_prefix()}{one.pulse}"


def _prefix() -> str:
    """The beginning of the stamps of digests that this version of Zeus reads."""
    return f"{SHAPE}:{__version__}:"
