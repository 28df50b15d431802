"""Reads the epochs and metrics of an unmodified script, from its output or from a file of JSON lines.

Each line that matches is stamped (`stamp`) as soon as it is read, so that it can be handled later. Whatever a script
writes, reading it goes on and takes little memory.
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
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Generic, TypeAlias, TypeVar

import regex

from zeus.errors import LaunchError
from zeus.launch.job_file.values import MetricsSource
from zeus.launch.script_events import Line
from zeus.settings import time_limits

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1  # how often a file is read
CHUNK = 1 << 16
LONGEST = 1 << 14  # bytes of a line that are read; the rest is ignored
HEAD = 1 << 10  # first bytes, by which a file that was written anew is noticed
SLOW_LINES = 10  # in a row, after which the expressions are given up
ENDS = re.compile(rb"[\r\n]")  # a progress bar rewrites its line
T = TypeVar("T")


# ---------------------------------------------------------------------------------------------------- parsing lines


Reader: TypeAlias = Callable[[str], Line | None]  # the epoch and metric in a line; None: it has neither


def reader_of(metrics: MetricsSource) -> Reader:
    """The reader for a [metrics] table.

    >>> reader = reader_of(MetricsSource(regex="acc=([0-9.]+)", epoch_regex="epoch ([0-9]+) done"))
    >>> reader("epoch 3 done, acc=0.5"), reader("hello")
    (Line(epoch='3', metric=0.5, samples=None), None)
    """
    return JsonReader() if metrics.file else RegexReader(metrics)


class RegexReader:
    """Reads lines with regular expressions. An expression that backtracks for too long on a line does not match it."""

    def __init__(self, metrics: MetricsSource) -> None:
        given = {"metric": metrics.regex, "epoch": metrics.epoch_regex, "samples": metrics.samples}
        self._regexes = {name: regex.compile(one) for name, one in given.items() if one}
        self._seconds = time_limits().line
        self._slow = 0  # lines in a row
        self._count = map(str, itertools.count(1))  # names of epochs if there is no epoch_regex

    def __call__(self, text: str) -> Line | None:
        """What the expressions match.

        Raises:
            LaunchError: The expressions take too long.
        """
        found = self._search(text)
        if not found:
            return None
        epoch = found.get("epoch")
        if "metric" in found and "epoch" not in self._regexes:  # each metric ends an epoch
            epoch = next(self._count)
        return Line(epoch, _number(found["metric"]) if "metric" in found else None, _whole(found.get("samples")))

    def _search(self, text: str) -> dict[str, str | None]:
        """The group of each expression that matches this line; None: the group took no part in the match."""
        try:
            matches = {
                name: one.search(text, timeout=self._seconds, concurrent=True)  # other threads go on meanwhile
                for name, one in self._regexes.items()
            }
        except TimeoutError:
            self._slow += 1
            if self._slow > SLOW_LINES:
                patterns = " or ".join(repr(one.pattern) for one in self._regexes.values())
                raise LaunchError(
                    f"[metrics] {patterns} takes too long on one line after another, such as {text[:80]!r}. "
                    "Avoid a repeat inside a repeat, such as (a+)+."
                ) from None
            log.warning("a line that begins with %r is ignored: [metrics] takes too long to match it", text[:80])
            return {}
        self._slow = 0
        return {name: match[1] for name, match in matches.items() if match is not None}


class JsonReader:
    """Reads lines such as {"epoch": 3, "metric": 0.81}."""

    def __init__(self) -> None:
        self._count = map(str, itertools.count(1))

    def __call__(self, text: str) -> Line | None:
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
            if isinstance(data, dict) and {"epoch", "metric"} & set(data):
                name = str(data["epoch"]) if "epoch" in data else next(self._count)
                metric = _number(data["metric"]) if data.get("metric") is not None else None
                return Line(name, metric, _whole(data.get("samples")))
        log.warning('%r is ignored: expected a line such as {"epoch": 3, "metric": 0.81}', text[:200])
        return None


def _number(text: Any) -> float | None:
    """The finite number, or None with a warning."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        value = float(text)
        if math.isfinite(value):
            return value
    log.warning("the metric %.200r is ignored: it is not a finite number", text)
    return None


def _whole(text: Any) -> int | None:
    """A number of samples, or None with a warning. People write 50,000 and 50_000 too."""
    if text is None:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        value = float(str(text).replace(",", "").replace("_", ""))
        if value >= 1 and value.is_integer() and value <= 2**53:
            return int(value)
    log.warning("%.200r is ignored: it is not a whole number of samples", text)
    return None


# ---------------------------------------------------------------------------------------------------- receiving lines


class Splitter:
    """Splits chunks into lines. Only the beginning of an overlong line is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, chunk: bytes) -> list[str]:
        r"""The lines that end in this chunk, without empty ones.

        >>> Splitter().split(b"one\n\ntwo\rthr")
        ['one', 'two']
        """
        first, *others = ENDS.split(chunk)
        lines = [self._rest + first[: LONGEST - len(self._rest)], *others]
        self._rest = lines.pop()[:LONGEST]
        texts = (line[:LONGEST].decode(errors="replace").strip("\0 \t\v\f") for line in lines)
        return [text for text in texts if text]


class ScriptLines(Generic[T]):
    """A queue of the lines that match, each with its stamp, and None at the end."""

    def __init__(self, reader: Reader, stamp: Callable[[], T]) -> None:
        self._reader = reader
        self._stamp = stamp
        self._queue: queue.SimpleQueue[tuple[Line, T] | LaunchError | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._splitter = Splitter()
        self._failed = False  # whether the reader failed
        self._closed = False
        self._follower: threading.Thread | None = None
        self.lines = 0  # lines read, whether they match or not

    def next(self, seconds: float) -> tuple[Line, T] | None:
        """The next line. Raises queue.Empty if none comes within this time.

        Raises:
            LaunchError: The lines cannot be read.
        """
        seen = self._queue.get(timeout=max(0.0, seconds))
        if isinstance(seen, LaunchError):
            raise seen
        return seen

    def receive(self, chunk: bytes) -> None:
        """Take a chunk that the script has written. An empty chunk means that it has closed its output."""
        self._take(chunk or b"\n")
        if not chunk:
            self._queue.put(None)

    def follow(self, path: Path) -> None:
        """Follow a file from its beginning, as soon as it exists, until `close`.

        A file whose beginning changes was written anew, as by a script that keeps only its latest line: it is read
        from the start. With the same beginning, only what follows the last read is new.
        """

        def follow() -> None:
            offset, head, last = 0, b"", False
            while not last:
                last = self._over.wait(LOOK_SECONDS)  # read once more after `close`, for the last lines
                with contextlib.suppress(OSError), path.open("rb") as file:
                    now = file.read(HEAD)
                    if now[: len(head)] != head[: len(now)]:
                        self._take(b"\n")
                        offset, head = 0, b""
                    head = max(head, now, key=len)
                    for chunk in _chunks(file, offset):
                        offset += len(chunk)
                        self._take(chunk)
            self._take(b"\n")

        self._follower = threading.Thread(target=follow, name="zeus-metrics", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """The script has ended: read what is left, then put None."""
        self._over.set()
        if self._follower is not None:
            self._follower.join(timeout=5.0)
        self._closed = True
        self._queue.put(None)

    def _take(self, chunk: bytes) -> None:
        texts = self._splitter.split(chunk)
        self.lines += len(texts)
        if not texts or self._failed or self._closed:  # the trial of later lines is over
            return
        try:
            for text in texts:
                if (line := self._reader(text)) is not None:
                    self._queue.put((line, self._stamp()))
        except LaunchError as failed:
            self._failed = True
            self._queue.put(failed)


def _chunks(file: IO[bytes], offset: int) -> Iterator[bytes]:
    """The content after this offset, up to the file's current size. What is added meanwhile is read next time."""
    end = os.fstat(file.fileno()).st_size
    file.seek(offset)
    while offset < end and (chunk := file.read(min(CHUNK, end - offset))):
        offset += len(chunk)
        yield chunk
