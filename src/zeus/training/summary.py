"""The summary of a training run: why it ended, what it used, and what its power limit saved (§5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeus.cost import GPU_ONLY, ZERO, CostModel, Include, Use
from zeus.distributed.group import RankWait, WaitRecord, print_notice
from zeus.job import Ending, Outcome
from zeus.ledger.moving import Moved, move
from zeus.ledger.saving_text import is_seen, saving_sentence
from zeus.ledger.units import Units
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.settings import Mode
from zeus.tariff.rates import JOULES_PER_KWH, Footprint, PricedSaving
from zeus.tariff.text import footprint_text
from zeus.trial.knowledge import Trials

NOTHING = Footprint()
NO_WAITING = RankWait()


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
    worth: PricedSaving  # what its energy comes to, with errors
    compared: Use  # what the run uses at `from_watts`

    @property
    def money(self) -> float | None:
        return self.worth.money

    @property
    def currency(self) -> str:
        return self.worth.currency

    @property
    def gco2e(self) -> float | None:
        return self.worth.gco2e

    @property
    def is_seen(self) -> bool:
        """Whether the energy differs by at least two standard errors, so that it is hardly chance."""
        return is_seen(self.joules, self.joules_error)

    def sentence(self, *, would: bool) -> str:
        """The saving in words; `would` if the limit was not used."""
        limits = f"{self.to_watts:g} W in place of {self.from_watts:g} W"
        energy, time = (self.joules, self.joules_error), (self.seconds, self.seconds_error)
        compared = self.compared.joules, self.compared.seconds
        return f"{limits}: {saving_sentence(energy, time, compared, worth=self.worth, would=would)}"


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
    return LimitSaving(
        from_watts=from_watts,
        to_watts=to_watts,
        joules=saved.joules,
        seconds=saved.seconds,
        joules_error=error.joules,
        seconds_error=error.seconds,
        share=share.joules,
        time_share=share.seconds,
        kwh=saved.joules / JOULES_PER_KWH,
        worth=(paid or Footprint()).worth(saved.joules, error.joules),
        compared=before.use,
    )


def limit_saving(
    optimizer: GlobalPowerLimitOptimizer, outcome: Outcome, earlier: Trials = (), paid: Footprint = NOTHING
) -> LimitSaving | None:
    """What a run saved against the limit found, or in observer mode would have saved at the best limit.

    Args:
        optimizer: The optimizer of the run.
        outcome: What the run used.
        earlier: The stretches of earlier trials of the same batch size.
        paid: What the run came to, for money and carbon.
    """
    profile, best, found = optimizer.profile, optimizer.best_limit, optimizer.found_limit
    if profile is None or best is None or found is None or not outcome.joules:
        return None
    units = Units.of([*earlier, outcome.stretches], profile=profile)
    before, after = move(outcome, found, units), move(outcome, best, units)
    if optimizer.sets_best:
        after = Moved(Use(outcome.joules, outcome.seconds), ZERO, measured=True)
    return None if before is None or after is None else difference(found, best, before, after, paid)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run used, saved and reached. Unknown energy is NaN."""

    ending: Ending  # OPEN: it runs; LOST: its loop was left by break or by an exception
    epochs: int
    metric: float | None
    joules: float
    seconds: float
    cost: float = math.nan
    limit: float | None = None  # watts: the best limit, or the limit found if none was chosen
    found_limit: float | None = None
    mode: Mode = Mode.OFF
    saving: LimitSaving | None = None
    why_not: str | None = None  # why no limits were set, if none were
    batch_size: int = 0
    next_epoch_cost: float | None = None  # predicted cost of the epoch that was not begun because of it
    include: Include = GPU_ONLY  # whose energy `joules`, `cost` and `saving` count
    footprint: Footprint = NOTHING  # what the run came to: kWh, money and carbon
    waiting: RankWait = NO_WAITING  # for slower ranks, of this rank


def summary_of(
    outcome: Outcome,
    ending: Ending,
    optimizer: GlobalPowerLimitOptimizer | None,
    *,
    batch_size: int = 0,
    cost: CostModel | None = None,
    include: Include = GPU_ONLY,
    waits: WaitRecord | None = None,
    earlier: Trials = (),
) -> Summary:
    """What a run used and what its power limit saved; `earlier` as in `limit_saving`."""
    paid = outcome.footprint
    use = Use(math.nan if outcome.joules is None else outcome.joules, outcome.seconds)
    best, found = (None, outcome.found_watts) if optimizer is None else (optimizer.best_limit, optimizer.found_limit)
    return Summary(
        ending=ending,
        epochs=outcome.epochs,
        metric=outcome.metric,
        joules=use.joules,
        seconds=use.seconds,
        cost=math.nan if cost is None else cost.of(use),
        limit=best if best is not None else found,
        found_limit=found,
        mode=Mode.OFF if optimizer is None else optimizer.mode,
        saving=None if optimizer is None else limit_saving(optimizer, outcome, earlier, paid),
        why_not=None if optimizer is None else optimizer.why_not,
        batch_size=batch_size,
        next_epoch_cost=outcome.next_epoch_cost,
        include=include,
        footprint=paid,
        waiting=NO_WAITING if waits is None else waits.so_far(cost, use),
    )


def print_summary(summary: Summary) -> None:
    """Print the line of a training on the first rank. Another rank tells only how long it waited, if that was long."""
    print_notice(sentence(summary))
    waiting = summary.waiting
    if waiting.rank and waiting.is_noticeable(summary.seconds):
        print_notice(f"rank {waiting.rank} {waiting}", every_rank=True)


def sentence(summary: Summary) -> str:
    """The line that a run prints at its end."""
    waiting = summary.waiting
    return _main(summary) + (f"; {waiting}" if waiting.is_noticeable(summary.seconds) else "")


def _main(summary: Summary) -> str:
    ending = {
        Ending.CONVERGED: f"reached {summary.metric:g}" if summary.metric is not None else "reached the target",
        Ending.NOT_CONVERGED: "ended",
        Ending.STOPPED: "stopped by its cost limit",
    }.get(summary.ending, "left the training loop")
    energy = "unknown energy" if math.isnan(summary.joules) else f"{summary.joules:.0f} J"
    energy += "" if summary.include == GPU_ONLY else " of GPU and CPU"
    epochs = "1 epoch" if summary.epochs == 1 else f"{summary.epochs} epochs"
    line = f"{ending} after {epochs}, {summary.seconds:.1f} s, {energy}"
    if comes_to := footprint_text(summary.footprint.to_json()):
        line += f" ({comes_to})"
    saving = summary.saving
    if saving is None:
        return line + (f"; no power limit was chosen: {summary.why_not}" if summary.why_not else "")
    used = summary.mode is Mode.OPTIMIZE and summary.why_not is None
    if saving.to_watts == saving.from_watts:
        return line + f"; the power limit found, {saving.from_watts:g} W, is the best"
    return f"{line}; {saving.sentence(would=not used)}"
