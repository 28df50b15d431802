"""The summary of a training run: why it ended, what it used and what it saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from zeus.cost import GPU_ONLY, Include
from zeus.distributed.waiting import RankWait
from zeus.settings import Mode
from zeus.tariff.rates import Footprint
from zeus.tariff.text import footprint_text
from zeus.training.saving import LimitSaving

NOTHING = Footprint()
NO_WAITING = RankWait()


class TrainingEnd(StrEnum):
    """Why a run ended."""

    RUNNING = "running"
    REACHED = "reached"  # the target metric
    MAX_EPOCHS = "max_epochs"
    COST_LIMIT = "cost_limit"  # the policy stopped it, usually because the next epoch would exceed the cost limit
    ENDED = "ended"  # by itself; the training has no target that Zeus knows
    LEFT = "left"  # the loop was left by break or by an exception


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run used, saved and reached. Unknown energy is NaN."""

    ending: TrainingEnd
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


def sentence(summary: Summary) -> str:
    """The line that a run prints at its end."""
    waiting = summary.waiting
    return _main(summary) + (f"; {waiting}" if waiting.is_noticeable(summary.seconds) else "")


def _main(summary: Summary) -> str:
    ending = {
        TrainingEnd.REACHED: f"reached {summary.metric:g}" if summary.metric is not None else "reached the target",
        TrainingEnd.MAX_EPOCHS: "ran all its epochs",
        TrainingEnd.COST_LIMIT: "stopped by its cost limit",
        TrainingEnd.ENDED: "ended",
    }.get(summary.ending, "left the training loop")
    energy = "unknown energy" if math.isnan(summary.joules) else f"{summary.joules:.0f} J"
    energy += "" if summary.include == GPU_ONLY else " of GPU and CPU"
    epochs = "1 epoch" if summary.epochs == 1 else f"{summary.epochs} epochs"
    line = f"{ending} after {epochs}, {summary.seconds:.1f} s, {energy}"
    if comes_to := footprint_text(summary.footprint.to_json()):
        line += f" ({comes_to})"
    saving = summary.saving
    if saving is None:
        return line + (f"; power limits were not set: {summary.why_not}" if summary.why_not else "")
    used = summary.mode is Mode.OPTIMIZE and summary.why_not is None
    if saving.to_watts == saving.from_watts:
        return line + f"; the power limit found, {saving.from_watts:g} W, is the best"
    return f"{line}; {saving.sentence(would=not used)}"
