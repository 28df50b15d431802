"""What a power limit saved, or would have saved in observer mode (§5)."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.cost import Use
from zeus.ledger.saving_text import is_seen, saving_sentence
from zeus.ledger.units import Moved
from zeus.tariff.rates import Footprint


@dataclass(frozen=True, slots=True)
class LimitSaving:
    """The saving of one limit against another for the same work. Negative seconds mean that it took longer."""

    from_watts: float
    to_watts: float
    joules: float
    seconds: float
    joules_error: float  # standard errors
    seconds_error: float
    share: float  # of the energy at `from_watts`
    time_share: float
    kwh: float
    money: float | None
    currency: str
    gco2e: float | None
    compared: Use  # what the run uses at `from_watts`

    @property
    def is_seen(self) -> bool:
        """Whether the energy differs by at least two standard errors, so that it is hardly chance."""
        return is_seen(self.joules, self.joules_error)

    def sentence(self, *, would: bool) -> str:
        """The saving in words; `would` if the limit was not used."""
        limits = f"{self.to_watts:g} W in place of {self.from_watts:g} W"
        energy, time = (self.joules, self.joules_error), (self.seconds, self.seconds_error)
        compared, worth = (self.compared.joules, self.compared.seconds), (self.money, self.currency, self.gco2e)
        return f"{limits}: {saving_sentence(energy, time, compared, worth=worth, would=would)}"


def difference(
    from_watts: float, to_watts: float, before: Moved, after: Moved, paid: Footprint | None = None
) -> LimitSaving:
    """The saving of a run that uses `after` instead of `before`, priced at the mean rates that the run has paid.

    >>> before, after = (Moved(Use(joules, 10.0), Use(3.0, 0.0), False) for joules in (200.0, 150.0))
    >>> saving = difference(250, 150, before, after)
    >>> saving.share, round(saving.joules_error, 1)
    (0.25, 4.2)
    """
    saved, error = before.use - after.use, before.error.hypot(after.error)
    share = saved / before.use if before.use.joules and before.use.seconds else Use(0.0, 0.0)
    worth = (paid or Footprint()).scaled(saved.joules)
    return LimitSaving(
        from_watts=from_watts,
        to_watts=to_watts,
        joules=saved.joules,
        seconds=saved.seconds,
        joules_error=error.joules,
        seconds_error=error.seconds,
        share=share.joules,
        time_share=share.seconds,
        kwh=worth.kwh,
        money=worth.money,
        currency=worth.currency,
        gco2e=worth.gco2e,
        compared=before.use,
    )
