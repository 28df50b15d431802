"""`zeus jobs` over a real store: what a job has learnt and saved, moving it elsewhere, and nothing lost by a slip."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS
from zeus.cli.main import main
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.report.standing import PHASES
from zeus.job import Ending, Gpus, JobSpec, Kind, Outcome, Phase, Trial, UsageSegment, replace
from zeus.launch.recurrence import recur
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.service.app import create
from zeus.service.dashboard.export import export
from zeus.store import open_store
from zeus.store.check import check

pytestmark = pytest.mark.usefixtures("warm")

PLACE = Gpus("V100", 1, 250.0)
SPEC = JobSpec(
    job_id="sentiment",
    job_id_prefix="s",
    batch_sizes=(8, 16, 32, 64),
    default_batch_size=32,
    max_epochs=10,
    mab_seed=1,
    policy="paper",
)
EPOCHS = {16: 4, 32: 5}
EPOCH_JOULES = {16: 500.0, 32: 800.0}
Zeus = Callable[..., tuple[int, str, str]]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address of a store that is not there yet."""
    address = f"sqlite:///{tmp_path}/zeus.db"
    monkeypatch.setenv("ZEUS_STORE", address)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.chdir(tmp_path)
    for name in ("ZEUS_PRICE_PER_KWH", "ZEUS_CURRENCY", "ZEUS_GCO2E_PER_KWH"):
        monkeypatch.delenv(name, raising=False)
    return address


@pytest.fixture
def zeus(capsys: pytest.CaptureFixture[str]) -> Zeus:
    """The command line: its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["jobs", *arguments])
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return call


def run(trial: Trial) -> Outcome:
    """8 never converges, 64 does not fit into memory, 16 is cheaper than the default, 32."""
    size = trial.batch_size
    if size == 64:
        return Outcome(ending=Ending.CRASHED)
    if size == 8:
        return Outcome(ending=Ending.NOT_CONVERGED, joules=9000.0, seconds=60.0, epochs=10)
    joules = EPOCHS[size] * EPOCH_JOULES[size] * (1 + 0.001 * trial.number)
    steps = UsageSegment.of(Kind.STEP, 175.0, False, 10 * EPOCHS[size], joules, joules / 150)
    return Outcome(
        ending=Ending.CONVERGED,
        joules=joules,
        seconds=joules / 150,
        epochs=EPOCHS[size],
        metric=0.9,
        stretches=(steps,),
        found_watts=250.0,
        set_limits=True,
    )


@pytest.fixture
def learnt(url: str) -> RecurringJob:
    """A job with 12 recurrences behind it, profiled."""
    store = open_store(url)
    job = RecurringJob.register(LocalJobs(store), SPEC)
    for size, joules in EPOCH_JOULES.items():
        job.profiled(size, PLACE, joules=joules, seconds=joules / 150)
        profile = PowerProfile.of([LimitSlice(250, 10, 1.0, 230.0), LimitSlice(175, 10, 1.1, 165.0)])
        job.put(ProfileKey("sentiment", size, "V100", 1), profile)
    for _ in range(12):
        recur(job, PLACE, run)
    return job


def loaded(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


# ---------------------------------------------------------------------- looking


def written_by_another_zeus(tmp_path: Path, table: str, column: str, job: str, old: str, new: str) -> None:
    """Change a fact as a version of Zeus would that this one does not know."""
    key = "id" if table == "zeus_jobs" else "job_id"
    with closing(sqlite3.connect(tmp_path / "zeus.db")) as file:
        done = file.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE {key} = ?", (old, new, job))
        assert done.rowcount
        file.execute("DELETE FROM zeus_digests WHERE job_id = ?", (job,))  # it is outdated by the change
        file.commit()


def some_strange(url: str, tmp_path: Path) -> None:
    """Three jobs that this Zeus does not understand, beside the one that it does."""
    for name in ("newer", "newest", "odd"):
        RecurringJob.register(LocalJobs(open_store(url)), replace(SPEC, job_id=name)).ask(PLACE)
    written_by_another_zeus(tmp_path, "zeus_jobs", "job", "odd", '"policy":"paper"', '"policy":"gone"')
    written_by_another_zeus(tmp_path, "zeus_trials", "trial", "newer", '"version":2', '"version":3')
    written_by_another_zeus(tmp_path, "zeus_jobs", "job", "newest", '"version":2', '"version":3')


def test_a_job_that_another_zeus_wrote_does_not_hide_the_others(
    learnt: RecurringJob, url: str, zeus: Zeus, tmp_path: Path
) -> None:
    some_strange(url, tmp_path)
    code, out, _ = zeus("list", "--json")
    rows = {row["job"]: row for row in loaded(out)}
    assert code == 0
    assert {name: row["phase"] for name, row in rows.items()} == {
        "newer": "unreadable",
        "newest": "unreadable",
        "odd": "stuck",
        "sentiment": "sampling",
    }
    assert rows["sentiment"]["remark"] is None
    assert "trial of version 3" in rows["newer"]["remark"]
    assert "job of version 3" in rows["newest"]["remark"]
    assert "policy 'gone' is not known" in rows["odd"]["remark"]
    assert rows["odd"]["trials"] == 1  # which can be read
    assert set(rows["newer"]) == set(rows["sentiment"])

    code, out, _ = zeus("list")
    assert code == 0
    assert "newer: cannot be read: trial of version 3: this Zeus reads version 2" in out
    assert zeus("show", "odd")[0] == 0
    assert zeus("show", "newer")[0] == 2


def test_the_service_and_the_page_show_the_jobs_beside_one_that_cannot_be_read(
    learnt: RecurringJob, url: str, tmp_path: Path
) -> None:
    some_strange(url, tmp_path)
    store = open_store(url)
    client = TestClient(create(store))
    listed = client.get("/api/v1/jobs").json()
    assert (listed["total"], [row["phase"] for row in listed["jobs"]][-1]) == (4, "sampling")
    assert client.get("/api/v1/summary").json()["jobs"] == 4
    assert 'zeus_job_recurrences{zeus_job="sentiment"} 12.0' in client.get("/metrics").text
    assert client.get("/api/v1/jobs/newest").status_code == 422
    assert "job of version 3" in export(store)


def test_looking_at_a_store_that_is_not_there_says_so_and_makes_none(url: str, zeus: Zeus, tmp_path: Path) -> None:
    assert zeus("list")[:2] == (0, f"There are no jobs in {url}.\n")
    assert loaded(zeus("list", "--json")[1]) == []
    code, out, err = zeus("show", "sentiment")
    assert (code, out) == (2, "")
    assert "there is no store at" in err
    assert not (tmp_path / "zeus.db").exists()


def test_a_list_says_what_each_job_uses_against_its_default(learnt: RecurringJob, zeus: Zeus) -> None:
    code, out, _ = zeus("list", "--json")
    (job,) = loaded(out)
    assert code == 0
    assert (job["job"], job["phase"], job["recurrences"], job["batch_size"]) == ("sentiment", "sampling", 12, 16)
    assert job["last"]["batch_size"] == 16
    default = 5 * EPOCH_JOULES[32] * 230 / 165  # five epochs, brought to 250 W by the profile
    assert job["default"]["joules"] == pytest.approx(default, rel=0.05)
    assert (job["default"]["basis"], job["saving"]["basis"]) == ("estimated", "estimated")
    assert job["recent_saving"]["share"] == pytest.approx(1 - 4 * 500.0 * 1.013 / default, rel=0.1)
    assert len(job["costs"]) == 12

    code, out, _ = zeus("list")
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["job", "phase", "recurrences"]
    assert lines[1].split()[:4] == ["sentiment", "sampling", "12", "16"]
    assert lines[1].endswith(job["saving"]["sentence"])
    assert re.search("[▁▂▃▄▅▆▇█]{12}", lines[1])
    assert "\x1b" not in out


def test_a_job_shows_its_beliefs_and_why_each_trial_was_what_it_was(learnt: RecurringJob, zeus: Zeus) -> None:
    code, out, _ = zeus("show", "sentiment", "--json")
    job = loaded(out)
    assert code == 0
    standing = {row["batch_size"]: row["standing"] for row in job["sizes"]}
    assert standing == {8: "pruned", 16: "offered", 32: "offered", 64: "crashed"}
    assert {row["batch_size"]: row["limit_watts"] for row in job["sizes"]} == {8: None, 16: 175, 32: 175, 64: None}
    assert job["spec"]["default_batch_size"] == 32
    assert job["next"]["batch_size"] == 16
    tries = job["tries"]
    assert [one["number"] for one in tries] == list(range(1, len(tries) + 1))
    assert tries[0]["reason"] == "pruning round 1 of 2 explores 32, the starting size"
    assert {one["ending"] for one in tries} == {"converged", "not_converged", "crashed"}
    crashed = next(one for one in tries if one["ending"] == "crashed")
    assert (crashed["joules"], crashed["cost"]) == (None, None)
    total = sum(one["joules"] or 0 for one in tries)
    assert job["joules"] == pytest.approx(total)
    assert job["unknown_tries"] == 1
    assert tries[0]["asked_at"].endswith("+00:00")

    text = zeus("show", "sentiment", "--last", "2")[1]
    for words in (
        "phase: sampling",
        "64  crashed",
        "the last 2 of",
        "has the lowest of",
        "default: batch size 32 at 250 W",
    ):
        assert words in text
    assert "explores 32" not in text
    assert "explores 32" in zeus("show", "sentiment", "--last", "0")[1]


def test_what_is_shown_next_is_what_the_next_ask_gets(learnt: RecurringJob, zeus: Zeus) -> None:
    following = loaded(zeus("show", "sentiment", "--json")[1])["next"]
    decision = learnt.ask(PLACE).decision
    assert following == {
        "batch_size": decision.batch_size,
        "phase": decision.phase,
        "reason": decision.reason,
        "cost_limit": decision.cost_limit,
    }


def test_a_saving_is_money_where_the_user_says_what_energy_costs(
    learnt: RecurringJob, zeus: Zeus, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = loaded(zeus("show", "sentiment", "--json")[1])["saving"]
    assert (saving["money"], saving["gco2e"]) == (None, None)
    monkeypatch.setenv("ZEUS_PRICE_PER_KWH", "0.36")
    monkeypatch.setenv("ZEUS_CURRENCY", "EUR")
    monkeypatch.setenv("ZEUS_GCO2E_PER_KWH", "360")
    priced = loaded(zeus("show", "sentiment", "--json")[1])["saving"]
    assert priced["money"] == pytest.approx(saving["joules"] * 1e-7)
    assert priced["gco2e"] == pytest.approx(saving["joules"] * 1e-4)
    text = zeus("show", "sentiment")[1]
    assert " EUR" in text
    assert " gCO2e" in text


def test_a_job_that_never_ran_and_one_that_cannot_go_on_are_shown(url: str, zeus: Zeus) -> None:
    store = open_store(url)
    job = RecurringJob.register(LocalJobs(store), SPEC)
    assert loaded(zeus("list", "--json")[1])[0]["phase"] == "new"
    assert "has not reached the target yet" in zeus("show", "sentiment")[1]
    for _ in SPEC.batch_sizes:
        job.tell(job.ask(PLACE).number, Outcome(ending=Ending.CRASHED))
    told = loaded(zeus("show", "sentiment", "--json")[1])
    assert told["phase"] == "stuck"
    assert "all batch sizes" in told["stuck"]
    assert "all batch sizes" in zeus("show", "sentiment")[1]
    assert told["joules"] is None


def test_a_job_that_only_crashed_says_so_and_each_phase_is_explained(url: str, zeus: Zeus) -> None:
    job = RecurringJob.register(LocalJobs(open_store(url)), SPEC)
    assert "(phase: new: it has not run yet)" in zeus("list")[1]
    job.tell(job.ask(PLACE).number, Outcome(ending=Ending.CRASHED))
    assert "phase: crashed (every trial so far has crashed); next: " in zeus("show", "sentiment")[1]
    assert "(phase: crashed: every trial so far has crashed)" in zeus("list")[1]


def test_a_job_is_dated_to_the_second(learnt: RecurringJob, zeus: Zeus) -> None:
    assert re.match(r"job sentiment, revision 1 of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", zeus("show", "sentiment")[1])


def test_a_job_shows_its_command_on_one_line_and_null_where_it_is_unknown(
    learnt: RecurringJob, url: str, zeus: Zeus
) -> None:
    code, text, _ = zeus("show", "sentiment", "--json")
    assert code == 0 and loaded(text)["spec"]["command"] is None and "command:" not in zeus("show", "sentiment")[1]
    given = replace(SPEC, command="sh -c '\n  python train.py \x1b[2J'", command_id="5f")
    for spec in (given, SPEC):  # a script that registers its job by itself knows no command
        RecurringJob.register(LocalJobs(open_store(url)), spec)
    assert "  command: sh -c ' python train.py [2J'\n" in zeus("show", "sentiment")[1]


def test_each_phase_has_an_explanation() -> None:
    assert {one.value for one in Phase} < set(PHASES)


@pytest.mark.parametrize("verb", ["delete", "remove", "rm"])
def test_who_looks_for_another_name_of_forget_is_told(verb: str, learnt: RecurringJob, zeus: Zeus) -> None:
    code, _, err = zeus(verb, "sentiment")
    assert code == 2 and "use `zeus jobs forget`" in err


def test_after_a_job_was_forgotten_the_numbers_of_its_trials_go_on_and_that_is_said(
    learnt: RecurringJob, zeus: Zeus, url: str
) -> None:
    assert "its trial numbers go on" in zeus("forget", "sentiment", "--yes")[1]
    job = RecurringJob.register(LocalJobs(open_store(url)), SPEC)
    number = job.tell(job.ask(PLACE).number, Outcome(ending=Ending.LOST)).number
    assert f"(trials before {number} were forgotten or reset" in zeus("show", "sentiment")[1]


def test_a_trial_whose_lease_lapsed_looks_so_and_is_not_lost_by_being_looked_at(url: str, zeus: Zeus) -> None:
    store = open_store(url, wall=lambda: 1_700_000_000.0)
    job = RecurringJob.register(LocalJobs(store), SPEC)
    trial = job.ask(PLACE)
    assert "open (lapsed)" in zeus("show", "sentiment")[1]
    assert job.trial(trial.number).ending is Ending.OPEN


@pytest.mark.parametrize("verb", ["show", "forget", "reset", "export"])
def test_a_job_that_is_not_there_is_bad_input_and_the_nearest_name_is_given(
    verb: str, learnt: RecurringJob, zeus: Zeus
) -> None:
    code, out, err = zeus(verb, "sentimnet")
    assert (code, out) == (2, "")
    assert "Did you mean 'sentiment'?" in err


# ---------------------------------------------------------------------- taking elsewhere


def test_a_job_taken_elsewhere_is_the_same_job(learnt: RecurringJob, zeus: Zeus, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    assert zeus("export", "--output", "jobs.jsonl")[0] == 0
    assert zeus("export", "sentiment")[1] == Path("jobs.jsonl").read_text()
    code, out, _ = zeus("import", "jobs.jsonl", "--store", other, "--json")
    assert (code, loaded(out)) == (0, {"jobs": ["sentiment"]})
    assert zeus("show", "sentiment", "--json", "--store", other)[1] == zeus("show", "sentiment", "--json")[1]
    code, _, err = zeus("import", "jobs.jsonl", "--store", other)
    assert code == 2
    assert "already in this store: sentiment" in err


def test_an_import_may_come_from_standard_input_and_a_bad_line_is_named(
    learnt: RecurringJob, zeus: Zeus, tmp_path: Path
) -> None:
    lines = zeus("export")[1]
    call = [sys.executable, "-m", "zeus.cli", "jobs", "import", "-", "--store", f"sqlite:///{tmp_path}/other.db"]
    done = subprocess.run(
        call, input=lines + "{]\n", capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 2
    assert f"line {len(lines.splitlines()) + 1}" in done.stderr
    done = subprocess.run(call, input=lines, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert (done.returncode, done.stdout) == (0, "sentiment\n")


def test_an_export_does_not_write_over_a_file(learnt: RecurringJob, zeus: Zeus) -> None:
    Path("notes").write_text("mine")
    code, _, err = zeus("export", "--output", "notes")
    assert code == 2
    assert "notes cannot be written: File exists" in err
    assert Path("notes").read_text() == "mine"


# ---------------------------------------------------------------------- taking away


@pytest.mark.parametrize("verb", ["forget", "reset"])
def test_where_nobody_can_be_asked_nothing_is_taken_away_without_yes(
    verb: str, learnt: RecurringJob, zeus: Zeus
) -> None:
    before = zeus("export")[1]
    code, _, err = zeus(verb, "sentiment")
    assert code == 2
    assert "Add --yes" in err
    assert zeus("export")[1] == before


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 130, 1), (b"y\n", 0, 0)])
def test_at_a_terminal_the_user_is_asked(answer: bytes, code: int, left: int, learnt: RecurringJob, zeus: Zeus) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    call = [sys.executable, "-m", "zeus.cli", "jobs", "forget", "sentiment"]
    done = subprocess.run(call, stdin=theirs, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    os.close(ours)
    os.close(theirs)
    assert "Remove 'sentiment' with its" in done.stdout + done.stderr
    assert done.returncode == code
    assert len(loaded(zeus("list", "--json")[1])) == left


def test_one_trial_and_no_saving_are_told_in_plain_words(
    url: str, zeus: Zeus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = RecurringJob.register(LocalJobs(open_store(url)), SPEC)
    job.tell(job.ask(PLACE).number, Outcome(ending=Ending.CONVERGED, joules=0.1 + 0.2, seconds=1.0, epochs=1))
    assert "-0.0" not in zeus("list")[1]
    assert "reset; saved its 1 trial to" in zeus("reset", "sentiment", "--yes")[1]


def test_forgetting_removes_the_job(learnt: RecurringJob, zeus: Zeus) -> None:
    code, out, _ = zeus("forget", "sentiment", "--yes", "--json")
    assert code == 0
    assert loaded(out)["forgotten_trials"] > 12
    assert loaded(zeus("list", "--json")[1]) == []
    assert zeus("export")[1] == ""


def test_a_reset_job_learns_afresh_and_its_history_can_be_brought_back(learnt: RecurringJob, zeus: Zeus) -> None:
    before = zeus("show", "sentiment", "--json")[1]
    code, out, _ = zeus("reset", "sentiment", "--yes", "--json")
    kept = loaded(out)["output"]
    assert code == 0
    fresh = loaded(zeus("show", "sentiment", "--json")[1])
    assert (fresh["phase"], fresh["trials"], fresh["revision"]) == ("new", 0, 1)
    assert fresh["spec"] == loaded(before)["spec"]
    assert zeus("forget", "sentiment", "--yes")[0] == 0
    assert zeus("import", kept)[0] == 0
    assert zeus("show", "sentiment", "--json")[1] == before


def hear(terminal: int, words: bytes) -> None:
    """Wait until a terminal shows this."""
    said = b""
    while words not in said:
        assert select.select([terminal], [], [], PATIENCE_SECONDS)[0], said
        said += os.read(terminal, 1000)


def test_a_job_that_is_asked_for_while_its_owner_ponders_is_not_reset(learnt: RecurringJob, tmp_path: Path) -> None:
    before, kept = len(open_store().trials("sentiment")), tmp_path / "kept.jsonl"
    ours, theirs = pty.openpty()
    call = [sys.executable, "-m", "zeus.cli", "jobs", "reset", "sentiment", "--output", str(kept)]
    with subprocess.Popen(call, stdin=theirs, stdout=theirs, stderr=theirs) as reset:
        hear(ours, b"[y/N]")
        recur(learnt, PLACE, run)
        os.write(ours, b"y\n")
        hear(ours, b"has changed since")
        assert reset.wait(timeout=PATIENCE_SECONDS) == 2
    os.close(ours)
    os.close(theirs)
    assert len(open_store().trials("sentiment")) > before
    assert not kept.exists()


def test_a_reset_that_cannot_keep_the_history_forgets_nothing(learnt: RecurringJob, zeus: Zeus) -> None:
    before = zeus("export")[1]
    code, _, err = zeus("reset", "sentiment", "--yes", "--output", "no/such/folder")
    assert code == 2
    assert "Nothing was changed" in err
    assert zeus("export")[1] == before


@pytest.mark.parametrize("verb", ["forget", "reset"])
def test_a_job_that_is_running_is_not_taken_away_unless_by_force(verb: str, learnt: RecurringJob, zeus: Zeus) -> None:
    number = learnt.ask(PLACE).number
    code, _, err = zeus(verb, "sentiment", "--yes")
    assert code == 2
    assert f"trial {number} is running" in err
    assert zeus(verb, "sentiment", "--yes", "--force")[0] == 0


@pytest.mark.parametrize("verb", ["forget", "reset"])
def test_a_lease_that_lapsed_is_no_proof_that_nobody_trains(verb: str, learnt: RecurringJob, zeus: Zeus) -> None:
    number = learnt.ask(PLACE).number
    learnt.renew(number, lease=0.0)
    code, _, err = zeus(verb, "sentiment", "--yes")
    assert code == 2
    assert f"trial {number} is running" in err
    assert zeus(verb, "sentiment", "--yes", "--force")[0] == 0


def test_a_size_that_crashed_is_pardoned_and_nothing_is_forgotten(learnt: RecurringJob, zeus: Zeus) -> None:
    trials = loaded(zeus("show", "sentiment", "--json")[1])["trials"]
    code, out, _ = zeus("reset", "sentiment", "--batch-size", "64", "--json")
    assert (code, loaded(out)) == (0, {"job": "sentiment", "pardoned": 64})
    told = loaded(zeus("show", "sentiment", "--json")[1])
    assert told["trials"] == trials
    assert {row["batch_size"]: row["standing"] for row in told["sizes"]}[64] == "untried"
    code, _, err = zeus("reset", "sentiment", "--batch-size", "16")
    assert code == 2
    assert "batch size 16 has not crashed; none has" in err


# ---------------------------------------------------------------------- where the store is


def test_looking_for_a_store_makes_nothing(tmp_path: Path) -> None:
    found = check(f"sqlite:///{tmp_path}/a/b/zeus.db")
    assert (found.kind, found.ok, found.exists) == ("sqlite", True, False)
    assert list(tmp_path.iterdir()) == []
    open_store(f"sqlite:///{tmp_path}/zeus.db").close()
    before = sorted(tmp_path.iterdir())
    assert check(f"sqlite:///{tmp_path}/zeus.db").exists
    assert sorted(tmp_path.iterdir()) == before


def test_a_store_that_cannot_be_used_says_why_and_hides_its_password(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a database, whatever its name is, and long enough to be taken for one" * 20)
    for url, kind, words in [
        ("mysql://host/zeus", None, "give sqlite:///path"),
        (f"sqlite:///{tmp_path}/notes", "sqlite", "cannot be read as a database"),
        (f"sqlite:///{tmp_path}/notes/zeus.db", "sqlite", "cannot be created in"),
        ("http://:secret@127.0.0.1:9", "service", "does not answer"),
        ("postgresql+psycopg://me:secret@127.0.0.1:9/zeus", "postgresql", "Check the address of the store"),
    ]:
        found = check(url)
        assert (found.kind, found.ok) == (kind, False)
        assert found.why_not is not None
        assert words in found.why_not
        assert "secret" not in f"{found.url} {found.why_not}"
