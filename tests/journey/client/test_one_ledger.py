"""Whoever is asked about a job tells the same joules, cost, default and saving: they all ask the one ledger."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.laws import examples
from support.worlds import GPUS, LIMITS, SIZES, SPEC, World
from zeus.cli.run import _report, _stored
from zeus.client.catalog import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.cost import Use
from zeus.job import Decision, Ending, Kind, Outcome, Phase, Trial, replace
from zeus.launch.launcher import Launcher
from zeus.service.app import create
from zeus.service.dashboard.export import export
from zeus.store.api import Request
from zeus.store.memory import MemoryStore

Run = tuple[int, list[float], Ending, bool]
RUNS = st.lists(
    st.tuples(
        st.sampled_from(SIZES),
        st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3),
        st.sampled_from([Ending.CONVERGED, Ending.CONVERGED, Ending.STOPPED, Ending.CRASHED, Ending.LOST]),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def world() -> World:
    epoch = {(size, watts): Use(10.0 * size * watts**0.5, size * 100 / watts) for size in SIZES for watts in LIMITS}
    nothing = dict.fromkeys(LIMITS, Use(1.0, 0.1))
    return World(Kind.EPOCH, epoch, nothing, Use(50.0, 5.0), dict.fromkeys(SIZES, 4), growth=1.02, noise=0.01)


def outcomes(runs: list[Run]) -> list[tuple[int, Outcome]]:
    """What trials of these sizes would tell; some do not know their energy."""
    here, found = world(), []
    for number, (size, limits, ending, known) in enumerate(runs, start=1):
        here.run(number, size, limits)
        told = here.kepts[-1].trial.outcome
        assert told is not None
        cost = 5.0 if ending is Ending.STOPPED else None
        told = replace(told, ending=ending, next_epoch_cost=cost)
        found.append((size, told if known else replace(told, joules=None, stretches=(), curve=())))
    return found


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS)
def test_run_jobs_service_and_export_tell_the_same(tmp_path: Path, runs: list[Run]) -> None:
    store = MemoryStore()
    store.register(SPEC)
    trials: dict[int, Trial] = {}
    again = None
    for size, outcome in outcomes(runs):
        decided = Decision(size, Phase.SAMPLING, "drawn", 1e9)
        trial = store.ask("asr", Request(gpus=GPUS, recurrence=again), lambda *_, told=decided: told)
        trials[trial.number] = store.tell("asr", trial.number, outcome)
        again = None if outcome.ending is Ending.CONVERGED else trial.ask.recurrence
    shown = LocalJobs(store, "memory").full("asr")

    launcher = SimpleNamespace(
        job=RecurringJob.find(LocalJobs(store), "asr"),
        jobs=LocalJobs(store, "memory"),
        ran={},
        logs=tmp_path,
        file=None,
    )
    told, mine = _stored(cast(Launcher, launcher), trials)
    ran = _report(cast(Launcher, launcher), mine, told)
    served = TestClient(create(store)).get("/api/v1/jobs/asr").json()
    page = export(store).partition("window.ZEUS_DATA = ")[2].partition(";</script>")[0]
    exported: dict[str, Any] = json.loads(page)["full"]["asr"]

    told = json.loads(json.dumps(shown))
    names = ("default", "saving", "recent_saving", "recent", "history", "tries", "joules", "unknown_tries")
    assert {name: served[name] for name in names} == {name: told[name] for name in names}
    assert {name: exported[name] for name in names} == {name: told[name] for name in names}
    for name in ("default", "recent", "recent_saving"):
        assert ran[name] == shown[name]
    saving = shown["saving"]
    assert ran["saving"] == saving or {name: ran["saving"][name] for name in saving} == saving
    for row, other in zip(ran["recurrences"], shown["history"], strict=True):
        assert {name: row[name] for name in other if name != "tries"} == {
            n: v for n, v in other.items() if n != "tries"
        }
        assert [one["cost"] for one in row["tries"]] == [
            one["cost"] for one in shown["tries"] if one["recurrence"] == other["number"]
        ]
