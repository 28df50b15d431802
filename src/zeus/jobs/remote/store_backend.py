"""A store as a backend. The store is opened when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from zeus.errors import InputError, StoreError
from zeus.job import Gpus, JobSpec, Outcome, Trial
from zeus.jobs.folds import Folds
from zeus.jobs.local import LocalJob, knowledge_of, record_run
from zeus.jobs.messages import EpochUsed, Message, OfflineRun, ProfileMade, TrialEnded
from zeus.jobs.remote.backend import HeartbeatAnswer, Registered, Which
from zeus.jobs.remote.retry import Contact, Patience
from zeus.profile import PowerProfile, ProfileKey
from zeus.settings import patience as patience_to_begin
from zeus.store import Store
from zeus.store.wait_limit import at_most
from zeus.trial.knowledge import Knowledge

T = TypeVar("T")


class StoreBackend:
    """A `Backend` over a store.

    Args:
        open_it: Opens the store. It is called again until it succeeds.
        address: Address of the store, without secrets.
        contact: Retries calls to the store.
    """

    def __init__(self, open_it: Callable[[], Store], address: str, contact: Contact | None = None) -> None:
        self.address = address
        self.contact = contact or Contact(f"the store {address}")
        self.begin = Patience.to_begin(patience_to_begin())
        self._open = open_it
        self._store: Store | None = None
        self._lock = threading.Lock()
        self._folds = Folds()

    def store(self) -> Store:
        """The store, opened if it was not yet.

        Raises:
            InputError: The store cannot be opened, and waiting does not help.
            StoreError: The store is unreachable.
        """
        with self._lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    def _call(self, use: Callable[[Store], T], patience: Patience, begins: bool = False) -> T:
        """Call the store with retries. A store that cannot be opened is an InputError only at the start of a run."""

        def once(seconds: float) -> T:
            with at_most(seconds):
                try:
                    store = self.store()
                except InputError as wrong:
                    if begins:
                        raise
                    raise StoreError(str(wrong)) from wrong
                return use(store)

        return self.contact.call(once, patience)

    def _of_job(self, job_id: str, use: Callable[[LocalJob], T], patience: Patience, begins: bool = False) -> T:
        return self._call(lambda store: use(LocalJob(store, job_id, self._folds)), patience, begins)

    def find(self, job_id: str, patience: Patience) -> Registered:
        return self._of_job(job_id, lambda job: Registered(job.spec, job.life), patience, begins=True)

    def register(self, spec: JobSpec, void: bool, patience: Patience) -> Registered:
        job = self._call(lambda store: LocalJob.register(store, spec, self._folds, void=void), patience, begins=True)
        return Registered(job.spec, job.life)

    def ask(
        self, spec: JobSpec, gpus: Gpus, recurrence: int | None, max_tries: int, key: str, patience: Patience
    ) -> tuple[Trial, Registered]:
        def ask(job: LocalJob) -> tuple[Trial, Registered]:
            return job.ask(gpus, recurrence, max_tries, key=key), Registered(job.spec, job.life)

        return self._of_job(spec.id, ask, patience)

    def trial(self, spec: JobSpec, which: Which, patience: Patience) -> tuple[Trial, Outcome | None]:
        kept = self._call(lambda store: store.trial(spec.id, which.number, trial_id=which.id), patience)
        return kept.trial, kept.so_far

    def heartbeat(
        self, spec: JobSpec, which: Which, so_far: Outcome | None, next_cost: float | None, patience: Patience
    ) -> HeartbeatAnswer:
        def beat(job: LocalJob) -> HeartbeatAnswer:
            job.hand(which.number, which.id)
            if so_far is None or next_cost is None:
                return HeartbeatAnswer(job.renew(which.number, so_far), True)
            go_on = job.progress(which.number, so_far, next_cost)
            return HeartbeatAnswer(job.trial(which.number), go_on)

        return self._of_job(spec.id, beat, patience)

    def deliver(self, message: Message, spec: JobSpec | None, patience: Patience) -> Trial | None:
        def send(store: Store) -> Trial | None:
            match message:
                case TrialEnded(job_id, number, outcome, trial_id):
                    return store.tell(job_id, number, outcome, trial_id=trial_id)
                case OfflineRun():
                    return record_run(store, message)
                case EpochUsed(job_id, size, gpus, joules, seconds, life):
                    store.profiled(job_id, size, gpus, joules=joules, seconds=seconds, life=life)
                case ProfileMade(key, profile):
                    store.put_profile(key, profile)
            return None

        return self._call(send, patience)

    def knowledge(self, spec: JobSpec, trial: Trial, patience: Patience) -> Knowledge:
        return self._call(lambda store: knowledge_of(store, spec.id, trial), patience)

    def excuse(self, job: Registered, numbers: list[int], patience: Patience) -> None:
        self._call(lambda store: store.excuse(job.spec.id, numbers, life=job.life), patience)

    def profile(self, key: ProfileKey, patience: Patience) -> PowerProfile | None:
        return self._call(lambda store: store.get_profile(key), patience)

    def profiles(self, job_id: str, patience: Patience) -> dict[ProfileKey, PowerProfile]:
        return self._call(lambda store: store.profiles(job_id), patience)

    def close(self) -> None:
        with self._lock:
            if self._store is not None:
                self._store.close()
