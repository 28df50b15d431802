"""Policy states, folded from the facts of their jobs and cached between asks."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

from zeus.errors import InputError
from zeus.job import Ask, Decision, Ending, Event, Trial
from zeus.policy.api import decided
from zeus.policy.registry import find_policy
from zeus.policy.repricing import repriced
from zeus.store.api import START, Facts, Job, LogPoint, Store

KEPT = 2_000  # cached folds, some kilobytes each; an evicted one is replayed from the facts when its job asks again
TURNS = 64  # locks; jobs that share one rarely meet


@dataclass(frozen=True, slots=True)
class _Fold:
    job: Job  # as it was folded
    point: LogPoint
    state: Any


class Folds:
    """A cache of policy states, each folded up to some point of its job's history and continued from there.

    If a store was restored from a backup, the cached point is no longer part of its history: the state is then folded
    from the start. The cache can be dropped at any time. It is safe to use from several threads.
    """

    def __init__(self) -> None:
        self._folds: dict[str, _Fold] = {}
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(TURNS)]

    def state(self, job: Job, facts: Facts) -> Any:
        """The state of the job's policy after all of its facts."""
        policy = find_policy(job.spec.policy, job.policy_version)
        with self._lock:
            cached = self._folds.get(job.id)  # not removed: concurrent callers start from it too
        since = START if cached is None or cached.job != job else cached.point
        log = facts(since)
        state = policy.start(job.spec) if cached is None or log.begin == START else cached.state
        for event in log.events:
            if (now := as_of_now(job, event)) is not None:
                state = policy.observe(state, now)
        with self._lock:
            self._folds.pop(job.id, None)  # so that the newest entries are last
            self._folds[job.id] = _Fold(job, log.end, state)
            while len(self._folds) > KEPT:
                del self._folds[next(iter(self._folds))]
        return state

    def prepare(self, store: Store, job_id: str) -> None:
        """Fold what is new of a job before it is locked for an ask, so that others wait only for the decision.

        Of several threads that ask for one job, the first folds it, and the others wait for that.
        """
        with self._turns[hash(job_id) % TURNS], contextlib.suppress(InputError):  # the ask itself says what is wrong
            with self._lock:
                cached = self._folds.get(job_id)
            self.state(store.job(job_id) if cached is None else cached.job, partial(store.log, job_id))

    def decide(self, job: Job, ask: Ask, facts: Facts) -> Decision:
        """The callback for `Store.ask`."""
        policy = find_policy(job.spec.policy, job.policy_version)
        return decided(policy, self.state(job, facts), job.spec, ask)


def as_of_now(job: Job, event: Event) -> Event | None:
    """The event as the policy should observe it under the job's current revision, or None if it no longer counts.

    Trials for another target do not count, except crashes. An excused crash counts as a lost trial. Cost limits are
    converted to the current eta.
    """
    if not isinstance(event, Trial):
        return event
    crashed = event.ending is Ending.CRASHED
    if not crashed and not event.ask.is_for(job.spec):
        return None
    if crashed and event.number in job.excused and event.outcome is not None and not event.outcome.epochs:
        return Trial(ask=event.ask, decision=event.decision, asked=event.asked, lost=event.ended)
    return repriced(event, job.spec.eta_knob)
