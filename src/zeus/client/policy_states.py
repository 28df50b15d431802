"""Policy states, folded from the facts of their jobs and cached between asks.

So that a process need not fold the whole past of a job that it does not know yet, the store keeps a snapshot of the
state. It is a cache beside the facts, used only for the same revision of the job, the same policy and the same version
of Zeus, and only while its point is still part of the job's history. It may be thrown away at any time.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from zeus import __version__
from zeus.errors import InputError, StoreError
from zeus.job import Ask, Decision, Ending, Event, Phase, Trial
from zeus.policy.api import decided
from zeus.policy.registry import find_policy
from zeus.policy.repricing import repriced
from zeus.store.api import START, Facts, Job, LogPoint, Snapshot, Store

KEPT = 2_000  # cached states, some kilobytes each
TURNS = 64  # locks; jobs that share one rarely meet
SNAPSHOT_EVERY = 64  # events after which the store gets another snapshot, which is about a kilobyte
SUM_BYTES = 4  # before the state: its CRC-32


@dataclass(frozen=True, slots=True)
class _State:
    job: Job  # as it was folded
    point: LogPoint
    state: Any
    stored: int = 0  # the sequence number of the last snapshot


class PolicyStateCache:
    """A cache of policy states, each folded up to some point of its job's history and continued from there.

    If a store was restored from a backup, the cached point is no longer part of its history: the state is then folded
    from the start. The cache can be dropped at any time. It is safe to use from several threads.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(TURNS)]

    def state(self, job: Job, facts: Facts) -> Any:
        """The state of the job's policy after all of its facts."""
        policy = find_policy(job.spec.policy, job.policy_version)
        with self._lock:
            cached = self._states.get(job.id)  # not removed: concurrent callers start from it too
        since = START if cached is None or cached.job != job else cached.point
        log = facts(since)
        if cached is None or log.begin == START:
            state, stored = policy.start(job.spec), 0
        else:
            state, stored = cached.state, cached.stored
        for event in log.events:
            if (now := as_of_now(job, event)) is not None:
                state = policy.observe(state, now)
        self._keep(_State(job, log.end, state, stored))
        return state

    def state_in(self, store: Store, job: Job) -> Any:
        """The state of the job's policy after all of its facts in this store.

        A process that does not know the job starts from the store's snapshot, and sometimes stores a newer one.
        """
        with self._lock:
            cached = self._states.get(job.id)
        if cached is None or cached.job != job:
            self._start_from_snapshot(store, job)
        state = self.state(job, partial(store.log, job.id))
        with self._lock:
            fold = self._states.get(job.id)
        if fold is not None and fold.point.sequence - fold.stored >= SNAPSHOT_EVERY:
            with contextlib.suppress(StoreError, InputError):  # it is busy or read-only
                store.keep_snapshot(job.id, take_snapshot(fold.job, fold.point, fold.state))
            self._keep(replace(fold, stored=fold.point.sequence))
        return state

    def prepare(self, store: Store, job_id: str) -> None:
        """Fold what is new of a job before it is locked for an ask, so that others wait only for the decision.

        Of several threads that ask for one job, the first folds it, and the others wait for that.
        """
        with self._turns[hash(job_id) % TURNS], contextlib.suppress(InputError):  # the ask itself says what is wrong
            with self._lock:
                cached = self._states.get(job_id)
            self.state_in(store, store.job(job_id) if cached is None else cached.job)

    def _start_from_snapshot(self, store: Store, job: Job) -> None:
        if (found := store.snapshot(job.id)) is not None:
            start = find_policy(job.spec.policy, job.policy_version).start(job.spec)
            if (state := read_snapshot(found, job, start)) is not None:
                self._keep(_State(job, found.point, state, found.point.sequence))

    def _keep(self, found: _State) -> None:
        with self._lock:
            self._states.pop(found.job.id, None)  # so that the newest entries are last
            self._states[found.job.id] = found
            while len(self._states) > KEPT:
                del self._states[next(iter(self._states))]

    def decide(self, job: Job, ask: Ask, facts: Facts) -> Decision:
        """The callback for `Store.ask`."""
        if (paused := paused_decision(job)) is not None:
            return paused
        policy = find_policy(job.spec.policy, job.policy_version)
        return decided(policy, self.state(job, facts), job.spec, ask)


def paused_decision(job: Job) -> Decision | None:
    """What every trial of a paused job gets: the default size without a bound. None if the job is not paused.

    It is a baseline, so whoever runs it sets no power limit.
    """
    if not job.paused_by:
        return None
    size = job.spec.default_batch_size
    return Decision(size, Phase.BASELINE, f"paused by {job.paused_by}: {size} is the default, as before Zeus.")


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


def take_snapshot(job: Job, point: LogPoint, state: Any) -> Snapshot:
    """A snapshot of the state of this job's policy at this point of its history."""
    body = msgspec.msgpack.encode(state, enc_hook=_to_list)
    return Snapshot(_stamp(job, type(state)), point, crc32(body).to_bytes(SUM_BYTES) + body)


def read_snapshot(snapshot: Snapshot, job: Job, start: Any) -> Any:
    """The state in a snapshot, or None if it is not of this job as it is now, or is damaged.

    Args:
        snapshot: As it was stored.
        job: The job.
        start: The state that its policy starts with, which has the same type.
    """
    body = snapshot.state[SUM_BYTES:]
    if snapshot.stamp != _stamp(job, type(start)) or crc32(body).to_bytes(SUM_BYTES) != snapshot.state[:SUM_BYTES]:
        return None
    try:
        return msgspec.msgpack.decode(body, type=type(start), dec_hook=_from_list)
    except (msgspec.MsgspecError, InputError):  # the policy's state has other fields now
        return None


def _stamp(job: Job, kind: type[Any]) -> str:
    """What a state depends on besides the events."""
    facts = blake2b(msgspec.json.encode(job), digest_size=12).hexdigest()
    return f"{__version__}:{job.policy_version}:{kind.__qualname__}:{facts}"


def _to_list(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(type(value))


def _from_list(kind: Any, value: Any) -> Any:
    if getattr(kind, "__origin__", kind) is np.ndarray:
        return np.array(value)
    raise NotImplementedError(kind)
