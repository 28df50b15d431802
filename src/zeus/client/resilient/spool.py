"""Messages that could not be delivered, kept on disk until their store answers. A training never waits for them.

    put ──▶ 1, 2, 3, ... ──deliver, in order──▶ removed
                            ├── refused ──▶ moved to refused/, with the reason
                            └── from a newer Zeus, or about somebody else's job ──▶ left in place

Files are readable by their owner alone and hold no token and no password. One process delivers at a time, and another
can continue where it stopped. A message may be delivered twice if the process is killed: the store recognises it by its
trial or its key.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from zeus import settings
from zeus.client.api import Message
from zeus.client.resilient.retry import Failed
from zeus.errors import Forbidden, InputError, NotAllowed, StoreError
from zeus.files import FileLock, write_whole
from zeus.job.wire import Json, loads, plain, read

log = logging.getLogger(__name__)

MESSAGE = re.compile("[0-9]+-[0-9A-Za-z]+[.]json")  # the names of messages; other files are not ours
VERSION = 4  # of the files: the first that was published
REFUSED_SECONDS = 86_400.0  # how long a service may fail at a message before it counts as refused


class NewerMessage(InputError):
    """The message was written by a newer Zeus, which must deliver it."""


class OtherStore(InputError):
    """The message is for another store."""


class Envelope(msgspec.Struct, frozen=True):
    """A message with the address of its store."""

    to: str
    message: Message
    version: int = VERSION


def message_to_json(message: Message, address: str) -> Json:
    return dict(plain(Envelope(address, message)))


def message_from_text(text: str, address: str) -> Message:
    """Read a message for the store of this address.

    Raises:
        NewerMessage: This Zeus does not know the message's version.
        OtherStore: The message is for another store.
        InputError: The message is damaged.
    """
    data = loads(text)
    if data.get("version") != VERSION:
        raise NewerMessage(f"it has version {data.get('version')!r}; this Zeus reads version {VERSION}.")
    found = read(data, Envelope)
    if found.to != address:
        raise OtherStore(f"it is for {found.to}, not for {address}.")
    return found.message


def default_folder(address: str, environ: Mapping[str, str] = settings.HERE) -> Path:
    """Folder for messages to the store or service of this address.

    >>> default_folder("http://host:7070", {"XDG_DATA_HOME": "/data"})
    PosixPath('/data/zeus/spool/host-971cdab9')
    >>> default_folder("sqlite:////srv/zeus.db", {"XDG_DATA_HOME": "/data"})
    PosixPath('/data/zeus/spool/zeus.db-d3eefed8')
    """
    parts = urlsplit(address)
    name = parts.hostname or Path(parts.path).name or "store"
    return settings.data_folder(environ) / "spool" / f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


class Spool:
    """A folder of messages to one store. Messages to another store are refused."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self._left_alone: set[Path] = set()  # from a newer Zeus, or forbidden; a warning was logged

    def put(self, message: Message) -> None:
        """Write a message to disk.

        Raises:
            StoreError: The file cannot be written.
        """
        last = max((_number(path) for path in self._files()), default=0)
        # Two processes may take the same number. Their order does not matter, and the random part keeps them apart.
        write(self.folder / f"{last + 1:012d}-{uuid4().hex[:8]}.json", message_to_json(message, self.address))

    def waiting(self) -> list[Path]:
        """The messages that can be delivered, oldest first."""
        return [path for path in self._files() if path not in self._left_alone]

    def _files(self) -> list[Path]:
        found = [path for path in self.folder.glob("[0-9]*-*.json") if MESSAGE.fullmatch(path.name) and path.is_file()]
        return sorted(found, key=lambda path: (_number(path), path.name))

    def deliver(self, send: Callable[[Message], object]) -> None:
        """Deliver the waiting messages in order with `send`, until it raises StoreError.

        If another process is delivering, do nothing: it looks for new messages before it stops.
        """
        if not self.waiting():
            return
        try:
            with self._alone() as alone:
                while alone and (waiting := self.waiting()):
                    if not all(self._deliver(path, send) for path in waiting):
                        break
        except OSError as wrong:
            log.warning("the messages in %s could not be delivered: %s", self.folder, wrong)

    def _deliver(self, path: Path, send: Callable[[Message], object]) -> bool:
        """Deliver one message. Returns whether to go on with the next."""
        try:
            send(message_from_text(path.read_text(), self.address))
        except NewerMessage as newer:
            self._left_alone.add(path)
            log.warning("%s was not delivered: %s Install the newer Zeus that wrote it to deliver it.", path, newer)
            return True
        except Failed as wrong:  # a message that the service always fails at must not block the others for ever
            is_old = time.time() - path.stat().st_mtime > REFUSED_SECONDS
            return is_old and self._refuse(path, str(wrong))
        except Forbidden as wrong:  # it may be accepted later, and does not keep back messages about other jobs
            self._left_alone.add(path)
            log.warning("%s was not delivered and is kept: %s", path, wrong)
            return True
        except (StoreError, NotAllowed):  # it may be accepted later with another token
            return False
        except (InputError, TypeError, ValueError) as wrong:
            return self._refuse(path, str(wrong))
        path.unlink(missing_ok=True)
        return True

    def _refuse(self, path: Path, why: str) -> bool:
        folder = self.folder / "refused"
        folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(OSError):  # on a full disk the message itself can still be moved
            (folder / f"{path.stem}.why").write_text(f"{why}\n")
        path.replace(folder / path.name)
        log.warning("a message was refused and is kept in %s: %s", folder / path.name, why)
        return True

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process is delivering. Also true without file locks: delivering twice is safe."""
        try:
            lock = FileLock.take(self.folder / ".lock")
        except OSError as wrong:  # a full disk, or a file system without locks
            log.debug("%s cannot be locked: %s", self.folder, wrong)
            yield True
            return
        with lock or nullcontext():
            yield lock is not None


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Write data as JSON, readable by its owner alone.

    Raises:
        StoreError: The file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(data, allow_nan=False))
    except OSError as wrong:
        raise StoreError(f"{path.parent} cannot be written: {wrong.strerror}. Set XDG_DATA_HOME.") from wrong
