"""What is told to a store or a service: now where it answers, else later, once, and never out of turn."""

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
from zeus.jobs.remote.retry import SOON, Patience
from zeus.jobs.remote.spool import Spool, default_folder

log = logging.getLogger(__name__)

DELIVERY_SECONDS = 10.0  # at one contact; what is left waits for the next


@dataclass(frozen=True, slots=True)
class Heard:
    """The store has taken a message in."""

    trial: Trial | None  # that it ended


@dataclass(frozen=True, slots=True)
class Waits:
    """The message is on disk."""


class Outbox:
    """A store or service, what waits for it, and what is known without it. Each contact delivers what waits first."""

    def __init__(self, backend: Backend, folder: Path | None = None) -> None:
        self.backend = backend
        self.spool = Spool(folder or default_folder(backend.address), backend.address)
        self.known = Known(self.spool.folder / "known")

    def send(self, message: Message, spec: JobSpec | None = None, patience: Patience = SOON) -> Heard | Waits:
        """Say it now; on disk where the store is away, or a service does not take the token any more.

        Raises:
            NotKnown, AlreadyDone, InputError: The store refused.
            StoreError: It could neither be said nor kept.
        """
        self.deliver(patience)
        if not self.spool.waiting():  # else it would overtake them
            try:
                return Heard(self._say(message, spec, patience))
            except (StoreError, NotAllowed) as away:
                log.debug("%s is kept for later: %s", message, away)
        self.spool.put(message)
        atexit.unregister(self.deliver)
        atexit.register(self.deliver)  # a last try
        return Waits()

    def deliver(self, patience: Patience = SOON) -> None:
        """Deliver what waits, as far as the store takes it."""
        contact = self.backend.contact
        if contact.rests and patience.rests:
            return
        until = contact.clock() + DELIVERY_SECONDS
        patience = replace(patience, answer=min(patience.answer, SOON.answer))  # whoever looks on came for more

        def send(message: Message) -> None:
            if contact.clock() > until:
                raise StoreError("the rest is delivered next time")
            self._say(message, None, patience)

        self.spool.deliver(send)
        if not self.spool.waiting():
            atexit.unregister(self.deliver)

    def _say(self, message: Message, spec: JobSpec | None, patience: Patience) -> Trial | None:
        """Taken or refused, the store's word on a trial counts from now on."""
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
        """A last try for what waits."""
        self.deliver()
        atexit.unregister(self.deliver)
        self.known.sweep()
        self.backend.close()
