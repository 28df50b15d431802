"""The fleet, for who pays: what all jobs used and saved by week, owner and GPU model, and which need a look.

    JobWeeks of each job ──▶ fleet ──▶ the service, the page, and `zeus digest` as text and HTML (`fleet_text`)

What the jobs saved adds up. Within a job the errors of its weeks add up too, as they rest on the same default. Errors
of different jobs are independent.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from datetime import time as time_of_day
from typing import Any, NamedTuple

from zeus.client.report.digests import Counted
from zeus.client.report.energy import footprint
from zeus.client.report.fleet_text import summary
from zeus.client.report.weeks import Cell, JobWeeks, first_day, week_of, weeks_until
from zeus.errors import InputError
from zeus.store.api import utc
from zeus.tariff.rates import Footprint, PricedSaving, Prices

Json = dict[str, Any]


class _Part(NamedTuple):
    """A cell of a job, priced."""

    job: str
    cell: Cell
    used: Footprint
    saved: PricedSaving | None


def fleet_of(
    found: Counted[JobWeeks], weeks: int, last: str, prices: Prices, now: Callable[[], float] = time.time
) -> Json:
    """What the jobs that were found used and saved in so many weeks, up to this one or to `last`.

    Raises:
        InputError: There is no such week.
    """
    as_of = utc(now())
    try:
        wanted = weeks_until(last or week_of(as_of), weeks)
    except (ValueError, OverflowError):
        raise InputError(f"week {last!r}: give an ISO week such as {week_of(as_of)}.") from None
    return fleet(found.rows, wanted, prices, uncounted=found.uncounted, outdated=found.outdated, as_of=as_of)


def fleet(
    jobs: Mapping[str, JobWeeks],
    weeks: list[str],
    prices: Prices,
    *,
    uncounted: int = 0,
    outdated: int = 0,
    as_of: str = "",
) -> Json:
    """What these jobs used and saved in these weeks.

    Args:
        jobs: The jobs, by name.
        weeks: ISO weeks in order, such as 2026-W47.
        prices: For energy that was stored without them.
        uncounted: How many jobs could not be read yet.
        outdated: How many count as they were before.
        as_of: When this was read.
    """
    wanted = set(weeks)
    parts = [_priced(name, cell, prices) for name, one in jobs.items() for cell in one.cells if cell.week in wanted]
    currencies = {one.used.currency for one in parts if one.used.known_money is not None}
    begin = datetime.combine(first_day(weeks[0]), time_of_day(), UTC).isoformat() if weeks else ""
    told: Json = {
        "weeks": [{"week": week, **_sums(one for one in parts if one.cell.week == week)} for week in weeks],
        "owners": _by("owner", {name: one.owner for name, one in jobs.items()}, parts),
        "gpus": _by("gpu_model", None, parts),
        "losing": [_look(name, one, one.losing) for name, one in sorted(jobs.items()) if one.losing],
        "failing": [_look(name, one, one.failing) for name, one in sorted(jobs.items()) if one.failing],
        "idle": [_idle(name, one) for name, one in sorted(jobs.items()) if (one.last_run_at or "") < begin],
        "currency": currencies.pop() if len(currencies) == 1 else "",
        "totals": _sums(parts),
        "jobs": len(jobs) + uncounted,
        "uncounted": uncounted,
        "outdated": outdated,
        "as_of": as_of,
    }
    return {**told, "sentence": summary(told)}


def _priced(name: str, cell: Cell, prices: Prices) -> _Part:
    used = footprint(cell.used, prices) or Footprint()
    if cell.saved_joules is None:
        return _Part(name, cell, used, None)
    paid = footprint(cell.compared, prices) or Footprint()
    return _Part(name, cell, used, paid.worth(cell.saved_joules, cell.saved_error))


def _by(name: str, of: Mapping[str, str] | None, parts: Iterable[_Part]) -> list[Json]:
    """Sums by owner or GPU model, those that used most first."""
    groups: defaultdict[str, list[_Part]] = defaultdict(list)
    for one in parts:
        groups[one.cell.gpu_model if of is None else of[one.job]].append(one)
    rows = [{name: key, **_sums(some)} for key, some in groups.items()]
    return sorted(rows, key=lambda row: (-row["joules"], row[name]))


def _sums(parts: Iterable[_Part]) -> Json:
    parts = list(parts)
    saved = [one for one in parts if one.saved is not None]
    errors: defaultdict[str, float] = defaultdict(float)
    worths: defaultdict[str, list[PricedSaving]] = defaultdict(list)
    for one in saved:
        errors[one.job] += one.cell.saved_error
        worths[one.job].append(one.saved or PricedSaving())
    worth = PricedSaving.total(worths.values())
    money = [one.used.money for one in parts if one.used.joules]
    gco2e = [one.used.gco2e for one in parts if one.used.joules]
    return {
        "joules": sum(one.used.joules for one in parts),
        "saved_joules": sum(one.cell.saved_joules or 0.0 for one in saved) if saved else None,
        "saved_joules_error": math.hypot(*errors.values()) if saved else None,
        "money": _known(money, {one.used.currency for one in parts if one.used.joules}),
        "saved_money": worth.money,
        "saved_money_error": worth.money_error,
        "gco2e": _known(gco2e),
        "saved_gco2e": worth.gco2e,
        "saved_gco2e_error": worth.gco2e_error,
        "recurrences": sum(one.cell.recurrences for one in parts),
        "failed": sum(one.cell.failed for one in parts),
    }


def _known(amounts: Iterable[float | None], currencies: set[str] | None = None) -> float | None:
    """The sum; None if there is nothing to add, if a part is unknown, or if it is in several currencies."""
    amounts = list(amounts)
    known = [one for one in amounts if one is not None]
    if not amounts or len(known) < len(amounts) or (currencies is not None and len(currencies) > 1):
        return None
    return sum(known)


def _look(name: str, one: JobWeeks, sentence: str) -> Json:
    return {"job": name, "owner": one.owner, "sentence": sentence}


def _idle(name: str, one: JobWeeks) -> Json:
    return {"job": name, "owner": one.owner, "last_run_at": one.last_run_at}
