"""Crowds on one store: killed, reset, removed, imported over, restored, by wrong clocks; checked by raw SQL.

Promises: no trial and no outcome that a process was told of is lost, none ends twice, no number is given twice, no
trial is touched by what is said of another one, and with one clock for all no trial that is alive is lost.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chaos.store_crowd import SPEC, decide, joules_of, outcome_of
from support.postgres import PostgresServer
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.errors import AlreadyDone, NotKnown
from zeus.job import Gpus
from zeus.store import MemoryStore, Request, Store, open_store

if TYPE_CHECKING:
    from chaos.conftest import Chaos

pytestmark = pytest.mark.usefixtures("warm")

CROWD = Path(__file__).with_name("store_crowd.py")
FAKETIME = [Path(f"/usr/lib/{name}/faketime/libfaketime.so.1") for name in ("x86_64-linux-gnu", "aarch64-linux-gnu")]
MINUTES = 20 * 60
LEASE = 0.05  # of some trials, so that they are lost while they run


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/zeus.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


class Ring:
    """A store, a crowd on it, and what that crowd was told it has done."""

    def __init__(self, url: str, folder: Path, chaos: Chaos) -> None:
        self.url, self.chaos = url, chaos
        self.store: Store = open_store(url)
        self.store.register(SPEC)
        self._gate, self._acks = folder / "gate", folder / "acks"
        self._gate.touch()
        self._acks.touch()
        self._read = 0
        self._crowds: list[subprocess.Popen[bytes]] = []
        self.workers: list[int] = []
        self.asked: dict[int, str] = {}  # by number: the trial that a process was given
        self.told: set[str] = set()  # ids of trials whose end was heard
        self.kept: dict[str, dict[str, Any]] = {}  # trials in files of what was reset or removed, by id

    # ------------------------------------------------------------------ the crowd

    def gather(self, workers: int, lease: float = LEASE, ahead: float = 0.0) -> None:
        """More processes, whose clock is so many seconds ahead."""
        seed = str(self.chaos.dice.randrange(2**31))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        if ahead:
            environ |= {"LD_PRELOAD": str(_faketime()), "FAKETIME": f"{ahead:+.0f}"}
        command = [sys.executable, str(CROWD), self.url, str(self._gate), str(self._acks), str(lease), seed]
        process = subprocess.Popen([*command, str(workers)], stdin=subprocess.PIPE, env=environ)
        self._crowds.append(process)
        wanted = len(self.workers) + workers
        eventually(lambda: self._heard() or len(self.workers) >= wanted or process.poll() is not None, lambda: "")
        assert process.poll() is None

    def kill(self) -> None:
        """One of them, at whatever it is."""
        if self.workers:
            os.kill(self.workers.pop(self.chaos.dice.randrange(len(self.workers))), signal.SIGKILL)
            self.chaos.count("kills")

    def end(self) -> None:
        """Let those that are left come to an end."""
        for process in self._crowds:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._crowds:
            process.wait(timeout=PATIENCE_SECONDS)
        self._crowds, self.workers = [], []
        self._heard()

    def _heard(self) -> None:
        """Read what was acknowledged since; what is told of a number that another trial had is a violation."""
        with self._acks.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        self._read += text.rfind(b"\n") + 1
        for line in text[: text.rfind(b"\n") + 1].decode().splitlines():
            match line.split(" ", 1)[0], line.split(" "):
                case "worker", [_, pid]:
                    self.workers.append(int(pid))
                case "asked", [_, number, trial_id]:
                    self.chaos.count("trials")
                    known = self.asked.setdefault(int(number), trial_id)
                    self.chaos.held(known == trial_id, f"trial number {number} was given once")
                case "told", [_, _, trial_id]:
                    self.chaos.count("tells")
                    self.told.add(trial_id)
                case "refused", _:
                    self.chaos.count("late tells refused")
                case _:
                    self.chaos.held(False, f"a verb fails with an error of ours: {line}")

    # ------------------------------------------------------------------ what is done to the store

    def reset(self) -> None:
        """As `zeus jobs reset`: what is exported is what is forgotten, whatever the crowd does meanwhile."""
        for _ in range(5):
            seen = self.store.pulse()["crowd"]
            lines = self.store.export(["crowd"])
            try:
                self.store.restart("crowd", pulse=seen)
            except AlreadyDone:
                self.chaos.count("resets refused")
            else:
                self._keep(lines)
                self.chaos.count("resets")
                break

    def replace(self) -> None:
        """The job is removed, and one of another store takes its place, or its own history, or nothing."""
        with self._alone():
            lines = self.store.export(["crowd"])
            self.store.forget("crowd")
            self._keep(lines)
            match self.chaos.dice.choice(("own", "foreign", "nothing")):
                case "own":
                    self.store.import_lines(lines)
                    self.chaos.count("imports")
                case "foreign":
                    self.store.import_lines(_foreign(self.chaos.dice.randrange(1, 30), max(self.asked, default=0)))
                    self.chaos.count("imports")
                case _:
                    self.store.register(SPEC)
        self.chaos.count("removals")

    def restore(self) -> None:
        """A backup of a moment ago takes the place of all that happened since; numbers are given again, ids are not."""
        if not self.url.startswith("sqlite"):
            return
        path = self.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(path)) as live:
            with self._alone():
                live.backup(copy)
            time.sleep(0.1)
            with self._alone():
                copy.backup(live)
                self.asked, self.told, self.kept = {}, set(), {}  # nobody promised them
        self.chaos.count("restores")

    def tell_late(self) -> None:
        """Of whatever trial there ever was, of this life or another."""
        if not self.asked:
            return
        number = self.chaos.dice.choice(list(self.asked)[-30:])
        trial_id = self.asked[number]
        try:
            self.store.tell("crowd", number, outcome_of(trial_id), trial_id=trial_id)
            self.told.add(trial_id)
            self.chaos.count("late tells")
        except NotKnown:
            self.chaos.count("late tells refused")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While nobody of the crowd is inside a verb."""
        closed = self._gate.with_name(f"{self._gate.name}.closed")
        closed.touch()
        with self._gate.open() as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            self._heard()
            try:
                yield
            finally:
                closed.unlink()

    def _keep(self, lines: list[str]) -> None:
        for line in map(json.loads, lines):
            if line["line"] == "trial":
                self.kept[line["trial"]["ask"]["id"]] = line["trial"]

    # ------------------------------------------------------------------ what must be so

    def check(self) -> None:
        """By raw SQL, with nobody at work."""
        (sequence, last), trials, notes = self._rows()
        held = self.chaos.held
        marks = [mark for one in trials for mark in (one["asked"], one["lost"], one["ended"]) if mark is not None]
        held(sorted([*marks, *notes]) == list(range(1, sequence + 1)), "sequence numbers are 1, 2, 3, ...")
        held(all(one["ask"]["number"] <= last for one in trials), "the last number is known")
        for one in trials:
            said, trial_id = one["outcome"], one["ask"]["id"]
            held(
                said is None or said["joules"] == joules_of(trial_id), f"trial {one['ask']} was told of by itself alone"
            )
            for so_far in filter(None, [one["so_far"]]):
                held(so_far["joules"] == joules_of(trial_id), f"trial {one['ask']} was renewed by itself alone")
        here = {one["ask"]["id"]: one for one in trials}
        known = {**self.kept, **here}
        for trial_id in self.asked.values():
            held(trial_id in known, f"trial {trial_id} is not lost")
        for trial_id in self.told:
            ended = [one for one in (self.kept.get(trial_id), here.get(trial_id)) if one and one["ended"] is not None]
            held(ended, f"how trial {trial_id} ended is not lost")

    def lost(self) -> int:
        """Trials that are or were LOST."""
        return sum(one["lost"] is not None for one in self._rows()[1])

    def _rows(self) -> tuple[tuple[int, int], list[dict[str, Any]], list[int]]:
        with closing(_connect(self.url)) as raw:
            cursor = raw.cursor()
            job = cursor.execute("SELECT sequence, trials FROM zeus_jobs WHERE id = 'crowd'").fetchone()
            rows = cursor.execute("SELECT trial, so_far FROM zeus_trials WHERE job_id = 'crowd'").fetchall()
            notes = cursor.execute("SELECT sequence FROM zeus_events WHERE job_id = 'crowd'").fetchall()
        trials = [{**json.loads(trial), "so_far": so_far and json.loads(so_far)} for trial, so_far in rows]
        return job, trials, [sequence for (sequence,) in notes]

    def close(self) -> None:
        self.end()
        self.store.close()


@pytest.fixture
def ring(url: str, tmp_path: Path, chaos: Chaos) -> Iterator[Ring]:
    made = Ring(url, tmp_path, chaos)
    yield made
    made.close()


def _connect(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    import psycopg

    return psycopg.connect(url.replace("+psycopg", ""))


def _foreign(trials: int, last: int) -> list[str]:
    """A job of the same name in another store, with so many open trials, whose numbers are given here as well."""
    store = MemoryStore()
    store.register(SPEC)
    for _ in range(trials):
        store.ask("crowd", Request(gpus=Gpus("A40", 1, 300.0)), decide, lease=600.0)
    job, *lines = map(json.loads, store.export())
    before = max(0, last - trials)  # numbers of lives before
    job["first"] += before
    for line in lines:
        line["trial"]["ask"]["number"] += before
    return [json.dumps(line) for line in (job, *lines)]


def _faketime() -> Path:
    found = next((path for path in FAKETIME if path.exists()), None)
    if found is None:
        pytest.skip("libfaketime is not here: apt-get install faketime")
    return found


def test_a_crowd_that_is_killed_reset_and_imported_over_loses_and_mixes_nothing(chaos: Chaos, ring: Ring) -> None:
    while chaos.going():
        ring.gather(workers=4)
        acts = [ring.kill, ring.reset, ring.replace, ring.restore, ring.tell_late]
        for act in chaos.dice.choices(acts, weights=(2, 2, 3, 2, 4), k=16):
            time.sleep(chaos.dice.uniform(0.0, 0.1))
            act()
        ring.end()
        ring.check()


def test_clocks_that_are_wrong_by_minutes_lose_no_outcome_and_with_one_clock_no_trial(
    chaos: Chaos, ring: Ring, url: str
) -> None:
    _faketime()
    while chaos.going():
        for ahead in (0.0, MINUTES, -MINUTES):
            ring.gather(workers=2, lease=600.0, ahead=ahead)
        for _ in range(4):
            time.sleep(chaos.dice.uniform(0.0, 0.2))
            ring.kill()
        ring.end()
        ring.check()
        if not url.startswith("sqlite"):  # its clock is the machine's, and what a process takes for that
            chaos.held(ring.lost() == 0, "no live trial is lost to a clock that is ahead")
