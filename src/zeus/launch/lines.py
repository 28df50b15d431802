"""What an unmodified script says, as it says it: its output, or a file of JSON lines, followed on a thread of its own.

Each line that says something is stamped (`stamp`) the moment it is read, so that whoever weighs it may take his time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
import queue
import re
import selectors
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from zeus.launch.epochs import Line
from zeus.launch.job_file import Metrics

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1  # how often a file is looked at
CHUNK = 1 << 16
LONGEST = 1 << 20  # bytes of a line, which need not end; and more than a pipe holds
HEAD = 1 << 10  # bytes by which a file is known again
ENDS = re.compile(rb"[\r\n]")  # a progress bar rewrites its line
T = TypeVar("T")


def reader_of(metrics: Metrics) -> Callable[[str], Line | None]:
    """What a line of the script's output says, or of its file; None: nothing.

    >>> read = reader_of(Metrics(regex="acc=([0-9.]+)", epoch_regex="epoch ([0-9]+) done"))
    >>> read("epoch 3 done, acc=0.5"), read("hello")
    (Line(epoch='3', metric=0.5), None)
    """
    count = map(str, itertools.count(1))  # the names of epochs that have none
    if metrics.file:
        return lambda text: _json_line(text, count)
    metric, epoch = re.compile(metrics.regex), re.compile(metrics.epoch_regex) if metrics.epoch_regex else None

    def read(text: str) -> Line | None:
        found, named = metric.search(text), epoch.search(text) if epoch is not None else None
        value = _number(found[1]) if found is not None else None
        if epoch is None:
            return None if found is None else Line(next(count), value)
        return None if found is None and named is None else Line(named[1] if named is not None else None, value)

    return read


def _json_line(text: str, count: Iterator[str]) -> Line | None:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict) or not ({"epoch", "metric"} & set(data)):
        log.warning('%r is not a line such as {"epoch": 3, "metric": 0.81}, and is passed over', text[:200])
        return None
    name = str(data["epoch"]) if "epoch" in data else next(count)
    return Line(name, _number(data["metric"]) if data.get("metric") is not None else None)


def _number(text: Any) -> float | None:
    """None where it is not a number, or not one that a target can be compared with."""
    with contextlib.suppress(TypeError, ValueError):
        value = float(text)
        if math.isfinite(value):
            return value
    log.warning("the metric %r is not a number, and is passed over", text)
    return None


class Lines(Generic[T]):
    """The lines that say something, with their stamps, in order; None once there will be no more."""

    def __init__(self, read: Callable[[str], Line | None], stamp: Callable[[], T]) -> None:
        self._read = read
        self._stamp = stamp
        self._queue: queue.SimpleQueue[tuple[Line, T] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self.lines = 0  # that were read, whatever they said
        self._threads: list[threading.Thread] = []

    def next(self, seconds: float) -> tuple[Line, T] | None:
        """The next one; queue.Empty where none comes in so long."""
        return self._queue.get(timeout=max(0.0, seconds))

    def follow_output(self, output: IO[bytes], log_file: Path, says: bool) -> None:
        """Copy the output to the log, and close it in the end; `says` whether its lines are what is looked for."""

        def follow() -> None:
            rest = b""
            with output, log_file.open("ab", buffering=0) as kept:
                for chunk in self._chunks(output):
                    _keep(kept, chunk)
                    rest = self._take(rest + chunk) if says else b""
            if says:
                self._take(rest + b"\n")
                self._queue.put(None)

        self._start(follow)

    def _chunks(self, output: IO[bytes]) -> Iterator[bytes]:
        """What is written, until nobody can write any more, or after `close` what was written before it.

        Somebody may hold the output open for ever: a daemon that the script started and that has left its group.
        """
        left = LONGEST
        with selectors.DefaultSelector() as ready:
            ready.register(output, selectors.EVENT_READ)
            while left > 0:
                over = self._over.is_set()
                if ready.select(LOOK_SECONDS):
                    if not (chunk := os.read(output.fileno(), CHUNK)):
                        return
                    yield chunk
                    left -= len(chunk) if over else 0
                elif over:
                    return

    def follow_file(self, path: Path) -> None:
        """Follow a file from its beginning, whenever it comes into being, until `close`.

        One that is written anew with another beginning, as by a script that keeps its latest line only, is read anew;
        with the same beginning it has more to say than before.
        """

        def follow() -> None:
            offset, head, rest = 0, b"", b""
            while True:
                last = self._over.wait(LOOK_SECONDS)  # once more after that, for what was written meanwhile
                with contextlib.suppress(OSError), path.open("rb") as file:
                    now = file.read(HEAD)
                    if now[: len(head)] != head[: len(now)]:
                        self._take(rest + b"\n")
                        offset, head, rest = 0, b"", b""
                    head = max(head, now, key=len)
                    file.seek(offset)
                    new = file.read()
                    offset += len(new)
                    rest = self._take(rest + new)
                if last:
                    self._take(rest + b"\n")
                    return

        self._start(follow)

    def close(self) -> None:
        """The script has ended: read what is left, and then None."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=5.0)
        self._queue.put(None)

    def _take(self, raw: bytes) -> bytes:
        """Take its lines; what is left, of which the end has not come."""
        *lines, rest = ENDS.split(raw)
        if len(rest) > LONGEST:
            lines, rest = [*lines, rest], b""
        for text in (line.decode(errors="replace").strip() for line in lines):
            self.lines += bool(text)
            if text and (said := self._read(text)) is not None:
                self._queue.put((said, self._stamp()))
        return rest

    def _start(self, follow: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=follow, name="zeus-lines", daemon=True))
        self._threads[-1].start()


def _keep(log_file: IO[bytes], chunk: bytes) -> None:
    """A full disk costs the log, not the training, which would wait for ever for its output to be read."""
    try:
        log_file.write(chunk)
    except OSError as failed:
        log.warning("%s bytes of output are not in the log: %s", len(chunk), failed)
