"""How a list of jobs is filtered and sorted. Only the jobs of the page that is asked for are then read in full."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from zeus.client.report.brief import JobTotals
from zeus.client.report.standing import is_loss, state


class ListedJob(NamedTuple):
    """What a list needs to know of a job. None or empty: not known."""

    name: str
    owner: str = ""
    gpu: str | None = None
    state: str = ""
    last: str | None = None
    trials: int | None = None
    joules: float | None = None
    saving: float | None = None  # the share of energy saved
    failures: int | None = None

    @classmethod
    def of(cls, name: str, totals: JobTotals) -> ListedJob:
        """A job, from what it adds to the totals."""
        saving, listing = totals.saving, totals.listing
        loses = saving is not None and is_loss(saving.joules, saving.joules_error, saving.compared_joules)
        return cls(
            name,
            listing.owner,
            listing.gpu_model,
            state(running=bool(listing.running), failing=listing.failing, losing=loses, trials=totals.trials),
            listing.last_run_at,
            totals.trials,
            totals.joules,
            saving.joules / saving.compared_joules if saving is not None and saving.compared_joules else None,
            listing.failures,
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
