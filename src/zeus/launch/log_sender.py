"""Sends the end of a running trial's log to its store, so that it can be read from any machine."""

from __future__ import annotations

import logging
from pathlib import Path

from zeus.client.recurring import RecurringJob
from zeus.client.trial_log import tail_of
from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.errors import ZeusError

log = logging.getLogger(__name__)

SEND_SECONDS = 30.0  # between two looks at whether the log has grown


class LogSender:
    """Sends the log of one trial now and then, and a last time when the trial has ended. Nothing is raised.

    Args:
        job: The job.
        number: The number of the trial.
        path: Its log.
        clock: When to send.
    """

    def __init__(self, job: RecurringJob, number: int, path: Path, clock: Clock = REAL) -> None:
        self._job, self._number, self._path = job, number, path
        self._sent: tuple[int, int] | None = None  # size and time of the log when it was last sent
        self._ticker = clock.every(SEND_SECONDS, self._send)

    def end(self, *, crashed: bool) -> None:
        """Send the log a last time. If the store is away, it is delivered later."""
        self._ticker.stop()
        self._sent = None
        self._send(is_last=True, crashed=crashed)

    def _send(self, *, is_last: bool = False, crashed: bool = False) -> None:
        try:
            found = self._path.stat()
            mark = (found.st_size, found.st_mtime_ns)
            if found.st_size and mark != self._sent:
                self._job.keep_log(self._number, tail_of(self._path, crashed=crashed), is_last=is_last)
                self._sent = mark
        except (OSError, ZeusError) as failed:
            log.debug("the log of trial %s was not sent: %s", self._number, failed)
