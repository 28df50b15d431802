"""A real PostgreSQL for tests. It listens only on a unix socket and ends with the process that started it.

with PostgresServer.start() as server:
    open_store(server.new_database())
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from support.waiting import PATIENCE_SECONDS, eventually
from zeus.store import open_store

USER = "postgres"
# Ends with whoever holds the other end of its standard input, however that one ends.
LEASHED = '"$@" & server=$!; read -r _; kill -QUIT $server; wait $server'


class PostgresServer(AbstractContextManager["PostgresServer"]):
    """One cluster in a temporary folder. Durable as PostgreSQL is by default, unless `fsync` is off."""

    def __init__(self, programs: Path, *, fsync: bool = True) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zeus-pg-"))  # short: the name of a socket may not be long
        self._programs, self._fsync = programs, fsync
        self._numbers = count(1)
        self._cleared: list[str] = []  # addresses of stores that tests are done with
        self._leash: subprocess.Popen[bytes] | None = None
        # It refuses to run as root.
        self._as: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        if self._as:
            shutil.chown(self.folder, USER, USER)
        self._call("initdb", "-D", "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync")

    @classmethod
    def start(cls, *, fsync: bool = True) -> PostgresServer:
        """A new one, running.

        Raises:
            LookupError: Something is not installed; the message says what to install.
        """
        server = cls(_programs(), fsync=fsync)
        try:
            server.up()
        except BaseException:
            server.__exit__(None, None, None)
            raise
        return server

    def up(self) -> None:
        """Let it serve; returns once it answers."""
        settings = [
            "-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}", "-c", "max_connections=100",
            "-c", f"fsync={'on' if self._fsync else 'off'}", "-c", "log_min_messages=fatal",
        ]  # fmt: skip
        command = ["sh", "-c", LEASHED, "sh", str(self._programs / "postgres"), "-D", "data", *settings]
        with (self.folder / "log").open("ab") as log:
            self._leash = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.PIPE, stdout=log, stderr=log, **self._as
            )
        eventually(self._answers, (self.folder / "log").read_text)

    def down(self) -> None:
        """As if it had crashed; what was committed stays."""
        if self._leash is not None:
            self._leash.communicate(timeout=PATIENCE_SECONDS)  # lets go of its standard input
            self._leash = None

    def freeze(self) -> None:
        """Let all its processes stand still: they take what is sent to them, and answer nothing."""
        for pid in self._processes():
            with suppress(ProcessLookupError):  # a worker that has just ended
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        for pid in self._processes():
            os.kill(pid, signal.SIGCONT)

    def _processes(self) -> list[int]:
        """Itself first, so that it starts no other meanwhile."""
        first = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def new_database(self) -> str:
        """The address of an empty one."""
        import psycopg

        name = f"zeus_{next(self._numbers)}"
        with psycopg.connect(host=str(self.folder), user=USER, dbname="postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql+psycopg://{USER}@/{name}?host={self.folder}"

    def new_store(self) -> str:
        """The address of a store without jobs, whose tables are there: to make them takes longer than most tests."""
        if self._cleared:
            return self._cleared.pop()
        url = self.new_database()
        open_store(url).close()
        return url

    def clear_store(self, url: str) -> None:
        """Let another test have this store. Whoever is still connected to it is no more."""
        import psycopg

        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            names = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'zeus_version'"
            )
            connection.execute(f"TRUNCATE {', '.join(name for (name,) in names)} RESTART IDENTITY")
        self._cleared.append(url)

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, where: TracebackType | None
    ) -> None:
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        call = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder), "-U", USER, "-d", "postgres"]
        return subprocess.run(call, check=False, timeout=PATIENCE_SECONDS).returncode == 0

    def _call(self, program: str, *arguments: str) -> None:
        call = [str(self._programs / program), *arguments]
        done = subprocess.run(
            call, check=False, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, **self._as
        )
        assert done.returncode == 0, done.stderr


def _programs() -> Path:
    if find_spec("psycopg") is None:
        raise LookupError("psycopg is not installed: pip install 'psycopg[binary]'")
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise LookupError("no PostgreSQL on this machine: apt-get install postgresql")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One for all tests of a process, each of which makes a database for itself."""
    try:
        server = PostgresServer.start(fsync=False)  # no test cuts the power
    except LookupError as missing:
        pytest.skip(str(missing))
    with server:
        yield server
