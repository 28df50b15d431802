"""The structured policy: Cost(b) = Epochs(b) x EpochCost(b).

One epoch is enough to know EpochCost(b). Epochs(b) is also learnt from neighbouring sizes.

    nothing known ──▶ b0 ──▶ is a trial of another size worth it? ──yes──▶ EXPLORING, stopped once it is hopeless
                                         └──no──▶ the best size so far, or one that may be as good (SAMPLING)

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
OVERDUE = 0.5  # share of the recurrences since a size last ran for which a possible missed saving counts
REACH = 2.0  # octaves around the best size within which sizes are explored
TRIES = 3  # explorations in one recurrence
AT_ONCE = 2  # explorations running at the same time
EARLY = 1  # the same, before any size has reached the target and runs have a bound
SMALLER = 1.02  # factor that prefers the smaller of two equal sizes: it is more likely to fit in memory
TEMPER = 0.4  # share of the posterior's deviation that sampling uses
LEAST_LEFT = 0.1  # a run is assumed to need at least this share of the epochs it has done


class Worth(NamedTuple):
    """The value of running a size, in units of a recurrence with the best size so far."""

    arm: int
    value: float  # expected saving minus the price
    price: float  # expected cost of the rest of the run, minus that of a recurrence with the best size
    delta: float  # log of its believed cost divided by that of the best size
    spread: float  # standard deviation of that log
    overdue: bool  # whether it is worth it only because it has not run for a long time


@dataclass(frozen=True, slots=True)
class StructuredPolicy:
    """The structured policy, or an ablation without the alarm that detects drift."""

    name: str = "structured"
    version: int = 1
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
        return _explore_or_not(state, rng, ask, usable, best, failed)

    def keep_going(self, state: StructuredState, trial: Trial, epochs: int, cost: float) -> bool:
        if epochs >= state.job.max_epochs:
            return False
        limit, arm, model = trial.decision.cost_limit, state.arms.get(trial.batch_size), trial.ask.gpu_model
        if limit is None:
            return True
        if not epochs or arm is None or not state.converged:  # nothing to compare with, as after a revision
            return fits(cost, limit)
        best = state.best(model, state.usable(model) or [arm])
        return arm == best or (fits(cost, limit) and _goes_on(state, model, arm, best, epochs))


def _explore_or_not(
    state: StructuredState, rng: Rng, ask: Ask, usable: list[int], best: int, failed: tuple[int, ...]
) -> Decision:
    """The exploration that is most worth it. If none is: the best size so far, or one that may be as good."""
    size = state.job.batch_sizes[best]
    is_best = why_best(size, reached=best in state.converged)
    if len(failed) >= TRIES:
        return Decision(size, Phase.SAMPLING, f"{is_best}; {len(failed)} tries of this recurrence have failed")
    if not state.costs.get(ask.gpu_model):
        return Decision(size, Phase.SAMPLING, f"{is_best}; the cost of an epoch on these GPUs is not known yet")
    beta = state.job.beta_knob
    limit = None if beta is None else beta * exp(state.log_cost(best, ask.gpu_model))
    costs = state.epoch_costs(ask.gpu_model).mean
    reach = [arm for arm in _in_reach(state, usable, best) if arm == best or fits(exp(costs[arm]), limit)]
    worth = _most_worth(state, ask.gpu_model, reach, best, failed, AT_ONCE)
    if worth is not None:
        return Decision(state.job.batch_sizes[worth.arm], Phase.EXPLORING, _why(state, worth, size), limit)
    if not failed:
        other = _sample(state, ask.gpu_model, reach, best, rng)
        if other != best:
            drawn = state.job.batch_sizes[other]
            return Decision(drawn, Phase.SAMPLING, f"{drawn} may be as good as {size}, the best size so far", limit)
    return Decision(size, Phase.SAMPLING, f"{is_best}; no other looks worth trying")


def _in_reach(state: StructuredState, usable: list[int], best: int) -> list[int]:
    """Arms next to the best one or within REACH, but none beyond a size that never reached the target."""
    octaves = state.octaves
    here = octaves[best]
    low = max((arm for arm in usable if arm < best and state.is_dead(arm)), default=-1)
    high = min((arm for arm in usable if arm > best and state.is_dead(arm)), default=len(octaves))
    return [
        arm for arm in usable if low < arm < high and (abs(arm - best) <= 1 or abs(octaves[arm] - here) <= REACH + 1e-9)
    ]


def _most_worth(
    state: StructuredState, model: str, reach: list[int], best: int, failed: tuple[int, ...], at_once: int
) -> Worth | None:
    """The exploration with the largest value; None if no value is above 0."""
    others = state.exploring
    if len(others) >= at_once:
        return None
    horizon = min(HORIZON, state.in_flight / 2) if others else HORIZON
    alone = not others and not failed
    open_arms = {one.arm for one in state.running.values()}
    found, most = None, 0.0
    for arm in reach:
        if arm != best and arm not in failed and arm not in others:
            overdue = _overdue(state, arm, best) if alone and arm not in open_arms else 0.0
            worth = _worth(state, model, arm, best, 0, horizon, overdue)
            value = worth.value * (SMALLER if arm < best else 1.0)
            if value > most:
                found, most = worth, value
    return found


def _worth(state: StructuredState, model: str, arm: int, best: int, done: int, horizon: float, overdue: float) -> Worth:
    """V = max(H G(δ, s), O G(δ, S)) - price: the value of the rest of a run after `done` epochs (0 at its launch).

    H G(δ, s) is the expected saving over the horizon if one run may move the belief by s. O G(δ, S) is the saving
    missed since the size last ran, if its cost is known only up to S.
    """
    belief, costs, noise = state.lessons.belief, state.epoch_costs(model), state.lessons.noise
    usual = state.log_cost(best, model)
    delta = state.log_cost(arm, model) - usual
    cost_variance = costs.apart(arm, best)
    spread = math.sqrt(belief.apart(arm, best) + cost_variance)
    moved = max(belief.var[arm] - float(belief.cov[arm, best]), 0.0) / math.sqrt(max(belief.var[arm], 1e-12) + noise)
    price = _price(state, arm, best, delta, math.sqrt(spread * spread + noise), exp(costs.mean[arm] - usual), done)
    taught = horizon * gain(delta, math.sqrt(moved * moved + cost_variance))
    value = max(taught, overdue * gain(delta, spread)) - price
    return Worth(arm, value, price, delta, spread, taught <= price)


def _price(
    state: StructuredState, arm: int, best: int, delta: float, deviation: float, epoch_cost: float, done: int
) -> float:
    """E[cost of the rest of a run | `done` epochs were not enough] / C - 1.

    A launch is priced as if the run needs more than one epoch. Otherwise the rest could cost more after the first epoch
    than the whole run did before it.
    """
    spent = done * epoch_cost
    least = max(done, 1) * epoch_cost if state.converged else 0.0
    known = arm in state.converged  # a run of such a size may cross a close bound by bad luck alone
    whole = beyond(delta, deviation, least, state.job.beta if known else math.inf)
    if not known and abs(arm - best) == 1:  # little is known about a distant neighbour, but its bound limits the loss
        whole = min(whole, beyond(delta, deviation, least, state.job.beta))
    return max(whole - spent, LEAST_LEFT * spent) - 1


def _goes_on(state: StructuredState, model: str, arm: int, best: int, done: int) -> bool:
    """Whether the rest of a run is worth its price after `done` epochs."""
    return _worth(state, model, arm, best, done, HORIZON, _overdue(state, arm, best)).value >= 0


def _overdue(state: StructuredState, arm: int, best: int) -> float:
    """Half the recurrences since a size last ran; 0 for sizes that never converged, except neighbours of the best."""
    return OVERDUE * state.unseen(arm) if arm in state.converged or abs(arm - best) == 1 else 0.0


def _sample(state: StructuredState, model: str, reach: list[int], best: int, rng: Rng) -> int:
    """Thompson sampling among the sizes that converged, with a reduced deviation.

    A size that would be stopped after its first epoch is not chosen.
    """
    known = [arm for arm in reach if arm in state.converged]
    if len(known) < 2:
        return best
    draws = state.draw(known, TEMPER, rng)
    drawn = min(known, key=lambda arm: (state.log_cost(arm, model) + draws[arm], arm))
    return drawn if drawn == best or _goes_on(state, model, drawn, best, 1) else best


def _search(state: StructuredState, ask: Ask, usable: list[int], failed: tuple[int, ...]) -> Decision:
    """No size has reached the target yet: start with the default. If that failed, take the best chance for its cost."""
    model, sizes = ask.gpu_model, state.job.batch_sizes
    if not failed and not state.missed:
        best = state.best(model, usable)
        reach = _in_reach(state, usable, best) if state.running and len(usable) > 2 else []
        beside = _most_worth(state, model, reach, best, failed, EARLY)
        if beside is not None:
            return Decision(sizes[beside.arm], Phase.EXPLORING, _why(state, beside, sizes[best]))
        return Decision(sizes[best], Phase.SAMPLING, f"{sizes[best]} comes first; no size has reached the target yet")
    epochs, costs, most = state.lessons.belief, state.epoch_costs(model), math.log(state.job.max_epochs)

    def hope(arm: int) -> float:
        chance = cdf((most - epochs.mean[arm]) / math.sqrt(epochs.var[arm] + state.lessons.noise))
        return math.log(max(chance, 1e-300)) - costs.mean[arm]

    arm = min(usable, key=lambda arm: (arm in failed, state.missed.get(arm, 0.0), -hope(arm), arm))
    reason = f"no size has reached the target yet; {sizes[arm]} has the best chance for its cost"
    return Decision(sizes[arm], Phase.EXPLORING, reason)


def _why(state: StructuredState, worth: Worth, best: int) -> str:
    size = state.job.batch_sizes[worth.arm]
    price = f"{100 * worth.price:.0f} % of one run" if worth.price > 0.005 else "none"
    chance = cdf(-worth.delta / max(worth.spread, 1e-9))
    saving = gain(worth.delta, worth.spread) / max(chance, 1e-12)
    why = (
        f"{size} has a {100 * chance:.0f} % chance to beat {best}, by {100 * saving:.0f} % on average; "
        f"expected extra cost: {price}"
    )
    if not worth.overdue:
        return why
    last = state.ran.get(worth.arm)
    ago = 0 if last is None else state.ended - last
    when = "has never run" if last is None else f"last ran {ago} recurrence{'' if ago == 1 else 's'} ago"
    return f"{why}; it {when}"
