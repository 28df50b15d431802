"""What a job's recurrences use now, against what they would with the defaults: b0 and the highest power limit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from zeus.cost import CostModel
from zeus.job import Ending, Outcome, Trial
from zeus.launch.recurrence import Recurrence
from zeus.profile import PowerProfile

LATEST = 5  # recurrences that stand for "now", as in ACCOUNTING's comparison


@dataclass(frozen=True, slots=True)
class Gain:
    """Means of one recurrence, by the defaults and now."""

    default_joules: float
    default_seconds: float
    default_cost: float
    joules: float
    seconds: float
    cost: float
    recurrences: int  # that "now" is the mean of


def gain(
    latest: Sequence[Recurrence], past: Iterable[Trial], default: int, profile: PowerProfile | None, cost: CostModel
) -> Gain | None:
    """The comparison; None where the default never reached the target here, so that there is nothing to compare with.

    Args:
        latest: Recurrences, the newest last; all their tries count.
        past: Trials of the job on these GPUs, with this target.
        default: b0.
        profile: Of b0. Its trials ran at the best limit; what they would have used at the highest follows from it.
        cost: What is charged.
    """
    at_default = [
        one.outcome for one in past if one.batch_size == default and one.ending is Ending.CONVERGED and _known(one)
    ]
    now = [(one.joules, one.seconds) for one in latest[-LATEST:] if one.joules is not None]
    if not at_default or not now:
        return None
    more_joules, more_seconds = _at_the_top(profile, cost)
    joules = fmean(one.joules or 0.0 for one in at_default if one is not None) * more_joules
    seconds = fmean(one.seconds for one in at_default if one is not None) * more_seconds
    now_joules, now_seconds = fmean(j for j, _ in now), fmean(s for _, s in now)
    return Gain(
        joules,
        seconds,
        cost.cost(joules, seconds),
        now_joules,
        now_seconds,
        cost.cost(now_joules, now_seconds),
        len(now),
    )


def _known(trial: Trial) -> bool:
    outcome: Outcome | None = trial.outcome
    return outcome is not None and outcome.joules is not None


def _at_the_top(profile: PowerProfile | None, cost: CostModel) -> tuple[float, float]:
    """How many times the energy and the time of the best limit the highest one takes."""
    if profile is None or not profile.slices:
        return 1.0, 1.0
    top, best = profile.slices[0], profile.at(profile.best_limit(cost))
    return top.joules / top.steps * best.steps / best.joules, top.seconds / top.steps * best.steps / best.seconds
