"""One job whose rows are damaged is shown as bad, and takes nothing else down."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.service.app import create
from zeus.service.dashboard.export import export
from zeus.store import open_store

HERE = Gpus("V100", 1, 250.0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs that ran twice; `bad` is to be damaged."""
    path = tmp_path_factory.mktemp("sound") / "zeus.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        for name in ("bad", "first", "second"):
            spec = JobSpec(job_id=name, job_id_prefix="x", batch_sizes=(8, 16), default_batch_size=16, mab_seed=0)
            job = RecurringJob.register(LocalJobs(store), spec)
            for joules in (100.0, 90.0):
                outcome = Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=2, metric=0.9)
                job.tell(job.ask(HERE).number, outcome)
    return path


@pytest.fixture
def file(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sound, tmp_path))


def changed(value: Any, **to: Any) -> Any:
    """With these values in place of those of the same names, wherever they are."""
    if isinstance(value, dict):
        return {name: to[name] if name in to else changed(one, **to) for name, one in value.items()}
    return [changed(one, **to) for one in value] if isinstance(value, list) else value


DAMAGE = {
    "joules of 1e308": {"joules": 1e308},
    "joules beyond any float": {"joules": 10**400},
    "seconds of 1e308": {"seconds": 1e308},
    "joules as text": {"joules": "much"},
    "watts as text": {"max_watts": "many"},
    "epochs as a list": {"epochs": [1]},
    "eta as text": {"eta": "x"},
    "a recurrence as text": {"recurrence": "1"},
    "no ask": {"ask": None},
    "no decision": {"decision": 7},
    "asked as text": {"asked": "1"},
}
ROWS = (
    "UPDATE zeus_trials SET changed_at = x'00ff'",
    "UPDATE zeus_trials SET trial = 'no JSON'",
    "UPDATE zeus_trials SET trial = '[]'",
    "UPDATE zeus_trials SET so_far = '{}'",
    "UPDATE zeus_trials SET number = 'x' || number",
    "UPDATE zeus_jobs SET job = '{}'",
    "UPDATE zeus_jobs SET job = json_set(job, '$.policy_version', 'x')",
    "UPDATE zeus_jobs SET job = json_set(job, '$.at', 7)",
    "UPDATE zeus_jobs SET job = json_set(job, '$.since', 'x')",
    "UPDATE zeus_jobs SET job = json_set(job, '$.excused', 'x')",
    "UPDATE zeus_jobs SET job = json_set(job, '$.spec.batch_sizes', 8)",
    "UPDATE zeus_jobs SET job = json_set(job, '$.spec.eta_knob', 'x')",
    "UPDATE zeus_jobs SET sequence = 'x'",
)


@pytest.fixture(scope="module", params=[*DAMAGE, *ROWS], ids=str)
def client(
    request: pytest.FixtureRequest, sound: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    """A service over a damaged store, which the tests only look at."""
    file = Path(shutil.copy(sound, tmp_path_factory.mktemp("bad")))
    with closing(sqlite3.connect(file)) as raw, raw:
        if request.param in ROWS:
            column = "id" if "zeus_jobs" in request.param else "job_id"
            raw.execute(f"{request.param} WHERE {column} = 'bad'")
        for number, text in raw.execute("SELECT number, trial FROM zeus_trials WHERE job_id = 'bad'").fetchall():
            if request.param not in DAMAGE:
                continue
            trial = json.dumps(changed(json.loads(text), **DAMAGE[request.param]))
            raw.execute("UPDATE zeus_trials SET trial = ? WHERE job_id = 'bad' AND number = ?", (trial, number))
    with closing(open_store(f"sqlite:///{file}")) as store:
        yield TestClient(create(store))


def test_the_others_are_listed_added_up_and_measured(client: TestClient) -> None:
    listed = client.get("/api/v1/jobs")
    assert listed.status_code == 200, listed.text
    bad, *others = listed.json()["jobs"]
    assert [one["job"] for one in others] == ["first", "second"]
    assert {one["joules"] for one in others} == {190.0}
    assert bad["job"] == "bad"
    summary = client.get("/api/v1/summary")
    assert (summary.status_code, summary.json()["jobs"]) == (200, 3)
    scraped = client.get("/metrics")
    assert scraped.status_code == 200
    assert 'zeus_job_joules{zeus_job="first"} 190.0' in scraped.text


def test_it_is_shown_as_bad_or_with_what_is_known_and_its_own_page_says_so(client: TestClient) -> None:
    bad = client.get("/api/v1/jobs").json()["jobs"][0]
    own = client.get("/api/v1/jobs/bad")
    assert own.status_code in (200, 422), own.text
    if own.status_code == 422:
        assert bad["phase"] == "unreadable"
        assert "cannot be read" in bad["remark"]
        assert bad["joules"] is None
    for path in ("/api/v1/jobs/bad/beliefs", "/api/v1/jobs/bad/trials", "/api/v1/jobs/bad/profiles/all"):
        assert client.get(path).status_code in (200, 422), path
    assert client.get("/api/v1/jobs/first").status_code == 200


def test_the_page_in_one_file_holds_the_others(client: TestClient) -> None:
    page = export(client.app.state.store)  # type: ignore[attr-defined]
    assert '"first"' in page
    assert "Infinity" not in page.partition("ZEUS_DATA")[2].partition("</script>")[0]


@pytest.mark.parametrize("number", ["1e308", "-1", '"x"', "NaN", "1e400"])
def test_an_import_of_what_cannot_be_is_refused_and_changes_nothing(file: Path, number: str) -> None:
    with closing(open_store(f"sqlite:///{file}")) as store:
        before, client = store.export(), TestClient(create(store))
        lines = "\n".join(before).replace('"bad"', '"new"').replace('"joules":100.0', f'"joules":{number}')
        answer = client.post("/api/v1/import", content=lines)
        assert answer.status_code < 500, answer.text
        for path in ("/api/v1/jobs", "/api/v1/summary", "/metrics"):
            assert client.get(path).status_code == 200, path
