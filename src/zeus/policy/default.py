"""The policy `default`: always the default batch size. Zeus compares the other policies with it."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.errors import InputError
from zeus.job import Ask, Decision, Event, JobSpec, Phase, Trial
from zeus.policy.common import Rng
from zeus.policy.paper.state import PaperState


@dataclass(frozen=True, slots=True)
class DefaultPolicy:
    """Always the default batch size, at any cost."""

    name: str = "default"
    version: int = 1
    monotone: bool = True

    def start(self, job: JobSpec) -> PaperState:
        return PaperState(job, rounds=0)

    def observe(self, state: PaperState, event: Event) -> PaperState:
        return state.observe(event)

    def decide(self, state: PaperState, rng: Rng, ask: Ask) -> Decision:
        default = state.job.default_batch_size
        if default in state.side(ask.gpu_model).crashed:
            raise InputError(
                f"job {state.job.id!r}: the default batch size {default} crashed or ran out of memory. Fix the "
                "training script, choose another default, or use policy 'structured', which can find one."
            )
        return Decision(default, Phase.DEFAULT, f"this policy always runs {default}, the default batch size")

    def keep_going(self, state: PaperState, trial: Trial, epochs: int, cost: float) -> bool:
        return epochs < state.job.max_epochs
