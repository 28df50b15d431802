"""Recurrences over a store that goes away and comes back, on disks that fill up: none that converged is lost or twice.

Each round opens its job as a new process would, asks, goes on and tells. Meanwhile the store is taken away and given
back, and the disks of store, outbox and the keeper's notes fill up and are emptied, alone or together. Now and then all
is given back, and what was told is compared with what the store holds.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.away import LEAVING, HiddenFolder, Leaving, LockedFile
from support.disks import fill, tiny_disk
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.client.resilient.retry import Contact
from zeus.device.keeper.keeper import Keeper
from zeus.device.keeper.notes import Notes
from zeus.device.virtual import VirtualMachine
from zeus.errors import InputError, ZeusError
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.store import open_store
from zeus.store.sql.store import SqlStore

if TYPE_CHECKING:
    from chaos.conftest import Chaos

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16, policy="default")
V100 = Gpus("V100", 1, 250.0)
FASTER = 200  # times which waiting passes
BUSY = 0.05  # seconds that a verb waits for whoever holds the file
LONGEST = 40  # waits after which all is well again: nobody waits for ever for a disk that stays full
HANGS_SECONDS = 120.0  # no verb takes as long on the busiest machine, unless it waits for what does not come
TRIALS = 4  # of a round


class FileOnDisk:
    """A SQLite file that is away in one way or another."""

    def __init__(self, path: Path, chaos: Chaos) -> None:
        path.parent.mkdir()
        self.url = self.database = f"sqlite:///{path}"
        self._ways: tuple[Leaving, ...] = LockedFile(path), HiddenFolder(path)
        self._dice = chaos.dice

    def down(self) -> None:
        self._dice.choice(self._ways).down()

    def up(self) -> None:
        for way in self._ways:
            way.up()


class World:
    """What goes wrong around recurrences, as the dice say, and how it is put right."""

    def __init__(self, chaos: Chaos, store: Leaving, disks: dict[str, Path]) -> None:
        self._chaos, self._store, self._disks = chaos, store, disks
        self._ballast: dict[str, Path] = {}
        self._is_away = False

    def toss(self) -> None:
        """Perhaps something changes."""
        dice = self._chaos.dice
        if dice.random() < 0.2:
            self._give_back() if self._is_away else self._take_away()
        for name in self._disks:
            if dice.random() < 0.2:
                self._empty(name) if name in self._ballast else self._fill(name)

    def mend(self) -> None:
        """All is well."""
        self._give_back()
        for name in self._disks:
            self._empty(name)

    def _take_away(self) -> None:
        try:
            self._store.down()
        except (sqlite3.Error, OSError):  # on a full disk not even a lock is had
            return
        self._is_away = True
        self._chaos.count("stores taken away")

    def _give_back(self) -> None:
        if self._is_away:
            self._store.up()
        self._is_away = False

    def _fill(self, name: str) -> None:
        with suppress(OSError):
            self._ballast[name] = fill(self._disks[name])
            self._chaos.count("disks filled")

    def _empty(self, name: str) -> None:
        if name in self._ballast:
            self._ballast.pop(name).unlink()


class Trainings:
    """Recurrences of one job, each as a process of its own would run it."""

    def __init__(self, chaos: Chaos, world: World, url: str, outbox: Path) -> None:
        self._chaos, self._world = chaos, world
        self._url, self._outbox = url, outbox
        self._now, self._waits = 0.0, 0
        self.told: list[float] = []  # the joules of each run that converged: no two used the same
        self._ends = ExitStack()

    def _sleep(self, seconds: float) -> None:
        """Whoever waits for a store or a disk sees the world go on."""
        time.sleep(seconds / FASTER)
        self._now += seconds
        self._waits += 1
        if self._waits % LONGEST == 0:
            self._world.mend()
        elif self._chaos.dice.random() < 0.3:
            self._world.toss()

    def open(self) -> RecurringJob:
        """The job, as a process that starts now finds it; the one before has ended."""
        self.close()
        contact = Contact("the store", clock=lambda: self._now, sleep=self._sleep)
        jobs = LocalJobs(lambda: SqlStore(self._url, busy_seconds=BUSY), self._url)
        self.outbox = Outbox(jobs, contact, self._outbox)
        self._ends.callback(jobs.close)
        return RecurringJob.register(ResilientJobs(self.outbox), SPEC)

    def close(self) -> None:
        """As if its process had ended."""
        self._ends.close()

    def run(self) -> None:
        """One recurrence, which converges."""
        chaos, dice = self._chaos, self._chaos.dice
        try:
            job = self.open()
        except InputError:  # a store that cannot be opened at the start is refused, and nothing is trained
            chaos.count("runs refused")
            return
        trial, joules = job.ask(V100), 1.0 + len(self.told)
        for epoch in range(dice.randint(1, 4)):
            self._world.toss()
            self._now += dice.uniform(0, 60)
            so_far = Outcome(ending=Ending.LOST, joules=joules / 2, seconds=1.0, epochs=epoch)
            began = time.monotonic()
            with suppress(ZeusError):  # as a running trial has it: a training goes on
                job.progress(trial.number, so_far, 1.0)
            with suppress(ZeusError):
                job.profiled(trial.batch_size, V100, joules=joules, seconds=1.0)
            chaos.held(time.monotonic() - began < HANGS_SECONDS, "an epoch does not wait for a store that is away")
        self._world.toss()
        done = Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=3, metric=0.9)
        self.told.append(joules)
        for _ in range(dice.choice([1, 1, 2])):  # by the script, and by its launcher
            began = time.monotonic()
            ended = job.tell(trial.number, done)
            chaos.held(ended.outcome == done, "whoever tells hears what was told")
            chaos.held(time.monotonic() - began < HANGS_SECONDS, "the end of a trial is told, or waits on disk")
        chaos.count("trials")

    def settle(self, database: str) -> None:
        """All is well again: one contact after the other delivers what waits, and nothing is missing then."""
        self._world.mend()
        for _ in range(100):
            self.open()
            if not self.outbox.spool.waiting():
                break
        store = open_store(database)
        outcomes = [kept.trial.outcome for kept in store.trials("asr") if kept.trial.ending is Ending.CONVERGED]
        store.close()
        found = Counter(outcome.joules for outcome in outcomes if outcome is not None)
        held = self._chaos.held
        held(not set(self.told) - set(found), f"no converged trial is lost: {set(self.told) - set(found)}")
        held(found == Counter(self.told), f"none is there twice: {found - Counter(self.told)}")
        held(not (self._outbox / "refused").exists(), "no message is refused")
        self._chaos.count("settled")


class Limits:
    """A card whose limit is lent, with notes on a disk that fills up."""

    def __init__(self, chaos: Chaos, folder: Path) -> None:
        self._chaos = chaos
        self._gpu = VirtualMachine.in_memory("v100").gpus[0]
        self._notes = Notes(folder, boot="this")
        self._keeper = Keeper(lambda: [self._gpu], self._notes, pause=lambda seconds: None)
        self._found = self._gpu.limit()

    def run(self, world: World) -> None:
        """Lend, lower and give back."""
        uuid, held = self._gpu.spec.uuid, self._chaos.held
        try:
            loan = self._keeper.lend([uuid], patience=0)
        except (ZeusError, OSError):
            held(self._gpu.limit() == self._found, "what cannot be noted is not lent")
            self._chaos.count("loans refused")
            return
        world.toss()
        with suppress(ZeusError, OSError):
            loan.set({uuid: 150.0})
        noted = self._notes.read(uuid)
        held(self._gpu.limit() == self._found or noted is not None, "no limit is changed that is not noted")
        world.toss()
        loan.restore()
        held(self._gpu.limit() == self._found, "the limit is as it was found")
        self._chaos.count("loans")


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Tiny ones for the outbox and the keeper's notes; pytest's own folder is on none."""
    with ExitStack() as mounted:
        yield {
            "outbox": mounted.enter_context(tiny_disk(tmp_path / "outbox", 1024)),
            "notes": mounted.enter_context(tiny_disk(tmp_path / "notes", 256)),
        }


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_converged_trial_is_lost_and_none_is_there_twice(
    kind: str, chaos: Chaos, disks: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as open_here:
        if kind == "sqlite":
            disks["store"] = open_here.enter_context(tiny_disk(tmp_path / "store", 16 * 1024))
            store: Leaving = FileOnDisk(tmp_path / "store" / "kept" / "zeus.db", chaos)
            open_here.callback(store.up)
        else:
            leaving = LEAVING[kind](request)
            store = next(leaving)
            open_here.callback(lambda: next(leaving, None))
        open_store(store.database).close()
        world = World(chaos, store, disks)
        open_here.callback(world.mend)
        trainings = Trainings(chaos, world, store.url, tmp_path / "outbox" / "spool")
        open_here.callback(trainings.close)
        limits = Limits(chaos, tmp_path / "notes")
        while chaos.going():
            for _ in range(TRIALS):
                trainings.run()
                limits.run(world)
            trainings.settle(store.database)
