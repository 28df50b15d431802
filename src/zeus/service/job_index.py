"""All jobs by what a list is filtered and sorted by. What the list then shows is read afresh.

The index follows the store. When it is some seconds old, it is compared with the jobs' pulses, and changed jobs are
read again: for a moment by the request, and the rest by a thread. A job that was never read is in the list by its name
alone and counts as `uncounted`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from zeus.errors import StoreError
from zeus.service.overview import Overview
from zeus.store import Store

Json = dict[str, Any]
log = logging.getLogger(__name__)

FRESH_SECONDS = 2.0  # for which the index is used without a look at the store
READ_SECONDS = 0.1  # for which jobs are read at once


class ListedJob(NamedTuple):
    """What a list needs to know of a job. None: not known."""

    name: str
    stamp: str = ""  # the job's pulse when it was read; empty: it was not
    owner: str = ""
    gpu: str | None = None
    state: str = ""
    last: str | None = None
    trials: int | None = None
    joules: float | None = None
    saving: float | None = None  # the share of energy saved
    failures: int | None = None

    @classmethod
    def of(cls, brief: Json, stamp: str) -> ListedJob:
        """The row of a brief."""
        saving = brief["saving"]
        return cls(
            brief["job"],
            stamp,
            brief["owner"] or "",
            brief["gpu_model"],
            brief["state"],
            brief["last_run_at"],
            brief["trials"],
            brief["joules"],
            None if saving is None else saving["share"],
            brief["failures"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a list shows, and in which order."""

    q: str = ""
    owner: str | None = None  # None: of anybody; empty: of nobody
    gpu: str | None = None
    state: str | None = None
    sort: str = "name"
    desc: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether names alone decide."""
        return self.owner is None and self.gpu is None and self.state is None and self.sort == "name" and not self.desc

    def of(self, rows: Iterable[ListedJob]) -> list[str]:
        """The names to show, in order. Jobs of which the value is not known come last.

        >>> rows = [ListedJob("a", joules=1.0), ListedJob("b"), ListedJob("c", joules=2.0)]
        >>> Wanted(sort="joules").of(rows), Wanted(sort="joules", desc=True).of(rows)
        (['a', 'c', 'b'], ['c', 'a', 'b'])
        """
        found = sorted((row for row in rows if self._matches(row)), key=lambda row: row.name)
        known = [row for row in found if getattr(row, self.sort) not in (None, "")]
        unknown = [row for row in found if getattr(row, self.sort) in (None, "")]
        known.sort(key=lambda row: getattr(row, self.sort), reverse=self.desc)
        return [row.name for row in (*known, *unknown)]

    def _matches(self, row: ListedJob) -> bool:
        return (
            self.q.lower() in row.name.lower()
            and self.owner in (None, row.owner)
            and self.gpu in (None, row.gpu)
            and self.state in (None, row.state)
        )


class JobIndex:
    """The rows of all jobs of a store. Safe to use from several threads."""

    def __init__(self, store: Store, overview: Overview, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._overview, self._clock = store, overview, clock
        self._rows: dict[str, ListedJob] = {}
        self._until = -float("inf")  # until when the rows are used as they are
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # reads what a request has left

    def rows(self) -> list[ListedJob]:
        """The rows of all jobs, as far as they could be read until now."""
        with self._lock:
            if self._clock() >= self._until and self._thread is None and not self._refresh():
                self._thread = threading.Thread(target=self._go_on, name="zeus-index", daemon=True)
                self._thread.start()
            return list(self._rows.values())

    def _go_on(self) -> None:
        """Read the rest. The lock is free in between, so that nobody waits for long."""
        done = False
        while not done:
            with self._lock:
                try:
                    done = self._refresh()
                except StoreError as away:  # the next request tries again
                    log.debug("the list could not be read: %s", away)
                    done = True
                if done:
                    self._thread = None
            time.sleep(0.0)

    def _refresh(self) -> bool:
        """Read what has changed, for a moment. Returns whether that was all."""
        begun, pulse = self._clock(), self._store.pulse()
        rows = {name: self._rows.get(name) or ListedJob(name) for name in pulse}
        changed = [name for name, row in rows.items() if row.stamp != pulse[name]]
        changed.sort(key=lambda name: rows[name].stamp != "")  # first those that were never read
        done = True
        for name, brief in self._overview.each({name: pulse[name] for name in changed}):
            rows[name] = ListedJob.of(brief, pulse[name])
            if self._clock() - begun > READ_SECONDS:
                done = name == changed[-1]
                break
        self._rows, self._until = rows, self._clock() + FRESH_SECONDS
        return done
