"""The output of a command: read on a thread of its own, passed to a listener, and kept in the log of the trial.

    | first 8 MiB | [zeus: 123,456 bytes of output are left out here] | last 8 to 24 MiB |

The log never fills the disk. If it cannot be written, nothing is raised and the training continues. The last bytes of
the output are also kept in memory, to explain a crash even then.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

log = logging.getLogger(__name__)

LONGEST = 32 << 20  # bytes; a longer log is shortened
KEPT = 8 << 20  # bytes of its beginning, and of its end, that are kept then
END = 1 << 16  # bytes of the end that are kept in memory
RESERVED_SHARE, RESERVED_BYTES = 0.05, 10 << 30  # of the disk that stays free; at most so many bytes
SPACE_SECONDS = 1.0  # how often the free space is read
LOOK_SECONDS = 0.1
CHUNK = 1 << 16
LAST = 1 << 20  # bytes read after `close`, more than a pipe holds; later output is ignored
JOIN_SECONDS = 60.0  # on a busy machine the last lines may take long to match, and they may hold the target


class Output:
    """Reads until the output is closed, even if the log or the listener fails.

    Args:
        descriptor: File descriptor to read from. It is closed at the end.
        log_file: The log.
        receive: Called with each chunk, and with an empty one at the end.
    """

    def __init__(
        self, descriptor: int, log_file: LogFile, receive: Callable[[bytes], None] = lambda chunk: None
    ) -> None:
        self._descriptor, self._log, self._receive = descriptor, log_file, receive
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
                self._pass_on(chunk)
        finally:
            os.close(self._descriptor)
            self._log.close()
            self._pass_on(b"")

    def _pass_on(self, chunk: bytes) -> None:
        try:
            self._receive(chunk)
        except Exception:  # the command must never wait for somebody to read
            log.exception("the output is still logged, but not read for metrics any more")
            self._receive = lambda chunk: None

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


class LogFile:
    """Takes the output of a command. A note in the log says how many bytes are missing, and where."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = b""  # of all output, whether it is in the log or not
        self._room, self._look_at = 0, 0.0  # bytes that may still be written; when to read the free space again
        self._missing = 0  # bytes left out since the last that was written
        self._dropped, self._note = 0, b""  # bytes removed by `_shorten`, and its note
        self._warned = False
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._size = os.lseek(self._file, 0, os.SEEK_END)
        except OSError as failed:
            self._warn(failed.strerror)

    def write(self, chunk: bytes) -> None:
        self.end = (self.end + chunk)[-END:]
        if self._file is None:
            return
        try:
            if self._missing and len(chunk) <= self._left(self._file):
                self._note_missing(self._file)
            if len(chunk) > self._left(self._file):
                self._missing += len(chunk)
                self._warn("the disk is almost full")
                return
            self._put(self._file, chunk)
            if self._size > LONGEST:
                self._shorten(self._file)
        except OSError as failed:
            self._warn(failed.strerror)

    def close(self) -> None:
        if self._file is None:
            return
        try:
            if self._missing:
                self._note_missing(self._file)
        except OSError as failed:
            self._warn(failed.strerror)
        finally:
            os.close(self._file)
            self._file = None

    def _left(self, file: int) -> int:
        if time.monotonic() >= self._look_at:
            disk = os.fstatvfs(file)
            reserved = min(RESERVED_SHARE * disk.f_blocks * disk.f_frsize, RESERVED_BYTES)
            is_known = disk.f_blocks > 0  # some file systems do not report it
            self._room = disk.f_bavail * disk.f_frsize - int(reserved) if is_known else LONGEST
            self._look_at = time.monotonic() + SPACE_SECONDS
        return self._room

    def _put(self, file: int, data: bytes) -> None:
        while data:
            try:
                written = os.write(file, data)
            except OSError:
                self._missing += len(data)
                raise
            self._size += written
            self._room -= written
            data = data[written:]

    def _note_missing(self, file: int) -> None:
        missing, self._missing = self._missing, 0
        self._put(file, _note(missing))

    def _shorten(self, file: int) -> None:
        """Drop the middle: move the end of the log up to its beginning."""
        at = KEPT + len(self._note)
        end = os.pread(file, KEPT, self._size - KEPT)
        end = end[end.find(b"\n") + 1 :]
        self._dropped += self._size - at - len(end)
        self._note = _note(self._dropped)
        os.lseek(file, KEPT, os.SEEK_SET)
        self._size = KEPT
        self._put(file, self._note + end)
        os.ftruncate(file, self._size)

    def _warn(self, why: str | None) -> None:
        if not self._warned:
            log.warning("%s will not hold all output: %s. Training continues.", self.path, why)
        self._warned = True


def _note(count: int) -> bytes:
    return f"\n[zeus: {count:,} bytes of output are left out here]\n".encode()
