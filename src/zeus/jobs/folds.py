"""The states of policies, folded from the facts of their jobs and carried on from ask to ask."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from zeus.job import Ask, Decision, Ending, Event, Trial
from zeus.policy.api import decided
from zeus.policy.registry import find_policy
from zeus.policy.repricing import repriced
from zeus.store.api import START, Facts, Job, LogPoint

KEPT = 64  # folds; a service has many jobs, and one that falls out is replayed when it is asked for again


@dataclass(frozen=True, slots=True)
class _Fold:
    job: Job  # as it was folded
    point: LogPoint
    state: Any


class Folds:
    """What policies know of their jobs, each folded up to some point of its history and carried on from there.

    A cache by content: where a store has gone back to a backup, so that this point is not of its history any more, all
    is folded anew. Thrown away it is replayed. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._folds: dict[str, _Fold] = {}
        self._lock = threading.Lock()

    def state(self, job: Job, facts: Facts) -> Any:
        """The state of the job's policy after all of its facts."""
        policy = find_policy(job.spec.policy, job.policy_version)
        with self._lock:
            known = self._folds.get(job.id)  # stays there: whoever comes at the same time begins from it too
        since = START if known is None or known.job != job else known.point
        log = facts(since)
        state = policy.start(job.spec) if known is None or log.begin == START else known.state
        for event in log.events:
            if (now := as_of_now(job, event)) is not None:
                state = policy.observe(state, now)
        with self._lock:
            self._folds.pop(job.id, None)  # the newest are last
            self._folds[job.id] = _Fold(job, log.end, state)
            while len(self._folds) > KEPT:
                del self._folds[next(iter(self._folds))]
        return state

    def decide(self, job: Job, ask: Ask, facts: Facts) -> Decision:
        """What `Store.ask` calls."""
        policy = find_policy(job.spec.policy, job.policy_version)
        return decided(policy, self.state(job, facts), job.spec, ask)


def as_of_now(job: Job, event: Event) -> Event | None:
    """An event as this revision of its job has it observed; None: not at all.

    Runs towards another target are not of this job any more, except that a crash is a crash, unless it was excused:
    then the trial is as if lost. Bounds are brought into the unit that costs have now.
    """
    if not isinstance(event, Trial):
        return event
    crashed = event.ending is Ending.CRASHED
    if not crashed and not event.ask.is_for(job.spec):
        return None
    if crashed and event.number in job.excused and event.outcome is not None and not event.outcome.epochs:
        return Trial(ask=event.ask, decision=event.decision, asked=event.asked, lost=event.ended)
    return repriced(event, job.spec.eta_knob)
