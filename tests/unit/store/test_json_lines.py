"""What is imported is refused, or can be listed, shown and exported again: no fact takes the others down with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.report import digest_of, full, report
from zeus.errors import InputError
from zeus.job import Ending, EpochPoint, Gpus, JobSpec, Kind, Outcome, UsageSegment
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store import MemoryStore

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16), default_batch_size=16, mab_seed=1)
HERE = Gpus("V100", 1, 250.0)
ODD = [None, True, -1, 0, 1.5, 1e308, -1e308, 5e-324, 10**30, 10**400, "", "x", "1", [], [1], {}, {"a": 1}]


def lines() -> list[str]:
    """An export with one of everything."""
    store = MemoryStore()
    job = RecurringJob.register(LocalJobs(store), SPEC)
    stretch = UsageSegment.of(Kind.STEP, 200.0, False, 10, 90.0, 9.0)
    point = EpochPoint(1, 0.9, 90.0, 9.0, 200.0)
    used = {"joules": 100.0, "seconds": 10.0, "epochs": 1, "metric": 0.9, "found_watts": 250.0, "set_limits": True}
    outcome = Outcome(ending=Ending.CONVERGED, stretches=(stretch,), curve=(point,), **used)
    job.tell(job.ask(HERE).number, outcome)
    stopped = Outcome(ending=Ending.STOPPED, joules=5.0, seconds=1.0, epochs=1, next_epoch_cost=900.0)
    job.tell(job.ask(HERE).number, stopped)
    crashed = job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED))
    job.excuse([crashed.number])
    job.renew(job.ask(HERE).number, Outcome(ending=Ending.LOST, joules=1.0, seconds=1.0))
    job.profiled(16, HERE, joules=50.0, seconds=5.0)
    store.pardon("asr", 16)
    store.put_profile(
        ProfileKey("asr", 16, "V100", 1), PowerProfile.of([LimitSlice(250.0, 10, 1.0, 200.0)], limits=[150])
    )
    return store.export()


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value, lists and objects included."""
    if path:
        yield path
    some = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, value in some:
        yield from leaves(value, (*path, name))


def with_value(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = with_value(data[path[0]], path[1:], value)
    return copy


SOUND = lines()
WAYS = [(place, path) for place, line in enumerate(SOUND) for path in leaves(json.loads(line))]


def test_the_sound_export_is_taken() -> None:
    assert looked_at(SOUND) is None


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_an_odd_value_is_refused_at_the_door_or_harms_nobody(odd: Any) -> None:
    for place, path in WAYS:
        line = json.dumps(with_value(json.loads(SOUND[place]), path, odd))
        wrong = looked_at([*SOUND[:place], line, *SOUND[place + 1 :]])
        assert wrong is None, (place, path, wrong)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_in_json_is_none_here(constant: str) -> None:
    with pytest.raises(InputError, match=r"line \d+: .*Use null for an unknown number"):
        MemoryStore().import_lines([line.replace("250.0", constant) for line in SOUND])


def looked_at(lines: list[str]) -> str | None:
    """What is wrong with a store that took these lines; None: nothing, or they were refused."""
    store = MemoryStore()
    try:
        jobs = store.import_lines(lines)
    except InputError:
        return None
    for job_id in jobs:
        row = digest_of(store, job_id).brief
        json.dumps(row, allow_nan=False)
        if row["phase"] == "unreadable":
            return str(row["remark"])
        json.dumps(full(report(store, job_id)), allow_nan=False)
    store.export()
    return None
