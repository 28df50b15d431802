"""Ours: Cost(b) = Epochs(b) x EpochCost(b), where one epoch tells EpochCost and neighbours tell of each other's Epochs.

    nothing known ──▶ b0 ──▶ is a try of another size worth it? ──yes──▶ EXPLORING, stopped once it is hopeless
                                         └──no──▶ the best known, or one that may be as good (SAMPLING)

docs/structured-policy.md has the model, the formulas and what was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.optimizer.batch_size.knowledge import Knowledge
from zeus.optimizer.batch_size.normal import beyond, capped, cdf, exp, gain
from zeus.optimizer.batch_size.past import all_crashed
from zeus.optimizer.batch_size.stopping import fits
from zeus.optimizer.batch_size.thompson import Rng

HORIZON = 10.0  # recurrences over which a better size pays back its trial
OVERDUE = 0.5  # of the recurrences since a size last ran, over which what was missed may pay for another look
REACH = 2.0  # octaves from the best known within which sizes are tried
TRIES = 3  # explorations in one recurrence
AT_ONCE = 2  # explorations in flight
EARLY = 1  # of them before anything has reached the target, when none can be stopped yet
SMALLER = 1.02  # of two trials worth the same the smaller size first: it is the surer to fit in memory
TEMPER = 0.4  # of the posterior's spread in sampling
LEAST_LEFT = 0.1  # of the epochs that a run has done: it is never believed to be closer to its end


class Worth(NamedTuple):
    """What a trial of a size promises, in units of a recurrence at the best known."""

    arm: int
    value: float
    chance: float  # to be better than the best known
    saving: float  # of a recurrence, where it is
    price: float  # of the trial, beyond a recurrence at the best known
    overdue: bool  # whether it is worth it only because it has not run for so long


@dataclass(frozen=True, slots=True)
class StructuredPolicy:
    """The structured policy; an ablation goes without the alarm that notices drift."""

    name: str = "structured"
    version: int = 1
    alarm: bool = True

    def start(self, job: JobSpec) -> Knowledge:
        """Nothing has happened yet."""
        return Knowledge.start(job, self.alarm)

    def observe(self, state: Knowledge, event: Event) -> Knowledge:
        """The next event of the job's history."""
        return state.observe(event)

    def decide(self, state: Knowledge, rng: Rng, ask: Ask) -> Decision:
        """The batch size of the next trial."""
        usable = state.usable(ask.gpu_model)
        if not usable:
            raise all_crashed(state.job, ask.gpu_model)
        best = state.best(ask.gpu_model, usable)
        size = state.job.batch_sizes[best]
        failed = state.failed.get(ask.recurrence, ())
        if ask.last:
            return Decision(size, Phase.UNBOUNDED, f"the last try: {size}, the best known, with no bound")
        if len(usable) == 1:
            only = "only batch size" if len(state.job.batch_sizes) == 1 else "only batch size that has not crashed"
            return Decision(size, Phase.SAMPLING, f"{size} is the {only}")
        if not state.converged:
            return _search(state, ask, usable, failed)
        return _explore_or_not(state, rng, ask, usable, best, failed)

    def keep_going(self, state: Knowledge, trial: Trial, epochs: int, cost: float) -> bool:
        """Whether a trial that ran so many epochs may begin the next, after which it would have this cost."""
        if epochs >= state.job.max_epochs:
            return False
        limit, arm, model = trial.decision.cost_limit, state.arms.get(trial.batch_size), trial.ask.gpu_model
        if limit is None:
            return True
        if not epochs or arm is None or not state.converged:  # after a revision there may be nothing to compare with
            return fits(cost, limit)
        best = state.best(model, state.usable(model) or [arm])
        return arm == best or (fits(cost, limit) and _hopeful(state, model, arm, best, epochs))


def _explore_or_not(
    state: Knowledge, rng: Rng, ask: Ask, usable: list[int], best: int, failed: tuple[int, ...]
) -> Decision:
    """The try that is most worth it; if none is, the best known or one that may be as good."""
    size = state.job.batch_sizes[best]
    if len(failed) >= TRIES:
        return Decision(size, Phase.SAMPLING, f"{size}, the best known, after {len(failed)} tries that failed")
    if not state.costs.get(ask.gpu_model):
        return Decision(size, Phase.SAMPLING, f"{size}, the best known: what an epoch costs here is not known yet")
    limit = state.job.beta_knob * exp(state.log_cost(best, ask.gpu_model))
    costs = state.epoch_costs(ask.gpu_model).mean
    reach = [arm for arm in _in_reach(state, usable, best) if arm == best or fits(exp(costs[arm]), limit)]
    worth = _most_worth(state, ask.gpu_model, reach, best, failed, AT_ONCE)
    if worth is not None:
        return Decision(state.job.batch_sizes[worth.arm], Phase.EXPLORING, _why(state, worth, size), limit)
    if not failed:
        other = _sample(state, ask.gpu_model, reach, best, rng)
        if other != best:
            drawn = state.job.batch_sizes[other]
            return Decision(drawn, Phase.SAMPLING, f"{drawn}, which may be as good as {size}", limit)
    return Decision(size, Phase.SAMPLING, f"{size}, the best known: no other is worth a try")


def _in_reach(state: Knowledge, usable: list[int], best: int) -> list[int]:
    """Arms next to the best known or not far from it, but none beyond a size that never reached the target."""
    octaves = state.octaves
    here = octaves[best]
    low = max((arm for arm in usable if arm < best and state.is_dead(arm)), default=-1)
    high = min((arm for arm in usable if arm > best and state.is_dead(arm)), default=len(octaves))
    return [
        arm for arm in usable if low < arm < high and (abs(arm - best) <= 1 or abs(octaves[arm] - here) <= REACH + 1e-9)
    ]


def _most_worth(
    state: Knowledge, model: str, reach: list[int], best: int, failed: tuple[int, ...], at_once: int
) -> Worth | None:
    """The exploration with the largest value above 0."""
    others = state.exploring
    if len(others) >= at_once:
        return None
    horizon = min(HORIZON, state.in_flight / 2) if others else HORIZON
    alone = not others and not failed
    open_arms = {one.arm for one in state.running.values()}
    found: Worth | None = None
    for arm in reach:
        if arm != best and arm not in failed and arm not in others:
            overdue = _overdue(state, arm, best) if alone and arm not in open_arms else 0.0
            worth = _worth(state, model, arm, best, horizon, overdue)
            if worth is not None and worth.value > (found.value if found else 0.0):
                found = worth
    return found


def _worth(state: Knowledge, model: str, arm: int, best: int, horizon: float, overdue: float) -> Worth | None:
    """V = max(H G(δ, s), O G(δ, S)) - (E[cost of a run] / C - 1): what a run of this size is worth, less its price.

    H G(δ, s): what it may teach (s) saves over the horizon. O G(δ, S): what knowing all (S) would have saved since.
    None: no more than its price, whatever it taught.
    """
    epochs, costs = state.lessons.belief, state.epoch_costs(model)
    delta = state.log_cost(arm, model) - state.log_cost(best, model)
    unknown_cost, unknown_epochs = costs.apart(arm, best), epochs.apart(arm, best)
    variance = (epochs.var[arm] if state.converged else unknown_epochs) + unknown_cost
    price = exp(delta + variance / 2) - 1
    if abs(arm - best) == 1:  # across a wide gap little is known of a neighbour, but at its bound it is stopped
        price = min(price, capped(delta, math.sqrt(variance), state.job.beta_knob) - 1)
    if arm in state.converged:  # nor is it free where it may be as good, if its bound is so close that luck is refused
        price += cdf((delta - math.log(state.job.beta_knob)) / math.sqrt(variance + state.lessons.noise))
    truly = math.sqrt(unknown_epochs + unknown_cost)
    saving = gain(delta, truly)
    if delta >= 0 and max(horizon, overdue) * saving <= price:  # S is never less than s
        return None
    teaches = horizon * gain(delta, math.sqrt(_told(state, arm, best) ** 2 + unknown_cost))
    value = (max(teaches, overdue * saving) - price) * (SMALLER if arm < best else 1.0)
    chance = cdf(-delta / truly) if truly > 0 else float(delta < 0)
    return Worth(arm, value, chance, saving / max(chance, 1e-12), price, teaches <= price)


def _overdue(state: Knowledge, arm: int, best: int) -> float:
    """Recurrences since this size last ran, as far as they count; of those that never converged, only of neighbours."""
    return OVERDUE * state.unseen(arm) if arm in state.converged or abs(arm - best) == 1 else 0.0


def _told(state: Knowledge, arm: int, best: int) -> float:
    """How far one more run of this size may move what is believed of it against the best known: a deviation."""
    belief = state.lessons.belief
    apart = max(belief.var[arm] - float(belief.cov[arm, best]), 0.0)
    return apart / math.sqrt(max(belief.var[arm], 1e-12) + state.lessons.noise)


def _hopeful(state: Knowledge, model: str, arm: int, best: int, epochs: int) -> bool:
    """max(H G(δ, s), O G(δ, S)) >= E[epochs left] EpochCost / C - 1: its end is worth what is left of the run."""
    belief, costs = state.lessons.belief, state.epoch_costs(model)
    usual = state.log_cost(best, model)
    delta = state.log_cost(arm, model) - usual
    deviation = math.sqrt(max(belief.var[arm], 1e-8) + state.lessons.noise)
    left = max(beyond(belief.mean[arm], deviation, epochs) - epochs, LEAST_LEFT * epochs)
    epoch = exp(costs.mean[arm] - usual)
    price = left * epoch - 1
    if abs(arm - best) == 1:  # as when it was launched
        whole = capped(belief.mean[arm] + costs.mean[arm] - usual, deviation, state.job.beta_knob, epochs * epoch)
        price = min(price, whole - epochs * epoch - 1)
    teaches = HORIZON * gain(delta, _told(state, arm, best))
    return max(teaches, _overdue(state, arm, best) * gain(delta, math.sqrt(belief.apart(arm, best)))) >= price


def _sample(state: Knowledge, model: str, reach: list[int], best: int, rng: Rng) -> int:
    """Thompson among the sizes that converged, with a tempered spread."""
    known = [arm for arm in reach if arm in state.converged]
    if len(known) < 2:
        return best
    draws = state.draw(known, TEMPER, rng)
    return min(known, key=lambda arm: (state.log_cost(arm, model) + draws[arm], arm))


def _search(state: Knowledge, ask: Ask, usable: list[int], failed: tuple[int, ...]) -> Decision:
    """Nothing has reached the target yet: the default; where that failed, the likeliest to do so for its cost."""
    model, sizes = ask.gpu_model, state.job.batch_sizes
    if not failed and not state.missed:
        best = state.best(model, usable)
        reach = _in_reach(state, usable, best) if state.running and len(usable) > 2 else []
        beside = _most_worth(state, model, reach, best, failed, EARLY)
        if beside is not None:
            return Decision(sizes[beside.arm], Phase.EXPLORING, _why(state, beside, sizes[best]))
        return Decision(sizes[best], Phase.SAMPLING, f"{sizes[best]}, as nothing has reached the target yet")
    epochs, costs, most = state.lessons.belief, state.epoch_costs(model), math.log(state.job.max_epochs)

    def hope(arm: int) -> float:
        chance = cdf((most - epochs.mean[arm]) / math.sqrt(epochs.var[arm] + state.lessons.noise))
        return math.log(max(chance, 1e-300)) - costs.mean[arm]

    arm = min(usable, key=lambda arm: (arm in failed, state.missed.get(arm, 0.0), -hope(arm), arm))
    reason = f"{sizes[arm]}: nothing has reached the target yet, and this is the likeliest to for what it costs"
    return Decision(sizes[arm], Phase.EXPLORING, reason)


def _why(state: Knowledge, worth: Worth, best: int) -> str:
    size = state.job.batch_sizes[worth.arm]
    price = f"costs about {worth.price:.2g} recurrences" if worth.price > 0.005 else "costs nothing on average"
    chance, saving = f"{100 * worth.chance:.0f} %", f"{100 * worth.saving:.0f} %"
    why = f"trying {size}: {chance} chance to beat {best} by {saving} on average; {price}"
    if not worth.overdue:
        return why
    last = state.ran.get(worth.arm)
    return f"{why}, and it {'never ran' if last is None else f'last ran {state.ended - last} recurrences ago'}"
