"""Checks whether the user's store can be used, without creating, upgrading or writing anything."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from zeus import settings
from zeus.errors import InputError, NotInstalled
from zeus.lazy import optional
from zeus.store.address import file_of, instead, named, resolve, shown

VERSION = "SELECT version_num FROM zeus_version"
PATIENCE_SECONDS = 3.0  # how long a server may take to answer


class StoreCause(StrEnum):
    """Why a store cannot be used."""

    ADDRESS = "address"  # it is no address of a store, or a package for it is missing
    FOLDER = "folder"  # the file cannot be created there
    PERMISSION = "permission"  # this user may not read and write the file
    DAMAGED = "damaged"  # the file is no database, or not whole
    AWAY = "away"  # it does not answer
    TOKEN = "token"  # the service does not let this user report


class _Unusable(Exception):
    """Why a store cannot be used, for people and in a word."""

    def __init__(self, cause: StoreCause, why_not: str) -> None:
        super().__init__(why_not)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a check."""

    url: str  # with its password hidden
    kind: str | None  # "sqlite", "postgresql" or "service"; None: not a store
    ok: bool
    exists: bool  # a missing file is created when it is needed
    why_not: str | None = None
    version: str | None = None  # of its tables; None if unknown, or if there are none yet
    cause: StoreCause | None = None


def check(url: str | None = None, environ: Mapping[str, str] = settings.HERE) -> Found:
    """Check the store at this address, or else at ZEUS_STORE, or else the user's default file."""
    try:
        url = resolve(url, environ)
    except InputError as wrong:
        where = shown(url or settings.store(environ))
        return Found(where, None, False, False, str(wrong), cause=StoreCause.ADDRESS)
    path = file_of(url)
    kind = "sqlite" if path is not None else "postgresql" if url.startswith("postgresql") else "service"
    version = None
    try:
        if path is not None:
            _check_file(path, partial(instead, url, "another file", environ))
            version = _file_version(path)
        elif kind == "service":
            _check_service(url)
        else:
            version = _database_version(url)
    except _Unusable as unusable:
        return Found(shown(url), kind, False, path is not None and path.exists(), str(unusable), None, unusable.cause)
    return Found(shown(url), kind, True, path is None or path.exists(), version=version)


def _check_file(path: Path, advice: Callable[[], str]) -> None:
    if not path.exists():
        folder = next((one for one in path.parents if one.exists()), path.parent)
        if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise _Unusable(StoreCause.FOLDER, f"{path} cannot be created in {folder}. {advice()}")
        return
    if not os.access(path, os.R_OK | os.W_OK):
        raise _Unusable(StoreCause.PERMISSION, f"this user may not read and write {path}. {advice()}")
    from zeus.store.sql.sqlite import emptied

    if (lost := emptied(path)) is not None:
        raise _Unusable(StoreCause.DAMAGED, lost)
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            file.execute("SELECT name FROM sqlite_master").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as wrong:
        why_not = f"{path} cannot be read as a database: {wrong}. {advice()}"
        raise _Unusable(StoreCause.DAMAGED, why_not) from wrong


def _file_version(path: Path) -> str | None:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            found = file.execute(VERSION).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):  # no file, or no tables yet
        return None
    return None if found is None else str(found[0])


def _database_version(url: str) -> str | None:
    try:
        with optional("Postgres", "postgres"):
            import psycopg

            from zeus.store.sql.postgres import settings_of
        given = {**settings_of(url), "connect_timeout": int(PATIENCE_SECONDS)}
        with closing(psycopg.connect(**given)) as connection:
            found = None
            with suppress(psycopg.Error):  # there are no tables yet
                found = connection.execute(VERSION).fetchone()
            return None if found is None else str(found[0])
    except (NotInstalled, InputError) as wrong:
        raise _Unusable(StoreCause.ADDRESS, str(wrong)) from wrong
    except psycopg.OperationalError as wrong:
        message = str(wrong).strip().splitlines()
        why_not = f"{message[0] if message else type(wrong).__name__}. Check {named(url)}."
        raise _Unusable(StoreCause.AWAY, why_not) from wrong
    except (psycopg.Error, ValueError):  # its own message would show the password
        why_not = f"{shown(url)} is not the address of a database. Check {named(url)}."
        raise _Unusable(StoreCause.ADDRESS, why_not) from None


def _check_service(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=PATIENCE_SECONDS):
            return
    except (OSError, ValueError) as wrong:
        why_not = f"{shown(url)} does not answer: {wrong}. Start it with `zeus serve`, or use another store."
        raise _Unusable(StoreCause.AWAY, why_not) from wrong
