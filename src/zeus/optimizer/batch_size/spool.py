"""Reports that could not be delivered, kept on disk until the service is back: a training never waits for it.

    put ──▶ 0001.json, 0002.json, ... ──deliver, in order──▶ gone
                                             └── refused ──▶ refused/, with the reason

Files are readable by their owner alone and hold no token. One process delivers at a time, and goes on where another
left off; a report delivered twice changes nothing, as the service knows it by its key or its trial.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from zeus.errors import InputError, StoreError

log = logging.getLogger(__name__)


def default_folder(address: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where reports to this service wait."""
    data = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "zeus" / "spool" / hashlib.sha256(address.encode()).hexdigest()[:16]


class Spool:
    """A folder of reports to one service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, method: str, path: str, body: Any, query: Mapping[str, Any] | None = None) -> None:
        """Keep a request for later."""
        request = {"method": method, "path": path, "body": body, "query": dict(query or {})}
        _write(self.folder / f"{time.time_ns():020d}-{uuid4().hex[:8]}.json", request)

    def waiting(self) -> list[Path]:
        """What has not been delivered, the oldest first."""
        return sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []

    def deliver(self, send: Callable[..., Any]) -> int:
        """Deliver what waits, in order, until the service is away again; how many arrived.

        `send(method, path, body=, query=)` raises StoreError where the service is away.
        """
        delivered = 0
        if not self.waiting():
            return delivered
        with self._alone() as alone:
            for path in self.waiting() if alone else []:
                try:
                    request = json.loads(path.read_text())
                    send(request["method"], request["path"], body=request["body"], query=request["query"] or None)
                except FileNotFoundError:
                    continue
                except StoreError:
                    break
                except (InputError, ValueError, KeyError) as wrong:
                    self._refuse(path, str(wrong))
                    continue
                path.unlink(missing_ok=True)
                delivered += 1
        return delivered

    def _refuse(self, path: Path, why: str) -> None:
        folder = self.folder / "refused"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / f"{path.stem}.why").write_text(f"{why}\n")
        path.replace(folder / path.name)
        log.warning("a report was refused, and is kept in %s: %s", folder / path.name, why)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    # ------------------------------------------------------------------ trials that began without the service

    def keep_trial(self, number: int, data: Mapping[str, Any]) -> None:
        """Remember a trial that the service has not heard of, for every process of this user."""
        _write(self.folder / "trials" / f"{number}.json", dict(data))

    def trial(self, number: int) -> dict[str, Any] | None:
        """What is remembered of it."""
        try:
            data: dict[str, Any] = json.loads((self.folder / "trials" / f"{number}.json").read_text())
        except FileNotFoundError:
            return None
        return data


def _write(path: Path, data: Mapping[str, Any]) -> None:
    """Whole or not at all, and for nobody else to read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(data, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
