"""A store of whatever kind that goes away for minutes: no converged run is forgotten, and no loop waits for it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.away import LEAVING, Leaving, LockedFile
from support.launch_place import Place, tries
from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.client.api import ALONE, Registered
from zeus.client.catalog import find_job, register_job
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.client.resilient.retry import Contact
from zeus.device.virtual import VirtualMachine, step
from zeus.errors import AlreadyDone, InputError, NotKnown, StoreError
from zeus.job import Ending, Gpus, JobSpec, Outcome, Phase, TrialRecord
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.settings.types import TimeLimits
from zeus.store import MemoryStore, Store, open_store
from zeus.store.sql.store import SqlStore
from zeus.store.wait_limit import at_most

pytestmark = pytest.mark.usefixtures("warm")
SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16, target_metric=0.8)
V100 = Gpus("V100", 1, 250.0)
DONE = Outcome(ending=Ending.CONVERGED, joules=1000.0, seconds=10.0, epochs=3, metric=0.9)
LIMITS = TimeLimits()
LOCKED = limits(store_retry=0.3, store_answer=0.3)  # for a file that others hold
SO_FAR = Outcome(ending=Ending.LOST, joules=50.0, seconds=1.0, epochs=1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where messages wait; nobody waits long for one that does not come."""
    for name in [name for name in os.environ if name.startswith("ZEUS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.setenv("ZEUS_PATIENCE", "0")
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(store_retry=0.3))
    return tmp_path / "data" / "zeus" / "spool"


@pytest.fixture(params=LEAVING)
def leaving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Leaving]:
    """Each kind of store, there yet."""
    if request.param == "sqlite":
        monkeypatch.setenv("ZEUS_TIME_LIMITS", LOCKED)
    yield from LEAVING[request.param](request)


def waiting(home: Path) -> list[Path]:
    return sorted(home.glob("*/0*.json"))


def kept(leaving: Leaving) -> list[TrialRecord]:
    store = open_store(leaving.database)
    found = store.trials("asr")
    store.close()
    return found


class Loop:
    """A training loop of a user's own."""

    def __init__(self, url: str) -> None:
        self.machine = VirtualMachine.in_memory("v100")
        monitor = ZeusMonitor(gpus=dict(enumerate(self.machine.gpus)), clock=self.machine.clock)
        self.optimizer = BatchSizeOptimizer(monitor, url, SPEC)

    def epoch(self, metric: float) -> None:
        step(self.machine.gpus, 16)
        self.optimizer.on_evaluate(metric)


def test_a_run_that_converges_while_its_store_is_away_is_known_when_it_is_back(leaving: Leaving, home: Path) -> None:
    loop = Loop(leaving.url)
    loop.optimizer.get_batch_size()
    loop.optimizer.on_train_begin()
    loop.epoch(0.1)
    leaving.down()
    for _ in range(20):
        loop.epoch(0.2)
    loop.epoch(0.9)
    assert loop.optimizer.converged
    assert waiting(home)
    leaving.up()
    assert find_job("asr", leaving.url).trial(1).ending is Ending.CONVERGED  # any contact delivers
    (only,) = kept(leaving)
    assert only.trial.outcome is not None and only.trial.outcome.epochs == 22
    assert waiting(home) == []


def test_a_run_that_begins_while_its_store_is_away_takes_the_default_and_is_reported_later(
    leaving: Leaving, home: Path
) -> None:
    register_job(SPEC, leaving.url)
    leaving.down()
    job = register_job(SPEC, leaving.url)
    trial = job.ask(V100)
    assert (trial.batch_size, trial.decision.cost_limit, trial.ask.last) == (16, None, True)
    assert trial.number >= ALONE
    assert job.progress(trial.number, SO_FAR, 1e9)
    assert job.so_far(trial.number) == SO_FAR
    assert job.tell(trial.number, DONE) == job.tell(trial.number, DONE) == job.trial(trial.number)
    leaving.up()
    following = register_job(SPEC, leaving.url).ask(V100)
    first, second = kept(leaving)
    assert (first.trial.decision.phase, first.trial.outcome) == (Phase.DEFAULT, DONE)
    assert (second.trial.number, second.trial.ask.recurrence) == (following.number, 2)
    assert waiting(home) == []
    assert job.trial(trial.number) == first.trial  # it has a number by now


def test_what_is_measured_meanwhile_arrives_too_and_the_bound_holds(leaving: Leaving, home: Path) -> None:
    job = register_job(SPEC, leaving.url)
    job.tell(job.ask(V100).number, DONE)
    bounded = job.ask(V100)
    limit, key = bounded.decision.cost_limit, ProfileKey("asr", 16, "V100", 1)
    assert limit is not None
    leaving.down()
    assert job.progress(bounded.number, SO_FAR, limit / 2)
    assert not job.progress(bounded.number, SO_FAR, limit * 2)
    assert job.renew(bounded.number) == bounded
    assert job.so_far(bounded.number) == SO_FAR
    assert job.get(key) is None
    job.profiled(16, V100, joules=3.0, seconds=1.0)
    job.put(key, PowerProfile.of([LimitSlice(250, 10, 1.0, 230.0)]))
    ended = job.tell(bounded.number, DONE)
    assert (ended.ending, ended.batch_size) == (Ending.CONVERGED, bounded.batch_size)
    assert job.tell(bounded.number, DONE) == ended == job.trial(bounded.number)
    with pytest.raises(AlreadyDone):
        job.tell(bounded.number, Outcome(ending=Ending.CRASHED))
    with pytest.raises(NotKnown if isinstance(leaving, LockedFile) else StoreError):  # a locked file can be read
        job.trial(99)
    assert len(waiting(home)) == 3
    leaving.up()
    with (waiting(home)[0].parent / ".lock").open("a") as lock:  # while another process delivers, its reports are known
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert find_job("asr", leaving.url).trial(bounded.number) == ended
    again = find_job("asr", leaving.url)
    assert again.trial(bounded.number).outcome == ended.outcome == DONE
    assert again.get(key) is not None
    assert waiting(home) == []


def test_zeus_run_ends_well_over_a_file_that_others_hold(tmp_path: Path, home: Path) -> None:
    place, store = Place(tmp_path), LockedFile(tmp_path / "zeus.db")
    place.env |= {"ZEUS_PATIENCE": "60", "ZEUS_TIME_LIMITS": LOCKED}
    place.job()
    waits = "pathlib.Path('running').touch()\nwhile not os.path.exists('go'): time.sleep(0.01)"
    place.script(before=waits)
    run = place.start()
    eventually((tmp_path / "running").exists)
    store.down()
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, err
    assert "batch size 16 reached the target" in out
    assert "default: the results of this run have not reached the store yet, so there is nothing to compare" in out
    assert waiting(home)
    store.up()
    (tmp_path / "running").unlink()
    assert [one["ending"] for one in tries(place.report())] == ["converged"]
    found = [one.trial.ending for one in place.store().trials("toy")]
    assert found == [Ending.CONVERGED] * 2
    assert waiting(home) == []


def test_zeus_run_reports_a_recurrence_that_began_without_its_store_by_the_number_it_has_there(
    tmp_path: Path, home: Path
) -> None:
    place, store = Place(tmp_path), LockedFile(tmp_path / "zeus.db")
    place.env |= {"ZEUS_PATIENCE": "0", "ZEUS_TIME_LIMITS": LOCKED}
    place.job()
    place.script()
    place.report()
    place.script(before="pathlib.Path('running').touch()\nwhile not os.path.exists('go'): time.sleep(0.01)")
    store.down()
    run = place.start("--recurrences", "2", "--json")
    eventually((tmp_path / "running").exists)
    store.up()
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, err
    report = json.loads(out)
    assert [row["recurrence"] for row in report["recurrences"]] == [2, 3]
    assert [one["trial"] for one in tries(report)] == [2, 3]
    assert report["default"] is not None and report["saving"] is not None
    assert waiting(home) == []


# ---------------------------------------------------------------------- patience


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Gone(MemoryStore):
    """A store that is away from some moment on, and how often it was tried."""

    is_gone = False
    tried = 0

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name in ("job", "trial", "ask", "renew", "tell", "profiled", "put_profile", "register"):
            Gone.tried += 1
            if Gone.is_gone:
                raise StoreError("the store did not answer.")
        return found


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> type[Gone]:
    monkeypatch.setattr(Gone, "is_gone", False)
    monkeypatch.setattr(Gone, "tried", 0)
    monkeypatch.delenv("ZEUS_TIME_LIMITS")  # all time passes on a clock of the test's own
    return Gone


def over(store: Store, clock: Clock, folder: Path, sleep: Callable[[float], None] | None = None) -> RecurringJob:
    contact = Contact("the store", clock=clock, sleep=sleep or clock.sleep)
    return RecurringJob.register(ResilientJobs(Outbox(LocalJobs(lambda: store, "here"), contact, folder=folder)), SPEC)


def test_a_loop_waits_once_for_a_store_that_is_away_and_not_in_every_epoch(gone: type[Gone], tmp_path: Path) -> None:
    clock = Clock()
    job = over(gone(), clock, tmp_path / "spool")
    number = job.ask(V100).number
    gone.is_gone = True
    assert job.progress(number, SO_FAR, 1.0)
    waited, tried = clock.now, gone.tried
    for epoch in range(50):
        assert job.progress(number, SO_FAR, 1.0)
        job.profiled(16, V100, joules=1.0 + epoch, seconds=1.0)
    assert (clock.now, gone.tried) == (waited, tried)
    clock.now += 3600  # an hour of epochs of 10 s, in which it stays away
    began, waits = clock.now, 0.0
    while clock.now < began + 3600 + waits:
        before = clock.now
        job.progress(number, SO_FAR, 1.0)
        waits += clock.now - before
        clock.now += 10
    assert waits <= 3600 * 3.0 / 120.0 + 10  # a wait of 3 s every two minutes at most
    gone.is_gone = False
    clock.now += 120
    assert job.tell(number, DONE).ending is Ending.CONVERGED


def test_an_end_that_can_be_neither_told_nor_kept_is_tried_again_for_minutes(gone: type[Gone], tmp_path: Path) -> None:
    clock, disk = Clock(), tmp_path / "file"
    disk.touch()  # nothing can be made below it
    store = gone()

    def back(seconds: float) -> None:
        clock.now += seconds
        if clock.now > LIMITS.outcome_retry / 2:
            gone.is_gone = False

    job = over(store, clock, disk / "spool", sleep=back)
    number = job.ask(V100).number
    gone.is_gone = True
    assert job.tell(number, DONE).ending is Ending.CONVERGED
    assert store.trial("asr", number).trial.outcome == DONE


def test_an_end_that_nobody_hears_is_said_in_full(gone: type[Gone], tmp_path: Path) -> None:
    clock, disk = Clock(), tmp_path / "file"
    disk.touch()
    job = over(gone(), clock, disk / "spool")
    number = job.ask(V100).number
    gone.is_gone = True
    with pytest.raises(StoreError, match=r"This report is lost: .*CONVERGED.*joules=1000\.0"):
        job.tell(number, DONE)
    assert LIMITS.outcome_retry <= clock.now <= LIMITS.outcome_retry + 30


def test_a_store_that_cannot_be_opened_is_bad_input_at_the_start_and_no_refusal_later(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to look at" * 50)
    with pytest.raises(InputError, match="file is not a database"):
        register_job(SPEC, f"sqlite:///{tmp_path}/text")
    good = open_store(f"sqlite:///{tmp_path}/zeus.db")
    opened = iter([good, None])

    def open_it() -> Store:
        if (store := next(opened, None)) is None:
            raise InputError("unable to open database file")
        return store

    folder = tmp_path / "spool"
    job = RecurringJob.register(ResilientJobs(Outbox(LocalJobs(open_it, "here"), folder=folder)), SPEC)
    number = job.ask(V100).number
    unopened = Outbox(LocalJobs(open_it, "here"), Contact("the store", sleep=lambda seconds: None), folder)
    late = RecurringJob(ResilientJobs(unopened), Registered(job.spec, job.generation))
    assert late.tell(number, DONE).ending is Ending.CONVERGED
    assert len(list(folder.glob("0*.json"))) == 1
    assert job.trial(number).outcome == DONE  # as it waits
    again = ResilientJobs(Outbox(LocalJobs(lambda: good, "here"), folder=folder))
    assert RecurringJob.find(again, "asr").trial(number).outcome == DONE
    assert good.trial("asr", number).trial.outcome == DONE
    good.close()


def test_a_verb_waits_no_longer_than_its_caller_allows(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/zeus.db", busy_seconds=3600.0)
    store.register(SPEC)
    held = LockedFile(tmp_path / "zeus.db")
    held.down()
    with at_most(0.05), pytest.raises(StoreError, match="database is locked"):
        store.register(JobSpec(job_id="lm", job_id_prefix="lm", batch_sizes=(8,), default_batch_size=8))
    held.up()
    store.close()
