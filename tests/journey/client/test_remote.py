"""A training and its service: `ZEUS_STORE=http://...` is all that changes, and the service need not be there."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.paths import SOURCES

pytest.importorskip("fastapi", reason="the service is not installed")

from support.launch_place import SCRIPT, Place, tries
from support.live import live
from support.served import DONE, SPEC, V100, Served, outbox, remote
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.cli.main import main
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.jobs import ResilientJobs
from zeus.device.virtual import VirtualMachine, step
from zeus.errors import AlreadyDone, InputError, NotAllowed, NotKnown
from zeus.job import Ending, Outcome, replace
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store import MemoryStore
from zeus.trial.estimate import Knowledge

Zeus = Callable[..., tuple[int, str, str]]
AWAY = {"ZEUS_PATIENCE": "0"}  # nobody waits for one that does not come
SHORT = limits(store_retry=0.3)  # nor long for one that goes away
pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service that is down yet."""
    for name in [name for name in os.environ if name.startswith("ZEUS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.setenv("ZEUS_PATIENCE", "60")  # one that is there may be slow
    monkeypatch.setenv("ZEUS_TIME_LIMITS", SHORT)
    service = Served(tmp_path)
    monkeypatch.setenv("ZEUS_STORE", service.url)
    yield service
    service.close()


@pytest.fixture
def place(tmp_path: Path, served: Served) -> Place:
    """Where a job is run against it."""
    here = Place(tmp_path)
    here.env |= {"ZEUS_STORE": served.url, "ZEUS_PATIENCE": "60", "ZEUS_TIME_LIMITS": SHORT}
    here.script()
    here.job()
    return here


@pytest.fixture
def zeus(capsys: pytest.CaptureFixture[str]) -> Zeus:
    """The command line: its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return call


def waiting(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "zeus" / "spool").glob("*/0*.json"))


def endings(served: Served, job: str = "toy") -> list[tuple[int, Ending, str]]:
    return [
        (kept.trial.batch_size, kept.trial.ending, str(kept.trial.decision.phase)) for kept in served.store.trials(job)
    ]


# ---------------------------------------------------------------------- a service that is there


def test_a_job_is_run_and_looked_at_as_over_a_store(zeus: Zeus, place: Place, served: Served, tmp_path: Path) -> None:
    served.up()
    report = place.report("--recurrences", "2")
    assert [one["batch_size"] for one in tries(report)] == [16, 32]
    assert report["saving"]["default_joules"] > 0
    assert report["store"] == served.url
    assert [one[:2] for one in endings(served)] == [(16, Ending.CONVERGED), (32, Ending.CONVERGED)]

    local = ("--store", served.database)
    for command in (["list", "--json"], ["show", "toy", "--json"], ["export"], ["show", "toy"]):
        here, there = zeus("jobs", *command), zeus("jobs", *command, *local)
        assert here == there
        assert here[0] == 0
    assert "No jobs" not in zeus("jobs", "list")[1]
    pages = [tmp_path / "here.html", tmp_path / "there.html"]
    for page, at in zip(pages, ((), local), strict=True):
        assert zeus("export", "--html", str(page), *at)[0] == 0
    here, there = (re.sub(r'"(at|as_of)": "[^"]*"', "", page.read_text()) for page in pages)
    assert here == there
    code, out, _ = zeus("env", "--json")
    store = json.loads(out)["store"]
    assert (code, store["ok"], store["kind"], store["url"]) == (0, True, "service", served.url)

    assert zeus("jobs", "reset", "toy", "--batch-size", "16")[0] == 2  # it has not crashed
    code, out, err = zeus("jobs", "reset", "toy", "--yes", "--output", str(tmp_path / "toy.jsonl"))
    assert code == 0, err
    assert endings(served) == []
    assert zeus("jobs", "forget", "toy", "--yes")[0] == 0
    assert zeus("jobs", "show", "toy")[0] == 2
    assert zeus("jobs", "import", str(tmp_path / "toy.jsonl"))[:2] == (0, "toy\n")
    assert len(endings(served)) == 2
    job = RecurringJob.find(ResilientJobs(outbox(served.url)), "toy")
    job.tell(job.ask(V100).number, Outcome(ending=Ending.CRASHED))
    (crashed,) = [
        one["batch_size"]
        for one in json.loads(zeus("jobs", "show", "toy", "--json")[1])["sizes"]
        if one["standing"] == "crashed"
    ]
    assert zeus("jobs", "reset", "toy", "--batch-size", str(crashed))[0] == 0


def test_the_verbs_over_a_service_refuse_what_those_over_a_store_refuse(served: Served, tmp_path: Path) -> None:
    served.up()
    with pytest.raises(NotKnown, match="asr"):
        RecurringJob.find(ResilientJobs(outbox(served.url, tmp_path / "s")), "asr")
    job = remote(served.url, tmp_path / "s")
    trial = job.ask(V100)
    assert job.spec.mab_seed is not None
    assert job.renew(trial.number, Outcome(ending=Ending.LOST, joules=5.0)) == trial == job.trial(trial.number)
    assert job.so_far(trial.number) == Outcome(ending=Ending.LOST, joules=5.0)
    with pytest.raises(InputError, match="ending LOST"):
        job.renew(trial.number, DONE)
    assert job.progress(trial.number, Outcome(ending=Ending.LOST, joules=7.0, seconds=1.0, epochs=1), 1e9)
    assert job.tell(trial.number, DONE) == job.tell(trial.number, DONE) == job.trial(trial.number)
    with pytest.raises(AlreadyDone):
        job.tell(trial.number, Outcome(ending=Ending.CRASHED))
    with pytest.raises(AlreadyDone):
        job.ask(V100, trial.ask.recurrence)
    with pytest.raises(NotKnown):
        job.trial(99)
    key, profile = ProfileKey("asr", 16, "V100", 1), PowerProfile.of([LimitSlice(250, 10, 1.0, 230.0)])
    assert job.get(key) is None
    job.put(key, profile)
    assert job.get(key) == profile
    job.profiled(16, V100, joules=3.0, seconds=1.0)
    (path,) = (tmp_path / "s").glob("known/*/[0-9]*.json")  # for whoever opened it, should the service be away again
    assert json.loads(path.read_text())["is_accepted"]


def test_an_optimizer_takes_a_services_address(served: Served, tmp_path: Path) -> None:
    served.up()
    machine = VirtualMachine.in_memory("v100", 1)
    monitor = ZeusMonitor(gpus=dict(enumerate(machine.gpus)), clock=machine.clock)
    optimizer = BatchSizeOptimizer(monitor, served.url, SPEC)
    for _ in range(2):
        assert optimizer.get_batch_size() in SPEC.batch_sizes
        optimizer.on_train_begin()
        step(machine.gpus, 16)
        optimizer.on_evaluate(0.9)
        assert optimizer.converged
    assert [one[1] for one in endings(served, "asr")] == [Ending.CONVERGED] * 2


def test_a_training_learns_nothing_from_another_trial_with_the_number_of_its_own(tmp_path: Path) -> None:
    with live(MemoryStore()) as url:
        job = remote(url, tmp_path)
        job.profiled(16, V100, joules=3.0, seconds=1.0)
        trial = job.ask(V100)
        assert job.knowledge(trial).epoch is not None
        former = replace(trial, ask=replace(trial.ask, id="0123456789abcdef"))  # before a backup was restored
        assert job.knowledge(former) == Knowledge()


# ---------------------------------------------------------------------- one that is away

# A training that waits in its first epoch, so that meanwhile things happen.
WAITS = "pathlib.Path('running').touch()\nwhile not os.path.exists('go'): time.sleep(0.01)"
LISTING = """
import torch
from zeus import ZeusDataLoader
data = torch.utils.data.TensorDataset(torch.zeros(6_400, 1))
loader = ZeusDataLoader(data, 7, max_epochs=99, target_metric=0.1)
for epoch in loader.epochs():
    for batch in loader:
        pass
    loader.report_metric(0.45 * (epoch + 1))
"""


@pytest.mark.parametrize("kind", ["an unmodified script", "ZeusDataLoader"])
def test_away_for_the_whole_training_it_ends_well_and_its_report_arrives_when_the_service_is_back(
    kind: str, zeus: Zeus, place: Place, served: Served, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "ZeusDataLoader":
        pytest.importorskip("torch")
        request.getfixturevalue("warm_torch")
        place.env |= {name: os.environ[name] for name in ("WARM_PYTHON",) if name in os.environ}
        (tmp_path / "train.py").write_text(LISTING)
        place.env["ZEUS_GPU"] = "virtual:v100?clock=virtual"
        place.job(metrics="", power_limits=[150, 200])
    (only,) = tries(place.report(**AWAY))
    assert (only["batch_size"], only["ending"], only["cost_limit"]) == (16, "converged", None)
    assert only["trial"] is None  # it has a number once the service knows it
    assert json.loads(zeus("env", "--json")[1])["store"]["waiting"] == len(waiting(tmp_path)) > 0

    served.up()
    code, out, err = zeus("jobs", "list", "--json")
    assert (code, [one["recurrences"] for one in json.loads(out)]) == (0, [1]), err
    assert waiting(tmp_path) == []
    assert not list(tmp_path.glob("data/zeus/spool/*/refused/*"))
    (kept,) = served.store.trials("toy")
    assert kept.trial.outcome is not None
    assert (kept.trial.ending, kept.trial.outcome.joules) == (Ending.CONVERGED, only["joules"])
    assert served.store.profiles("toy")  # what it measured on the way arrived too
    following = RecurringJob.find(ResilientJobs(outbox(served.url)), "toy").ask(V100)
    assert (following.ask.recurrence, following.decision.phase) == (2, "pruning")  # as if nothing had been


def test_away_at_the_start_and_back_before_the_end_the_report_arrives_by_itself(
    place: Place, served: Served, tmp_path: Path
) -> None:
    place.script(before=WAITS)
    run = place.start(**AWAY)
    eventually((tmp_path / "running").exists)
    served.up()
    (tmp_path / "go").touch()
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, err
    assert "cannot be reached" in err and "runs with its default batch size" in err
    assert endings(served) == [(16, Ending.CONVERGED, "default")]
    assert waiting(tmp_path) == []


def test_away_in_the_middle_a_trial_ends_as_if_nothing_had_been(
    zeus: Zeus, place: Place, served: Served, tmp_path: Path
) -> None:
    served.up()
    place.script(before=WAITS)
    run = place.start()
    eventually((tmp_path / "running").exists)
    served.down()
    (tmp_path / "go").touch()
    eventually(lambda: "acc=0.225" in "".join(path.read_text() for path in tmp_path.glob("data/zeus/logs/toy/*/1.log")))
    served.up()
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, err
    zeus("jobs", "list")  # where it was not back in time after all
    assert endings(served) == [(16, Ending.CONVERGED, "pruning")]
    assert waiting(tmp_path) == []


SPEAKS = f"""{SCRIPT}
from zeus.job import Ending, Outcome
from zeus.client.catalog import find_job
{WAITS}
job, trial = find_job("toy"), int(os.environ["ZEUS_TRIAL"])
used = dict(joules=500.0, seconds=2.0, epochs=2, metric=0.95)
assert job.trial(trial).batch_size == size
assert job.progress(trial, Outcome(ending=Ending.LOST, **used), 1000.0)
job.tell(trial, Outcome(ending=Ending.CONVERGED, **used))
"""


@pytest.mark.parametrize("begins", ["there", "away"])
def test_away_at_the_end_launcher_and_script_know_the_same_and_the_next_run_delivers_it(
    begins: str, place: Place, served: Served, tmp_path: Path
) -> None:
    place.job(metrics="")
    (tmp_path / "train.py").write_text(SPEAKS)
    if begins == "there":
        served.up()
    run = place.start("--json", **({} if begins == "there" else AWAY))
    eventually((tmp_path / "running").exists)
    served.down()
    (tmp_path / "go").touch()
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, err
    (only,) = tries(json.loads(out))
    assert (only["ending"], only["joules"]) == ("converged", 500.0)
    assert len(waiting(tmp_path)) == 1
    served.up()
    assert [one["batch_size"] for one in tries(place.report())]
    first, second = served.store.trials("toy")
    assert first.trial.outcome == Outcome(ending=Ending.CONVERGED, joules=500.0, seconds=2.0, epochs=2, metric=0.95)
    assert second.trial.ask.recurrence == 2
    assert waiting(tmp_path) == []


def test_a_script_that_begins_when_its_service_is_back_tells_of_a_trial_that_it_has_not_heard_of(
    place: Place, served: Served, tmp_path: Path
) -> None:
    place.job(metrics="")
    (tmp_path / "train.py").write_text(SPEAKS)
    run = place.start("--json", **AWAY)
    eventually((tmp_path / "running").exists)
    served.up()
    (tmp_path / "go").touch()
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, err
    assert endings(served) == [(16, Ending.CONVERGED, "default")]
    assert waiting(tmp_path) == []


def test_a_report_that_the_service_refuses_is_kept_with_the_reason_and_said_once(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.up()
    job = remote(served.url, tmp_path / "s")
    trial = job.ask(V100)
    served.down()
    job.tell(trial.number, DONE)
    served.store.tell("asr", trial.number, Outcome(ending=Ending.CRASHED))  # somebody else was first
    served.up()
    for _ in range(2):
        remote(served.url, tmp_path / "s")
    said = [one.getMessage() for one in caplog.records if "was refused" in one.getMessage()]
    assert len(said) == 1 and "already has the outcome" in said[0]
    (why,) = (tmp_path / "s" / "refused").glob("*.why")
    assert "already has the outcome" in why.read_text()
    assert job.trial(trial.number).ending is Ending.CRASHED  # the service's word counts again


# ---------------------------------------------------------------------- tokens


def test_a_token_is_needed_before_anything_runs_and_reaches_no_file_and_no_log(
    zeus: Zeus,
    place: Place,
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, file = ("--store", served.database), tmp_path / "token"
    made = json.loads(zeus("token", "create", "me", "--json", "--output", str(file), *here)[1])
    token = file.read_text().strip()
    served.up()
    for wrong in ({"ZEUS_TOKEN": "zeus_000000000000_wrong"}, {"ZEUS_STORE": served.url.replace("//", "//:wrong@")}):
        done = place.run(**wrong)
        assert done.returncode == 2, done.stderr
        assert "token" in done.stderr and "wrong@" not in done.stderr
        assert not (tmp_path / "pid").exists()
    caplog.set_level(logging.DEBUG)
    place.env["ZEUS_TOKEN"] = token
    (only,) = tries(place.report(ZEUS_TOKEN="", ZEUS_STORE=served.url.replace("//", f"//:{token}@")))
    assert only["ending"] == "converged"
    monkeypatch.setenv("ZEUS_TOKEN", token)
    job = remote(served.url, tmp_path / "data" / "s")
    trial = job.ask(V100)
    assert zeus("token", "revoke", made["id"], *here)[0] == 0
    assert job.tell(trial.number, DONE).ending is Ending.CONVERGED  # kept until there is a token that is taken
    with pytest.raises(NotAllowed):
        job.ask(V100)
    served.down()
    assert place.run(**AWAY).returncode == 0
    written = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert any(path.parent.name == "s" for path in written)
    secret = token.encode()
    assert all(secret not in path.read_bytes() for path in [*written, *(tmp_path / "cards").rglob("*.*")])
    assert token not in served.lines() and token not in caplog.text


def test_looking_at_the_jobs_of_a_service_that_is_away_fails_and_says_so(served: Served, zeus: Zeus) -> None:
    code, out, err = zeus("jobs", "list")
    assert (code, out) == (1, "")
    assert f"the service {served.url} cannot be reached" in err
    code, out, _ = zeus("env", "--json")
    assert (code, json.loads(out)["store"]["ok"]) == (0, False)


def test_what_waits_for_days_ends_no_trial_of_another_life(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.up()
    job, folder = remote(served.url, tmp_path / "spool"), tmp_path / "spool"
    number = job.ask(V100).number
    monkeypatch.setenv("ZEUS_PATIENCE", "0")
    served.down()
    job.tell(number, DONE)
    assert len(list(folder.glob("0*.json"))) == 1
    monkeypatch.setenv("ZEUS_PATIENCE", "60")
    store, elsewhere = served.store, MemoryStore()
    elsewhere.register(SPEC)
    RecurringJob.find(LocalJobs(elsewhere), SPEC.id).ask(V100)  # has the same number
    store.forget(SPEC.id)
    store.import_lines(elsewhere.export())
    served.up()
    remote(served.url, folder)  # delivers what waits
    assert store.trial(SPEC.id, number).trial.ending is Ending.OPEN
    (why,) = (folder / "refused").glob("*.why")
    assert "of this store has another id" in why.read_text()
