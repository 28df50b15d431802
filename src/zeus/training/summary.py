"""What a run came to: where it stands before each epoch, why it ended, what it used and saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from zeus.env import Mode
from zeus.training.saving import LimitSaving


class TrainingEnd(StrEnum):
    """Why a run ended."""

    RUNNING = "running"
    REACHED = "reached"  # the target metric
    MAX_EPOCHS = "max_epochs"
    COST_LIMIT = "cost_limit"  # the next epoch was not worth its cost: predicted to exceed the limit, as a rule
    LEFT = "left"  # the loop was left, by break or by an exception


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run used and came to. Unknown energy is NaN."""

    ending: TrainingEnd
    epochs: int
    metric: float | None
    joules: float
    seconds: float
    cost: float
    limit: float | None  # watts: the limit that was chosen, or that would be
    found_limit: float | None
    mode: Mode
    saving: LimitSaving | None
    why_not: str | None  # why limits were not set, where they were not
    batch_size: int
    next_epoch_cost: float | None = None  # of the epoch that was not begun for its cost, where one was not


def sentence(summary: Summary) -> str:
    """The one line that a run writes at its end."""
    ending = {
        TrainingEnd.REACHED: f"reached {summary.metric:g}" if summary.metric is not None else "reached the target",
        TrainingEnd.MAX_EPOCHS: "did all its epochs",
        TrainingEnd.COST_LIMIT: "stopped before the cost limit",
    }.get(summary.ending, "was left")
    energy = "unknown energy" if math.isnan(summary.joules) else f"{summary.joules:.0f} J"
    line = f"{ending} after {summary.epochs} epochs, {summary.seconds:.1f} s, {energy}"
    saving = summary.saving
    if saving is None:
        return line + (f"; limits not set: {summary.why_not}" if summary.why_not else "")
    used = summary.mode is Mode.OPTIMIZE and summary.why_not is None
    if saving.to_watts == saving.from_watts:
        return line + f"; {saving.from_watts:g} W, the limit found, is the best"
    verb = "saved" if used else "would have saved"
    limits = f"{saving.to_watts:g} W in place of {saving.from_watts:g} W"
    if not saving.is_seen:
        return line + f"; no difference seen between {limits} (± {saving.joules_error:.0f} J)"
    line += f"; {limits} {verb} {saving.joules:.0f} ± {saving.joules_error:.0f} J"
    line += f" ({saving.share:.1%} of the energy, {-saving.time_share:+.1%} time)"
    if saving.money is not None:
        line += f", {saving.money:.4g} {saving.currency}".rstrip()
    if saving.gco2e is not None:
        line += f", {saving.gco2e:.4g} gCO2e"
    return line
