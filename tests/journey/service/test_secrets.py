"""A password that the store's address holds is told to nobody: not in an answer, the banner, the log or `zeus env`."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.live import live
from support.paths import SOURCES
from support.postgres import PostgresServer
from support.waiting import PATIENCE_SECONDS
from zeus.errors import StoreError, ZeusError
from zeus.service.app import Settings, create
from zeus.store import MemoryStore, open_store
from zeus.store.address import shown
from zeus.store.check import check

pytestmark = pytest.mark.usefixtures("warm")

SECRET = "hunter2-planted"
NOBODY = f"postgresql+psycopg://zeus@127.0.0.1:1/zeus?password={SECRET}"
WHERES = [
    "postgresql://me:{}@host/zeus",
    "postgresql+psycopg://me:{}@host,127.0.0.1:2/zeus?sslmode=require",
    "postgresql://me@host/zeus?password={}",
    "postgresql://me@/zeus?host=/nowhere&sslpassword={}&sslmode=require",
    "postgresql:///zeus?host=/nowhere&anything_else={}",
    "postgresql://me@host:{}/zeus",
    "http://{}@host:7070",
    "https://:{}@[::1]:7070/zeus",
    "http://host:7070/?token={}",
    "mysql://me:{}@host/zeus",
    "host=db password={}",
    "sqlite://me:{}@/",
]


# ---------------------------------------------------------------------- addresses


def test_what_is_no_secret_is_shown() -> None:
    for address in (
        "sqlite:////home/me/a@b:c?d=e.db",
        "postgresql+psycopg://zeus@db:5432/zeus?host=/run/pg&sslmode=require",
        "http://host:7070/zeus",
        "http://[::1]:7070",
        "zeus.db",
    ):
        assert shown(address) == address


@pytest.mark.parametrize("where", WHERES)
@given(letters=st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=3, max_size=12))
def test_whatever_a_secret_is_made_of_no_address_shows_it(where: str, letters: str) -> None:
    secret = f"Zq9{letters}9qZ"
    for written in (secret, quote(secret, safe="")):
        told = shown(where.format(written))
        assert not [part for part in ("Zq9", "9qZ") if part in told], told


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("secret", ["{}", "a/{}", "{}@b", "b@{}", "a?b={}", "%40{}"])
def test_no_error_of_a_store_that_cannot_be_opened_tells_it(where: str, secret: str) -> None:
    address = where.format(secret.format(SECRET)).replace("host", "127.0.0.1:1", 1)
    with pytest.raises(ZeusError) as caught:
        open_store(address)
    assert SECRET not in str(caught.value)
    assert SECRET not in str(check(address))


def test_a_database_that_does_not_answer_is_named_without_it() -> None:
    with pytest.raises(StoreError) as away:
        open_store(NOBODY)
    assert "zeus@127.0.0.1:1/zeus?password=***" in str(away.value)
    assert SECRET not in str(away.value)


@pytest.mark.parametrize("address", [f"postgresql://me@127.0.0.1:{SECRET}/zeus", f"postgresql://me:{SECRET}@[/zeus"])
def test_what_is_no_address_of_a_database_is_refused_without_it(address: str) -> None:
    with pytest.raises(ZeusError) as wrong:
        open_store(address)
    assert SECRET not in str(wrong.value)
    assert SECRET not in str(check(address))


# ---------------------------------------------------------------------- commands


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "zeus.cli", *arguments],
        env={**os.environ, "PYTHONPATH": paths, "ZEUS_GPU": "virtual:v100", **environ},
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def test_zeus_env_and_the_other_commands_do_not_tell_it(tmp_path: Path) -> None:
    for arguments in (["env"], ["env", "--json"], ["jobs", "list"], ["token", "list"], ["serve", "--port", "1"]):
        done = run(*arguments, ZEUS_STORE=NOBODY, XDG_DATA_HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path))
        assert SECRET not in done.stdout + done.stderr, arguments
    told = run("env", "--json", ZEUS_STORE=NOBODY, XDG_DATA_HOME=str(tmp_path))
    assert json.loads(told.stdout)["store"]["url"].endswith("?password=***")


def test_a_password_on_the_command_line_is_warned_of() -> None:
    done = run("serve", "--store", NOBODY, "--port", "1")
    assert "every user of this machine can read the password" in done.stderr
    assert SECRET not in done.stderr
    assert "every user" not in run("serve", "--port", "1", ZEUS_STORE=NOBODY).stderr


# ---------------------------------------------------------------------- answers


class Away(MemoryStore):
    """Says more than it should of where it lies, as any store might."""

    def pulse(self, *_: object, **__: object) -> dict[str, str]:
        raise StoreError(f"the store {NOBODY} did not answer at /run/secrets.")

    job = past = export = client_gpus = names = glances = pulse  # type: ignore[assignment]


def test_a_store_that_is_away_is_one_sentence_whatever_it_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "zeus")
    client = TestClient(create(Away()))
    said = {
        client.get(path).json()["error"]["message"]
        for path in ("/metrics", "/api/v1/jobs", "/api/v1/summary", "/api/v1/jobs/asr", "/api/v1/export")
    }
    assert said == {"the store did not answer. Try again; the service's log has the reason."}
    old = client.get("/jobs/batch_size", params={"job_id": "asr"})
    assert (old.status_code, {old.json()["message"]}) == (503, said)
    assert "did not answer at /run/secrets" in caplog.text  # where its owner looks


def test_a_database_that_goes_away_under_a_service_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "zeus")
    try:
        server = PostgresServer.start(fsync=False)
    except LookupError as missing:
        pytest.skip(str(missing))
    with server, closing(open_store(f"{server.new_database()}&password={SECRET}")) as store, live(store) as address:
        assert httpx.get(f"{address}/readyz", timeout=PATIENCE_SECONDS).status_code == 200
        server.down()
        for path in ("/readyz", "/api/v1/jobs", "/metrics", "/jobs/batch_size?job_id=asr"):
            answer = httpx.get(f"{address}{path}", timeout=PATIENCE_SECONDS)
            assert answer.status_code == 503, path
            for word in (SECRET, str(server.folder), "postgres", "password"):
                assert word not in answer.text, (path, word)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("log_json", [False, True])
def test_a_method_that_a_client_invents_is_in_no_log(caplog: pytest.LogCaptureFixture, log_json: bool) -> None:
    caplog.set_level(logging.INFO, "zeus.service")
    client = TestClient(create(MemoryStore(), Settings(log_json=log_json)))
    assert client.request("SECRET", "/api/v1/jobs").status_code == 405
    assert "other" in caplog.text and "SECRET" not in caplog.text
