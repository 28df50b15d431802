"""Algorithm 3: the paper's policy. Prune from the default outward, twice, then sample; stop early at β·min C."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.optimizer.batch_size.past import Past
from zeus.optimizer.batch_size.stopping import fits
from zeus.optimizer.batch_size.thompson import Gaussian, Rng, beliefs, predict


@dataclass(frozen=True, slots=True)
class PaperPolicy:
    """The paper's policy, or with one of its parts taken out."""

    name: str = "paper"
    version: int = 1
    pruning: bool = True
    early_stop: bool = True

    def start(self, job: JobSpec) -> Past:
        """Nothing has happened yet."""
        return Past(job, job.num_pruning_rounds if self.pruning else 0)

    def observe(self, state: Past, event: Event) -> Past:
        """The next event of the job's history."""
        return state.observe(event)

    def decide(self, state: Past, rng: Rng, ask: Ask) -> Decision:
        """The batch size of the next trial."""
        model = ask.gpu_model
        limit = state.limit(model) if self.early_stop else None
        best = state.best_known(model)
        if ask.last:
            return Decision(best, Phase.UNBOUNDED, f"the last try: {best}, the best known, with no bound")
        if len(state.job.batch_sizes) == 1:
            return Decision(best, Phase.SAMPLING, f"{best} is the only batch size")
        if state.side(model).walk.done:
            return self._sample(state, rng, model, limit, best)
        if state.explored_by_another(model):
            what = "the best known" if state.costs(best, model).count else "as nothing has converged yet"
            return Decision(best, Phase.CONCURRENT, f"{best}, {what}, while another trial explores", limit)
        walk = state.side(model).walk
        where = "below" if walk.current < walk.default else "above" if walk.current > walk.default else "at"
        turn = f"pruning, round {state.rounds - walk.rounds_left + 1} of {state.rounds}"
        reason = f"{turn}: exploring {walk.current}, {where} {walk.default}" + _remark(state, model)
        return Decision(walk.current, Phase.PRUNING, reason, limit)

    def keep_going(self, state: Past, trial: Trial, epochs: int, cost: float) -> bool:
        """Whether a trial that ran so many epochs may begin the next, after which it would have this cost."""
        return epochs < state.job.max_epochs and fits(cost, trial.decision.cost_limit)

    def _sample(self, state: Past, rng: Rng, model: str, limit: float | None, best: int) -> Decision:
        job, side = state.job, state.side(model)
        kept = [size for size in side.walk.sizes if size not in side.crashed]
        sizes = [size for size in kept if state.first_epoch_fits(size, model, limit)]
        if not kept:
            reason = f"{best}: each size that converged has crashed since" + _remark(state, model)
            return Decision(best, Phase.SAMPLING, reason, limit)
        if not sizes:
            reason = f"{best}, the best known, with no bound: not even one epoch of {kept} fits under {limit:g}"
            return Decision(best, Phase.UNBOUNDED, reason)
        prior = Gaussian(job.mab_prior_mean, job.mab_prior_precision)
        costs = {size: state.costs(size, model) for size in sizes}
        looks = {size: max(state.looks(size, model), costs[size].count) for size in sizes}
        unknown = [size for size in sizes if looks[size] < job.mab_num_explorations]
        if unknown and prior.precision == 0:
            size = min(unknown, key=lambda b: (looks[b], abs(b - side.walk.default), b))
            return Decision(size, Phase.SAMPLING, f"{size} has been seen {looks[size]} times only", limit)
        arms = {
            size: arm
            for size, arm in beliefs(costs, prior).items()
            if not isinstance(arm, Gaussian) or arm.precision > 0
        }
        if not arms:
            return Decision(best, Phase.SAMPLING, f"{best}: no run has told what it cost yet", limit)
        size = predict(arms, rng)
        reason = f"{size} drew the least of {len(arms)} sampled mean costs" + _remark(state, model)
        return Decision(size, Phase.SAMPLING, reason, limit)


def _remark(state: Past, model: str) -> str:
    """What the owner should know of the default."""
    default, side = state.job.default_batch_size, state.side(model)
    if default in side.crashed:
        return f" (the default, {default}, crashed)"
    failed = side.looks.get(default, 0) > 0 and default not in side.walk.cheapest
    return f" (the default, {default}, has not reached the target)" if failed else ""
