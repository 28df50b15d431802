"""However an unmodified script writes its lines: no epoch is lost or counted twice, and set-up is known or charged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.launch.epochs import Epochs, Line, Used

seconds = st.floats(min_value=0.1, max_value=1e4)
WATTS = 100.0


def at(moment: float) -> Used:
    return Used(moment * WATTS, moment)


def story(style: str, set_up: float, train: float, evaluate: float, epochs: int) -> list[tuple[Line, Used]]:
    """What a script of this style says, and when."""
    now, said = set_up, []
    for epoch in range(1, epochs + 1):
        name, metric = str(epoch), epoch / 100
        if style == "begin":
            said.append((Line(name), at(now)))
        now += train
        if style == "end, then metric":
            said.append((Line(name), at(now)))
        now += evaluate
        if style == "end with metric":
            said.append((Line(name, metric), at(now)))
        else:
            said.append((Line(None, metric), at(now)))
        if style == "metric, then end":
            said.append((Line(name), at(now)))
    return said


def told(said: list[tuple[Line, Used]], ends: bool | None = None) -> list[Epochs]:
    states, state = [], Epochs(ends=ends)
    for line, now in said:
        state = state.read(line, now)
        states.append(state)
    return states


STYLES = ("begin", "end, then metric", "end with metric", "metric, then end")
ENDS = STYLES[1:]


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=st.floats(0, 0.9), epochs=st.integers(2, 12))
def test_epochs_are_counted_alike_in_every_style(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    states = told(story(style, set_up, train, share * train, epochs))
    assert states[-1].done == epochs
    assert states[-1].metric == epochs / 100
    assert [one.done for one in states] == sorted(one.done for one in states)


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=st.floats(0, 0.9), epochs=st.integers(2, 12))
def test_between_two_epoch_lines_lies_one_epoch(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    last = told(story(style, set_up, train, share * train, epochs))[-1]
    assert last.epoch is not None
    assert last.epoch.seconds == pytest.approx((1 + share) * train)
    assert last.epoch.joules == pytest.approx((1 + share) * train * WATTS)


@given(set_up=seconds, train=seconds, share=st.floats(0, 0.9), epochs=st.integers(2, 12))
def test_set_up_before_lines_that_begin_epochs_is_not_charged(
    set_up: float, train: float, share: float, epochs: int
) -> None:
    said = story("begin", set_up, train, share * train, epochs)
    last = told(said)[-1]
    assert last.ends is False
    assert last.set_up.seconds == pytest.approx(set_up)
    assert last.charged(last.now).seconds == pytest.approx(epochs * (1 + share) * train)


@pytest.mark.parametrize("style", ENDS)
@given(set_up=seconds, train=seconds, share=st.floats(0, 0.9), epochs=st.integers(1, 12))
def test_no_epoch_is_lost_before_lines_that_end_epochs(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    last = told(story(style, set_up, train, share * train, epochs))[-1]
    assert last.ends is not False
    assert last.charged(last.now).seconds == pytest.approx(set_up + epochs * (1 + share) * train)


@given(set_up=seconds, train=seconds, evaluate=seconds)
def test_after_a_single_epoch_in_doubt_everything_is_charged(set_up: float, train: float, evaluate: float) -> None:
    last = told(story("begin", set_up, train, evaluate, 1))[-1]
    assert (last.ends, last.done) == (None, 1)
    assert last.charged(last.now) == last.now


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=st.floats(0, 0.9), epochs=st.integers(3, 12))
def test_after_each_epoch_it_is_decided_and_never_before_its_metric_is_known(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    states = told(story(style, set_up, train, share * train, epochs))
    due = [one for one in states if one.due]
    later = [one.done for one in due if one.done > 1]  # on the first, twice: when it looks over, and when it is
    assert later == sorted(set(later))
    assert set(later) >= set(range(2, epochs))
    assert all(one.metric == one.done / 100 for one in due)


@given(set_up=seconds, train=seconds, share=st.floats(1.1, 5), epochs=st.integers(2, 12))
def test_who_says_what_a_line_means_is_believed(set_up: float, train: float, share: float, epochs: int) -> None:
    slow_evaluation = story("end, then metric", set_up, train, share * train, epochs)
    assert told(slow_evaluation)[-1].ends is False  # it looks as if the lines began their epochs
    last = told(slow_evaluation, ends=True)[-1]
    assert (last.ends, last.done) == (True, epochs)
    assert last.charged(last.now) == last.now


def test_an_epoch_that_is_named_many_times_is_one() -> None:
    lines = [Line("1"), Line("1"), Line("1"), Line(None, 0.5), Line("2"), Line("2"), Line(None, 0.6)]
    last = told([(line, at(float(i))) for i, line in enumerate(lines)])[-1]
    assert (last.lines, last.done) == (2, 2)


def test_a_script_that_does_not_evaluate_each_epoch_is_decided_about_all_the_same() -> None:
    states = told([(Line(str(epoch)), at(float(epoch))) for epoch in range(1, 6)], ends=True)
    assert [one.due for one in states] == [False, True, True, True, True]
