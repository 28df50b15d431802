"""The policy `default`: always the default batch size. It is what Zeus is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.errors import InputError
from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.policy.paper.state import PaperState
from zeus.policy.paper.thompson import Rng


@dataclass(frozen=True, slots=True)
class DefaultPolicy:
    """Always the default batch size, whatever it costs: what Zeus is compared with."""

    name: str = "default"
    version: int = 1
    monotone: bool = True

    def start(self, job: JobSpec) -> PaperState:
        """Nothing has happened yet."""
        return PaperState(job, rounds=0)

    def observe(self, state: PaperState, event: Event) -> PaperState:
        """The next event of the job's history."""
        return state.observe(event)

    def decide(self, state: PaperState, rng: Rng, ask: Ask) -> Decision:
        """The default, unless it crashed."""
        default = state.job.default_batch_size
        if default in state.side(ask.gpu_model).crashed:
            raise InputError(
                f"job {state.job.id!r}: its default batch size {default} crashed or ran out of memory. Mend the "
                "training script, choose another default, or let policy 'structured' find one."
            )
        return Decision(default, Phase.DEFAULT, f"{default}, always the default")

    def keep_going(self, state: PaperState, trial: Trial, epochs: int, cost: float) -> bool:
        """Until max_epochs."""
        return epochs < state.job.max_epochs
