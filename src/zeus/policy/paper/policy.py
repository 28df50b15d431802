"""Algorithm 3: the paper's policy. Prune from the default outward, twice, then sample; stop early at β·min C."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.cost import fits
from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.policy.paper.state import PaperState, Side
from zeus.policy.paper.thompson import FLAT, Gaussian, Rng, beliefs, predict


@dataclass(frozen=True, slots=True)
class PaperPolicy:
    """The paper's policy, or with one of its parts taken out."""

    name: str = "paper"
    version: int = 1
    pruning: bool = True
    early_stop: bool = True
    monotone: bool = True

    def start(self, job: JobSpec) -> PaperState:
        """Nothing has happened yet."""
        return PaperState(job, job.num_pruning_rounds if self.pruning else 0)

    def observe(self, state: PaperState, event: Event) -> PaperState:
        """The next event of the job's history."""
        return state.observe(event)

    def decide(self, state: PaperState, rng: Rng, ask: Ask) -> Decision:
        """The batch size of the next trial."""
        model, side = ask.gpu_model, state.side(ask.gpu_model)
        limit = state.limit(model) if self.early_stop else None
        if ask.last:
            best = state.best_known(model)
            return Decision(best, Phase.UNBOUNDED, f"the last try: {best}, the best known, with no bound")
        if len(state.job.batch_sizes) == 1:
            best = state.best_known(model)
            return Decision(best, Phase.SAMPLING, f"{best} is the only batch size")
        if side.walk.done:
            return self._sample(state, rng, model, limit)
        if state.explored_by_another(model):
            best = state.best_known(model)
            what = "the best known" if state.costs(best, model).count else "as nothing has converged yet"
            reason = f"{best}, {what}, while another trial explores"
            return _within(state, model, Decision(best, Phase.CONCURRENT, reason, limit))
        walk = side.walk
        where = "below" if walk.current < walk.default else "above" if walk.current > walk.default else "at"
        turn = f"pruning, round {state.rounds - walk.rounds_left + 1} of {state.rounds}"
        reason = f"{turn}: exploring {walk.current}, {where} {walk.default}" + _remark(state, side)
        return Decision(walk.current, Phase.PRUNING, reason, limit)

    def keep_going(self, state: PaperState, trial: Trial, epochs: int, cost: float) -> bool:
        """Whether a trial that ran so many epochs may begin the next, after which it would have this cost."""
        return epochs < state.job.max_epochs and fits(cost, trial.decision.cost_limit)

    def _sample(self, state: PaperState, rng: Rng, model: str, limit: float | None) -> Decision:
        job, side = state.job, state.side(model)
        kept = [size for size in side.walk.sizes if size not in side.crashed]
        sizes = state.fitting(kept, model, limit)
        if not kept:
            best = state.best_known(model)
            reason = f"{best}: each size that converged has crashed since" + _remark(state, side)
            return _within(state, model, Decision(best, Phase.SAMPLING, reason, limit))
        if not sizes:
            best = state.best_known(model)
            reason = f"{best}, the best known, with no bound: not even one epoch of {kept} fits under {limit:g}"
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
                return Decision(size, Phase.SAMPLING, f"{size} has been seen {seen[size]} times only", limit)
            costs = {size: sample for size, sample in costs.items() if sample.count}  # others never told their cost
        if not costs:
            best = state.best_known(model)
            reason = f"{best}: no run has told what it cost yet"
            return _within(state, model, Decision(best, Phase.SAMPLING, reason, limit))
        size = predict(beliefs(costs, prior), rng)
        reason = f"{size} drew the least of {len(costs)} sampled mean costs" + _remark(state, side)
        return Decision(size, Phase.SAMPLING, reason, limit)


def _within(state: PaperState, model: str, best: Decision) -> Decision:
    """The best known size, with no bound where not even one epoch of it would fit: it must run, or nothing does."""
    if state.fitting([best.batch_size], model, best.cost_limit):
        return best
    reason = f"{best.reason}; with no bound, as not even one epoch fits under {best.cost_limit:g}"
    return Decision(best.batch_size, Phase.UNBOUNDED, reason)


def _remark(state: PaperState, side: Side) -> str:
    """What the owner should know of the default."""
    default = state.job.default_batch_size
    if default in side.crashed:
        return f" (the default, {default}, crashed)"
    failed = side.looks.get(default, 0) > 0 and default not in side.walk.cheapest
    return f" (the default, {default}, has not reached the target)" if failed else ""
