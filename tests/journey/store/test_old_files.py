"""What Zeus 0.1 has written and what its clients say is understood: its store, its export, its requests."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from support.paths import GOLDEN_FILES
from support.store_places import SPEC, Place, ask
from zeus.errors import NotKnown
from zeus.job import Ending, Gpus, Kept, Outcome, Pardoned, Profiled
from zeus.jobs.local import LocalJob
from zeus.jobs.report import full, report
from zeus.profile import ProfileKey
from zeus.service.app import create
from zeus.store import MemoryStore, Store, open_store

EXPORT = (GOLDEN_FILES / "export_0_1.jsonl").read_text().splitlines()
V100, V100S = Gpus("V100", 1, 250.0), Gpus("V100", 2, 500.0)
DONE = Outcome(ending=Ending.CONVERGED, joules=5000.0, seconds=40.0, epochs=4, metric=0.9)
NOW = 1_794_800_404.0  # while the open trial of the old store is still leased


@pytest.fixture
def migrated(tmp_path: Path) -> Store:
    """The store that 0.1 has left, opened by this Zeus."""
    path = tmp_path / "old.db"
    raw = sqlite3.connect(path)
    raw.executescript((GOLDEN_FILES / "store_0_1.sql").read_text())
    raw.close()
    return open_store(f"sqlite:///{path}", wall=lambda: NOW)


def facts_hold(store: Store) -> None:
    """What 0.1 knew of its two jobs."""
    asr = store.trials("asr")
    assert [kept.trial.number for kept in asr] == list(range(1, 9))
    assert [kept.trial.ask.eta for kept in asr] == [0.5] * 4 + [0.8] * 4  # changed after sequence 9
    assert [kept.trial.ask.gpus for kept in asr] == [V100] * 4 + [V100S] * 2 + [V100] * 2
    assert [kept.trial.ending.value for kept in asr] == [
        *("converged", "crashed", "stopped", "converged", "converged", "lost", "not_converged", "open")
    ]
    lost = asr[5].trial.outcome
    assert lost is not None and (lost.joules, lost.epochs) == (100.0, 1)
    assert [kept.told.joules for kept in asr if kept.told is not None] == [
        *(6000.0, None, 1400.0, 6100.0, 7000.0, 100.0, 15000.0, 100.0)
    ]
    assert all(not kept.told.stretches and not kept.told.curve for kept in asr if kept.told is not None)
    assert [event.sequence for event in store.facts("asr")] == list(range(1, 18))
    assert store.notes("asr") == [
        Profiled(sequence=2, batch_size=16, gpu_model="V100", joules=1500.0, seconds=12.0, max_watts=250.0),
        Pardoned(sequence=16, batch_size=8),
    ]
    assert [(job.revision, job.spec.eta_knob) for job in store.revisions("asr")] == [(1, 0.5), (2, 0.8)]
    job = store.job("asr")
    assert (job.first, job.spec.baseline_every, job.spec.mab_seed, job.spec.include) == (1, 0, 7, ("gpu",))
    profile = store.get_profile(ProfileKey("asr", 16, "V100", 1))
    assert profile is not None and [one.limit_watts for one in profile.slices] == [250.0, 150.0]
    assert [kept.trial.ask.eta for kept in store.trials("images")] == [0.5] * 3


def works(store: Store) -> None:
    """It is asked, told and looked at like any other."""
    for job_id in ("asr", "images"):
        job = LocalJob(store, job_id)
        last = store.trials(job_id)[-1].trial
        trial = job.ask(V100)
        assert (trial.number, trial.ask.eta) == (last.number + 1, job.spec.eta_knob)
        assert job.progress(trial.number, replace(DONE, ending=Ending.LOST, epochs=1), 1.0)
        assert job.tell(trial.number, DONE).ending is Ending.CONVERGED
        shown = full(report(store, job_id))
        assert shown["trials"] == last.number + 1
        assert shown["remark"] is None
        json.dumps(shown, allow_nan=False)
    assert store.tell("asr", 6, DONE).ending is Ending.CONVERGED  # the lost one of 0.1 tells late
    assert store.tell("asr", 8, DONE).ending is Ending.CONVERGED  # and the open one in time


# ---------------------------------------------------------------------- the store


def test_a_store_of_0_1_is_brought_up_to_date_with_all_that_is_in_it(migrated: Store) -> None:
    facts_hold(migrated)
    assert migrated.settled("images") == V100S
    assert migrated.settled("asr") is None


def test_a_store_of_0_1_goes_on(migrated: Store) -> None:
    works(migrated)


def test_a_store_of_0_1_is_brought_up_to_date_once(migrated: Store, tmp_path: Path) -> None:
    lines = migrated.export()
    again = open_store(f"sqlite:///{tmp_path}/old.db", wall=lambda: NOW)
    assert again.export() == lines
    facts_hold(again)


@pytest.mark.parametrize("anew", ["reset", "forget"])
def test_numbers_go_on_from_where_0_1_was(migrated: Store, anew: str) -> None:
    spec = migrated.job("asr").spec
    if anew == "reset":
        migrated.restart("asr")
    else:
        migrated.forget("asr")
        migrated.register(spec)
    assert migrated.job("asr").first == 9
    trial = LocalJob(migrated, "asr").ask(V100)
    assert trial.number == 9
    before = migrated.export(["asr"])
    for number in (6, 8):
        with pytest.raises(NotKnown, match=f"no trial {number}"):
            migrated.tell("asr", number, DONE)
    assert migrated.export(["asr"]) == before


# ---------------------------------------------------------------------- the export


def test_an_export_of_0_1_is_taken_in_by_every_store(place: Place) -> None:
    store = place.open()
    assert store.import_lines(EXPORT) == ["asr", "images"]
    facts_hold(store)
    works(store)


def test_every_store_takes_the_same_facts_from_an_export_of_0_1(place: Place, migrated: Store) -> None:
    store = place.open()
    store.import_lines(EXPORT)
    assert store.export() == migrated.export()


# ---------------------------------------------------------------------- its clients

OUTCOME = {"kind", "version", "ending", "joules", "seconds", "epochs", "metric", "next_epoch_cost"}
TRIAL = {"kind", "version", "ask", "decision", "asked", "lost", "ended", "outcome"}
ASK = {"number", "recurrence", "attempt", "gpu_model", "max_watts", "last"}
DECISION = {"batch_size", "phase", "reason", "cost_limit"}
JOB = {"id", "policy_version", "revision", "since", "at", "excused", "etas", "spec", "generation"}
SPEC_KEYS = set(json.loads(EXPORT[0])["spec"])
CARDS = {"gpu_name": "V100", "gpus": 2, "max_watts": 500.0}
TOLD = {"kind": "outcome", "version": 1, "ending": "converged", "joules": 5000.0, "seconds": 40.0, "epochs": 4}
OLD_SPEC = {**json.loads(EXPORT[0])["spec"], "job_id": "speech"}


class OldClient:
    """Zeus 0.1: it says nothing of the wire, and refuses what is not of version 1."""

    def __init__(self, store: Store) -> None:
        self.http = TestClient(create(store))

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        told = self.http.request(method, f"/api/v1{path}", json=body, params=query)
        assert told.status_code == status, told.text
        return told.json()


def is_trial_1(said: dict[str, Any], more: frozenset[str] = frozenset()) -> None:
    assert (said["kind"], said["version"]) == ("trial", 1)
    assert set(said) - more == TRIAL
    assert (set(said["ask"]), set(said["decision"])) == (ASK, DECISION)
    assert said["outcome"] is None or set(said["outcome"]) == OUTCOME - {"kind", "version"}
    assert (said["ask"]["gpu_model"], said["ask"]["max_watts"]) == ("2 x V100", 500.0)


def test_a_client_of_0_1_hears_version_1(place: Place) -> None:
    call = OldClient(place.open())
    for said in (call("POST", "/jobs", {"spec": OLD_SPEC}, 201), call("GET", "/jobs/speech/registration")):
        assert set(said) == JOB
        assert (said["spec"]["version"], set(said["spec"])) == (1, SPEC_KEYS)
    asked = call("POST", "/jobs/speech/ask", {**CARDS, "recurrence": None, "max_tries": 20}, 201)
    is_trial_1(asked)
    of = f"/jobs/speech/trials/{asked['ask']['number']}"
    so_far = {**TOLD, "ending": "lost", "epochs": 1}
    beat = call("POST", f"{of}/heartbeat", {"so_far": so_far, "next_cost": 100.0})
    assert set(beat) == {"trial", "go_on"} and beat["go_on"] is True
    is_trial_1(beat["trial"])
    shown = call("GET", of)
    is_trial_1(shown, frozenset({"leased_until", "so_far"}))
    assert (set(shown["so_far"]), shown["so_far"]["version"]) == (OUTCOME, 1)
    ended = call("POST", f"{of}/tell", {**TOLD, "metric": 0.9, "next_epoch_cost": None})
    is_trial_1(ended)
    assert (ended["outcome"]["ending"], ended["outcome"]["joules"]) == ("converged", 5000.0)
    is_trial_1(call("GET", of), frozenset({"leased_until", "so_far"}))


def test_a_client_of_0_1_hears_version_1_of_what_a_newer_one_has_told(place: Place) -> None:
    """Baselines, stretches and curves are of version 2."""
    store = place.open()
    call = OldClient(store)
    call("POST", "/jobs", {"spec": OLD_SPEC}, 201)
    store.register(replace(store.job("speech").spec, baseline_every=1))
    asked = call("POST", "/jobs/speech/ask", CARDS, 201)
    is_trial_1(asked)
    assert asked["decision"]["phase"] == "default"
    number = asked["ask"]["number"]
    rich = {**TOLD, "version": 2, "stretches": [["epoch", 250.0, True, 4, 5000.0, 40.0, 1, 1.0, 1.0]]}
    newer = call.http.post(f"/api/v1/jobs/speech/trials/{number}/tell", json=rich, headers={"Zeus-Wire": "2"}).json()
    assert newer["version"] == 2 and newer["outcome"]["stretches"] == rich["stretches"]
    assert newer["decision"]["phase"] == "baseline"
    assert (newer["ask"]["gpus"], newer["ask"]["eta"]) == ({"model": "V100", "count": 2, "max_watts": 500.0}, 0.5)
    is_trial_1(call("GET", f"/jobs/speech/trials/{number}"), frozenset({"leased_until", "so_far"}))
    assert set(call("GET", "/jobs/speech/registration")["spec"]) == SPEC_KEYS


def test_a_client_of_0_1_finds_the_profiles_that_it_keeps(place: Place) -> None:
    call = OldClient(place.open())
    call("POST", "/jobs", {"spec": OLD_SPEC}, 201)
    profile, key = json.loads(EXPORT[-1])["profile"], {"batch_size": 16, "gpu_model": "V100", "gpu_count": 1}
    assert call("PUT", "/jobs/speech/profiles", profile, **key) == profile
    assert call("GET", "/jobs/speech/profiles", **key) == profile
    (one,) = call("GET", "/jobs/speech/profiles/all")
    assert {name: one["profile"][name] for name in profile} == profile


# ---------------------------------------------------------------------- late tells of an earlier life


def _reset(store: Store) -> None:
    store.restart("asr")


def _forget(store: Store) -> None:
    store.forget("asr")
    store.register(SPEC)


def _both(store: Store) -> None:
    _reset(store)
    ask(store)
    _forget(store)
    _reset(store)


@pytest.mark.parametrize("again", [_reset, _forget, _both])
@pytest.mark.parametrize("asked_again", [False, True])
def test_a_late_tell_of_an_earlier_life_is_not_known_and_changes_nothing(
    place: Place, again: Callable[[Store], None], asked_again: bool
) -> None:
    store = place.open()
    store.register(SPEC)
    old = [ask(store).number, ask(store).number]
    again(store)
    if asked_again:
        assert ask(store).number > old[-1]
    before, kept = store.export(), place.open().trials("asr")
    for number in old:
        for late in (DONE, Outcome(ending=Ending.LOST), Outcome(ending=Ending.CRASHED)):
            with pytest.raises(NotKnown):
                place.open().tell("asr", number, late)
        for verb in (store.renew, store.trial):
            with pytest.raises(NotKnown):
                verb("asr", number)
    assert store.export() == before
    assert place.open().trials("asr") == kept


def test_numbers_go_on_when_a_life_is_carried_elsewhere(place: Place) -> None:
    store, elsewhere = place.open(), MemoryStore(place.clock.wall)
    store.register(SPEC)
    ask(store)
    _reset(store)
    assert ask(store).number == 2
    elsewhere.import_lines(store.export())
    numbers = [one.trial.number for one in _kept(elsewhere)]
    assert (numbers, elsewhere.job("asr").first, ask(elsewhere).number) == ([2], 2, 3)
    with pytest.raises(NotKnown):
        elsewhere.tell("asr", 1, DONE)


def _kept(store: Store) -> list[Kept]:
    return store.trials("asr")
