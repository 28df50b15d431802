"""The structured policy: Cost(b) = Epochs(b) x EpochCost(b).

One epoch is enough to know EpochCost(b). Epochs(b) is also learnt from neighbouring sizes.

    nothing known ──▶ b0 ──▶ is a run of another size worth it? ──yes──▶ EXPLORING, stopped once it is hopeless
                                        └──no──▶ the best size so far (SAMPLING)

docs/structured-policy.md has the model, the formulas and the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from zeus.cost import fits
from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.policy.common import Rng, all_crashed, why_best
from zeus.policy.structured.normal import beyond, cdf, exp, gain
from zeus.policy.structured.state import StructuredState

HORIZON = 10.0  # recurrences in which a better size must pay back its exploration
OVERDUE = 0.5  # recurrences for which a possible missed saving counts, for each since a size that converged last ran
NEVER_RAN = 2.0  # the same for a neighbour of the best size that never converged
REACH = 4.0  # sizes that are so many times the best size, or its part, are explored
AT_ONCE = 2  # explorations running at the same time
EARLY = 1  # the same, before any size has reached the target and runs have a bound
MODEST, MOST = 0.6, 0.95  # a stated chance above a half: the power of its odds, as no model is sure; and the largest


class Worth(NamedTuple):
    """The value of running a size, in units of a recurrence with the best size so far."""

    arm: int
    value: float  # expected saving minus the price
    price: float  # expected cost of the rest of the run, minus that of a recurrence with the best size
    chance: float  # that it is cheaper than the best size
    saving: float  # expected share of the cost that it saves, if it is cheaper
    overdue: bool  # whether it is worth it only because it has not run for a long time


@dataclass(frozen=True, slots=True)
class StructuredPolicy:
    """The structured policy, or an ablation without the alarm that detects drift."""

    name: str = "structured"
    version: int = 2
    alarm: bool = True

    def start(self, job: JobSpec) -> StructuredState:
        return StructuredState.start(job, self.alarm)

    def observe(self, state: StructuredState, event: Event) -> StructuredState:
        return state.observe(event)

    def decide(self, state: StructuredState, rng: Rng, ask: Ask) -> Decision:
        usable = state.usable(ask.gpu_model)
        if not usable:
            raise all_crashed(state.job, ask.gpu_model)
        best = state.best(ask.gpu_model, usable)
        size = state.job.batch_sizes[best]
        failed = state.failed.get(ask.recurrence, ())
        if ask.last:
            why = why_best(size, reached=best in state.converged)
            return Decision(size, Phase.UNBOUNDED, f"{why}; the last try has no bound")
        if len(usable) == 1:
            only = "only batch size" if len(state.job.batch_sizes) == 1 else "only batch size that has not crashed"
            return Decision(size, Phase.SAMPLING, f"{size} is the {only}")
        if not state.converged:
            return _search(state, ask, usable, failed)
        return _explore_or_not(state, ask, usable, best, failed)

    def keep_going(self, state: StructuredState, trial: Trial, epochs: int, cost: float) -> bool:
        if epochs >= state.job.max_epochs:
            return False
        limit, size, model = trial.decision.cost_limit, trial.batch_size, trial.ask.gpu_model
        if limit is None:
            return True
        if not epochs or size not in state.job.batch_sizes or not state.converged:  # nothing to compare with
            return fits(cost, limit)
        arm = state.arm(size)
        best = state.best(model, state.usable(model) or [arm])
        if arm == best or not fits(cost, limit):
            return arm == best
        return _worth(state, model, arm, best, epochs, HORIZON, _overdue(state, arm, best)).value >= 0


def _explore_or_not(
    state: StructuredState, ask: Ask, usable: list[int], best: int, failed: tuple[int, ...]
) -> Decision:
    """The exploration that is most worth it; if none is, the best size so far."""
    size = state.job.batch_sizes[best]
    is_best = why_best(size, reached=best in state.converged)
    if not state.costs.get(ask.gpu_model):
        return Decision(size, Phase.SAMPLING, f"{is_best}; the cost of an epoch on these GPUs is not known yet")
    beta = state.job.beta_knob
    limit = None if beta is None else beta * exp(state.log_cost(best, ask.gpu_model))
    costs = state.epoch_costs(ask.gpu_model).mean
    open_to = [arm for arm in usable if fits(exp(costs[arm]), limit) and not state.is_dead(arm)]
    worth = _most_worth(state, ask.gpu_model, open_to, best, failed, AT_ONCE)
    if worth is not None:
        return Decision(state.job.batch_sizes[worth.arm], Phase.EXPLORING, _why(state, worth, size), limit)
    return Decision(size, Phase.SAMPLING, f"{is_best}; no other looks worth trying")


def _most_worth(
    state: StructuredState, model: str, open_to: list[int], best: int, failed: tuple[int, ...], at_once: int
) -> Worth | None:
    """The exploration with the largest value among sizes in reach; None if no value is above 0."""
    others = state.exploring
    if len(others) >= at_once:
        return None
    horizon = min(HORIZON, state.in_flight / 2) if others else HORIZON
    alone = not others and not failed
    open_arms = {one.arm for one in state.running.values()}
    sizes, found = state.job.batch_sizes, []
    for arm in open_to:
        near = abs(arm - best) == 1 or 1 / REACH <= sizes[arm] / sizes[best] <= REACH
        if near and arm != best and arm not in failed and arm not in others:
            overdue = _overdue(state, arm, best) if alone and arm not in open_arms else 0.0
            found.append(_worth(state, model, arm, best, 0, horizon, overdue))
    most = max(found, key=lambda worth: worth.value, default=None)
    return most if most is not None and most.value > 0 else None


def _worth(state: StructuredState, model: str, arm: int, best: int, done: int, horizon: float, overdue: float) -> Worth:
    """V = max(H E[G(δ, s)], O E[G(δ, S)]) - price: the value of the rest of a run after `done` epochs (0: its launch).

    H G(δ, s) is the saving over the horizon that is expected if one run may move the belief by s. O G(δ, S) is what was
    missed since the size last ran, if its cost is known only up to S. E is the mean over the shapes of the curve. The
    price is E[cost of the rest of a run | `done` epochs were not enough] / C - 1.
    """
    belief, costs, noise = state.lessons.belief, state.epoch_costs(model), state.lessons.noise
    usual = state.log_cost(best, model)
    delta = state.log_cost(arm, model) - usual
    besides = delta - (belief.mean[arm] - belief.mean[best])  # all of δ but the difference in epochs
    cost_variance = costs.apart(arm, best)
    taught = missed = chance = spreads = 0.0
    for odds, mean, var, shared, own in belief.between(arm, best):
        spread = math.sqrt(var + cost_variance)
        spreads += odds * (var + (mean + besides - delta) ** 2)
        moved = max(shared, 0.0) ** 2 / (own + noise)
        taught += odds * gain(mean + besides, math.sqrt(moved + cost_variance))
        missed += odds * gain(mean + besides, spread)
        chance += odds * cdf(-(mean + besides) / max(spread, 1e-9))
    deviation = math.sqrt(spreads + cost_variance + noise)
    epoch = exp(costs.mean[arm] - usual)
    # A launch is priced as if the run needs more than one epoch, or else its rest could cost more after the first.
    least = max(done, 1) * epoch if state.converged else 0.0
    # Luck alone may break a close bound; and where little is known, as of a distant neighbour, it limits the loss.
    most = state.job.beta if arm in state.converged or abs(arm - best) == 1 else math.inf
    price = beyond(delta, deviation, least, most) - done * epoch - 1
    value = max(horizon * taught, overdue * missed) - price
    return Worth(arm, value, price, chance, missed / max(chance, 1e-12), horizon * taught <= price)


def _overdue(state: StructuredState, arm: int, best: int) -> float:
    """Recurrences for which a saving may have been missed by not running a size."""
    between = range(min(arm, best) + 1, max(arm, best))
    if arm in state.converged:
        return OVERDUE * state.unseen(arm)
    if all(other in state.converged for other in between):
        return (OVERDUE if between else NEVER_RAN) * state.unseen(arm)
    return 0.0


def _search(state: StructuredState, ask: Ask, usable: list[int], failed: tuple[int, ...]) -> Decision:
    """No size has reached the target yet: start with the default. If that failed, take the best chance for its cost."""
    model, sizes = ask.gpu_model, state.job.batch_sizes
    if not failed and not state.missed:
        best = state.best(model, usable)
        open_to = usable if state.running and len(usable) > 2 else []
        beside = _most_worth(state, model, open_to, best, failed, EARLY)
        if beside is not None:
            return Decision(sizes[beside.arm], Phase.EXPLORING, _why(state, beside, sizes[best]))
        return Decision(*_first(state, model, usable, best))
    epochs, costs, most = state.lessons.belief, state.epoch_costs(model), math.log(state.job.max_epochs)

    def hope(arm: int) -> float:
        chance = cdf((most - epochs.mean[arm]) / math.sqrt(epochs.var[arm] + state.lessons.noise))
        return math.log(max(chance, 1e-300)) - costs.mean[arm]

    arm = min(usable, key=lambda arm: (arm in failed, state.missed.get(arm, 0.0), -hope(arm), arm))
    reason = f"no size has reached the target yet; {sizes[arm]} has the best chance for its cost"
    return Decision(sizes[arm], Phase.EXPLORING, reason)


def _first(state: StructuredState, model: str, usable: list[int], home: int) -> tuple[int, Phase, str]:
    """The first run: `home`, or the size with the least expected cost among those that `zeus profile` has measured."""
    sizes, known = state.job.batch_sizes, state.costs.get(model, {})

    def expected(arm: int) -> float:
        """E[cost] over that of `home`. The less is known about a size, the more its epochs may be."""
        epochs = sum(odds * exp(mean + var / 2) for odds, mean, var, _, _ in state.lessons.belief.between(arm, home))
        return epochs * exp(known[arm].mean - known[home].mean)

    open_to = [arm for arm in usable if arm in known and sizes[arm] in state.job.first_sizes]
    arm = min(open_to, key=expected) if home in open_to else home
    if arm == home:
        return sizes[home], Phase.SAMPLING, f"{sizes[home]} comes first; no size has reached the target yet"
    saved = round(100 * (1 - expected(arm)))
    reason = f"{sizes[arm]} comes first: by its profile, it is expected to cost {saved} % less than {sizes[home]}"
    return sizes[arm], Phase.SAMPLING, reason


def stated(chance: float) -> int:
    """A chance in per cent as people may believe it: of the larger ones, not all that the model promises.

    >>> stated(0.05), stated(0.5), stated(0.9), stated(1.0)
    (5, 50, 79, 95)
    """
    if chance <= 0.5:
        return round(100 * chance)
    odds = math.pow(chance / max(1 - chance, 1e-12), MODEST)
    return round(100 * min(odds / (1 + odds), MOST))


def _why(state: StructuredState, worth: Worth, best: int) -> str:
    size = state.job.batch_sizes[worth.arm]
    price = f"{100 * worth.price:.0f} % of one run" if worth.price > 0.005 else "none"
    why = (
        f"{size} has a {stated(worth.chance)} % chance to beat {best}, by {100 * worth.saving:.0f} % on average; "
        f"expected extra cost: {price}"
    )
    if not worth.overdue:
        return why
    last = state.ran.get(worth.arm)
    ago = 0 if last is None else state.ended - last
    when = "has never run" if last is None else f"last ran {ago} recurrence{'' if ago == 1 else 's'} ago"
    return f"{why}; it {when}"
