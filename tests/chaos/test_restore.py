"""Backups are restored under a running service while trainings ask and tell.

What was told after the last restore is there. No training ends the trial of another, though after a restore the same
numbers are given again. What the service then says is what one says that was started on the same file just now.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from support.live import live
from support.served import SPEC, V100, remote
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.errors import InputError, StoreError
from zeus.job import Ending, Outcome
from zeus.service.app import Settings, create
from zeus.store import open_store

TRAININGS = 3
VIEWS = ("/api/v1/jobs", "/api/v1/jobs/asr", "/api/v1/jobs/asr/beliefs", "/api/v1/jobs/asr/trials", "/api/v1/summary")


class Trainings:
    """Several that ask and tell over HTTP, each in a thread; and what was taken down of what they told."""

    def __init__(self, address: str, folder: Path, dice: Random, chaos: Any) -> None:
        self._address, self._folder, self._dice, self._chaos = address, folder, dice, chaos
        self._lock, self._serial = threading.Lock(), 0
        self._gate, self._waiting = threading.Event(), 0
        self.told: dict[float, int] = {}  # the joules of each outcome that was taken down, and of which trial

    def run(self, trials: int, held: int = 0, meanwhile: Callable[[], None] = lambda: None) -> None:
        """So many trials of each. The first few hold theirs open until something was done, the others go on."""
        self._gate.clear()
        self._waiting = 0
        threads = [threading.Thread(target=self._train, args=(one, trials, one < held)) for one in range(TRAININGS)]
        for thread in threads:
            thread.start()
        eventually(lambda: self._waiting == held)
        meanwhile()
        self._gate.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a training hangs"

    def _train(self, which: int, trials: int, holds: bool) -> None:
        job = remote(self._address, self._folder / f"spool{which}")
        for number in range(trials):
            try:
                asked = job.ask(V100)
                if holds and number == 0:
                    with self._lock:
                        self._waiting += 1
                    assert self._gate.wait(PATIENCE_SECONDS)
                joules = self._next()
                outcome = Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=3, metric=0.9)
                ended = job.tell(asked.number, outcome)
            except (InputError, StoreError):  # its trial went with the restore
                self._chaos.count("refusals")
                continue
            self._chaos.count("trials")
            if ended.outcome == outcome:
                with self._lock:
                    self.told[joules] = asked.number

    def _next(self) -> float:
        """Joules that nobody else tells, so that each outcome says whose it is."""
        with self._lock:
            self._serial += 1
            return 100.0 + self._serial + round(self._dice.random() * 400) * 1000


def copy(source: Path, target: Path) -> None:
    """As `sqlite3 target .restore` does, whoever has it open."""
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target, timeout=PATIENCE_SECONDS)) as there:
        here.backup(there)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "zeus.db"
    open_store(f"sqlite:///{path}").close()
    return path


def test_a_backup_restored_under_a_running_service_leaves_nothing_behind(
    chaos: Any, file: Path, tmp_path: Path
) -> None:
    dice, backups = chaos.dice, [tmp_path / "backup0.db"]
    url = f"sqlite:///{file}"
    with closing(open_store(url)) as store, live(store, Settings(per_second=0)) as address:
        trainings = Trainings(address, tmp_path, Random(chaos.seed), chaos)
        trainings.run(2)
        copy(file, backups[0])
        trainings.run(1)
        while chaos.going():
            if chaos.did["rounds"] > 1 and dice.random() < 0.4:
                backups.append(tmp_path / f"backup{len(backups)}.db")
                copy(file, backups[-1])
                chaos.count("backups")
                trainings.run(dice.randrange(1, 4))
            else:
                backup, held = dice.choice(backups), dice.randrange(1, TRAININGS + 1)
                trainings.run(3, held, partial(copy, backup, file))
                chaos.count("restores")
            trainings.told.clear()
            trainings.run(dice.randrange(1, 4))
            _nothing_told_is_lost(chaos, file, trainings.told)
            _all_is_as_if_started_now(chaos, address, url)


def _nothing_told_is_lost(chaos: Any, file: Path, told: dict[float, int]) -> None:
    with closing(open_store(f"sqlite:///{file}")) as store:
        kept = {one.trial.number: one.trial.outcome for one in store.trials(SPEC.id)}
    for joules, number in told.items():
        found = kept.get(number)
        chaos.held(found is not None and found.joules == joules, f"trial {number} was told {joules} J and says {found}")


def _all_is_as_if_started_now(chaos: Any, address: str, url: str) -> None:
    with closing(open_store(url)) as store:
        anew = TestClient(create(store, Settings(per_second=0)))
        for path in VIEWS:
            chaos.count("requests")
            here = httpx.get(f"{address}{path}", timeout=PATIENCE_SECONDS)
            chaos.held(here.json() == anew.get(path).json(), f"{path} says something that the store does not")
