"""Reads the output of a command on a thread of its own, and passes it to the log and to a listener."""

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
LAST = 1 << 20  # bytes read after `close`, more than a pipe holds; later output is ignored
JOIN_SECONDS = 60.0  # on a busy machine the last lines may take long to match, and they may hold the target


class Output:
    """Reads until the output is closed, even if the log or the listener fails.

    Args:
        descriptor: File descriptor to read from. It is closed at the end.
        log_file: The log.
        hear: Called with each chunk, and with an empty one at the end.
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
            log.exception("the output is still logged, but not read for metrics any more")
            self._hear = lambda chunk: None

    def _chunks(self) -> Iterator[bytes]:
        """Chunks until the output is closed, or after `close` what was written before it.

        A process that cannot be ended may hold the output open for ever.
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
