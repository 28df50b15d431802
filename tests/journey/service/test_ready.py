"""`/readyz` says why not, to strangers too, and tells them nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
from starlette.testclient import TestClient

from support.postgres import USER, PostgresServer
from zeus.service.app import Settings, create
from zeus.store import open_store


def not_ready(client: TestClient) -> str:
    answer = client.get("/readyz")
    assert answer.status_code == 503, answer.text
    return str(answer.json()["error"]["message"])


def test_a_store_of_another_version_says_which(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    client = TestClient(create(open_store(f"sqlite:///{path}"), Settings(open=False)))
    assert client.get("/readyz").json() == {"ok": True}
    for version, advice in (("9999", "update the service"), ("0000", "restart the service, which upgrades it")):
        with sqlite3.connect(path) as db:
            db.execute("UPDATE zeus_version SET version_num = ?", (version,))
        said = not_ready(client)
        assert said.startswith(f"the store has version {version}, and this service version ")
        assert said.endswith(f"{advice}.")


def test_a_file_that_is_no_store_any_more_is_said_without_its_name(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    store = open_store(f"sqlite:///{path}")
    client = TestClient(create(store, Settings(open=False)))
    store.close()
    for part in tmp_path.glob("zeus.db-*"):
        part.unlink()
    path.write_bytes(b"no database at all" * 100)
    assert not_ready(client) == "the database file is damaged."


def test_a_database_that_is_gone_is_said_without_its_address(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    store = open_store(url)
    client = TestClient(create(store, Settings(open=False)))
    assert client.get("/readyz").status_code == 200
    store.close()
    with psycopg.connect(host=str(postgres.folder), user=USER, dbname="postgres", autocommit=True) as other:
        other.execute(f'DROP DATABASE "{url.partition("@/")[2].partition("?")[0]}" WITH (FORCE)')
    assert not_ready(client) == "the database does not exist."


def test_a_server_that_is_down_is_said_until_it_is_up_again(postgres: PostgresServer) -> None:
    store = open_store(postgres.new_database())
    client = TestClient(create(store, Settings(open=False)))
    postgres.down()
    try:
        assert not_ready(client) in ("the database server cannot be reached.", "the database server is shutting down.")
    finally:
        postgres.up()
    assert client.get("/readyz").json() == {"ok": True}
