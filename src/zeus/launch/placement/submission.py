"""What to run elsewhere, checked before anything is submitted, and the command that runs it on a node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zeus import settings
from zeus.errors import InputError
from zeus.launch.job_file.values import JobFile
from zeus.store.address import file_of, resolve, shown

# Of this machine and its files alone, so a node must have its own. What ZEUS_CONFIG says here is carried by value.
OF_THIS_MACHINE = frozenset({"ZEUS_CONFIG", "ZEUS_KEEPER", "ZEUS_KEEPER_STATE"})


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
        watch: Whether to wait until the job has ended, and show its progress.
        dry_run: Whether to show what would be submitted, and submit nothing.
        as_json: Whether stdout must hold nothing but JSON.
    """

    file: JobFile
    path: Path
    folder: Path
    recurrences: int = 1
    revise: bool = False
    off: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    watch: bool = False
    dry_run: bool = False
    as_json: bool = False

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


Place = Callable[[Submission], int]  # submits, shows what happens, and returns the exit code
