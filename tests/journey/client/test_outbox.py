"""What is told to a store that was away: as it was when the run began, and of the trial that is meant."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from support.served import DONE, SPEC, V100
from zeus.client.api import TrialEnded
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.cache import KEPT_SECONDS
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.client.resilient.retry import Contact, Patience
from zeus.client.resilient.spool import default_folder
from zeus.device.clock import VirtualClock
from zeus.errors import InputError, NotKnown, StoreError
from zeus.job import Ending, Outcome, replace
from zeus.store import MemoryStore, Store
from zeus.store.address import address_of, resolve

pytestmark = pytest.mark.usefixtures("warm")


class Leaving:
    """A store in memory that may be away."""

    def __init__(self, folder: Path) -> None:
        self.store, self.is_away = MemoryStore(), False
        self.clock = VirtualClock()
        self.contact = Contact("the store", clock=self.clock.now, sleep=self.clock.sleep)
        self.jobs = LocalJobs(self._open, "memory")
        self.folder = folder

    def _open(self) -> Store:
        if self.is_away:
            raise StoreError("the store is away")
        return self.store

    def away(self, is_away: bool) -> None:
        self.is_away = is_away
        self.jobs._store = None

    def outbox(self) -> Outbox:
        return Outbox(self.jobs, self.contact, self.folder)

    def resilient(self) -> ResilientJobs:
        return ResilientJobs(self.outbox(), Patience(0.0, 0.0))


@pytest.fixture
def leaving(tmp_path: Path) -> Leaving:
    return Leaving(tmp_path / "spool")


def test_a_run_that_began_alone_is_told_by_the_spec_and_the_life_that_it_began_with(leaving: Leaving) -> None:
    RecurringJob.register(leaving.resilient(), SPEC)
    leaving.away(True)
    mine = replace(SPEC, target_metric=0.7, batch_sizes=(8, 16, 64), default_batch_size=64)
    trial = RecurringJob.register(leaving.resilient(), mine).ask(V100)
    assert trial.batch_size == 64
    leaving.away(False)
    script = RecurringJob.find(leaving.resilient(), SPEC.id)  # sees the job as the store has it
    assert script.spec == leaving.store.job(SPEC.id).spec
    script.tell(trial.number, DONE)
    (kept,) = leaving.store.trials(SPEC.id)
    assert (kept.trial.batch_size, kept.trial.ending) == (64, Ending.CONVERGED)
    assert kept.trial.ask.target is not None and kept.trial.ask.target.metric == 0.7


def test_a_run_of_a_former_life_is_refused_whoever_tells_it(leaving: Leaving) -> None:
    RecurringJob.register(leaving.resilient(), SPEC)
    leaving.away(True)
    trial = RecurringJob.register(leaving.resilient(), SPEC).ask(V100)
    leaving.away(False)
    leaving.store.restart(SPEC.id)
    with pytest.raises(NotKnown):
        RecurringJob.find(leaving.resilient(), SPEC.id).tell(trial.number, DONE)
    assert list(leaving.store.trials(SPEC.id)) == []


def test_what_is_refused_of_another_trial_leaves_the_running_one_known(leaving: Leaving) -> None:
    box = leaving.outbox()
    job = RecurringJob.register(ResilientJobs(box), SPEC)
    trial = job.ask(V100)
    box.spool.put(TrialEnded(SPEC.id, trial.number, DONE, "another one"))
    box.deliver()
    assert not box.spool.waiting()
    leaving.away(True)
    so_far = Outcome(ending=Ending.LOST, joules=1.0, seconds=1.0, epochs=1)
    assert job.progress(trial.number, so_far, 1.0)


def test_a_heartbeat_that_waits_for_the_store_does_not_undo_an_end_that_is_told_meanwhile(leaving: Leaving) -> None:
    job = RecurringJob.register(leaving.resilient(), SPEC)
    trial = job.ask(V100)
    leaving.away(True)

    def end() -> None:
        first_wait.stop()
        job.tell(trial.number, DONE)

    first_wait = leaving.clock.every(0.01, end)
    beat = job.renew(trial.number, Outcome(ending=Ending.LOST, joules=1.0, seconds=1.0, epochs=1))
    assert (beat.outcome, job.trial(trial.number).outcome) == (DONE, DONE)
    leaving.away(False)
    leaving.outbox().deliver()
    assert leaving.store.trial(SPEC.id, trial.number).trial.outcome == DONE


def test_a_job_in_use_is_known_for_ever(leaving: Leaving) -> None:
    box = leaving.outbox()
    RecurringJob.register(ResilientJobs(box), SPEC)
    (path,) = leaving.folder.glob("known/*/job.json")
    long_ago = time.time() - 2 * KEPT_SECONDS
    os.utime(path, (long_ago, long_ago))
    RecurringJob.find(ResilientJobs(box), SPEC.id)
    box.cache.sweep()
    assert path.exists()


@pytest.mark.parametrize("sign", "/?#")
def test_a_password_that_would_end_early_is_refused_and_not_shown(sign: str) -> None:
    with pytest.raises(InputError, match="write @ as %40, / as %2F") as refused:
        resolve(f"postgresql://me:ab{sign}cd@host/zeus")
    assert "ab" not in str(refused.value) and "cd@" not in str(refused.value)


def test_no_secret_is_in_what_messages_are_bound_to() -> None:
    url = "postgresql+psycopg://me:one@host/zeus?oauth_client_secret=two&sslmode=require"
    assert address_of(url) == "postgresql+psycopg://me@host/zeus?sslmode=require"


def test_a_user_whom_nobody_knows_has_an_outbox_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert str(os.getuid()) in str(default_folder("sqlite:////srv/zeus.db", {}))
