"""The drill: a store is backed up while trainings go on, lost, and restored, on SQLite and Postgres."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path

import pytest

from support.store_places import HERE, SPEC, Place, ask, sound
from support.store_worker import CONVERGED
from zeus.client.local import LocalJobs
from zeus.errors import AlreadyDone, InputError
from zeus.job import Ending, Outcome, replace
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.service.auth import new
from zeus.store import MemoryStore, Store
from zeus.store.actor import Actor, acting
from zeus.store.sql.backup import check
from zeus.store.tokens import Scope

AT = "2024-01-01T00:00:00.000000+00:00"
ALICE = Actor("alice", "10.0.0.7", owner="vision/alice", team="vision")


def fill(store: Store) -> None:
    """Jobs of everything: revised, paused, forgotten, with trials that ended, crashed and run."""
    with acting(ALICE):
        store.register(SPEC)
        store.register(replace(SPEC, job_id="gone"))
    store.forget("gone")
    store.register(replace(SPEC, eta_knob=0.9))
    store.tell("asr", ask(store).number, CONVERGED)
    store.tell("asr", ask(store).number, Outcome(ending=Ending.CRASHED))
    store.excuse("asr", [2])
    store.pardon("asr", 8)
    store.set_client_gpus("asr", HERE.gpus)
    store.profiled("asr", 16, HERE.gpus, joules=1.0, seconds=2.0)
    store.put_profile(
        ProfileKey("asr", 16, "V100", 1), PowerProfile.of([LimitSlice(250.0, 10, 1.0, 200.0)], limits=[250])
    )
    store.logs.keep("asr", 1, "epoch 1 done\n")
    store.tokens.add(new("ci", Scope.ADMIN, AT, team="vision")[0])
    ask(store)  # runs


def everything(store: Store) -> object:
    return (
        store.export(),
        store.pulse(),
        store.audit.read(),
        store.tokens.all(),
        store.logs.find("asr", 1),
        store.client_gpus("asr"),
        store.trials("asr", running=True),
    )


@pytest.mark.parametrize("way", ["within a kind", "into memory", "out of memory"])
def test_a_store_that_is_lost_comes_back_as_it_was(place: Place, tmp_path: Path, way: str) -> None:
    store: Store = MemoryStore(place.clock.wall) if way == "out of memory" else place.open()
    other: Store = MemoryStore(place.clock.wall) if way == "into memory" else place.another()
    file = tmp_path / "zeus.backup"
    fill(store)
    told = store.care.backup(file)
    assert (told.rows["zeus_jobs"], told.rows["zeus_trials"], told.rows["zeus_tokens"]) == (1, 3, 1)
    before = everything(store)
    store.tell("asr", 3, CONVERGED)  # after the backup: lost with the store
    assert other.care.restore(file) == told == check(file)
    assert everything(other) == before
    assert other.tell("asr", 3, CONVERGED).ending is Ending.CONVERGED, "its client tells again"
    assert other.register(replace(SPEC, job_id="gone")).first == 1
    assert ask(other).number == 4
    sound(other)
    assert LocalJobs(other).full("asr")["trials"] == 4
    with pytest.raises(AlreadyDone, match="the store is not empty"):
        other.care.restore(file)


def test_a_backup_that_is_cut_changed_or_none_restores_nothing(place: Place, tmp_path: Path) -> None:
    store, file = place.open(), tmp_path / "zeus.backup"
    fill(store)
    store.care.backup(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    whole, text = file.read_bytes(), gzip.decompress(file.read_bytes())
    lines, head = text.splitlines(keepends=True), json.loads(text.splitlines()[0])
    newer = json.dumps({**head, "schema": "9999"}).encode() + b"\n"
    wrong = {
        "cut": whole[: len(whole) // 2],
        "half": gzip.compress(b"".join(lines[: len(lines) // 2])),
        "changed": gzip.compress(text.replace(b"epoch 1 done", b"epoch 2 done")),
        "longer": gzip.compress(text + lines[-1]),
        "none": b"hello",
        "newer": gzip.compress(newer + b"".join(lines[1:])),
    }
    empty = place.another()
    for name, data in wrong.items():
        bad = tmp_path / name
        bad.write_bytes(data)
        with pytest.raises(InputError, match=r"backup|damaged|newer"):
            empty.care.restore(bad)
        assert empty.names().total == 0, name
    with pytest.raises(InputError, match="cannot create"):
        store.care.backup(file)
    assert file.read_bytes() == whole


def test_a_status_counts_what_there_is(place: Place) -> None:
    store = place.open()
    fill(store)
    told = store.care.status()
    assert (told["rows"]["jobs"], told["rows"]["trials"], told["running"], told["rows"]["logs"]) == (1, 3, 1, 1)
    assert told["bytes"] > 1000
    assert store.care.trouble() is None
