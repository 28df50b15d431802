"""Laws of the words as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.cost import Use
from zeus.errors import InputError
from zeus.job import (
    Ask,
    Decision,
    Ending,
    EpochPoint,
    Gpus,
    JobSpec,
    Kind,
    Outcome,
    Pardoned,
    Phase,
    Profiled,
    Stretch,
    Trial,
)
from zeus.job.hourly import HourlyUse, HourUse
from zeus.job.wire import dumps, from_json, loads, to_json
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.tariff.rates import hour_text
from zeus.trial.knowledge import Knowledge, knowledge_from_json, knowledge_to_json

WHOLE = st.integers(1, 10**9)
ABOVE = st.floats(1e-6, 1e12)
NAME = st.text(min_size=1, max_size=8)


INCLUDES = st.sampled_from([("gpu",), ("gpu", "cpu")])


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    sizes = draw(st.lists(WHOLE, min_size=1, max_size=5, unique=True))
    return JobSpec(
        job_id=draw(st.none() | NAME),
        job_id_prefix=draw(NAME),
        batch_sizes=tuple(sizes),
        default_batch_size=draw(st.sampled_from(sizes)),
        eta_knob=draw(st.floats(0, 1)),
        target_metric=draw(st.floats(-1e9, 1e9)),
        higher_is_better_metric=draw(st.booleans()),
        mab_seed=draw(st.none() | WHOLE),
        power_limits=tuple(draw(st.lists(ABOVE, max_size=3, unique=True))),
        baseline_every=draw(st.integers(0, 9)),
        include=draw(INCLUDES),
    )


STRETCHES = st.builds(
    Stretch,
    st.sampled_from(Kind),
    st.none() | ABOVE,
    st.booleans(),
    WHOLE,
    st.none() | ABOVE,
    ABOVE,
    WHOLE,
    ABOVE,
    ABOVE,
)
METRICS = st.none() | st.floats(-1e9, 1e9)
POINTS = st.builds(EpochPoint, WHOLE, METRICS, st.none() | ABOVE, ABOVE, st.none() | ABOVE)


HOURS = st.builds(HourUse, st.integers(400_000, 600_000).map(hour_text), ABOVE, METRICS, st.none() | st.floats(0, 1e6))
HOURLY = st.builds(
    HourlyUse, st.lists(HOURS, max_size=3).map(tuple), st.sampled_from(["", "curve", "time"]), NAME, st.booleans()
)


def outcomes(*endings: Ending) -> st.SearchStrategy[Outcome]:
    return st.builds(
        Outcome,
        ending=st.sampled_from(endings),
        joules=st.none() | ABOVE,
        seconds=ABOVE,
        epochs=WHOLE,
        metric=METRICS,
        next_epoch_cost=st.none() | ABOVE,
        hourly=st.none() | HOURLY,
        stretches=st.lists(STRETCHES, max_size=3).map(tuple),
        curve=st.lists(POINTS, max_size=3).map(tuple),
        found_watts=st.none() | ABOVE,
        set_limits=st.booleans(),
        micro_batch_size=st.none() | WHOLE,
        samples=st.none() | WHOLE,
    )


GPUS = st.builds(Gpus, st.text().filter(lambda name: " x " not in name), st.integers(1, 64), ABOVE)


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    where = draw(st.builds(Ask, number=WHOLE, recurrence=WHOLE, attempt=WHOLE, gpus=GPUS, eta=st.floats(0, 1)))
    decided = draw(st.builds(Decision, WHOLE, st.sampled_from(Phase), st.text(), st.none() | ABOVE))
    trial = Trial(ask=where, decision=decided, asked=draw(WHOLE))
    if draw(st.booleans()):
        trial = trial.lose(trial.asked + 1, draw(st.none() | outcomes(Ending.LOST)))
    if draw(st.booleans()):
        told = outcomes(Ending.CONVERGED, Ending.STOPPED, Ending.NOT_CONVERGED, Ending.CRASHED)
        trial = trial.end(trial.asked + 2, draw(told))
    return trial


SLICES = st.builds(LimitSlice, ABOVE, WHOLE, ABOVE, ABOVE)
PROFILES = st.builds(PowerProfile.of, st.lists(SLICES, max_size=4), st.lists(ABOVE, max_size=4))
EVENTS = st.builds(
    Profiled, sequence=WHOLE, batch_size=WHOLE, gpu_model=st.text(), joules=ABOVE, seconds=ABOVE, max_watts=ABOVE
) | st.builds(Pardoned, sequence=WHOLE, batch_size=WHOLE)
KEYS = st.builds(ProfileKey, NAME, WHOLE, NAME, WHOLE)
WORDS: Any = specs() | trials() | outcomes(*list(Ending)[1:]) | EVENTS | PROFILES | KEYS


@given(WORDS)
def test_what_was_written_is_read_back(word: Any) -> None:
    assert from_json(loads(dumps(to_json(word))), type(word)) == word


@given(WORDS)
def test_what_is_written_is_plain_json_already(word: Any) -> None:
    assert json.loads(dumps(to_json(word))) == to_json(word)


@given(WORDS, st.none() | st.integers().filter(lambda v: v not in (1, 2)) | st.text() | st.just(True))
def test_an_unknown_version_is_not_guessed_at(word: Any, version: object) -> None:
    with pytest.raises(InputError, match="this Zeus reads versions 1 to 2"):
        from_json({**to_json(word), "version": version}, type(word))


# ---------------------------------------------------------------------- version 1


OLD = {
    "outcome": {"ending", "joules", "seconds", "epochs", "metric", "next_epoch_cost"},
    "trial": {"ask", "decision", "asked", "lost", "ended", "outcome"},
    "ask": {"number", "recurrence", "attempt", "gpu_model", "max_watts", "last"},
}


@given(trials())
def test_a_trial_of_version_1_has_the_keys_that_version_1_had_and_is_read_with_its_eta(trial: Trial) -> None:
    written = loads(dumps(to_json(trial, version=1)))
    assert written.pop("version") == 1 and written.pop("kind") == "trial"
    assert (set(written), set(written["ask"])) == (OLD["trial"], OLD["ask"])
    assert written["outcome"] is None or set(written["outcome"]) == OLD["outcome"]
    assert written["decision"]["phase"] != "baseline"
    assert (written["ask"]["gpu_model"], written["ask"]["max_watts"]) == (trial.ask.gpus.label, trial.ask.max_watts)
    back = from_json(to_json(trial, version=1), Trial, eta=trial.ask.eta)
    assert (back.ask, back.asked, back.lost, back.ended) == (trial.ask, trial.asked, trial.lost, trial.ended)
    assert back.outcome == _plain(trial.outcome)
    with pytest.raises(InputError, match="has no eta of its own"):
        from_json(to_json(trial, version=1), Trial)


def _plain(outcome: Outcome | None) -> Outcome | None:
    """What version 1 can say of it."""
    later = {"found_watts": None, "set_limits": False, "hourly": None, "micro_batch_size": None, "samples": None}
    return outcome and replace(outcome, stretches=(), curve=(), **later)


@given(outcomes(*list(Ending)[1:]))
def test_an_outcome_of_version_1_tells_the_totals_alone(outcome: Outcome) -> None:
    written = to_json(outcome, version=1)
    assert set(written) == {"kind", "version"} | OLD["outcome"]
    assert from_json(written, Outcome) == _plain(outcome)


@given(specs())
def test_a_job_of_version_1_has_no_baselines(spec: JobSpec) -> None:
    written = to_json(spec, version=1)
    assert set(to_json(spec)) - set(written) - {"include"} == {"baseline_every", "command_id"}
    assert from_json(written, JobSpec) == replace(spec, baseline_every=0, command_id="", include=("gpu",))


@given(specs())
def test_a_job_that_counts_only_gpus_is_written_as_zeus_0_2_wrote_it(spec: JobSpec) -> None:
    """Zeus 0.2 refuses a field that it does not know, and must refuse a job whose costs it cannot count."""
    assert ("include" in to_json(spec)) == ("cpu" in spec.include)
    without = {name: value for name, value in to_json(spec).items() if name != "include"}
    assert from_json(without, JobSpec) == replace(spec, include=("gpu",))


@pytest.mark.parametrize("label", ["V100", "2 x V100", "V100 + CPU", "2 x V100 + CPU"])
def test_a_label_says_what_its_costs_count(label: str) -> None:
    gpus = Gpus.of_label(label, 500.0)
    assert gpus.label == label
    assert gpus.include == (("gpu", "cpu") if "CPU" in label else ("gpu",))


@pytest.mark.parametrize("include", [[], ["cpu"], ["gpu", "gpu"], ["gpu", "disk"], "gpu", 5])
def test_what_cannot_be_counted_is_refused(include: object) -> None:
    with pytest.raises(InputError, match="include"):
        from_json({"kind": "job", "version": 2, **SMALLEST, "include": include}, JobSpec)


SMALLEST = {"job_id_prefix": "asr", "batch_sizes": [8], "default_batch_size": 8}


USES = st.builds(Use, ABOVE, ABOVE)
KNOWN = st.builds(
    Knowledge,
    st.lists(st.lists(STRETCHES, max_size=2).map(tuple), max_size=2).map(tuple),
    st.none() | USES,
    st.none() | USES,
    st.none() | USES,
    st.floats(0, 9),
    st.none() | st.booleans(),
)


@given(KNOWN)
def test_what_is_known_of_epochs_is_read_back(known: Knowledge) -> None:
    assert knowledge_from_json(loads(dumps(knowledge_to_json(known)))) == known


# ---------------------------------------------------------------------- what cannot be read


@given(WORDS)
def test_another_kind_is_refused(word: Any) -> None:
    with pytest.raises(InputError, match="expected a JSON object of kind"):
        from_json({**to_json(word), "kind": "else"}, type(word))


@given(trials() | specs(), st.data())
def test_a_missing_strange_or_unsound_field_is_an_input_error(word: Any, data: st.DataObject) -> None:
    written = to_json(word)
    with pytest.raises(InputError):
        from_json({**written, "strange": 1}, type(word))
    name = data.draw(st.sampled_from(sorted(set(written) - {"kind", "version"})))
    try:
        from_json({**written, name: data.draw(st.sampled_from([None, "x", -1, [], {}, 1.5]))}, type(word))
        from_json({k: v for k, v in written.items() if k != name}, type(word))
    except InputError:
        pass


@pytest.mark.parametrize("text", ["", "[1]", "{", "1"])
def test_a_line_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        loads(text)


def test_nan_is_not_written() -> None:
    with pytest.raises(InputError, match="null"):
        dumps({"joules": float("nan")})


def test_an_outcome_without_hours_is_written_as_version_0_2_reads_it() -> None:
    done = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3)
    assert "hourly" not in to_json(done)
    rows = (HourUse("2026-11-15T17:00:00Z", 100.0, 0.3, None),)
    told = to_json(replace(done, hourly=HourlyUse(rows, currency="EUR", has_price=True)))
    assert told["hourly"]["rows"] == [["2026-11-15T17:00:00Z", 100.0, 0.3, None]]
    assert "hourly" not in to_json(replace(done, hourly=HourlyUse(rows)), version=1)


@pytest.mark.parametrize(
    "row",
    [["noon", 1.0, None, None], ["2026-11-15T17:00:00Z", -1.0, None, None], ["2026-11-15T17:00:00Z", 1.0, "x", None]],
)
def test_an_hour_that_makes_no_sense_is_refused(row: list[Any]) -> None:
    done = to_json(Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3))
    with pytest.raises(InputError):
        from_json({**done, "hourly": {"rows": [row]}}, Outcome)
