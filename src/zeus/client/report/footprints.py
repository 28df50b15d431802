"""The footprint of the trials of a job: kilowatt-hours, money and carbon.

A trial that recorded its energy by hour is priced with the rates that it recorded. Where it recorded none, the rates of
whoever reads the report are used. A trial without such a record is spread evenly from its beginning to its last report.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import reduce

from zeus.job import Kept, replace
from zeus.ledger.ledger import Saving
from zeus.tariff.rates import Footprint, Prices, spread


def footprint(kept: Kept, prices: Prices) -> Footprint | None:
    """The footprint of one trial; None if its energy is unknown."""
    told = kept.told
    if told is None or told.joules is None:
        return None
    if told.hourly is None:
        return _without_hours(kept, told.joules, prices)
    return told.hourly.priced(prices)


def total(kepts: Iterable[Kept], prices: Prices) -> Footprint | None:
    """The footprint of some trials together, as far as their energy is known; None if none is."""
    known = [found for kept in kepts if (found := footprint(kept, prices)) is not None]
    return reduce(Footprint.__add__, known) if known else None


def by_recurrence(kepts: Iterable[Kept], prices: Prices) -> dict[int, Footprint]:
    """The footprint of each recurrence, by its number. One whose energy is unknown is missing."""
    found: dict[int, Footprint] = {}
    for kept in kepts:
        one, number = footprint(kept, prices), kept.trial.ask.recurrence
        if one is not None:
            found[number] = found[number] + one if number in found else one
    return found


def of_saving(saving: Saving, used: Iterable[Footprint]) -> Footprint:
    """The money and carbon of a saving, at the mean rates that the recurrences it is about have paid."""
    paid = reduce(Footprint.__add__, used, Footprint())
    return replace(paid.scaled(saving.saved.joules), by="")


def _without_hours(kept: Kept, joules: float, prices: Prices) -> Footprint:
    if not prices.is_given:
        return Footprint(joules)
    numbers = all(rate is None or isinstance(rate, int | float) for rate in (prices.per_kwh, prices.gco2e_per_kwh))
    if numbers:
        return prices.footprint({0: joules})  # the same in every hour
    try:
        begin, end = (datetime.fromisoformat(text).timestamp() for text in (kept.asked_at, kept.changed_at))
    except ValueError:  # its times are not known
        return replace(prices.footprint({}), joules=joules)
    return prices.footprint(spread(begin, end, joules))
