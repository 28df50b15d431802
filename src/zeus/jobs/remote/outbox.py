"""Sends messages to a store or service, or keeps them on disk until it answers. Each arrives once and in order."""

from __future__ import annotations

import atexit
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from zeus.errors import NotAllowed, StoreError
from zeus.job import JobSpec, Trial
from zeus.jobs.messages import Message, TrialEnded
from zeus.jobs.remote.backend import Backend
from zeus.jobs.remote.offline_cache import Known
from zeus.jobs.remote.retry import Patience, soon
from zeus.jobs.remote.spool import Spool, default_folder
from zeus.settings import time_limits

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """The store has accepted the message."""

    trial: Trial | None  # the trial that the message ended, if it ended one


@dataclass(frozen=True, slots=True)
class Waits:
    """The message waits on disk."""


class Outbox:
    """A backend, the messages that wait for it, and the offline cache. Waiting messages are always sent first."""

    def __init__(self, backend: Backend, folder: Path | None = None) -> None:
        self.backend = backend
        self.spool = Spool(folder or default_folder(backend.address), backend.address)
        self.known = Known(self.spool.folder / "known")

    def send(self, message: Message, spec: JobSpec | None = None, patience: Patience | None = None) -> Heard | Waits:
        """Send a message now. Keep it on disk if the store is unreachable or rejects the token.

        Raises:
            NotKnown, AlreadyDone, InputError: The store refused the message.
            StoreError: The message could be neither sent nor written to disk.
        """
        patience = patience or soon()
        self.deliver(patience)
        if not self.spool.waiting():  # otherwise it would overtake them
            try:
                return Heard(self._send(message, spec, patience))
            except (StoreError, NotAllowed) as away:
                log.debug("%s is kept on disk for later: %s", message, away)
        self.spool.put(message)
        atexit.unregister(self.deliver)
        atexit.register(self.deliver)  # a last try
        return Waits()

    def deliver(self, patience: Patience | None = None) -> None:
        """Deliver the waiting messages, as far as the store accepts them."""
        contact, patience = self.backend.contact, patience or soon()
        if contact.rests and patience.rests:
            return
        until = contact.clock() + time_limits().delivery
        patience = replace(patience, answer=min(patience.answer, soon().answer))  # the caller's own request comes next

        def send(message: Message) -> None:
            if contact.clock() > until:
                raise StoreError("the other messages are delivered next time")
            self._send(message, None, patience)

        self.spool.deliver(send)
        if not self.spool.waiting():
            atexit.unregister(self.deliver)

    def _send(self, message: Message, spec: JobSpec | None, patience: Patience) -> Trial | None:
        """Send a message. Once the store has accepted or refused a trial's end, the store's state of it counts."""
        if spec is None and isinstance(message, TrialEnded):
            spec = self.known.spec(message.job_id)
        try:
            trial = self.backend.deliver(message, spec, patience)
        except (StoreError, NotAllowed):
            raise
        except Exception:
            if isinstance(message, TrialEnded):
                self.known.drop(message.job_id, message.number, message.trial_id)
            raise
        if isinstance(message, TrialEnded) and trial is not None:
            self.known.heard(message.job_id, trial)
        return trial

    def close(self) -> None:
        """Try once more to deliver the waiting messages, then close all connections."""
        self.deliver()
        atexit.unregister(self.deliver)
        self.known.sweep()
        self.backend.close()
