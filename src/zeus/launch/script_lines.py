"""What an unmodified script says, as it says it: its output, or a file of JSON lines.

Each line that says something is stamped (`stamp`) the moment it is read, so that whoever weighs it may take his time.
Nothing that a script writes, however long, deep or strange, takes more than a little memory or ends the reading.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from zeus.errors import LaunchError
from zeus.launch.job_file.values import MetricsSource
from zeus.launch.process.matcher import Matcher, TooSlow
from zeus.launch.script_events import Line

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1  # how often a file is looked at
CHUNK = 1 << 16
LONGEST = 1 << 14  # bytes of a line that are looked at
HEAD = 1 << 10  # bytes by which a file is known again
ENDS = re.compile(rb"[\r\n]")  # a progress bar rewrites its line
T = TypeVar("T")


# ---------------------------------------------------------------------------------------------------- what they say


class Reader(Protocol):
    """What lines say."""

    def read(self, texts: Sequence[str]) -> list[Line]:
        """Those among these lines that say something."""

    def close(self) -> None:
        """There will be no more."""


def reader_of(metrics: MetricsSource) -> Reader:
    """What the lines of the script's output say, or of its file.

    >>> reader = reader_of(MetricsSource(regex="acc=([0-9.]+)", epoch_regex="epoch ([0-9]+) done"))
    >>> reader.read(["epoch 3 done, acc=0.5", "hello"])
    [Line(epoch='3', metric=0.5)]
    >>> reader.close()
    """
    return JsonReader() if metrics.file else RegexReader(metrics)


class RegexReader:
    """By regular expressions."""

    def __init__(self, metrics: MetricsSource) -> None:
        self._regexes = [metrics.regex, *([metrics.epoch_regex] if metrics.epoch_regex else [])]
        self._matcher = Matcher(*self._regexes)
        self._count = map(str, itertools.count(1))  # the names of epochs that have none

    def read(self, texts: Sequence[str]) -> list[Line]:
        """Each line in which one of them is found.

        Raises:
            LaunchError: They take too long.
        """
        try:
            answers = self._matcher.search(texts)
        except TooSlow as slow:
            raise LaunchError(
                f"[metrics] {' or '.join(map(repr, self._regexes))} takes too long for one line after another, such as "
                f"{str(slow)!r}. Write it without a repeat inside a repeat, such as (a+)+."
            ) from slow
        return [line for found in answers if (line := self._line(*found)) is not None]

    def _line(self, metric: list[str | None] | None, epoch: list[str | None] | None = None) -> Line | None:
        value = None if metric is None else _number(metric[0])
        if len(self._regexes) == 1:
            return None if metric is None else Line(next(self._count), value)
        return None if metric is None and epoch is None else Line(None if epoch is None else epoch[0], value)

    def close(self) -> None:
        """There will be no more."""
        self._matcher.close()


class JsonReader:
    """Lines such as {"epoch": 3, "metric": 0.81}."""

    def __init__(self) -> None:
        self._count = map(str, itertools.count(1))

    def read(self, texts: Sequence[str]) -> list[Line]:
        """Each line that is such an object."""
        return [line for text in texts if (line := self._line(text)) is not None]

    def _line(self, text: str) -> Line | None:
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(text)
            if isinstance(data, dict) and {"epoch", "metric"} & set(data):
                name = str(data["epoch"]) if "epoch" in data else next(self._count)
                return Line(name, _number(data["metric"]) if data.get("metric") is not None else None)
        log.warning('%r is not a line such as {"epoch": 3, "metric": 0.81}, and is passed over', text[:200])
        return None

    def close(self) -> None:
        """Nothing is to be done."""


def _number(text: Any) -> float | None:
    """None where it is not a number, or not one that a target can be compared with."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        value = float(text)
        if math.isfinite(value):
            return value
    log.warning("the metric %.200r is not a number, and is passed over", text)
    return None


# ---------------------------------------------------------------------------------------------------- how they come


class Splitter:
    """Chunks become lines; of a line that is too long, its beginning."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, chunk: bytes) -> list[str]:
        r"""The lines that end here, without empty ones.

        >>> Splitter().split(b"one\n\ntwo\rthr")
        ['one', 'two']
        """
        first, *others = ENDS.split(chunk)
        lines = [self._rest + first[: LONGEST - len(self._rest)], *others]
        self._rest = lines.pop()[:LONGEST]
        texts = (line[:LONGEST].decode(errors="replace").strip("\0 \t\v\f") for line in lines)
        return [text for text in texts if text]


class ScriptLines(Generic[T]):
    """The lines that say something, with their stamps, in order; None once there will be no more."""

    def __init__(self, reader: Reader, stamp: Callable[[], T]) -> None:
        self._reader = reader
        self._stamp = stamp
        self._queue: queue.SimpleQueue[tuple[Line, T] | LaunchError | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._splitter = Splitter()
        self._failed = False  # the reader
        self._closed = False
        self._follower: threading.Thread | None = None
        self.lines = 0  # that were read, whatever they said

    def next(self, seconds: float) -> tuple[Line, T] | None:
        """The next one; queue.Empty where none comes in so long.

        Raises:
            LaunchError: They cannot be read.
        """
        seen = self._queue.get(timeout=max(0.0, seconds))
        if isinstance(seen, LaunchError):
            raise seen
        return seen

    def hear(self, chunk: bytes) -> None:
        """The script has written this; nothing: it will not write any more."""
        self._take(chunk or b"\n")
        if not chunk:
            self._queue.put(None)

    def follow(self, path: Path) -> None:
        """Follow a file from its beginning, whenever it comes into being, until `close`.

        One that is written anew with another beginning, as by a script that keeps its latest line only, is read anew;
        with the same beginning it has more to say than before.
        """

        def follow() -> None:
            offset, head, last = 0, b"", False
            while not last:
                last = self._over.wait(LOOK_SECONDS)  # once more after that, for what was written meanwhile
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
        """The script has ended: read what is left, and then None."""
        self._over.set()
        if self._follower is not None:
            self._follower.join(timeout=5.0)
        self._closed = True
        self._reader.close()
        self._queue.put(None)

    def _take(self, chunk: bytes) -> None:
        texts = self._splitter.split(chunk)
        self.lines += len(texts)
        if not texts or self._failed or self._closed:  # what comes too late is of no trial any more
            return
        try:
            for said in self._reader.read(texts):
                self._queue.put((said, self._stamp()))
        except LaunchError as failed:
            self._failed = True
            self._queue.put(failed)


def _chunks(file: IO[bytes], offset: int) -> Iterator[bytes]:
    """What lies there now after this offset; a file that grows while it is read is left for the next time."""
    end = os.fstat(file.fileno()).st_size
    file.seek(offset)
    while offset < end and (chunk := file.read(min(CHUNK, end - offset))):
        offset += len(chunk)
        yield chunk
