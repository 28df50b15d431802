"""What a job's recurrences use now, against what they would with the defaults: b0 and the highest power limit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from zeus.cost import CostModel
from zeus.job import Ending, Outcome, Trial
from zeus.optimizer.batch_size.summary import beside_epochs
from zeus.profile import PowerProfile

LATEST = 5  # recurrences that stand for "now"


class Spent(Protocol):
    """What a recurrence used, all its tries together."""

    @property
    def joules(self) -> float | None:
        """Energy; None where it is not known."""

    @property
    def seconds(self) -> float:
        """Time."""


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
    latest: Sequence[Spent],
    past: Iterable[Trial],
    default: int,
    profile: PowerProfile | None,
    cost: CostModel,
    by_epoch: bool,
) -> Gain | None:
    """The comparison; None where the default never reached the target here, so that there is nothing to compare with.

    Args:
        latest: Recurrences, the newest last; all their tries count.
        past: Trials of the job on these GPUs with this target, the oldest first.
        default: b0.
        profile: Of b0: what its trials, which ran at better limits, would have used at the highest.
        cost: What is charged.
        by_epoch: Whether a step of the profile is an epoch.
    """
    ended = [one.outcome for one in past if one.batch_size == default and one.ending is Ending.CONVERGED]
    runs = [one for one in ended if one is not None and one.joules is not None]
    now = [(one.joules, one.seconds) for one in latest[-LATEST:] if one.joules is not None]
    if not runs or not now:
        return None
    joules, seconds = _at_the_top(runs, profile, cost, by_epoch)
    now_joules, now_seconds = fmean(j for j, _ in now), fmean(s for _, s in now)
    costs = cost.cost(joules, seconds), cost.cost(now_joules, now_seconds)
    return Gain(joules, seconds, costs[0], now_joules, now_seconds, costs[1], len(now))


def _at_the_top(
    runs: Sequence[Outcome], profile: PowerProfile | None, cost: CostModel, by_epoch: bool
) -> tuple[float, float]:
    """Mean joules and seconds of these runs, had they run at the highest limit."""
    more = (1.0, 1.0)
    if profile is not None and profile.slices:
        top, best = profile.slices[0], profile.at(profile.best_limit(cost))
        if by_epoch:
            epochs = fmean(one.epochs for one in runs) / top.steps
            most = max(one.joules / one.steps for one in profile.slices)
            longest = max(one.seconds / one.steps for one in profile.slices)
            beside = beside_epochs(runs, most, longest)
            return epochs * top.joules + beside[0], epochs * top.seconds + beside[1]
        if len(runs) > 1:  # the first was profiling, at no one limit; alone it stands for itself, which says too little
            runs = runs[1:]
            more = (
                top.joules / top.steps * best.steps / best.joules,
                top.seconds / top.steps * best.steps / best.seconds,
            )
    return more[0] * fmean(one.joules or 0.0 for one in runs), more[1] * fmean(one.seconds for one in runs)
