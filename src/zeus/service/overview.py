"""Many jobs at a glance: a brief of each, cached until its job changes, and their totals."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

from zeus.errors import InputError, NotKnown, ZeusError
from zeus.jobs.folds import Folds
from zeus.jobs.report import brief_of, unreadable
from zeus.store import Store
from zeus.tariff.rates import Footprint
from zeus.tariff.settings import prices

T = TypeVar("T")
log = logging.getLogger(__name__)

KEPT = 10_000  # briefs; a few hundred bytes each


class Overview:
    """Briefs of jobs. A job is read again only after it has changed."""

    def __init__(self, store: Store, folds: Folds) -> None:
        self._store = store
        self._folds = folds
        self._known: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def briefs(self, pulse: Mapping[str, str]) -> list[dict[str, Any]]:
        """The briefs of the jobs in `pulse`. A job that was removed meanwhile is left out."""
        rows = []
        for job_id, stamp in pulse.items():
            with self._lock:
                known = self._known.get(job_id)
            if known is None or known[0] != stamp:
                try:
                    known = (stamp, self._brief(job_id))
                except NotKnown:
                    continue
                with self._lock:
                    self._known[job_id] = known
                    while len(self._known) > KEPT:
                        del self._known[next(iter(self._known))]
            rows.append(known[1])
        return rows

    def _brief(self, job_id: str) -> dict[str, Any]:
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


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The totals of some briefs. A job whose saving is not known does not count in `jobs_with_saving`.

    >>> totals([])["saved_share"] is None
    True
    """
    savings = [row["saving"] for row in rows if row["saving"] is not None]
    saved, default = (sum(one[name] for one in savings) for name in ("joules", "compared_joules"))
    used = [Footprint.of_json(row["footprint"]) for row in rows if row["footprint"] is not None]
    found = {
        "jobs": len(rows),
        "trials": sum(row["trials"] or 0 for row in rows),
        "recurrences": sum(row["recurrences"] or 0 for row in rows),
        "joules": sum(row["joules"] or 0.0 for row in rows),
        "jobs_with_saving": len(savings),
        "saved_joules": saved if savings else None,
        "saved_joules_error": math.hypot(*(one["joules_error"] for one in savings)) if savings else None,
        "saved_seconds": sum(one["seconds"] for one in savings) if savings else None,
        "saved_share": saved / default if default else None,
        **_worth(savings),
        "footprint": reduce(Footprint.__add__, used).to_json() if used else None,
    }
    return {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in found.items()}


def _worth(savings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of money and carbon saved; None if a part is unknown, or if the money is in several currencies."""
    currencies = {one["currency"] for one in savings if one["money"] is not None}
    sums = {
        name: sum(one[name] for one in savings) if savings and all(one[name] is not None for one in savings) else None
        for name in ("money", "gco2e")
    }
    if len(currencies) > 1:
        sums["money"] = None
    return {**sums, "currency": currencies.pop() if len(currencies) == 1 else ""}
