"""The five routes that clients of the existing package speak, held to a conversation in their shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from support.paths import GOLDEN_FILES
from support.store_places import STORES, Place
from zeus.job import Ending, Profiled, replace
from zeus.service.app import create

TALK = json.loads((GOLDEN_FILES / "upstream_conversation.json").read_text())
ANY = "<any>"
JOB = next(step["request"]["json"] for step in TALK if step["says"] == "a new job")


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    found = STORES[request.param](request)
    yield found
    found.close()


@pytest.fixture
def client(place: Place) -> TestClient:
    return TestClient(create(place.open()))


def fits(found: Any, wanted: Any) -> bool:
    """Whether it is what was recorded; what may be anything is any text."""
    if wanted == ANY:
        return isinstance(found, str) and bool(found)
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and set(found) == set(wanted)
            and all(fits(found[name], wanted[name]) for name in wanted)
        )
    return bool(found == wanted)


def test_the_conversation_goes_as_it_was_recorded(client: TestClient) -> None:
    for step in TALK:
        asked, wanted = step["request"], step["answer"]
        told = client.request(asked["method"], asked["path"], params=asked.get("query"), json=asked.get("json"))
        assert told.status_code == wanted["status"], (step["says"], told.text)
        assert fits(told.json(), wanted["json"]), (step["says"], told.json())


def report(number: int, **other: Any) -> dict[str, Any]:
    used = {"time": 10.0, "energy": 1000.0, "metric": 0.1, "current_epoch": 1}
    return {"job_id": "mnist", "batch_size": 128, "trial_number": number, **used, **other}


def begin(client: TestClient) -> dict[str, Any]:
    client.post("/jobs", json=JOB)
    answer: dict[str, Any] = client.get("/jobs/batch_size", params={"job_id": "mnist"}).json()
    return answer


def test_bodies_are_read_as_json_if_their_type_is_not_said_and_other_types_are_refused(client: TestClient) -> None:
    def send(method: str, path: str, body: dict[str, Any], **headers: str) -> Any:
        return client.request(method, path, content=json.dumps(body), headers=headers)

    assert send("POST", "/jobs", JOB).status_code == 201
    number = client.get("/jobs/batch_size", params={"job_id": "mnist"}).json()["trial_number"]
    assert send("POST", "/report", report(number)).json()["stop_train"] is False
    this = {name: report(number)[name] for name in ("job_id", "batch_size", "trial_number")}
    assert send("PATCH", "/trials", this).json()["status"] == "lost"
    assert send("POST", "/jobs", JOB, **{"Content-Type": "text/plain"}).status_code == 422
    assert send("POST", "/api/v1/jobs", {"spec": JOB}).status_code == 422


def test_an_energy_of_zero_is_unknown_until_a_later_report_has_one(client: TestClient, place: Place) -> None:
    number = begin(client)["trial_number"]
    assert client.post("/report", json=report(number, energy=0.0)).json()["stop_train"] is False
    assert client.post("/report", json=report(number, energy=500.0, metric=0.99, current_epoch=2)).json()["converged"]
    outcome = place.open().trial("mnist", number).trial.outcome
    assert outcome is not None and outcome.joules == 500.0
    silent = client.get("/jobs/batch_size", params={"job_id": "mnist"}).json()
    whole = {"batch_size": silent["batch_size"], "energy": 0.0, "metric": 0.99}
    client.post("/report", json=report(silent["trial_number"], **whole))
    outcome = place.open().trial("mnist", silent["trial_number"]).trial.outcome
    assert outcome is not None and outcome.joules is None


@pytest.mark.parametrize("energies", [(0.0, 2000.0, 3000.0), (1000.0, 0.0, 3000.0, 4000.0)])
def test_energy_that_was_unknown_is_charged_to_the_trial_but_to_no_epoch(
    client: TestClient, place: Place, energies: tuple[float, ...]
) -> None:
    number, store = begin(client)["trial_number"], place.open()
    for epoch, energy in enumerate(energies, 1):
        client.post("/report", json=report(number, energy=energy, time=10.0 * epoch, current_epoch=epoch))
    so_far = store.trial("mnist", number).so_far
    assert so_far is not None and so_far.joules == energies[-1]
    learnt = {event.joules for event in store.log("mnist").events if isinstance(event, Profiled)}
    assert learnt == {1000.0}, "each epoch used as much"


def test_each_report_renews_the_lease_for_a_day(client: TestClient, place: Place) -> None:
    number = begin(client)["trial_number"]
    store = place.open()
    for _ in range(3):
        place.clock.sleep(86_000)
        assert client.post("/report", json=report(number)).json()["stop_train"] is False
        assert store.expire("mnist") == []
    place.clock.sleep(86_401)
    assert [lost.number for lost in store.expire("mnist")] == [number]


def test_a_report_that_comes_after_its_lease_lapsed_is_taken(client: TestClient, place: Place) -> None:
    number = begin(client)["trial_number"]
    place.clock.sleep(90_000)
    assert client.get("/jobs/batch_size", params={"job_id": "mnist"}).status_code == 200
    late = client.post("/report", json=report(number, metric=0.99))
    assert (late.status_code, late.json()["converged"]) == (200, True)
    assert place.open().trial("mnist", number).trial.ending is Ending.CONVERGED


def test_reports_of_one_trial_that_come_at_once_are_all_answered_with_what_is_stored(
    client: TestClient, place: Place
) -> None:
    number = begin(client)["trial_number"]
    with ThreadPoolExecutor(6) as crowd:
        some = [report(number, metric=0.99, energy=1000.0 + each) for each in range(6)]
        answers = list(crowd.map(lambda body: client.post("/report", json=body), some))
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.json() == answers[0].json() for answer in answers)
    assert len(place.open().log("mnist").events) == 2


def test_a_job_that_another_client_gave_a_policy_of_ours_is_not_different(client: TestClient, place: Place) -> None:
    client.post("/jobs", json=JOB)
    assert client.patch("/api/v1/jobs/mnist", json={"policy": "default", "power_limits": [150]}).status_code == 200
    again = client.post("/jobs", json=JOB)
    assert (again.status_code, again.json()["policy"], again.json()["power_limits"]) == (200, "default", [150.0])
    assert client.post("/jobs", json={**JOB, "policy": "paper"}).status_code == 409
    assert place.open().job("mnist").revision == 2


def test_a_failed_recurrence_is_tried_again_before_another_begins(client: TestClient, place: Place) -> None:
    number = begin(client)["trial_number"]
    stop = client.post("/report", json=report(number, current_epoch=JOB["max_epochs"]))
    assert stop.json() == {"stop_train": True, "converged": False, "message": "5 epochs did not reach the target"}
    again = client.get("/jobs/batch_size", params={"job_id": "mnist"}).json()["trial_number"]
    asks = [place.open().trial("mnist", each).trial.ask for each in (number, again)]
    assert [(ask.recurrence, ask.attempt) for ask in asks] == [(1, 1), (1, 2)]


def test_costs_on_another_gpu_model_are_translated_not_refused(client: TestClient, place: Place) -> None:
    first = begin(client)
    client.post("/report", json=report(first["trial_number"], metric=0.99))
    moved = client.post("/jobs", json={**JOB, "gpu_model": "A40", "number_of_gpus": 2, "max_power": 600.0})
    assert moved.status_code == 200
    number = client.get("/jobs/batch_size", params={"job_id": "mnist"}).json()["trial_number"]
    ask = place.open().trial("mnist", number).trial.ask
    assert (ask.gpu_model, ask.max_watts) == ("2 x A40", 600.0)


def test_a_running_trial_is_judged_under_the_eta_that_it_was_asked_for_under(client: TestClient) -> None:
    first = begin(client)["trial_number"]
    assert client.post("/report", json=report(first, metric=0.99)).json()["converged"]
    second = client.get("/jobs/batch_size", params={"job_id": "mnist"}).json()
    so_far = report(second["trial_number"], batch_size=second["batch_size"], energy=100.0)
    # Twice that is within twice the first's cost. Were only time to count, twice 10 s would not be.
    assert client.patch("/api/v1/jobs/mnist", json={"eta_knob": 0.0}).status_code == 200
    assert client.post("/report", json=so_far).json()["stop_train"] is False


def test_a_client_that_reports_only_gpus_gets_no_trial_of_a_job_that_counts_the_cpu(
    place: Place, client: TestClient
) -> None:
    """Its joules would be too few, and would look like a saving."""
    store = place.open()
    assert client.post("/jobs", json=JOB).status_code == 201
    store.revise(JOB["job_id"], lambda job: (replace(job.spec, include=("gpu", "cpu")), job.policy_version))
    told = client.get("/jobs/batch_size", params={"job_id": JOB["job_id"]})
    assert told.status_code == 422
    assert "counts the energy of GPU and CPU, but this client counts GPU" in told.text
    assert client.post("/jobs", json=JOB).status_code == 200, "these clients cannot say what is counted"
    assert store.job(JOB["job_id"]).spec.include == ("gpu", "cpu")
