"""Messages that could not be delivered, kept on disk until their store answers: a training never waits for it.

    put ──▶ 1, 2, 3, ... ──deliver, in order──▶ gone
                            ├── refused ──▶ refused/, with the reason
                            └── of a newer Zeus ──▶ stays, for that one

Files are readable by their owner alone and hold no token and no password. One process delivers at a time, and goes on
where another left off. A message whose delivery was not noted is delivered again: the store knows it by its trial or
its key.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from zeus import env
from zeus.errors import InputError, NotAllowed, StoreError
from zeus.files import write_whole
from zeus.jobs.messages import Message, NewerMessage, message_from_json, message_to_json
from zeus.jobs.remote.retry import Failed

log = logging.getLogger(__name__)

REFUSED_SECONDS = 86_400.0  # for which a service may fail at a message before that counts as refused


def default_folder(address: str, environ: Mapping[str, str] = env.HERE) -> Path:
    """Where messages to the store or service of this address wait.

    >>> default_folder("http://host:7070", {"XDG_DATA_HOME": "/data"})
    PosixPath('/data/zeus/spool/host-971cdab9')
    >>> default_folder("sqlite:////srv/zeus.db", {"XDG_DATA_HOME": "/data"})
    PosixPath('/data/zeus/spool/zeus.db-d3eefed8')
    """
    parts = urlsplit(address)
    name = parts.hostname or Path(parts.path).name or "store"
    return env.data_folder(environ) / "spool" / f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


class Spool:
    """A folder of messages to one store: those to another are refused."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self._left_alone: set[Path] = set()  # of a newer Zeus, and said to be

    def put(self, message: Message) -> None:
        """Keep it for later.

        Raises:
            StoreError: It cannot be written.
        """
        last = max((int(path.name.partition("-")[0]) for path in self._files()), default=0)
        # two processes may take one number: neither came first, and the rest of the name keeps them apart
        write(self.folder / f"{last + 1:012d}-{uuid4().hex[:8]}.json", message_to_json(message, self.address))

    def waiting(self) -> list[Path]:
        """What has not been delivered and can be, the oldest first."""
        return [path for path in self._files() if path not in self._left_alone]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*-*.json"))

    def deliver(self, send: Callable[[Message], object]) -> None:
        """Deliver what waits, in order, as long as `send` does: where the store is away it raises StoreError.

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

    def _deliver(self, path: Path, send: Callable[[Message], object]) -> bool:
        """Whether there is any point in going on with the next."""
        try:
            send(message_from_json(json.loads(path.read_text()), self.address))
        except NewerMessage as newer:
            self._left_alone.add(path)
            log.warning("%s stays where it is: %s Install the newer Zeus that wrote it to deliver it.", path, newer)
            return True
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
        with suppress(OSError):  # on a full disk the message itself is still moved
            (folder / f"{path.stem}.why").write_text(f"{why}\n")
        path.replace(folder / path.name)
        log.warning("a message was refused, and is kept in %s: %s", folder / path.name, why)
        return True

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process delivers. Without a lock nobody knows: what is delivered twice does no harm."""
        with ExitStack() as held:
            alone = True
            try:
                lock = held.enter_context((self.folder / ".lock").open("a"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alone = False
            except OSError as wrong:  # a full disk, or a file system without locks
                log.debug("%s cannot be locked: %s", self.folder, wrong)
            yield alone


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Keep this as JSON, for nobody else to read.

    Raises:
        StoreError: It cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(data, allow_nan=False))
    except OSError as wrong:
        raise StoreError(f"{path.parent} cannot be written: {wrong.strerror}. Set XDG_DATA_HOME.") from wrong
