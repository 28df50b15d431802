"""Algorithm 3, the paper's policy: prune twice from the default outward, then sample. Stop early at β·min C."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.cost import fits
from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.policy.common import Rng, why_best
from zeus.policy.paper.state import PaperState, Side
from zeus.policy.paper.thompson import FLAT, Gaussian, beliefs, predict


@dataclass(frozen=True, slots=True)
class PaperPolicy:
    """The paper's policy, or an ablation without pruning or without early stopping."""

    name: str = "paper"
    version: int = 1
    pruning: bool = True
    early_stop: bool = True
    monotone: bool = True

    def start(self, job: JobSpec) -> PaperState:
        return PaperState(job, job.num_pruning_rounds if self.pruning else 0)

    def observe(self, state: PaperState, event: Event) -> PaperState:
        return state.observe(event)

    def decide(self, state: PaperState, rng: Rng, ask: Ask) -> Decision:
        model, side = ask.gpu_model, state.side(ask.gpu_model)
        limit = state.limit(model) if self.early_stop else None
        if ask.last:
            best, why = _best(state, model)
            return Decision(best, Phase.UNBOUNDED, f"{why}; the last try has no bound")
        if len(state.job.batch_sizes) == 1:
            best = state.best_known(model)
            return Decision(best, Phase.SAMPLING, f"{best} is the only batch size")
        if side.walk.done:
            return self._sample(state, rng, model, limit)
        if state.explored_by_another(model):
            best, why = _best(state, model)
            reason = f"{why}; another trial explores meanwhile"
            return _within(state, model, Decision(best, Phase.CONCURRENT, reason, limit))
        walk = side.walk
        number = state.rounds - walk.rounds_left + 1
        where = "below" if walk.current < walk.default else "above"
        which = "the starting size" if walk.current == walk.default else f"a size {where} {walk.default}"
        reason = f"pruning round {number} of {state.rounds} explores {walk.current}, {which}" + _remark(state, side)
        return Decision(walk.current, Phase.PRUNING, reason, limit)

    def keep_going(self, state: PaperState, trial: Trial, epochs: int, cost: float) -> bool:
        return epochs < state.job.max_epochs and fits(cost, trial.decision.cost_limit)

    def _sample(self, state: PaperState, rng: Rng, model: str, limit: float | None) -> Decision:
        job, side = state.job, state.side(model)
        kept = [size for size in side.walk.sizes if size not in side.crashed]
        sizes = state.fitting(kept, model, limit)
        if not kept:
            best = state.best_known(model)
            reason = f"{best} runs because all sizes that converged have crashed since" + _remark(state, side)
            return _within(state, model, Decision(best, Phase.SAMPLING, reason, limit))
        if not sizes:
            best, why = _best(state, model)
            reason = f"{why}; no bound, as not even one epoch of {kept} fits under it"
            return Decision(best, Phase.UNBOUNDED, reason)
        flat = job.mab_prior_precision == 0
        prior = FLAT if flat else Gaussian(job.mab_prior_mean, job.mab_prior_precision)
        costs = state.all_costs(sizes, model)
        few = [size for size in sizes if costs[size].count < job.mab_num_explorations]
        if few and flat:
            looks = state.looks(model)
            seen = {size: max(looks.get(size, 0), costs[size].count) for size in few}
            if min(seen.values()) < job.mab_num_explorations:
                size = min(few, key=lambda b: (seen[b], abs(b - side.walk.default), b))
                times = {0: "not run yet", 1: "run only once"}.get(seen[size], f"run only {seen[size]} times")
                return Decision(size, Phase.SAMPLING, f"{size} has {times}", limit)
            costs = {size: sample for size, sample in costs.items() if sample.count}  # the others have unknown costs
        if not costs:
            best = state.best_known(model)
            reason = f"{best} runs because no run has reported its cost yet"
            return _within(state, model, Decision(best, Phase.SAMPLING, reason, limit))
        size = predict(beliefs(costs, prior), rng)
        reason = f"{size} has the lowest of {len(costs)} sampled mean costs" + _remark(state, side)
        return Decision(size, Phase.SAMPLING, reason, limit)


def _best(state: PaperState, model: str) -> tuple[int, str]:
    """The best size so far and, in words, why it is."""
    best = state.best_known(model)
    reached = best in state.arms and state.arms[best].converged
    return best, why_best(best, reached=reached)


def _within(state: PaperState, model: str, best: Decision) -> Decision:
    """The decision for the best size so far, without its bound if not even one epoch would fit: something must run."""
    if state.fitting([best.batch_size], model, best.cost_limit):
        return best
    reason = f"{best.reason}; no bound, as not even one epoch fits under it"
    return Decision(best.batch_size, Phase.UNBOUNDED, reason)


def _remark(state: PaperState, side: Side) -> str:
    """A remark for the owner if the default size crashed or failed, else nothing."""
    default = state.job.default_batch_size
    if default in side.crashed:
        return f"; the default size {default} crashed"
    failed = side.looks.get(default, 0) > 0 and default not in side.walk.cheapest
    return f"; the default size {default} has not reached the target" if failed else ""
