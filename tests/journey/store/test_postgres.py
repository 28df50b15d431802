"""A store in Postgres, where the server goes away, hangs up or is told what it cannot hold."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.postgres import PostgresServer
from support.store_places import HERE, SPEC, ask, sound
from support.store_worker import CONVERGED, first_size
from support.waiting import PATIENCE_SECONDS, limits
from zeus.errors import InputError, NotKnown, StoreError
from zeus.job import Ask, Decision, Ending, replace
from zeus.store import Job, Store, open_store
from zeus.store.api import Facts, Log
from zeus.store.sql.database import Database, TransactionMode
from zeus.store.sql.postgres import ADVISORY_LOCK
from zeus.store.sql.store import SqlStore
from zeus.store.wait_limit import at_most
from zeus_energy import install_command


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.register(SPEC)
    yield store
    store.close()


@pytest.fixture
def admin(url: str) -> Iterator[Any]:
    """Another client, whose statements each happen by themselves."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


HANG_UP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"


def hang_up(admin: Any) -> None:
    admin.execute(HANG_UP, [admin.info.dbname])


def test_a_server_that_is_away_is_said_to_be_and_the_verb_after_its_return_works(
    postgres: PostgresServer, url: str, store: Store
) -> None:
    number = ask(store).number
    postgres.down()
    try:
        for verb in (lambda: ask(store), lambda: store.tell("asr", number, CONVERGED), lambda: store.job("asr")):
            with pytest.raises(StoreError, match=r"did not answer: .*Nothing was changed; try again"):
                verb()
        with pytest.raises(StoreError, match=r"cannot be opened: .*Check the address of the store"):
            open_store(url)
    finally:
        postgres.up()
    assert store.tell("asr", number, CONVERGED).ended == 2
    assert ask(store).number == 2
    sound(store)


def test_a_server_that_takes_everything_and_answers_nothing_is_waited_for_but_not_for_ever(
    postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(database_silent=0.5))
    store = open_store(url)
    store.register(SPEC)
    number = ask(store).number
    postgres.freeze()
    try:
        with at_most(0.05), pytest.raises(StoreError, match=r"did not answer: .*Nothing was changed; try again"):
            store.tell("asr", number, CONVERGED)
    finally:
        postgres.thaw()
    assert store.tell("asr", number, CONVERGED).ended == 2
    sound(store)
    store.close()


def test_connections_that_were_cut_are_replaced_before_a_verb_begins(store: Store, admin: Any) -> None:
    for number in (1, 2, 3):
        hang_up(admin)
        assert ask(store).number == number


def test_a_connection_that_is_cut_while_a_trial_is_decided_leaves_nothing_half_done(store: Store, admin: Any) -> None:
    def cut(job: Job, ask: Ask, facts: Facts) -> Decision:
        hang_up(admin)
        return first_size(job, ask, lambda since: Log(since, [], since))

    with pytest.raises(StoreError, match="Nothing was changed; try again"):
        store.ask("asr", HERE, cut)
    assert store.log("asr").events == []
    assert ask(store).number == 1
    sound(store)


def test_a_connection_that_is_cut_at_the_very_end_leaves_the_caller_in_no_false_certainty(
    store: Store, admin: Any
) -> None:
    number = ask(store).number
    admin.execute(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER cut AFTER UPDATE ON zeus_trials DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION cut()"
    )
    with pytest.raises(StoreError, match="Whether the change was made is not known"):
        store.tell("asr", number, CONVERGED)
    admin.execute("DROP TRIGGER cut ON zeus_trials")
    store.tell("asr", number, CONVERGED)  # may be repeated until it is heard
    store.tell("asr", number, CONVERGED)
    sound(store)


def test_a_job_that_others_hold_for_too_long_is_said_to_be_busy(url: str, store: Store, admin: Any) -> None:
    hasty = SqlStore(url, busy_seconds=0.05)
    with admin.transaction():
        admin.execute("SELECT * FROM zeus_jobs FOR UPDATE")
        assert hasty.job("asr") == store.job("asr")  # reading goes on
        with pytest.raises(StoreError, match=r"did not answer: .*lock timeout"):
            ask(hasty)
    assert ask(hasty).number == 1
    hasty.close()


def test_a_database_that_others_are_making_for_too_long_is_said_to_be_busy_and_not_wrong(url: str, admin: Any) -> None:
    admin.execute("SELECT pg_advisory_lock(%s)", [ADVISORY_LOCK])
    with at_most(0.05), pytest.raises(StoreError, match=r"cannot be opened: .*lock timeout"):
        open_store(url)
    admin.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK])
    open_store(url).close()


def test_jobs_do_not_wait_for_one_another(url: str, store: Store, admin: Any) -> None:
    hasty = SqlStore(url, busy_seconds=0.05)
    hasty.register(replace(SPEC, job_id="lm"))
    with admin.transaction():
        admin.execute("SELECT * FROM zeus_jobs WHERE id = 'lm' FOR UPDATE")
        assert ask(hasty).number == 1
    hasty.close()


def test_the_servers_own_idea_of_isolation_does_not_matter(url: str, admin: Any) -> None:
    admin.execute(f"ALTER DATABASE {admin.info.dbname} SET default_transaction_isolation = 'serializable'")
    database = Database(url)
    for mode, level in ((TransactionMode.WRITE, "read committed"), (TransactionMode.SNAPSHOT, "repeatable read")):
        with database.transaction(mode) as db:
            assert db.row("SHOW transaction_isolation") == (level,)
    database.close()


def test_what_postgres_cannot_hold_is_an_input_error(store: Store) -> None:
    with pytest.raises(InputError, match="cannot hold this value"):
        store.register(replace(SPEC, job_id="a\0b"))


def test_alembics_own_table_is_free_for_others(url: str, admin: Any) -> None:
    admin.execute("CREATE TABLE alembic_version (version_num TEXT NOT NULL CONSTRAINT alembic_version_pkc PRIMARY KEY)")
    admin.execute("INSERT INTO alembic_version VALUES ('ae1027a6acf')")
    open_store(url).close()
    assert admin.execute("SELECT version_num FROM alembic_version").fetchall() == [("ae1027a6acf",)]


# Whoever makes the job is overtaken so many times: a number drawn from a sequence is not given back by a rollback.
OVERTAKEN = """
CREATE SEQUENCE tries;
CREATE FUNCTION overtake() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN IF nextval('tries') <= {} THEN RAISE unique_violation; END IF; RETURN NEW; END $$;
CREATE TRIGGER overtake BEFORE INSERT ON zeus_jobs FOR EACH ROW EXECUTE FUNCTION overtake()
"""


def test_a_job_that_others_make_and_remove_all_the_time_is_registered_all_the_same(store: Store, admin: Any) -> None:
    admin.execute(OVERTAKEN.format(5))
    assert store.register(replace(SPEC, job_id="lm")).id == "lm"


def test_an_error_of_the_driver_reaches_nobody(store: Store, admin: Any) -> None:
    admin.execute(OVERTAKEN.format(1000))
    with pytest.raises(StoreError, match=r"was changed by others: .* Try again"):
        store.register(replace(SPEC, job_id="lm"))


def test_registering_and_forgetting_at_once_gives_each_its_answer(url: str, store: Store) -> None:
    wrong, gate = list[BaseException](), threading.Barrier(4)

    def work(forget: bool) -> None:
        mine = open_store(url)
        gate.wait()
        for _ in range(40):
            try:
                mine.forget("asr") if forget else mine.register(SPEC)
            except NotKnown:
                pass
            except BaseException as failed:
                wrong.append(failed)
        mine.close()

    threads = [threading.Thread(target=work, args=(forget,)) for forget in (False, False, True, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_address_without_its_driver_is_understood_and_a_password_is_not_shown(url: str) -> None:
    open_store(url.replace("+psycopg", "")).close()
    with pytest.raises(StoreError, match=r"cannot be opened") as told:
        open_store("postgresql://me:secret@/zeus?host=/nowhere")
    assert "secret" not in str(told.value)


def test_a_missing_driver_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from zeus.store import open_store\n"
        "try: open_store('postgresql://me@/zeus')\n"
        "except ValueError as wrong: print(wrong)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert install_command("postgres") in done.stdout


AHEAD = """
import sys, time
really = time.time
time.time = lambda: really() + 660.0  # eleven minutes ahead of everybody else
from zeus.job import Gpus
from zeus.store import Request, open_store
from support.store_worker import first_size
store = open_store(sys.argv[1])
print(store.ask("asr", Request(gpus=Gpus(max_watts=250.0)), first_size).number, len(store.expire("asr")))
store.close()
"""


def test_a_client_whose_clock_is_ahead_loses_nobodys_trials(url: str, store: Store) -> None:
    there = open_store(url)  # by the server's clock
    number = ask(there).number
    call = [sys.executable, "-c", AHEAD, url]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(call, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environ)
    assert (done.stdout.split(), done.stderr) == (["2", "0"], "")
    kept = there.trial("asr", number)
    assert kept.trial.ending is Ending.OPEN
    assert kept.asked_at < there.trial("asr", 2).asked_at < (kept.leased_until or "")  # one clock for both
    there.close()
