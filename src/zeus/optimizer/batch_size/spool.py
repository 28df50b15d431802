"""Reports that could not be delivered, kept on disk until the service is back: a training never waits for it.

    put ──▶ 1, 2, 3, ... ──deliver, in order──▶ gone
                            └── refused ──▶ refused/, with the reason

Files are readable by their owner alone and hold no token. One process delivers at a time, and goes on where another
left off. A report whose delivery was not noted is delivered again: the service knows it by its trial or its key.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from zeus.errors import InputError, NotAllowed, StoreError
from zeus.optimizer.batch_size.http import Failed

log = logging.getLogger(__name__)

REFUSED_SECONDS = 86_400.0  # for which a service may fail at a report before that counts as refused


@dataclass(frozen=True, slots=True)
class Report:
    """A request to be made later."""

    method: str
    path: str
    body: Any
    query: dict[str, Any] = field(default_factory=dict)
    trial: tuple[str, int] | None = None  # whose end it tells: the job's id and the trial's number


def default_folder(address: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where reports to this service wait.

    >>> default_folder("http://host:7070", {"XDG_DATA_HOME": "/data"})
    PosixPath('/data/zeus/spool/host-971cdab9')
    """
    data = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    name = f"{urlsplit(address).hostname}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"
    return Path(data) / "zeus" / "spool" / name


class Spool:
    """A folder of reports to one service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, report: Report) -> None:
        """Keep it for later.

        Raises:
            StoreError: It cannot be written.
        """
        last = max((int(path.name.partition("-")[0]) for path in self.waiting()), default=0)
        # two processes may take one number: neither came first, and the rest of the name keeps them apart
        write(self.folder / f"{last + 1:012d}-{uuid4().hex[:8]}.json", asdict(report))

    def waiting(self) -> list[Path]:
        """What has not been delivered, the oldest first."""
        return sorted(self.folder.glob("[0-9]*-*.json"))

    def deliver(self, send: Callable[[Report], object]) -> None:
        """Deliver what waits, in order, as long as `send` does: where the service is away it raises StoreError.

        Where another process is at it, it is left to that one, which looks again before it ends.
        """
        if not self.waiting():
            return
        try:
            with self._alone() as alone:
                while alone and (waiting := self.waiting()):
                    if not all(self._deliver(path, send) for path in waiting):
                        break
        except OSError as wrong:
            log.warning("what waits in %s could not be delivered: %s", self.folder, wrong)

    def _deliver(self, path: Path, send: Callable[[Report], object]) -> bool:
        """Whether there is any point in going on with the next."""
        try:
            send(read(path))
        except Failed as wrong:  # one that the service cannot bear must not keep others waiting for ever
            is_old = time.time() - path.stat().st_mtime > REFUSED_SECONDS
            return is_old and self._refuse(path, str(wrong))
        except (StoreError, NotAllowed):  # with another token it may yet be taken
            return False
        except (InputError, TypeError, ValueError) as wrong:
            return self._refuse(path, str(wrong))
        path.unlink(missing_ok=True)
        return True

    def _refuse(self, path: Path, why: str) -> bool:
        folder = self.folder / "refused"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / f"{path.stem}.why").write_text(f"{why}\n")
        path.replace(folder / path.name)
        log.warning("a report was refused, and is kept in %s: %s", folder / path.name, why)
        return True

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        with (self.folder / ".lock").open("a") as lock:
            alone = True
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alone = False
            except OSError as wrong:  # a file system without locks: what is delivered twice does no harm
                log.debug("%s cannot be locked: %s", lock.name, wrong)
            yield alone


def read(path: Path) -> Report:
    """A report that waits."""
    said = json.loads(path.read_text())
    trial = said.pop("trial")
    return Report(**said, trial=None if trial is None else (str(trial[0]), int(trial[1])))


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Whole or not at all, and for nobody else to read.

    Raises:
        StoreError: It cannot be written.
    """
    beside = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(data, file, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as wrong:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StoreError(f"{path.parent} cannot be written: {wrong.strerror}. Set XDG_DATA_HOME.") from wrong
