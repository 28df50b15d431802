"""How a job stands, in words: from its facts."""

from __future__ import annotations

from typing import Any

import pytest

from support.store_places import HERE, SPEC
from support.store_worker import first_size
from zeus.client.local import LocalJobs
from zeus.client.report.standing import PHASES, state_of
from zeus.job import Ending, EpochPoint, Origin, Outcome, Phase, replace
from zeus.settings import Mode
from zeus.store import MemoryStore
from zeus.store.actor import Actor, acting
from zeus.store.api import Request

DONE = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=10.0, epochs=3, metric=0.9)
CRASHED, LOST = Outcome(ending=Ending.CRASHED), Outcome(ending=Ending.LOST)


@pytest.fixture
def jobs() -> LocalJobs:
    return LocalJobs(MemoryStore(), origin=lambda: Origin("alice", "node7", "/home/alice/asr"))


def brief(jobs: LocalJobs) -> dict[str, Any]:
    (found,) = jobs.briefs()
    return found


def run(jobs: LocalJobs, *outcomes: Outcome) -> None:
    for outcome in outcomes:
        trial, _ = jobs.ask(SPEC.id, HERE.gpus)
        jobs.store.tell(SPEC.id, trial.number, outcome)


def test_a_job_is_new_then_ok_and_says_when_and_where_it_ran_last(jobs: LocalJobs) -> None:
    jobs.register(SPEC)
    new = brief(jobs)
    assert (new["state"], new["last_run_at"], new["last_end"], new["failures"]) == ("new", None, None, 0)
    assert new["phase_text"] == PHASES["new"]
    run(jobs, DONE)
    now = brief(jobs)
    assert (now["state"], now["last_end"], now["gpu_model"]) == ("ok", "converged", "V100")
    assert now["last_run_at"] == jobs.store.trial(SPEC.id, 1).changed_at
    assert (now["owner"], now["paused"]) == ("", False)


def test_a_job_fails_after_three_failures_in_a_row_and_counts_those_of_late(jobs: LocalJobs) -> None:
    jobs.register(SPEC)
    run(jobs, DONE, CRASHED, LOST)
    assert (brief(jobs)["state"], brief(jobs)["failures"]) == ("ok", 2)
    run(jobs, LOST)
    assert (brief(jobs)["state"], brief(jobs)["failures"], brief(jobs)["last_end"]) == ("failing", 3, "lost")
    run(jobs, *[DONE] * 9)
    assert (brief(jobs)["state"], brief(jobs)["failures"]) == ("ok", 1)


def test_a_running_trial_says_who_runs_it_where_and_at_which_power(jobs: LocalJobs) -> None:
    jobs.register(SPEC)
    trial, _ = jobs.ask(SPEC.id, HERE.gpus)
    assert brief(jobs)["running"][0]["watts"] is None, "nothing is known before its first report"
    curve = (EpochPoint(1, 0.5, 900.0, 9.0, 250.0), EpochPoint(2, 0.6, 800.0, 10.0, 200.0))
    so_far = Outcome(ending=Ending.LOST, joules=1700.0, seconds=19.0, epochs=2, metric=0.6, curve=curve)
    jobs.store.renew(SPEC.id, trial.number, so_far)
    (row,) = brief(jobs)["running"]
    assert (row["user"], row["host"], row["watts"], row["epochs"]) == ("alice", "node7", 80.0, 2)
    assert (row["max_epochs"], row["gpu_model"], row["gpus"]) == (100, "V100", 1)
    assert brief(jobs)["state"] == "running"
    (shown,) = jobs.full(SPEC.id)["tries"]
    assert shown["curve"][1] == {"epoch": 2, "metric": 0.6, "joules": 800.0, "seconds": 10.0, "limit_watts": 200.0}
    assert (shown["user"], shown["host"], shown["log_at"]) == ("alice", "node7", None)


def test_running_goes_before_failing_before_losing() -> None:
    losing = {"joules": -5.0, "joules_error": 1.0, "compared_joules": 100.0}
    worst = {"phase": "sampling", "running": [{}], "failing": True, "saving": losing, "trials": 3}
    steps = [worst, {**worst, "running": []}, {**worst, "running": [], "failing": False}]
    assert [state_of(one) for one in steps] == ["running", "failing", "losing"]
    unsure = {**steps[2], "saving": {**losing, "joules_error": 5.0}}
    assert state_of(unsure) == "ok"


def test_a_paused_job_runs_its_default_once_without_a_bound_and_no_limit_is_set(jobs: LocalJobs) -> None:
    jobs.register(replace(SPEC, policy="paper"))
    run(jobs, *[DONE] * 4)
    with acting(Actor("alice", owner="vision/alice")):
        jobs.pause(SPEC.id)
    trial, _ = jobs.ask(SPEC.id, HERE.gpus)
    assert (trial.batch_size, trial.decision.cost_limit, trial.ask.last) == (16, None, True)
    assert trial.decision.phase is Phase.BASELINE, f"whoever launches it runs with mode {Mode.OFF}"
    assert trial.decision.reason == "paused by vision/alice: 16 is the default, as before Zeus."
    told = brief(jobs)
    assert (told["paused"], told["phase_text"]) == (True, PHASES["paused"])
    assert jobs.full(SPEC.id)["next"]["reason"] == trial.decision.reason
    jobs.pause(SPEC.id, paused=False)
    assert not jobs.ask(SPEC.id, HERE.gpus)[0].decision.reason.startswith("paused")


def test_a_trial_that_runs_when_its_job_is_paused_is_not_stopped(jobs: LocalJobs) -> None:
    from zeus.client.api import TrialRef

    jobs.register(replace(SPEC, policy="paper"))
    run(jobs, *[DONE] * 4)
    trial = jobs.ask(SPEC.id, HERE.gpus)[0]
    far = Outcome(ending=Ending.LOST, joules=1e6, seconds=1e4, epochs=2)
    ref = TrialRef(SPEC.id, trial.number, trial.id)
    assert not jobs.heartbeat(ref, far, 1e9).go_on
    jobs.pause(SPEC.id)
    assert jobs.heartbeat(ref, far, 1e9).go_on


def test_an_origin_is_kept_with_the_trial_and_travels_in_exports(jobs: LocalJobs) -> None:
    jobs.register(SPEC)
    run(jobs, DONE)
    origin = jobs.store.trial(SPEC.id, 1).origin
    assert origin == Origin("alice", "node7", "/home/alice/asr")
    other = MemoryStore()
    other.import_lines(jobs.store.export())
    assert other.trial(SPEC.id, 1).origin == origin
    assert other.export() == jobs.store.export()


def test_an_unknown_origin_adds_nothing_to_an_export() -> None:
    store = MemoryStore()
    store.register(SPEC)
    store.ask(SPEC.id, Request(gpus=HERE.gpus), first_size)
    assert not any("origin" in line for line in store.export())
