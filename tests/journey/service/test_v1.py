"""`/api/v1` as a program sees it: what each route takes, answers and changes."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from support.paths import ROOT
from zeus.client.policy_states import PolicyStateCache
from zeus.job import Ending, Outcome, Target
from zeus.job.wire import to_json
from zeus.profile import LimitSlice, PowerProfile
from zeus.service.app import Settings, create
from zeus.service.overview import Overview
from zeus.store import MemoryStore
from zeus.store.address import log_file, log_folder
from zeus.store.sql import rows

SPEC = {"job_id": "asr", "job_id_prefix": "asr", "batch_sizes": [8, 16, 32], "default_batch_size": 16, "eta_knob": 1.0}
PLACE = {"gpu_name": "V100", "gpus": 2, "max_watts": 500.0}
END = {"ending": "converged", "joules": 100.0, "seconds": 1.0, "epochs": 4, "metric": 0.9}
PROFILE = to_json(
    PowerProfile.of([LimitSlice(250.0, 10, 1.0, 200.0), LimitSlice(150.0, 10, 1.2, 150.0)], limits=[250, 150, 100])
)
ASR = "/api/v1/jobs/asr"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> TestClient:
    client = TestClient(create(store))
    assert client.post("/api/v1/jobs", json={"spec": SPEC}).status_code == 201
    return client


def ask(client: TestClient, **more: Any) -> dict[str, Any]:
    answer = client.post(f"{ASR}/ask", json={**PLACE, **more})
    assert answer.status_code == 201, answer.text
    trial: dict[str, Any] = answer.json()
    return trial


def test_a_job_is_made_found_and_revised(client: TestClient) -> None:
    found = client.post("/api/v1/jobs", json={"spec": {"kind": "job", "version": 2, **SPEC}})
    assert (found.status_code, found.json()["revision"]) == (200, 1)
    revised = client.patch(ASR, json={"beta_knob": 3.0, "batch_sizes": [16, 32]}).json()
    assert (revised["revision"], revised["spec"]["beta_knob"], revised["spec"]["eta_knob"]) == (2, 3.0, 1.0)
    assert client.get(f"{ASR}/registration").json() == revised
    assert client.patch(ASR, json={"default_batch_size": 7}).status_code == 422
    assert client.patch(ASR, json={"job_id": "other"}).status_code == 422
    assert client.delete(ASR).status_code == 204
    assert client.delete(ASR).status_code == 404


def test_a_job_is_reset_in_one_step_unless_it_has_changed(client: TestClient) -> None:
    pulse = client.get("/api/v1/pulse").json()["asr"]
    ask(client)
    refused = client.post(f"{ASR}/reset", json={"pulse": pulse})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_done")
    assert client.get(f"{ASR}/trials").json()["total"] == 1
    pulse = client.get("/api/v1/pulse").json()["asr"]
    assert client.post(f"{ASR}/reset", json={"pulse": pulse}).json()["spec"]["eta_knob"] == 1.0
    assert client.get(f"{ASR}/trials").json()["total"] == 0
    assert client.post("/api/v1/jobs/lm/reset", json={}).status_code == 404


def test_jobs_are_listed_in_pages_and_by_what_their_names_hold(client: TestClient) -> None:
    for name in ("lm", "Vision", "asr-large"):
        client.post("/api/v1/jobs", json={"spec": {**SPEC, "job_id": name}})

    def names(**query: Any) -> tuple[int, list[str]]:
        told = client.get("/api/v1/jobs", params=query).json()
        return told["total"], [row["job"] for row in told["jobs"]]

    assert names() == (4, ["Vision", "asr", "asr-large", "lm"])
    assert names(offset=1, limit=2) == (4, ["asr", "asr-large"])
    assert names(q="VIS") == (1, ["Vision"])
    assert names(offset=9) == (4, [])
    assert client.get("/api/v1/jobs", params={"limit": 0}).status_code == 422


def test_an_ask_repeated_with_its_key_opens_one_trial_also_at_the_same_moment(
    client: TestClient, store: MemoryStore
) -> None:
    key = {"Idempotency-Key": "run-17"}
    with ThreadPoolExecutor(6) as crowd:
        answers = list(crowd.map(lambda _: client.post(f"{ASR}/ask", json=PLACE, headers=key), range(12)))
    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert store.count("asr") == 1
    assert client.post(f"{ASR}/ask", json=PLACE, headers={"Idempotency-Key": "bad key"}).status_code == 422
    assert ask(client)["ask"]["number"] == 2


def test_a_tell_repeated_has_one_effect_and_another_is_refused_with_what_is_stored(
    client: TestClient, store: MemoryStore
) -> None:
    number = ask(client)["ask"]["number"]
    first = client.post(f"{ASR}/trials/{number}/tell", json=END)
    assert (first.status_code, first.json()["outcome"]["joules"]) == (200, 100.0)
    assert client.post(f"{ASR}/trials/{number}/tell", json=END).json() == first.json()
    other = client.post(f"{ASR}/trials/{number}/tell", json={**END, "joules": 7.0})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "already_done")
    assert "joules=100.0" in other.json()["error"]["message"]
    assert len(store.log("asr").events) == 2


def test_a_heartbeat_renews_and_says_whether_to_go_on(client: TestClient) -> None:
    client.post(f"{ASR}/trials/{ask(client)['ask']['number']}/tell", json=END)
    number = ask(client)["ask"]["number"]
    so_far = {"ending": "lost", "joules": 40.0, "seconds": 1.0, "epochs": 1}

    def beat(body: dict[str, Any]) -> Any:
        return client.post(f"{ASR}/trials/{number}/heartbeat", json=body)

    assert beat({}).json()["go_on"] is True
    assert beat({"so_far": so_far, "next_cost": 80.0}).json()["go_on"] is True
    assert beat({"so_far": so_far, "next_cost": 201.0}).json()["go_on"] is False
    assert beat({"next_cost": 80.0}).status_code == 422
    assert beat({"so_far": {**so_far, "ending": "converged"}}).status_code == 422
    kept = client.get(f"{ASR}/trials/{number}").json()
    assert (kept["so_far"]["joules"], kept["leased_until"] is not None) == (40.0, True)


def test_trials_come_in_pages_and_can_be_filtered(client: TestClient) -> None:
    for _ in range(3):
        client.post(f"{ASR}/trials/{ask(client)['ask']['number']}/tell", json=END)
    ask(client)

    def numbers(**query: Any) -> tuple[int, list[int]]:
        told = client.get(f"{ASR}/trials", params=query).json()
        return told["total"], [row["number"] for row in told["trials"]]

    assert numbers() == (4, [1, 2, 3, 4])
    assert numbers(offset=1, limit=2) == (4, [2, 3])
    assert numbers(ending="open") == (1, [4])
    assert numbers(ending="converged", limit=2) == (3, [1, 2])
    assert numbers(recurrence=2) == (1, [2])
    assert numbers(batch_size=99) == (0, [])
    shown = client.get(ASR).json()
    assert client.get(f"{ASR}/trials").json()["trials"] == shown["tries"]
    beliefs = client.get(f"{ASR}/beliefs").json()
    assert (beliefs["gpu_model"], beliefs["sizes"]) == ("2 x V100", shown["sizes"])


def test_a_run_that_the_service_knew_nothing_of_is_reported_once(client: TestClient, store: MemoryStore) -> None:
    body = {"spec": {**SPEC, "job_id": "lm"}, **PLACE, "batch_size": 16, "key": "a1", "outcome": END}
    first = client.post("/api/v1/jobs/lm/reports", json=body)
    assert (first.status_code, first.json()["outcome"]["ending"]) == (201, "converged")
    assert client.post("/api/v1/jobs/lm/reports", json=body).json() == first.json()
    client.patch("/api/v1/jobs/lm", json={"eta_knob": 0.2})
    assert client.post("/api/v1/jobs/lm/reports", json={**body, "key": "a2"}).status_code == 201
    assert (store.count("lm"), store.job("lm").spec.eta_knob) == (2, 0.2)  # a late report revises nothing
    assert client.post("/api/v1/jobs/asr/reports", json=body).status_code == 422
    assert client.post("/api/v1/jobs/lm/reports", json={**body, "batch_size": 7}).status_code == 422


def test_a_job_that_was_removed_does_not_come_back_by_a_late_report(client: TestClient, store: MemoryStore) -> None:
    body = {"spec": SPEC, **PLACE, "batch_size": 16, "key": "a1", "outcome": END}
    life = client.get(f"{ASR}/registration").json()["generation"]
    assert client.delete(ASR).status_code == 204
    for query in ({}, {"life": life}):  # version 0.1 does not say which life it was for
        late = client.post(f"{ASR}/reports", json=body, params=query)
        assert (late.status_code, "asr" in store.pulse()) == (404, False), late.text
    assert client.post(f"{ASR}/reports", json=body, params={"life": ""}).status_code == 201  # that never saw the job
    assert store.count("asr") == 1


def test_a_late_report_of_a_life_before_is_not_taken(client: TestClient, store: MemoryStore) -> None:
    body = {"spec": SPEC, **PLACE, "batch_size": 16, "key": "a1", "outcome": END}
    life = client.get(f"{ASR}/registration").json()["generation"]
    assert client.post(f"{ASR}/reports", json=body, params={"life": life}).status_code == 201
    assert client.post(f"{ASR}/reset", json={}).status_code == 200
    again = client.post(f"{ASR}/reports", json=body, params={"life": life})  # its answer was not heard the first time
    assert (again.status_code, store.count("asr")) == (404, 0)


def test_a_late_report_counts_for_the_target_that_it_ran_for(client: TestClient, store: MemoryStore) -> None:
    body = {"spec": {**SPEC, "target_metric": 0.1}, **PLACE, "batch_size": 16, "key": "a1", "outcome": END}
    assert client.post(f"{ASR}/reports", json=body).status_code == 201
    (kept,) = store.trials("asr")
    assert (kept.trial.ask.target, kept.trial.ask.is_for(store.job("asr").spec)) == (Target(0.1), False)


def test_a_trial_is_meant_by_its_id_where_one_is_given(client: TestClient, store: MemoryStore) -> None:
    ask(client)
    trial_id = store.trial("asr", 1).trial.id
    one = f"{ASR}/trials/1"
    for wrong in ({"trial_id": "0123456789abcdef"}, {"trial_id": "x" * 99}):
        status = {client.get(one, params=wrong).status_code}
        status |= {client.post(f"{one}/tell", json=END, params=wrong).status_code}
        status |= {client.post(f"{one}/heartbeat", json={}, params=wrong).status_code}
        assert status == ({404} if len(wrong["trial_id"]) == 16 else {422})
    assert store.trial("asr", 1).trial.ending is Ending.OPEN
    assert client.post(f"{one}/heartbeat", json={}, params={"trial_id": trial_id}).status_code == 200
    assert client.post(f"{one}/tell", json=END).status_code == 200  # as version 0.1 tells it


def test_knowledge_is_told_of_the_trial_that_is_meant_or_not_at_all(client: TestClient, store: MemoryStore) -> None:
    client.post(f"{ASR}/profiled", json={**PLACE, "batch_size": 16, "joules": 3.0, "seconds": 1.0})
    ask(client)
    path = f"{ASR}/trials/1/knowledge"
    mine = client.get(path, params={"trial_id": store.trial("asr", 1).trial.id})
    assert (mine.status_code, mine.json()["epoch"]) == (200, [3.0, 1.0])
    assert client.get(path).json() == mine.json()  # as version 0.1 asks
    former = client.get(path, params={"trial_id": "0123456789abcdef"})  # as of a store before a backup was restored
    assert former.status_code == 404, former.text


def test_what_a_job_has_learnt_is_voided_only_if_that_is_asked_for(client: TestClient) -> None:
    number = ask(client)["ask"]["number"]
    client.post(f"{ASR}/trials/{number}/tell", json=END)
    known = client.get(ASR).json()["sizes"]
    typo = {"target_metric": 9.0}
    for answer in (client.patch(ASR, json=typo), client.post("/api/v1/jobs", json={"spec": {**SPEC, **typo}})):
        assert answer.status_code == 409
        assert "1 trial does not count any more" in answer.json()["error"]["message"]
    assert client.patch(ASR, json=typo, params={"revise": "true"}).json()["spec"]["target_metric"] == 9.0
    assert client.get(ASR).json()["sizes"] != known
    assert client.patch(ASR, json={"target_metric": 0.5}, params={"revise": True}).status_code == 200
    assert client.get(ASR).json()["sizes"] == known


def test_profiles_are_kept_and_the_best_limit_of_each_is_said(client: TestClient) -> None:
    of = {"batch_size": 16, "gpu_model": "V100", "gpu_count": 2}
    assert client.get(f"{ASR}/profiles", params=of).status_code == 404
    wire = {"Zeus-Wire": "2"}
    assert client.put(f"{ASR}/profiles", params=of, json=PROFILE, headers=wire).json() == PROFILE
    assert client.get(f"{ASR}/profiles", params=of, headers=wire).json() == PROFILE
    assert client.get(f"{ASR}/profiles", params=of).json() == PROFILE
    empty = {**of, "batch_size": 8}
    assert client.put(f"{ASR}/profiles", params=empty, json={"measurements": []}).status_code == 200
    rows = client.get(f"{ASR}/profiles/all").json()
    assert [(row["key"]["batch_size"], row["best_limit"]) for row in rows] == [(8, None), (16, 150.0)]
    epoch = {**PLACE, "batch_size": 16, "joules": 3.0, "seconds": 1.0}
    assert client.post(f"{ASR}/profiled", json=epoch).json() == {"batch_size": 16, "gpu_model": "2 x V100"}


def test_a_size_that_crashed_is_offered_again_once_it_is_pardoned(client: TestClient) -> None:
    number = ask(client)["ask"]["number"]
    client.post(f"{ASR}/trials/{number}/tell", json={"ending": "crashed"})

    def standing() -> str:
        sizes = client.get(ASR).json()["sizes"]
        return next(str(row["standing"]) for row in sizes if row["batch_size"] == 16)

    assert standing() == "crashed"
    assert client.post(f"{ASR}/pardon", json={"batch_size": 16}).status_code == 200
    assert standing() != "crashed"


def test_what_is_exported_can_be_imported_elsewhere_and_not_twice(client: TestClient) -> None:
    ask(client)
    client.post("/api/v1/jobs", json={"spec": {**SPEC, "job_id": "lm"}})
    told = client.get("/api/v1/export")
    assert told.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in told.text.splitlines()]
    another = TestClient(create(MemoryStore()))
    assert another.post("/api/v1/import", content=told.content).json() == {"jobs": ["asr", "lm"]}
    assert another.get("/api/v1/export").text == told.text
    assert another.post("/api/v1/import", content=told.content).status_code == 409
    assert client.get("/api/v1/export", params={"job": "lm"}).text in told.text
    assert client.get("/api/v1/export", params={"job": "nobody"}).status_code == 404


def test_the_summary_adds_up_and_the_pulse_tells_who_changed(client: TestClient) -> None:
    before = client.get("/api/v1/pulse").json()
    for joules in (100.0, 60.0):
        client.post(f"{ASR}/trials/{ask(client)['ask']['number']}/tell", json={**END, "joules": joules})
    assert client.get("/api/v1/pulse").json()["asr"] != before["asr"]
    told = client.get("/api/v1/summary").json()
    assert (told["jobs"], told["trials"], told["recurrences"], told["joules"]) == (1, 2, 2, 160.0)


def test_a_trial_has_the_same_price_wherever_it_is_shown(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_PRICE_PER_KWH", "0.3")
    client.post(f"{ASR}/trials/{ask(client)['ask']['number']}/tell", json={**END, "joules": 3.6e6})
    (listed,) = client.get(f"{ASR}/trials").json()["trials"]
    assert listed["footprint"]["money"] == 0.3
    assert client.get(ASR).json()["tries"] == [listed]


def test_the_trials_that_run_are_listed_without_reading_those_that_ended(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, matches = list[str](), rows._matches
    monkeypatch.setattr(rows, "_matches", lambda trial, only: (read.append(trial), matches(trial, only))[1])
    client = TestClient(create(store))
    client.post("/api/v1/jobs", json={"spec": SPEC})
    for _ in range(20):
        client.post(f"{ASR}/trials/{ask(client)['ask']['number']}/tell", json=END)
    numbers = [ask(client)["ask"]["number"] for _ in range(3)]
    read.clear()
    told = client.get(f"{ASR}/trials?ending=open&offset=1&limit=1").json()
    assert (told["total"], [row["number"] for row in told["trials"]]) == (3, numbers[1:2])
    assert client.get(f"{ASR}/trials?ending=open&recurrence={numbers[2]}").json()["total"] == 1
    assert len(read) == len(numbers) + 1, "the index of the recurrence leaves one"


def test_the_log_of_a_trial_is_shown_where_it_lies_beside_the_store(tmp_path: Path, store: MemoryStore) -> None:
    url = f"sqlite:///{tmp_path}/zeus.db"
    client = TestClient(create(store, Settings(store_url=url)))
    client.post("/api/v1/jobs", json={"spec": SPEC})
    ask(client)
    assert client.get(f"{ASR}/trials/1/log").status_code == 404
    folder = log_folder("asr", store.job("asr").generation, {"ZEUS_STORE": url})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1.log").write_text("epoch 1 done")
    assert client.get(f"{ASR}/trials/1/log").json()["log"] == "epoch 1 done"
    assert client.get(f"{ASR}/trials/2/log").status_code == 404
    own = log_file(folder, 1, store.trial("asr", 1).trial.id)  # as another trial of this number has left a log
    own.write_text("of this trial")
    assert client.get(f"{ASR}/trials/1/log").json()["log"] == "of this trial"
    assert (folder / "1.log").read_text() == "epoch 1 done"


def test_a_lost_trial_is_told_late(client: TestClient, store: MemoryStore) -> None:
    number = ask(client)["ask"]["number"]
    store.tell("asr", number, Outcome(ending=Ending.LOST))
    assert client.post(f"{ASR}/trials/{number}/tell", json=END).json()["lost"] == 2


def test_the_openapi_has_an_example_for_what_a_program_sends_first(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    shapes = described["components"]["schemas"]
    for name, path in {"AskBody": f"{ASR}/ask", "Outcome": f"{ASR}/trials/1/tell"}.items():
        (example,) = shapes[name]["examples"]
        assert client.post(path, json=example).status_code in (200, 201), name
    (example,) = shapes["JobSpec"]["examples"]
    assert client.post("/api/v1/jobs", json={"spec": example}).status_code == 201
    codes = described["paths"]["/api/v1/jobs/{job_id}/ask"]["post"]["responses"]
    assert {"201", "401", "403", "404", "409", "413", "422", "429", "503"} <= set(codes)


def test_the_manual_lists_every_route_and_no_other(client: TestClient) -> None:
    manual = (ROOT / "docs" / "service.md").read_text()
    listed = set(re.findall(r"^\| `(GET|POST|PUT|PATCH|DELETE) (\S+)` \|", manual, re.MULTILINE))
    paths = client.get("/openapi.json").json()["paths"]
    assert listed == {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_a_page_asks_for_the_pulse_of_what_it_shows(client: TestClient) -> None:
    for name in ("lm", "vision", "vision-2"):
        client.post("/api/v1/jobs", json={"spec": {**SPEC, "job_id": name}})
    whole = client.get("/api/v1/pulse").json()
    assert list(client.get("/api/v1/pulse?job=lm&job=unknown").json()) == ["lm"]
    for query, shown in (("offset=1&limit=2", ["lm", "vision"]), ("limit=50&q=VISION", ["vision", "vision-2"])):
        listed = client.get(f"/api/v1/jobs?{query}").json()
        assert [row["job"] for row in listed["jobs"]] == shown
        assert client.get(f"/api/v1/pulse?{query}").json() == {name: whole[name] for name in shown}


def test_totals_of_many_jobs_are_added_up_over_several_requests(store: MemoryStore, client: TestClient) -> None:
    client.post("/api/v1/jobs", json={"spec": {**SPEC, "job_id": "lm"}})
    for name in ("asr", "lm"):
        number = client.post(f"/api/v1/jobs/{name}/ask", json=PLACE).json()["ask"]["number"]
        client.post(f"/api/v1/jobs/{name}/trials/{number}/tell", json=END)
    ticks = count(step=5)  # each look at this clock takes longer than a request may
    slow = Overview(store, PolicyStateCache(), lambda: float(next(ticks)))
    first, second = slow.summary(), slow.summary()
    assert (first["jobs"], first["uncounted"], first["trials"]) == (2, 1, 1)
    assert (second["jobs"], second["uncounted"], second["trials"]) == (2, 0, 2)
    assert client.get("/api/v1/summary").json() == second


def test_saved_money_and_carbon_have_the_error_of_the_energy_wherever_they_are_sent(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_PRICE_PER_KWH", "0.3")
    monkeypatch.setenv("ZEUS_GCO2E_PER_KWH", "400")
    for number in range(8):
        trial = ask(client)
        joules = 3.6e6 * (1 if trial["decision"]["batch_size"] == SPEC["default_batch_size"] else 0.4)
        told = {**END, "joules": joules + 1000 * number}
        client.post(f"{ASR}/trials/{trial['ask']['number']}/tell", json=told)
    shown, fleet = client.get(ASR).json(), client.get("/api/v1/fleet").json()
    (listed,) = client.get("/api/v1/jobs").json()["jobs"]
    one = [shown["saving"], shown["recent_saving"], listed["saving"]]
    rows = [(row["joules_error"], row["money_error"], row["gco2e_error"]) for row in one]
    summed = client.get("/api/v1/summary").json()
    rows.append((summed["saved_joules_error"], summed["money_error"], summed["gco2e_error"]))
    for row in (fleet["totals"], fleet["weeks"][-1], fleet["owners"][0], fleet["gpus"][0]):
        rows.append(tuple(row[f"saved_{name}_error"] for name in ("joules", "money", "gco2e")))
    for joules, money, grams in rows:
        assert joules > 0 and (money, grams) == (pytest.approx(joules / 3.6e6 * 0.3), pytest.approx(joules / 9e3))
