"""What a command writes, read on a thread of its own as it comes: into its log, and to whoever listens."""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable, Iterator

from zeus.launch.process.log_file import LogFile

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
CHUNK = 1 << 16
LAST = 1 << 20  # bytes, more than a pipe holds: who goes on writing after the end is not listened to any more
JOIN_SECONDS = 5.0


class Output:
    """Reads until nobody can write any more, whatever becomes of the log and of the listener.

    Args:
        descriptor: Where it is read; it is closed in the end.
        log_file: Where it is kept.
        hear: Told of each chunk, and in the end of an empty one.
    """

    def __init__(self, descriptor: int, log_file: LogFile, hear: Callable[[bytes], None] = lambda chunk: None) -> None:
        self._descriptor, self._log, self._hear = descriptor, log_file, hear
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="zeus-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The command has ended: read what is left."""
        self._over.set()
        self._thread.join(JOIN_SECONDS)

    def _read(self) -> None:
        try:
            for chunk in self._chunks():
                self._log.write(chunk)
                self._tell(chunk)
        finally:
            os.close(self._descriptor)
            self._log.close()
            self._tell(b"")

    def _tell(self, chunk: bytes) -> None:
        try:
            self._hear(chunk)
        except Exception:  # the command must never wait for somebody to read
            log.exception("the output is kept, but not looked at any more")
            self._hear = lambda chunk: None

    def _chunks(self) -> Iterator[bytes]:
        """Until nobody can write any more, or after `close` what was written before it.

        Somebody may hold the output open for ever: a process that could not be ended.
        """
        left = LAST
        with selectors.DefaultSelector() as ready:
            ready.register(self._descriptor, selectors.EVENT_READ)
            while left > 0:
                over = self._over.is_set()
                if ready.select(LOOK_SECONDS):
                    if not (chunk := os.read(self._descriptor, CHUNK)):
                        return
                    yield chunk
                    left -= len(chunk) if over else 0
                elif over:
                    return
