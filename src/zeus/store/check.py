"""Checks whether the user's store can be used, without creating, upgrading or writing anything."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from zeus import settings
from zeus.errors import InputError, NotInstalled
from zeus.lazy import optional
from zeus.store.address import file_of, instead, named, resolve, shown

VERSION = "SELECT version_num FROM zeus_version"
PATIENCE_SECONDS = 3.0  # how long a server may take to answer


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a check."""

    url: str  # with its password hidden
    kind: str | None  # "sqlite", "postgresql" or "service"; None: not a store
    ok: bool
    exists: bool  # a missing file is created when it is needed
    why_not: str | None = None
    version: str | None = None  # of its tables; None if unknown, or if there are none yet


def check(url: str | None = None, environ: Mapping[str, str] = settings.HERE) -> Found:
    """Check the store at this address, or else at ZEUS_STORE, or else the user's default file."""
    try:
        url = resolve(url, environ)
    except InputError as wrong:
        return Found(shown(url or settings.store(environ)), None, False, False, str(wrong))
    path = file_of(url)
    if path is not None:
        trouble = _file_trouble(path, partial(instead, url, "another file", environ))
        version = _file_version(path) if trouble is None else None
        return Found(shown(url), "sqlite", trouble is None, path.exists(), trouble, version)
    if not url.startswith("postgresql"):
        trouble = _service_trouble(url)
        return Found(shown(url), "service", trouble is None, trouble is None, trouble)
    trouble, version = _database_trouble(url)
    return Found(shown(url), "postgresql", trouble is None, trouble is None, trouble, version)


def _file_trouble(path: Path, advice: Callable[[], str]) -> str | None:
    if not path.exists():
        folder = next((one for one in path.parents if one.exists()), path.parent)
        able = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
        return None if able else f"{path} cannot be created in {folder}. {advice()}"
    if not os.access(path, os.R_OK | os.W_OK):
        return f"this user may not read and write {path}. {advice()}"
    from zeus.store.sql.sqlite import emptied

    if (lost := emptied(path)) is not None:
        return lost
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            file.execute("SELECT name FROM sqlite_master").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as wrong:
        return f"{path} cannot be read as a database: {wrong}. {advice()}"
    return None


def _file_version(path: Path) -> str | None:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            found = file.execute(VERSION).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):  # no file, or no tables yet
        return None
    return None if found is None else str(found[0])


def _database_trouble(url: str) -> tuple[str | None, str | None]:
    """Why the database cannot be used, and the version of its tables."""
    try:
        with optional("Postgres", "postgres"):
            import psycopg

            from zeus.store.sql.postgres import settings_of
        given = {**settings_of(url), "connect_timeout": int(PATIENCE_SECONDS)}
        with closing(psycopg.connect(**given)) as connection:
            version = None
            with suppress(psycopg.Error):  # there are no tables yet
                found = connection.execute(VERSION).fetchone()
                version = None if found is None else str(found[0])
    except (NotInstalled, InputError) as wrong:
        return str(wrong), None
    except psycopg.OperationalError as wrong:
        message = str(wrong).strip().splitlines()
        return f"{message[0] if message else type(wrong).__name__}. Check {named(url)}.", None
    except (psycopg.Error, ValueError):  # its own message would show the password
        return f"{shown(url)} is not the address of a database. Check {named(url)}.", None
    return None, version


def _service_trouble(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=PATIENCE_SECONDS):
            return None
    except (OSError, ValueError) as wrong:
        return f"{shown(url)} does not answer: {wrong}. Start it with `zeus serve`, or use another store."
