"""Opening a store: where it lies, what is refused, how old ones are brought up to date, and what kills do."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support.store_worker import first_size
from support.waiting import PATIENCE_SECONDS
from zeus.errors import InputError, StoreError
from zeus.job import Gpus, JobSpec
from zeus.store import Request, open_store
from zeus.store.address import log_folder, mount_of, refuse_network, resolve
from zeus.store.check import check
from zeus.store.sql.migrations import HEAD
from zeus.store.sql.sqlite import make_file
from zeus.store.sql.store import SqlStore
from zeus.store.wait_limit import at_most

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16), default_batch_size=16)
HERE = Request(gpus=Gpus(max_watts=250.0))
ALONE = "import sys; from zeus.store import open_store; store = open_store(sys.argv[1]); "


def python(code: str, *arguments: str) -> str:
    call = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(call, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_store_lies_in_the_users_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    open_store(environ={"XDG_DATA_HOME": str(tmp_path / "data")}).close()
    assert (tmp_path / "data" / "zeus" / "zeus.db").exists()
    open_store(environ={"XDG_DATA_HOME": "/nowhere", "ZEUS_STORE": f"sqlite:///{tmp_path}/mine.db"}).close()
    assert (tmp_path / "mine.db").exists()


@pytest.mark.parametrize("url", ["zeus.db", "/tmp/zeus.db", "mysql://host/zeus", "sqlite://", "sqlite:///:memory:"])
def test_what_is_no_store_is_refused_with_what_is(url: str) -> None:
    with pytest.raises(InputError, match="give "):
        open_store(url)


def test_a_token_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a service") as told:
        open_store("http://:secret@host:5930")
    assert "secret" not in str(told.value)


MOUNTS = """/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/me/fast\\040disk xfs rw 0 0
//server/share /mnt/share cifs rw 0 0
me@host: /mnt/ssh fuse.sshfs rw 0 0
"""
REMOTE = ["fuse.ceph-fuse", "fuse.ceph", "wekafs", "9p", "virtiofs", "afs", "lustre", "fuse.bindfs", "a-new-one"]


@pytest.mark.parametrize("path", ["/home/me/zeus.db", "/mnt/share/zeus.db", "/mnt/ssh/a/zeus.db"])
def test_sqlite_on_a_network_file_system_is_refused_with_the_reason(path: str) -> None:
    with pytest.raises(InputError, match=r"is on a network file system.* Set ZEUS_STORE to"):
        refuse_network(Path(path), MOUNTS)
    with pytest.raises(InputError, match=r"is on a network file system.* Give a file on"):
        refuse_network(Path(path), MOUNTS, given=True)


def test_a_message_about_a_store_names_what_chose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_STORE", "nonsense")
    with pytest.raises(InputError, match=r"^ZEUS_STORE='nonsense': give"):
        resolve()
    with pytest.raises(InputError, match=r"^store='other': give"):
        resolve("other")
    (tmp_path / "file").touch()
    bad, folder = f"sqlite:///{tmp_path}/file/zeus.db", f"sqlite:///{tmp_path}"
    for choose, advice in ((bad, "Set ZEUS_STORE to another file"), ("", "Give another file")):
        monkeypatch.setenv("ZEUS_STORE", choose)
        with pytest.raises(InputError, match=advice):
            open_store(bad)
        assert advice in (check(bad).why_not or "")
    for choose, advice in ((folder, "Check ZEUS_STORE"), ("", "Check the address of the store")):
        monkeypatch.setenv("ZEUS_STORE", choose)
        with pytest.raises(InputError, match=advice):
            open_store(folder)


def test_a_name_that_no_file_system_takes_is_refused_before_anything_is_asked_of_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        open_store(f"sqlite:///{tmp_path}/{'x' * 300}.db")
    long = log_folder("日" * 200, "life", {"ZEUS_LOG_DIR": str(tmp_path)})
    long.mkdir(parents=True)
    assert long != log_folder("日" * 199, "life", {"ZEUS_LOG_DIR": str(tmp_path)})


def test_a_file_that_was_emptied_is_found_by_whoever_only_looks(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    open_store(f"sqlite:///{path}").close()
    path.write_bytes(b"")
    why_not = check(f"sqlite:///{path}").why_not
    with pytest.raises(InputError) as refused:
        open_store(f"sqlite:///{path}")
    assert why_not == str(refused.value) and "is empty (0 bytes)" in why_not


def test_a_damaged_file_is_no_store_that_is_away(tmp_path: Path) -> None:
    path, url = tmp_path / "zeus.db", f"sqlite:///{tmp_path}/zeus.db"
    store = open_store(url)
    store.register(SPEC)
    store.ask("asr", HERE, first_size)
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"CREATE TABLE zeus_places", b"CREATE \xffABLE zeus_places"))
    with pytest.raises(InputError):
        open_store(url)
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE zeus_trials SET trial = '{bad'")
        file.commit()
    with (
        closing(open_store(url)) as store,
        pytest.raises(InputError, match=r"job 'asr' cannot be exported\. .* is not JSON"),
    ):
        store.export()
    path.write_bytes(whole[:4096] + b"\x55" * (len(whole) - 4096))
    with pytest.raises(InputError, match=r"damaged|cannot be opened"), closing(open_store(url)) as store:
        store.job("asr")


@pytest.mark.parametrize("kind", REMOTE)
def test_only_file_systems_that_are_known_to_be_local_are_taken(kind: str) -> None:
    with pytest.raises(InputError, match=rf"\({kind} at /data\)"):
        refuse_network(Path("/data/zeus.db"), f"/dev/sda1 / ext4 rw 0 0\nx /data {kind} rw 0 0\n")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"])
def test_local_ones_are(kind: str) -> None:
    refuse_network(Path("/data/zeus.db"), f"x / nfs4 rw 0 0\nx /data {kind} rw 0 0\n")


@pytest.mark.parametrize("path", ["/zeus.db", "/home/me/fast disk/zeus.db", "/homes/zeus.db"])
def test_a_local_disk_is_fine_wherever_it_is_mounted(path: str) -> None:
    refuse_network(Path(path), MOUNTS)
    assert mount_of(Path(path), "") is None


def test_a_file_that_is_no_database_and_a_folder_that_cannot_be_made_are_input_errors(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to look at" * 50)
    with pytest.raises(InputError, match="cannot be opened: file is not a database"):
        open_store(f"sqlite:///{tmp_path}/text")
    with pytest.raises(InputError, match="cannot create its folder"):
        open_store(f"sqlite:///{tmp_path}/text/zeus.db")


def test_no_database_library_is_imported_before_a_store_is_opened() -> None:
    code = "import sys, zeus.store; print([m for m in ('sqlite3', 'psycopg') if m in sys.modules])"
    assert python(code) == "[]"


def test_the_file_is_in_write_ahead_mode(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/zeus.db").close()
    with sqlite3.connect(tmp_path / "zeus.db") as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()


def versions(path: Path, *, set_to: str | None = None) -> list[tuple[str]]:
    raw = sqlite3.connect(path)
    with raw:
        if set_to is not None:
            raw.execute("UPDATE zeus_version SET version_num = ?", (set_to,))
        found = raw.execute("SELECT version_num FROM zeus_version").fetchall()
    raw.close()
    return found


def indexes(path: Path) -> set[str]:
    raw = sqlite3.connect(path)
    found = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE name LIKE 'zeus_trials_by_%'")}
    raw.close()
    return found


def tables(path: Path) -> set[str]:
    raw = sqlite3.connect(path)
    found = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    raw.close()
    return found


def test_the_version_is_kept_under_a_name_of_our_own(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    open_store(f"sqlite:///{path}").close()
    assert "alembic_version" not in tables(path)
    assert versions(path) == [(HEAD,)]


def test_a_database_that_others_migrate_with_alembic_is_shared_with_them(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    raw = sqlite3.connect(path)
    with raw:
        raw.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
        raw.execute("INSERT INTO alembic_version VALUES ('ae1027a6acf')")
    store = open_store(f"sqlite:///{path}")
    assert store.names().page == []
    assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("ae1027a6acf",)]
    raw.close()
    store.close()


def test_a_store_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/zeus.db")
    store.register(SPEC)
    made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert made == dict.fromkeys(("zeus.db", "zeus.db-wal", "zeus.db-shm", "zeus.db.lock"), 384)
    store.close()


def test_a_store_that_its_owner_shares_stays_shared(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    path.touch()
    path.chmod(0o660)
    open_store(f"sqlite:///{path}").close()
    made = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    assert made["zeus.db"] == 0o660
    assert made["zeus.db.lock"] & 0o600 == 0o600


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(
        InputError, match=r"zeus\.db\.lock cannot be locked: No locks available\. Give a file on a local"
    ):
        open_store(f"sqlite:///{tmp_path}/zeus.db")


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_not_touched(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    (tmp_path / "zeus.db.lock").symlink_to(precious)
    with pytest.raises(InputError, match=r"zeus\.db\.lock is a symbolic link"):
        open_store(f"sqlite:///{tmp_path}/zeus.db")
    assert precious.read_text() == "years of work"


def test_an_empty_file_becomes_a_store_unless_one_was_kept_in_it(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    path.touch()
    store = open_store(f"sqlite:///{path}")
    store.register(SPEC)
    store.close()
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(InputError, match=r"is empty \(0 bytes\), but a store was kept in it. Put a backup"):
            open_store(f"sqlite:///{path}")
    assert path.stat().st_size == 0
    (tmp_path / "zeus.db.lock").unlink()
    open_store(f"sqlite:///{path}").close()  # its owner said so


class Overtaken(type(Path())):  # type: ignore[misc]
    """A path beside whose file others make their store just when somebody looks for its lock."""

    def with_name(self, name: str) -> Path:
        if name.endswith(".lock"):
            open_store(f"sqlite:///{self}").close()
        return Path(self).with_name(name)


def test_a_file_in_which_another_process_makes_its_store_meanwhile_is_taken(tmp_path: Path) -> None:
    path = Overtaken(tmp_path / "zeus.db")
    make_file(path)
    assert (tmp_path / "zeus.db.lock").stat().st_size > 0
    assert versions(tmp_path / "zeus.db") == [(HEAD,)]


def test_what_others_have_not_written_back_yet_is_not_lost_with_an_empty_file(tmp_path: Path) -> None:
    path, log = tmp_path / "zeus.db", tmp_path / "zeus.db-wal"
    path.touch()
    log.write_bytes(b"x" * 4096)
    with pytest.raises(InputError, match="a store was kept in it"):
        open_store(f"sqlite:///{path}")
    assert log.stat().st_size == 4096


def test_a_store_that_somebody_else_upgrades_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    with (tmp_path / "zeus.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with at_most(0.05), pytest.raises(StoreError, match="is being upgraded by another process"):
            open_store(f"sqlite:///{tmp_path}/zeus.db")
    open_store(f"sqlite:///{tmp_path}/zeus.db").close()


def test_a_store_of_a_newer_zeus_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    open_store(f"sqlite:///{path}").close()
    versions(path, set_to="0099")
    with pytest.raises(InputError, match=r"the store is of version 0099.*written by a newer Zeus"):
        open_store(f"sqlite:///{path}")
    assert versions(path) == [("0099",)]


def test_a_database_that_fails_is_an_error_of_ours_that_names_it(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/zeus.db")
    raw = sqlite3.connect(tmp_path / "zeus.db")
    raw.execute("DROP TABLE zeus_trials")
    raw.close()
    store.register(SPEC)
    with pytest.raises(StoreError, match=r"the store sqlite:.*zeus\.db did not answer: no such table"):
        store.ask("asr", HERE, first_size)
    store.close()


def test_a_store_whose_maker_was_killed_halfway_is_made_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "zeus.db"
    code = (
        "import functools, os, signal, sqlite3, sys; from zeus.store import open_store\n"
        "class Dying(sqlite3.Connection):\n"
        "    def execute(self, sql):\n"
        "        return os.kill(os.getpid(), signal.SIGKILL) if 'CREATE INDEX' in sql else super().execute(sql)\n"
        "sqlite3.connect = functools.partial(sqlite3.connect, factory=Dying)\n"
        "open_store(sys.argv[1])"
    )
    died = subprocess.run([sys.executable, "-c", code, f"sqlite:///{path}"], check=False, timeout=PATIENCE_SECONDS)
    assert died.returncode == -9
    store = open_store(f"sqlite:///{path}")
    assert store.names().page == []
    assert len(indexes(path)) == 3
    store.close()


def test_a_store_that_others_hold_for_too_long_is_said_to_be_busy(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/zeus.db", busy_seconds=0.01)
    raw = sqlite3.connect(tmp_path / "zeus.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    assert store.names().page == []  # reading goes on
    with pytest.raises(StoreError, match="did not answer: database is locked"):
        store.register(SPEC)
    raw.execute("ROLLBACK")
    raw.close()
    assert store.register(SPEC).id == "asr"
    store.close()
