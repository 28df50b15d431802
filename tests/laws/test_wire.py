"""Laws of the words as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.job import Ask, Decision, Ending, JobSpec, Outcome, Pardoned, Phase, Profiled, Trial
from zeus.profile import PowerProfile, ProfileKey, Slice
from zeus.wire import dumps, from_json, loads, to_json

WHOLE = st.integers(1, 10**9)
ABOVE = st.floats(1e-6, 1e12)
NAME = st.text(min_size=1, max_size=8)


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
    )


def outcomes(*endings: Ending) -> st.SearchStrategy[Outcome]:
    return st.builds(
        Outcome,
        ending=st.sampled_from(endings),
        joules=st.none() | ABOVE,
        seconds=ABOVE,
        epochs=WHOLE,
        metric=st.none() | st.floats(-1e9, 1e9),
        next_epoch_cost=st.none() | ABOVE,
    )


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    where = draw(st.builds(Ask, number=WHOLE, recurrence=WHOLE, attempt=WHOLE, gpu_model=st.text(), max_watts=ABOVE))
    decided = draw(st.builds(Decision, WHOLE, st.sampled_from(Phase), st.text(), st.none() | ABOVE))
    trial = Trial(ask=where, decision=decided, asked=draw(WHOLE))
    if draw(st.booleans()):
        trial = trial.lose(trial.asked + 1, draw(st.none() | outcomes(Ending.LOST)))
    if draw(st.booleans()):
        told = outcomes(Ending.CONVERGED, Ending.STOPPED, Ending.NOT_CONVERGED, Ending.CRASHED)
        trial = trial.end(trial.asked + 2, draw(told))
    return trial


SLICES = st.builds(Slice, ABOVE, WHOLE, ABOVE, ABOVE)
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


@given(WORDS, st.none() | st.integers().filter(lambda v: v != 1) | st.text() | st.just(True))
def test_an_unknown_version_is_not_guessed_at(word: Any, version: object) -> None:
    with pytest.raises(InputError, match="this Zeus reads version 1"):
        from_json({**to_json(word), "version": version}, type(word))


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
