"""The output of `zeus run` is read from another machine: of a crash too, and when the service was away."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.launch_place import Place
from support.live import live, token
from support.served import outbox
from zeus.client.api import TrialLog, TrialRef
from zeus.client.connection import Connection
from zeus.client.http import HttpJobs
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.client.trial_log import find_log
from zeus.device.clock import VirtualClock
from zeus.errors import LaunchError, StoreError
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.launch.log_sender import SEND_SECONDS, LogSender
from zeus.service.app import Settings
from zeus.store import MemoryStore, Store, open_store
from zeus.store.address import log_file, log_folder
from zeus.store.tokens import Scope

pytestmark = pytest.mark.usefixtures("warm")

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16), default_batch_size=8)
V100 = Gpus("V100", 1, 250.0)
DONE = Outcome(ending=Ending.CONVERGED, joules=10.0, seconds=1.0, epochs=1, metric=0.9)


def test_the_traceback_of_a_crash_is_read_where_the_script_never_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, store = Place(tmp_path), MemoryStore()
    place.script(before='print("begin"); raise KeyError("no data here")')
    place.job()
    secret = token(store, Scope.REPORT)
    with live(store, Settings(open=False, store_url=f"sqlite:///{tmp_path}/elsewhere/zeus.db")) as address:
        place.env["ZEUS_STORE"] = address.replace("//", f"//:{secret}@")
        launcher = place.launcher(monkeypatch, store=place.env["ZEUS_STORE"])  # type: ignore[arg-type]
        with pytest.raises(LaunchError, match="The command itself fails"):
            launcher.recur()
        launcher.close()
        jobs = HttpJobs(Connection(place.env["ZEUS_STORE"]))
        told = jobs.told_log("toy", 1)
        jobs.close()
    assert told["log"].startswith("begin\n")
    assert "Traceback (most recent call last):" in told["log"]
    assert "KeyError: 'no data here'" in told["log"]
    assert told["folder"] == str(Path.cwd())
    assert store.job("toy").owner == "somebody who may report"


def test_a_log_is_sent_while_it_grows_and_a_last_time(tmp_path: Path) -> None:
    store, clock, path = MemoryStore(), VirtualClock(), tmp_path / "1.log"
    job = RecurringJob.register(LocalJobs(store), SPEC)
    job.ask(V100)
    sender = LogSender(job, 1, path, clock)
    clock.sleep(SEND_SECONDS)
    assert store.logs.find("asr", 1) is None, "there is nothing yet"
    path.write_text("epoch 1\n")
    clock.sleep(SEND_SECONDS)
    first = store.logs.find("asr", 1)
    assert first is not None and first.text == "epoch 1\n"
    clock.sleep(SEND_SECONDS)
    assert store.logs.find("asr", 1) == first, "it has not grown"
    path.write_text("epoch 1\ndone\n")
    sender.end(crashed=False)
    last = store.logs.find("asr", 1)
    assert last is not None and last.text == "epoch 1\ndone\n"


def test_the_last_of_a_log_waits_on_disk_while_the_service_is_away(tmp_path: Path) -> None:
    store, folder = MemoryStore(), tmp_path / "spool"
    with live(store) as address:
        there = outbox(address, folder)
        jobs = ResilientJobs(there)
        jobs.register(SPEC)
        trial, _ = jobs.ask("asr", V100)
    jobs.keep_log(TrialLog("asr", trial.number, "done\n", trial.id), is_last=True)
    jobs.tell(TrialRef("asr", trial.number, trial.id), DONE)
    assert len(there.spool.waiting()) == 2
    assert all(b"Bearer" not in path.read_bytes() for path in there.spool.waiting())
    with live(store) as address:  # at another port, as after a restart elsewhere
        newer = outbox(address, tmp_path / "other")
        for path in there.spool.waiting():
            text = path.read_text().replace(there.jobs.address, newer.jobs.address)
            newer.spool.folder.mkdir(parents=True, exist_ok=True)
            (newer.spool.folder / path.name).write_text(text)
        newer.deliver()
        assert newer.spool.waiting() == []
        newer.close()
    kept = store.logs.find("asr", 1)
    assert kept is not None and kept.text == "done\n"
    assert store.trial("asr", 1).trial.outcome == DONE


@pytest.mark.parametrize("is_known", [False, True])
def test_a_run_that_began_without_the_service_brings_its_log(
    is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, is_away = f"sqlite:///{tmp_path}/zeus.db", [not is_known]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    environ = {"ZEUS_STORE": url, "XDG_DATA_HOME": str(tmp_path / "data")}

    def opened() -> Store:
        if is_away[0]:
            raise StoreError("away")
        return open_store(url)

    with_patience = Outbox(LocalJobs(opened, url))
    jobs = ResilientJobs(with_patience)
    life = jobs.register(SPEC).generation
    is_away[0] = True
    trial, _ = jobs.ask("asr", V100)
    whole = log_file(log_folder("asr", life, environ), trial.number, trial.id)
    whole.parent.mkdir(parents=True)
    whole.write_text("the beginning\nalone\n")
    ref = TrialRef("asr", trial.number, trial.id)
    jobs.keep_log(TrialLog("asr", trial.number, "alone\n", trial.id), is_last=True)
    jobs.tell(ref, DONE)
    is_away[0] = False
    with_patience.deliver()
    jobs.close()
    store = open_store(url)
    kept = store.logs.find("asr", 1)
    assert kept is not None and kept.text == "alone\n"
    assert find_log("asr", store.job("asr").generation, store.trial("asr", 1).trial, environ) == whole
