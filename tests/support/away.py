"""Stores that become unreachable and come back, for each kind of store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from support.postgres import PostgresServer
from support.served import Served


class Leaving(Protocol):
    """A store that can be away."""

    url: str  # of what is used
    database: str  # where it is kept, to be looked at from behind

    def down(self) -> object:
        """Nobody can write to it any more."""

    def up(self) -> object:
        """All can again."""


class LockedFile:
    """A SQLite file that another process holds for writing."""

    def __init__(self, path: Path) -> None:
        self.url = self.database = f"sqlite:///{path}"
        self._path = path
        self._held: sqlite3.Connection | None = None

    def down(self) -> None:
        held = sqlite3.connect(self._path, isolation_level=None, timeout=300)
        try:
            held.execute("BEGIN IMMEDIATE")
        except BaseException:
            held.close()
            raise
        self._held = held

    def up(self) -> None:
        if self._held is not None:
            with closing(self._held) as held:
                held.execute("ROLLBACK")
            self._held = None


class HiddenFolder:
    """A SQLite file whose folder cannot be entered. Root enters any, so that a file takes the folder's place."""

    def __init__(self, path: Path) -> None:
        self.url = self.database = f"sqlite:///{path}"
        self._folder, self._hidden = path.parent, path.parent.with_name(f"{path.parent.name}.hidden")

    def down(self) -> None:
        self._folder.rename(self._hidden)
        self._folder.touch()

    def up(self) -> None:
        if self._hidden.exists():
            self._folder.unlink(missing_ok=True)
            self._hidden.rename(self._folder)


class StoppedServer:
    """A Postgres that is stopped."""

    def __init__(self, server: PostgresServer) -> None:
        self._server, self._is_up = server, True
        self.url = self.database = server.new_database()

    def down(self) -> None:
        self._server.down()
        self._is_up = False

    def up(self) -> None:
        if not self._is_up:
            self._server.up()
            self._is_up = True


def locked_file(request: pytest.FixtureRequest) -> Iterator[Leaving]:
    path: Path = request.getfixturevalue("tmp_path")
    store = LockedFile(path / "zeus.db")
    yield store
    store.up()


def stopped_server(request: pytest.FixtureRequest) -> Iterator[Leaving]:
    store = StoppedServer(request.getfixturevalue("postgres"))
    yield store
    store.up()


def stopped_service(request: pytest.FixtureRequest) -> Iterator[Leaving]:
    pytest.importorskip("fastapi", reason="the service is not installed")
    served = Served(request.getfixturevalue("tmp_path")).up()
    yield served
    served.close()


LEAVING: dict[str, Callable[[pytest.FixtureRequest], Iterator[Leaving]]] = {
    "sqlite": locked_file,
    "postgres": stopped_server,
    "service": stopped_service,
}
