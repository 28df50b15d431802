"""What a job used and saved in each ISO week on each GPU model: its part of the fleet (`zeus.client.report.fleet`).

A recurrence counts in the week in which its last trial changed. What it saved is the ledger's answer for the
recurrences of that week alone, with its error. Hours are left out, so a reader's rates that differ by the hour do not
fill what trials did not record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import msgspec

from zeus.client.report.energy import Energy, energy_of, without_hours
from zeus.job import TrialRecord
from zeus.ledger.ledger import JobLedger, Recurrence, RecurrenceEnd


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """What a job used and saved in one week on one GPU model."""

    week: str
    gpu_model: str
    recurrences: int
    failed: int
    used: Energy
    saved_joules: float | None  # None: it cannot be compared
    saved_error: float
    compared: Energy  # of the recurrences that this saving is about, at whose rates it is priced


class JobWeeks(msgspec.Struct, frozen=True, array_like=True):
    """A job in the fleet."""

    owner: str = ""
    last_run_at: str | None = None
    losing: str = ""  # the sentence of its saving, if it loses
    failing: str = ""  # why it counts as failing
    cells: tuple[Cell, ...] = ()


def week_of(at: str) -> str:
    """The ISO week of a stored time.

    >>> week_of("2026-01-01T00:00:00+00:00"), week_of("2027-01-01T00:00:00+00:00")
    ('2026-W01', '2026-W53')
    """
    year, week, _ = datetime.fromisoformat(at).astimezone(UTC).isocalendar()
    return f"{year}-W{week:02d}"


def weeks_until(last: str, count: int) -> list[str]:
    """So many weeks, of which this is the last.

    >>> weeks_until("2026-W02", 3)
    ['2025-W52', '2026-W01', '2026-W02']
    """
    monday = first_day(last)
    days = [monday - timedelta(weeks=back) for back in range(count - 1, -1, -1)]
    return [f"{year}-W{week:02d}" for year, week, _ in (day.isocalendar() for day in days)]


def first_day(week: str) -> date:
    """The Monday of an ISO week. Raises ValueError if there is no such week.

    >>> first_day("2026-W47").isoformat()
    '2026-11-16'
    """
    year, _, number = week.partition("-W")
    return date.fromisocalendar(int(year), int(number), 1)


def cells_of(ledger: JobLedger, ended: Iterable[TrialRecord]) -> tuple[Cell, ...]:
    """The cells of a job, in the order of weeks."""
    tries: defaultdict[int, list[TrialRecord]] = defaultdict(list)
    for kept in ended:
        tries[kept.trial.ask.recurrence].append(kept)
    groups: defaultdict[tuple[str, str], list[Recurrence]] = defaultdict(list)
    for one in ledger.recurrences:
        if some := tries.get(one.number):
            last = max(some, key=lambda kept: kept.changed_at)
            groups[week_of(last.changed_at), last.trial.ask.gpus.model].append(one)
    finished = {one.number for one in ledger.finished}
    return tuple(_cell(ledger, key, some, tries, finished) for key, some in sorted(groups.items()))


def _cell(
    ledger: JobLedger,
    key: tuple[str, str],
    some: list[Recurrence],
    tries: dict[int, list[TrialRecord]],
    finished: set[int],
) -> Cell:
    saving = ledger.saving([one for one in some if one.number in finished])
    compared = [one for one in some if one.use is not None and ledger.default_of(one) is not None]
    return Cell(
        *key,
        recurrences=len(some),
        failed=sum(one.end is RecurrenceEnd.FAILED for one in some),
        used=without_hours(energy_of(kept for one in some for kept in tries[one.number])),
        saved_joules=None if saving is None else saving.saved.joules,
        saved_error=0.0 if saving is None else saving.joules_error,
        compared=()
        if saving is None
        else without_hours(energy_of(kept for one in compared for kept in tries[one.number])),
    )
