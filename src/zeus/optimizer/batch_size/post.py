"""What is said to a service: now where it answers, else later, and never out of turn."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from zeus.errors import NotAllowed, StoreError
from zeus.optimizer.batch_size.http import SOON, Patience, Service
from zeus.optimizer.batch_size.known import Known
from zeus.optimizer.batch_size.spool import Report, Spool, default_folder

log = logging.getLogger(__name__)

T = TypeVar("T")

DELIVERY_SECONDS = 10.0  # at one contact; what is left waits for the next


class Post:
    """A service, what waits for it, and what is known without it. Each contact delivers what waits first."""

    def __init__(self, service: Service, spool: Spool | None = None) -> None:
        self.service = service
        self.spool = spool or Spool(default_folder(service.address))
        self.known = Known(self.spool.folder / "known")

    def call(self, method: str, path: str, read: Callable[[Any], T], *, patience: Patience = SOON, **request: Any) -> T:
        """`Service.call`, after whatever waits."""
        self.deliver(patience)
        return self.service.call(method, path, read, patience=patience, **request)

    def send(self, report: Report, read: Callable[[Any], T], patience: Patience = SOON) -> T | None:
        """Say it now; None where it is kept for later, as the service is away or does not take the token any more.

        Raises:
            NotKnown, AlreadyDone, InputError: The service refused.
            StoreError: It could neither be said nor kept.
        """
        self.deliver(patience)
        if not self.spool.waiting():  # else it would overtake them
            try:
                return self._say(report, read, patience)
            except (StoreError, NotAllowed) as away:
                log.debug("%s %s is kept for later: %s", report.method, report.path, away)
        self.spool.put(report)
        atexit.unregister(self.deliver)
        atexit.register(self.deliver)
        return None

    def deliver(self, patience: Patience = SOON) -> None:
        """Deliver what waits, as far as the service takes it."""
        if self.service.rests and patience.rests:
            return
        until = self.service.clock() + DELIVERY_SECONDS

        def send(report: Report) -> None:
            if self.service.clock() > until:
                raise StoreError("the rest is delivered next time")
            self._say(report, lambda said: said, patience)

        self.spool.deliver(send)

    def _say(self, report: Report, read: Callable[[Any], T], patience: Patience) -> T:
        heard = True
        try:
            request = {"body": report.body, "query": report.query or None}
            return self.service.call(report.method, report.path, read, patience=patience, **request)
        except (StoreError, NotAllowed):
            heard = False
            raise
        finally:
            if heard and report.trial is not None:  # taken or refused, the service's word counts from now on
                self.known.drop(*report.trial)

    def close(self) -> None:
        """A last try for what waits."""
        self.deliver()
        atexit.unregister(self.deliver)
        self.known.sweep()
        self.service.close()
