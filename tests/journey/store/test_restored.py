"""A backup restored under a running service, and facts that nobody can bear: what is shown is what is there now."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed")

from zeus.cli.main import main
from zeus.client.local import LocalJobs
from zeus.client.policy_states import PolicyStateCache
from zeus.client.recurring import RecurringJob
from zeus.client.report import full, report
from zeus.job import Ending, Gpus, JobSpec, Outcome, replace
from zeus.service.metrics import ServiceMetrics
from zeus.service.overview import Overview
from zeus.store import Store, open_store

SPEC = JobSpec(
    job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16, eta_knob=1.0, policy="paper"
)
HERE = Gpus("V100", 1, 250.0)


def used(joules: float) -> Outcome:
    return Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=3, metric=0.9)


class Running:
    """A store with all that a service keeps between requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store: Store = open_store(f"sqlite:///{path}")
        self.states = PolicyStateCache()
        self.overview = Overview(self.store, self.states)
        self.job = RecurringJob.register(LocalJobs(self.store, states=self.states), SPEC)

    def look(self) -> tuple[object, object]:
        """What is believed, and what is listed."""
        told = full(report(self.store, "asr", self.states))
        return told, self.overview.briefs(sorted(self.store.pulse()))

    def look_anew(self) -> tuple[object, object]:
        """The same, by a service that was started now."""
        told = full(report(self.store, "asr", PolicyStateCache()))
        return told, Overview(self.store, PolicyStateCache()).briefs(sorted(self.store.pulse()))

    def back_up(self) -> Path:
        """As `sqlite3 zeus.db .backup` does."""
        copy = self.path.with_name("backup.db")
        self._copy(self.path, copy)
        return copy

    def restore(self, copy: Path) -> None:
        """As `sqlite3 zeus.db .restore` does, while the service goes on."""
        self._copy(copy, self.path)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
            here.backup(there)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    service = Running(tmp_path / "zeus.db")
    yield service
    service.store.close()


def test_what_is_believed_after_a_restore_is_what_the_store_says(running: Running) -> None:
    number = running.job.ask(HERE).number
    copy = running.back_up()
    running.job.tell(number, used(805.0))
    believed, listed = running.look()
    running.restore(copy)
    assert running.look() == running.look_anew()
    running.job.tell(number, used(145.0))
    assert running.look() == running.look_anew()
    assert running.look() != (believed, listed)
    limits = [
        running.job.ask(HERE).decision.cost_limit,
        RecurringJob.find(LocalJobs(running.store), "asr").ask(HERE).decision.cost_limit,
    ]
    assert limits == [290.0, 290.0]  # twice the cheapest run


def test_a_revision_of_another_history_is_another_revision(running: Running) -> None:
    running.job.tell(running.job.ask(HERE).number, used(100.0))
    copy = running.back_up()
    for beta in (2.5, 3.0):
        running.restore(copy)
        running.store.register(replace(SPEC, beta_knob=beta))
        assert running.job.ask(HERE).decision.cost_limit == 100.0 * beta
        assert running.look() == running.look_anew()


def test_a_training_of_another_history_ends_no_trial_of_this_one(running: Running, tmp_path: Path) -> None:
    copy = running.back_up()
    gone, others = (
        RecurringJob.find(LocalJobs(running.store), "asr"),
        RecurringJob.find(LocalJobs(running.store), "asr"),
    )
    number = gone.ask(HERE).number
    running.restore(copy)
    assert others.ask(HERE).number == number
    with pytest.raises(ValueError, match="of this store has another id"):
        gone.tell(number, Outcome(ending=Ending.CRASHED))
    assert others.tell(number, used(100.0)).ending is Ending.CONVERGED


def test_a_revision_that_keeps_the_target_reads_no_trial(running: Running) -> None:
    running.job.tell(running.job.ask(HERE).number, used(805.0))
    with closing(sqlite3.connect(running.path)) as raw:
        raw.execute("UPDATE zeus_trials SET trial = replace(trial, '805.0', '1e308')")  # who reads it fails
        raw.commit()
    store = open_store(f"sqlite:///{running.path}")
    assert store.register(replace(SPEC, eta_knob=0.5)).revision == 2
    with pytest.raises(ValueError, match="joules"):
        store.register(replace(SPEC, target_metric=0.9))


def test_a_job_that_cannot_be_read_hides_no_other_and_can_be_removed(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    running.job.tell(running.job.ask(HERE).number, used(805.0))
    RecurringJob.register(LocalJobs(running.store), replace(SPEC, job_id="good")).ask(HERE)
    with closing(sqlite3.connect(running.path)) as raw:
        raw.execute("UPDATE zeus_trials SET trial = replace(trial, '805.0', '1e308') WHERE job_id = 'asr'")
        raw.commit()
    rows = {row["job"]: row for row in Overview(running.store, PolicyStateCache()).briefs(running.store.pulse())}
    assert (rows["asr"]["phase"], rows["good"]["trials"]) == ("unreadable", 1)
    assert "joules=1e+308" in rows["asr"]["remark"]
    text = ServiceMetrics(running.store, Overview(running.store, PolicyStateCache())).text().decode()
    assert 'zeus_job_recurrences{zeus_job="good"} 1.0' in text
    url = ("--store", f"sqlite:///{running.path}")
    for arguments, code in ((["list"], 0), (["forget", "asr", "--yes"], 2), (["forget", "asr", "--yes", "--force"], 0)):
        with pytest.raises(SystemExit) as end:
            main(["jobs", *arguments, *url])
        assert int(end.value.code or 0) == code, capsys.readouterr()
    assert list(running.store.pulse()) == ["good"]
