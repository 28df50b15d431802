"""Sends messages to a store or service, or keeps them on disk until it answers. Each arrives once and in order."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from zeus.client.api import (
    EpochUsed,
    JobsApi,
    Message,
    OfflineRun,
    ProfileMade,
    TrialEnded,
    TrialLog,
    TrialRef,
)
from zeus.client.resilient.cache import CACHE, OfflineCache
from zeus.client.resilient.retry import Contact, Patience, soon
from zeus.client.resilient.spool import Spool, default_folder
from zeus.errors import InputError, NotAllowed, StoreError, StoreUnusable
from zeus.job import Trial
from zeus.settings import time_limits
from zeus.store.address import is_service
from zeus.store.wait_limit import at_most

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delivered:
    """The store has accepted the message."""

    trial: Trial | None  # the trial that the message ended, if it ended one


@dataclass(frozen=True, slots=True)
class Queued:
    """The message waits on disk."""


class Outbox:
    """The jobs of a store or service, the messages that wait for it, and the offline cache.

    Args:
        jobs: The jobs.
        contact: Retries calls, and remembers whether they were answered.
        folder: Where messages wait.
    """

    def __init__(self, jobs: JobsApi, contact: Contact | None = None, folder: Path | None = None) -> None:
        self.jobs = jobs
        name = f"the {'service' if is_service(jobs.address) else 'store'} {jobs.address}"
        self.contact = contact or Contact(name)
        self.spool = Spool(folder or default_folder(jobs.address), jobs.address)
        self.cache = OfflineCache(self.spool.folder / CACHE)

    def call(self, request: Callable[[], T], patience: Patience, *, begins: bool = False) -> T:
        """Call the store or service, with retries.

        Args:
            request: Calls a method of `jobs`.
            patience: How long to wait.
            begins: Whether a run begins. Only then a store that cannot be opened is an InputError.
        """

        def once(seconds: float) -> T:
            with at_most(seconds):
                try:
                    return request()
                except StoreUnusable as wrong:
                    if begins:
                        raise
                    raise StoreError(str(wrong)) from wrong

        return self.contact.call(once, patience)

    def send(self, message: Message, patience: Patience | None = None) -> Delivered | Queued:
        """Send a message after those that wait. Keep it on disk if the store is unreachable or rejects the token.

        Raises:
            NotKnown, AlreadyDone, InputError: The store refused the message.
            StoreError: The message could be neither sent nor written to disk.
        """
        patience = patience or soon()
        self.deliver(patience)
        if not self.spool.waiting():  # otherwise it would overtake them
            try:
                return Delivered(self._send(message, patience))
            except (StoreError, NotAllowed) as away:
                log.debug("%s is kept on disk for later: %s", message, away)
        self.spool.put(message)
        atexit.unregister(self.deliver)
        atexit.register(self.deliver)  # a last try
        return Queued()

    def deliver(self, patience: Patience | None = None) -> None:
        """Deliver the waiting messages, as far as the store accepts them."""
        contact, patience = self.contact, patience or soon()
        if contact.rests and patience.rests:
            return
        until = contact.clock() + time_limits().delivery
        patience = replace(patience, answer=min(patience.answer, soon().answer))  # the caller's own request comes next

        def send(message: Message) -> None:
            if contact.clock() > until:
                raise StoreError("the other messages are delivered next time")
            self._send(message, patience)

        self.spool.deliver(send)
        if not self.spool.waiting():
            atexit.unregister(self.deliver)

    def _send(self, message: Message, patience: Patience) -> Trial | None:
        """Send a message. Once the store has accepted or refused a trial's end, the store's state of it counts."""
        try:
            trial = self.call(lambda: self._deliver(message), patience)
        except (StoreError, NotAllowed):
            raise
        except Exception:
            if isinstance(message, TrialEnded):
                self.cache.drop(message.job_id, message.number, message.trial_id)
            raise
        match message:
            case TrialEnded(job_id=job_id) if trial is not None:
                self.cache.mark_accepted(job_id, trial)
            case OfflineRun(spec=spec, key=key) if trial is not None:
                self.cache.mark_stored(spec.id, key, trial)
        return trial

    def _deliver(self, message: Message) -> Trial | None:
        """Deliver a message. Returns the trial that it ends, if it ends one."""
        match message:
            case TrialEnded(job_id, number, outcome, trial_id):
                return self.jobs.tell(TrialRef(job_id, number, trial_id), outcome)
            case OfflineRun():
                trial = self.jobs.record_run(message)
                if message.log:
                    self._deliver(TrialLog(message.spec.id, trial.number, message.log, trial.id))
                return trial
            case TrialLog():
                try:
                    self.jobs.keep_log(message)
                except NotAllowed:
                    raise
                except (
                    InputError
                ) as refused:  # the trial is gone, or the service is older: a log is not worth a warning
                    log.debug("the log of trial %s was refused: %s", message.number, refused)
            case EpochUsed():
                self.jobs.profiled(message)
            case ProfileMade(key, profile):
                self.jobs.put_profile(key, profile)
        return None

    def close(self) -> None:
        """Try once more to deliver the waiting messages, then close all connections."""
        self.deliver()
        atexit.unregister(self.deliver)
        self.cache.sweep()
        self.jobs.close()
