"""What to run elsewhere, checked before anything is submitted, and the command that runs it on a node."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from zeus import settings
from zeus.errors import InputError
from zeus.launch.job_file.values import JobFile
from zeus.store.address import file_of, resolve, shown

# Of this machine and its files alone, so a node must have its own. What ZEUS_CONFIG says here is carried by value.
OF_THIS_MACHINE = frozenset({"ZEUS_CONFIG", "ZEUS_KEEPER", "ZEUS_KEEPER_STATE"})
NAME_LETTERS = 60


def plain_name(job: str) -> str:
    """A name for a job that every place accepts, except Kubernetes.

    >>> plain_name("speech (nightly)")
    'zeus-speech__nightly_'
    """
    return f"zeus-{re.sub(r'[^A-Za-z0-9_.-]', '_', job)[:NAME_LETTERS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Recurrences of a job to run elsewhere.

    Args:
        file: The checked job file.
        path: Where it is, absolute. A node reads it again, so it must see the same folder.
        folder: Where the command is run.
        recurrences: How often to run the job.
        revise: Whether to continue the job although its command or target has changed.
        off: Whether to train as without Zeus.
        settings: The table of the place in the job file, and over it what `--set` gives.
        unique: Tells this submission from all others.
    """

    file: JobFile
    path: Path
    folder: Path
    recurrences: int = 1
    revise: bool = False
    off: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    unique: str = field(default_factory=lambda: uuid4().hex[:12])

    @property
    def name(self) -> str:
        """The id of the recurring job."""
        return self.file.spec.id

    @property
    def run_id(self) -> str:
        """What its `zeus run` gets as ZEUS_RUN_ID, so that a second start continues what the first had begun."""
        return f"{plain_name(self.name)}-{self.unique}"

    def command(self, recurrences: int | None = None, python: str = sys.executable) -> list[str]:
        """The command of a node. Without a number, it runs all recurrences one after the other."""
        count = self.recurrences if recurrences is None else recurrences
        flags = [*(["--revise"] if self.revise else []), *(["--off"] if self.off else [])]
        return [python, "-m", "zeus.cli", "run", str(self.path), "--recurrences", str(count), *flags]


def carried(environ: Mapping[str, str] = settings.HERE) -> dict[str, str]:
    """The variables of Zeus that a node must get from here. Never log them: they may hold secrets.

    >>> carried({"ZEUS_STORE": "http://zeus:7070", "ZEUS_KEEPER": "/run/zeus.sock", "HOME": "/home/me"})
    {'ZEUS_STORE': 'http://zeus:7070'}
    """
    return {name: text for name, text in environ.items() if name.startswith("ZEUS_") and name not in OF_THIS_MACHINE}


def refuse_local_store(place: str, environ: Mapping[str, str] = settings.HERE) -> str:
    """The address of the store, if every node of this place can reach it.

    Raises:
        InputError: The store is a SQLite file, which only processes of one machine can share.
    """
    address = resolve(None, environ)
    if file_of(address) is not None:
        raise InputError(
            f"--on {place}: the store {shown(address)} is a SQLite file. Its locks do not work between machines, so "
            "the nodes could lose data in it. Set ZEUS_STORE to a Postgres database (postgresql+psycopg://...) or to "
            "a service (http://host:7070, see `zeus serve`)."
        )
    return address
