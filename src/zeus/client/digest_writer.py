"""Writes the digest of a job soon after the job has changed, outside of the transaction that changed it.

Each change of a job's facts changes its pulse. A digest that bears an older pulse is outdated, and the next reader
computes it again. So a writer may always give up, and it limits the time that it takes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from zeus.errors import InputError, StoreError

CHEAP_TRIALS = 200  # a process that runs one training computes no digest of a longer job
REST = 50  # it spends at most a fiftieth of its time on digests
THREAD_REST, JOB_REST = 4, 20  # the thread of a service spends a fifth of its time at most, a twentieth on one job
WAITING = 10_000  # jobs at most; a reader computes the digests of others

log = logging.getLogger(__name__)


class DigestWriter(Protocol):
    """Computes the digests of jobs that have changed, if and when it likes."""

    def changed(self, job_id: str, trials: int = 0) -> None:
        """A job has changed, which has about this many trials."""


class DigestsAtOnce:
    """Computes digests in the thread that changed the job, as far as that is cheap: for a process with a training.

    Args:
        refresh: Computes and stores the digest of a job.
        clock: Shows seconds.
    """

    def __init__(self, refresh: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._refresh, self._clock = refresh, clock
        self._rests_until = -float("inf")

    def changed(self, job_id: str, trials: int = 0) -> None:
        begun = self._clock()
        if trials > CHEAP_TRIALS or begun < self._rests_until:
            return
        self._rests_until = float("inf")  # of several threads, one is enough
        _try(self._refresh, job_id)
        self._rests_until = (now := self._clock()) + REST * (now - begun)


class DigestThread:
    """Computes digests in a thread of its own: for a service. It does nothing before it is started.

    Args:
        refresh: Computes and stores the digest of a job.
    """

    def __init__(self, refresh: Callable[[str], None]) -> None:
        self._refresh = refresh
        self._wake = threading.Condition()
        self._waiting: dict[str, float] = {}  # jobs that changed, and when each may be computed, the oldest first
        self._rests: dict[str, float] = {}  # until when a job that was computed has to wait
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def changed(self, job_id: str, trials: int = 0) -> None:
        with self._wake:
            if job_id not in self._waiting and len(self._waiting) < WAITING:
                self._waiting[job_id] = self._rests.get(job_id, 0.0)
                self._wake.notify()

    def start(self) -> None:
        """Begin to compute."""
        self._thread = threading.Thread(target=self._run, name="zeus-digests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the digest that it is computing."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (job_id := self._next()) is not None:
            begun = time.monotonic()
            _try(self._refresh, job_id)
            took = (now := time.monotonic()) - begun
            with self._wake:
                self._rests = {name: until for name, until in self._rests.items() if until > now}
                self._rests[job_id] = now + JOB_REST * took
                self._wake.wait_for(lambda: self._is_closed, THREAD_REST * took)

    def _next(self) -> str | None:
        """The job to compute next, once there is one. None: the service ends."""
        with self._wake:
            while not self._is_closed:
                now = time.monotonic()
                for job_id, at in self._waiting.items():
                    if at <= now:
                        del self._waiting[job_id]
                        return job_id
                self._wake.wait(min(self._waiting.values()) - now if self._waiting else None)
        return None


def _try(refresh: Callable[[str], None], job_id: str) -> None:
    """A digest never makes a change fail that was committed."""
    try:
        refresh(job_id)
    except (StoreError, InputError):  # the store is away or busy, or the job was removed
        return
    except Exception:
        log.warning("the digest of job %r could not be computed", job_id, exc_info=True)
