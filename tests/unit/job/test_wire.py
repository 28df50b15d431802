"""Laws of the words as JSON."""

from __future__ import annotations

import json
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
    Trial,
    UsageSegment,
    replace,
)
from zeus.job.hourly import HourlyUse, HourUse
from zeus.job.wire import dumps, from_json, loads, plain, read, to_json, to_text
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.tariff.rates import hour_text
from zeus.trial.knowledge import Knowledge

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
        start=draw(st.sampled_from(["default", "profiled"])),
        command=draw(st.none() | NAME),
        include=draw(INCLUDES),
    )


STRETCHES = st.builds(
    UsageSegment,
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


@given(WORDS, st.none() | st.integers().filter(lambda v: v != 2) | st.text() | st.just(True))
def test_an_unknown_version_is_not_guessed_at(word: Any, version: object) -> None:
    with pytest.raises(InputError, match="this Zeus reads version 2"):
        from_json({**to_json(word), "version": version}, type(word))


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
    assert read(plain(known), Knowledge) == known


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


def test_hours_are_rows() -> None:
    done = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3)
    assert to_json(done)["hourly"] is None
    rows = (HourUse("2026-11-15T17:00:00Z", 100.0, 0.3, None),)
    told = to_json(replace(done, hourly=HourlyUse(rows, currency="EUR", has_price=True)))
    assert told["hourly"]["rows"] == [["2026-11-15T17:00:00Z", 100.0, 0.3, None]]


@given(WORDS)
def test_the_text_of_a_value_is_its_json(word: Any) -> None:
    assert loads(to_text(word)) == to_json(word)


def test_what_zeus_0_2_left_out_has_its_default() -> None:
    done = to_json(Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3))
    later = ("hourly", "micro_batch_size", "samples")
    assert from_json({name: value for name, value in done.items() if name not in later}, Outcome).samples is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joules": -1}, "joules=-1: expected a number >= 0"),
        ({"epochs": 1.5}, r"epochs=1.5: expected a whole number, got a number"),
        ({"stretches": [["step", 250, False, 0, 1.0, 1.0]]}, r"stretches\[0\]\[3\]=0: expected a whole number >= 1"),
        ({"ending": "stopped", "epochs": 0}, "next_epoch_cost=None: give the cost of the first epoch"),
    ],
)
def test_a_refusal_says_where_and_which_value(change: dict[str, Any], message: str) -> None:
    done = to_json(Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3))
    with pytest.raises(InputError, match=message):
        from_json({**done, **change}, Outcome)


@pytest.mark.parametrize(
    "row",
    [["noon", 1.0, None, None], ["2026-11-15T17:00:00Z", -1.0, None, None], ["2026-11-15T17:00:00Z", 1.0, "x", None]],
)
def test_an_hour_that_makes_no_sense_is_refused(row: list[Any]) -> None:
    done = to_json(Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3))
    with pytest.raises(InputError):
        from_json({**done, "hourly": {"rows": [row]}}, Outcome)
