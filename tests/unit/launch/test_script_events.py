"""However an unmodified script writes its lines: no epoch is lost or counted twice, and set-up is known or charged."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.launch_place import FOUND, LINES, USUAL
from zeus.cost import CostModel, Use
from zeus.job import Ending, Kind, Outcome
from zeus.launch.script_events import Line, Script
from zeus.trial.driver import Driver
from zeus.trial.engine import Ended, EpochBegan, EpochEnded, Evaluated, Event, Measured, Started, Terms, TrialEngine

seconds = st.floats(min_value=0.1, max_value=1e4)
shares = st.floats(0, 0.9)  # evaluation is shorter than training
WATTS = 100.0
TARGET = 0.9
STYLES = tuple(LINES)
BEGIN = ("begin",)
ENDS = tuple(style for style in STYLES if style not in BEGIN)
FIRST_IN_DOUBT = ("begin", "end, then metric")  # until the second line

Said = list[tuple[Line, Use]]


def at(moment: float) -> Use:
    return Use(moment * WATTS, moment)


def story(style: str, set_up: float, train: float, evaluate: float, epochs: int) -> Said:
    """What a script of this style says, and when; the metric of an epoch is a hundredth of its number."""
    now, said = set_up, Said()
    for epoch in range(1, epochs + 1):
        name, metric = str(epoch), epoch / 100
        if style == "begin":
            said.append((Line(name), at(now)))
        now += train
        if style == "end, then metric":
            said.append((Line(name), at(now)))
        now += evaluate
        if style in ("end with metric", "file"):
            said.append((Line(name, metric), at(now)))
        else:
            said.append((Line(None, metric), at(now)))
        if style == "metric, then end":
            said.append((Line(name), at(now)))
    return said


def means(style: str) -> bool | None:
    """What the watcher knows before the first line: that lines of a file, and of metrics alone, end epochs."""
    return True if style in ("file", "metric alone") else None


def numbered(style: str, said: Said) -> Said:
    """As the reader gives them: metrics alone are epochs, each of its own name."""
    if style != "metric alone":
        return said
    return [(Line(str(n), line.metric), now) for n, (line, now) in enumerate(said, 1)]


def told(said: Said, ends: bool | None = None) -> tuple[Script, list[Event]]:
    script, events = Script(ends=ends), list[Event]()
    for line, now in said:
        script, more = script.read(line, now)
        events += more
    return script, events


def heard(style: str, set_up: float, train: float, share: float, epochs: int) -> tuple[Script, list[Event], Said]:
    said = numbered(style, story(style, set_up, train, share * train, epochs))
    return (*told(said, means(style)), said)


def of(events: list[Event], *kinds: Kind) -> list[Measured]:
    return [one for one in events if isinstance(one, Measured) and one.kind in kinds]


def charged(events: list[Event]) -> float:
    return sum(one.use.seconds for one in events if isinstance(one, Measured) and one.kind is not Kind.SET_UP)


def outcome_of(events: list[Event], max_epochs: int = 100) -> Outcome:
    driver = Driver(TrialEngine(Terms(target_metric=TARGET, max_epochs=max_epochs, cost=CostModel(0.5, 250.0))))
    driver.feed(Started(), *events, Ended(Ending.NOT_CONVERGED))
    assert driver.outcome is not None
    return driver.outcome


# ---------------------------------------------------------------------- what is charged


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=shares, epochs=st.integers(2, 12))
def test_everything_but_set_up_is_charged(style: str, set_up: float, train: float, share: float, epochs: int) -> None:
    script, events, said = heard(style, set_up, train, share, epochs)
    events += script.close(said[-1][1])
    before = sum(one.use.seconds for one in of(events, Kind.SET_UP))
    assert before == pytest.approx(set_up if style in BEGIN else 0.0)
    assert charged(events) + before == pytest.approx(said[-1][1].seconds)
    assert sum(one.use.joules for one in events if isinstance(one, Measured)) == pytest.approx(said[-1][1].joules)
    assert outcome_of(events).seconds == pytest.approx(said[-1][1].seconds - before)


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=shares)
def test_a_script_that_ends_in_doubt_is_charged_all_of_it(
    style: str, set_up: float, train: float, share: float
) -> None:
    script, events, said = heard(style, set_up, train, share, 1)
    assert script.ends is (None if style in FIRST_IN_DOUBT else True)
    events += script.close(said[-1][1])
    assert charged(events) == pytest.approx(said[-1][1].seconds)
    for max_epochs in (1, 9):
        ended = outcome_of(events, max_epochs)
        assert (ended.ending, ended.epochs, ended.metric) == (Ending.NOT_CONVERGED, 1, 0.01)


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=shares, epochs=st.integers(2, 12), more=seconds)
def test_what_follows_the_last_line_is_charged_and_is_no_epoch(
    style: str, set_up: float, train: float, share: float, epochs: int, more: float
) -> None:
    script, events, said = heard(style, set_up, train, share, epochs)
    closing = script.close(said[-1][1] + at(more))
    assert charged(events + closing) - charged(events + script.close(said[-1][1])) == pytest.approx(more, rel=1e-6)
    assert all(one.count == 0 for one in of(closing, Kind.EPOCH))


# ---------------------------------------------------------------------- one epoch between two lines


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=shares, epochs=st.integers(2, 12))
def test_between_two_epoch_lines_lies_one_epoch(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    said = numbered(style, story(style, set_up, train, share * train, epochs))
    script, between, rows = Script(ends=means(style)), list[Event](), list[list[Event]]()
    for line, now in said:
        script, events = script.read(line, now)
        between += events
        if line.epoch is not None:
            rows.append(between)
            between = []
    assert len(rows) == epochs
    for row in rows[2:]:  # by the second line what was held back is told
        assert [one.count for one in of(row, Kind.EPOCH)] == [1]
        assert charged(row) == pytest.approx((1 + share) * train)
        joules = sum(one.use.joules for one in row if isinstance(one, Measured))
        assert joules == pytest.approx((1 + share) * train * WATTS)
    assert sum(one.count for row in rows for one in of(row, Kind.EPOCH)) == epochs - (style in BEGIN)


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=shares, epochs=st.integers(2, 12))
def test_epochs_are_counted_alike_in_every_style(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    script, events, said = heard(style, set_up, train, share, epochs)
    ended = outcome_of(events + script.close(said[-1][1]))
    assert (ended.ending, ended.epochs, ended.metric) == (Ending.NOT_CONVERGED, epochs, epochs / 100)
    assert [point.metric for point in ended.curve] == [n / 100 for n in range(1, epochs + 1)]


@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=shares, epochs=st.integers(2, 12))
def test_epochs_begin_are_measured_and_end_in_turn(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    _, events, _ = heard(style, set_up, train, share, epochs)
    evaluations = of(events, Kind.EVALUATION)
    turns = [type(one) for one in events if not isinstance(one, Evaluated) and one not in evaluations]
    if style in BEGIN:
        assert turns.pop(0) is Measured  # set-up
    row = [EpochBegan, Measured, EpochEnded]
    assert turns == (row * epochs)[: len(turns)]
    assert len(turns) == (3 * epochs - 2 if style in BEGIN else 3 * epochs)


# ---------------------------------------------------------------------- what a line means


@pytest.mark.parametrize("style", FIRST_IN_DOUBT)
@given(set_up=seconds, train=seconds, share=shares)
def test_nothing_is_told_of_an_ambiguous_first_line_until_the_second(
    style: str, set_up: float, train: float, share: float
) -> None:
    said = story(style, set_up, train, share * train, 2)
    script, events = told(said[:2])
    assert (script.ends, events) == (None, [])
    script, events = told(said[:3])
    assert script.ends is (style not in BEGIN)
    assert Evaluated(0.01) in events  # what was held back is told


@pytest.mark.parametrize("style", ENDS)
@given(set_up=seconds, train=seconds, share=shares, epochs=st.integers(2, 12))
def test_no_epoch_is_lost_before_lines_that_end_epochs(
    style: str, set_up: float, train: float, share: float, epochs: int
) -> None:
    _, events, _ = heard(style, set_up, train, share, epochs)
    assert not of(events, Kind.SET_UP)
    assert of(events, Kind.EPOCH)[0].use.seconds >= set_up + train


@given(set_up=seconds, train=seconds, share=st.floats(1.1, 5), epochs=st.integers(2, 12))
def test_who_says_what_a_line_means_is_believed(set_up: float, train: float, share: float, epochs: int) -> None:
    slow_evaluation = story("end, then metric", set_up, train, share * train, epochs)
    assert told(slow_evaluation)[0].ends is False  # it looks as if the lines began their epochs
    script, events = told(slow_evaluation, ends=True)
    events += script.close(slow_evaluation[-1][1])
    assert script.ends is True
    assert outcome_of(events).epochs == epochs
    assert charged(events) == pytest.approx(slow_evaluation[-1][1].seconds)


@given(seconds, seconds, st.integers(3, 9))
def test_lines_without_metrics_are_one_epoch_each_however_the_first_is_meant(
    set_up: float, train: float, lines: int
) -> None:
    said = [(Line(str(n)), at(set_up + n * train)) for n in range(lines)]
    for ends, whole in ((None, lines - 1), (False, lines - 1), (True, lines)):
        script, events = told(said, ends)
        assert sum(one.count for one in of(events, Kind.EPOCH)) == whole
        events += script.close(said[-1][1])
        assert charged(events) == pytest.approx(said[-1][1].seconds - (set_up if ends is False else 0.0))
        assert outcome_of(events).epochs == lines


@given(seconds, seconds)
def test_a_metric_that_settles_late_what_lines_mean_adds_the_first_epoch_as_no_example(
    set_up: float, train: float
) -> None:
    """Four epochs are told of before the first metric, right after the line of the fifth, says that lines end them."""
    said = [(Line(str(n)), at(set_up + n * train)) for n in range(1, 6)]
    said += [(Line(None, 0.5), at(set_up + 5.1 * train)), (Line("6"), at(set_up + 6 * train))]
    script, events = told(said)
    assert script.ends is not None
    events += script.close(said[-1][1])
    assert charged(events) + sum(one.use.seconds for one in of(events, Kind.SET_UP)) == pytest.approx(
        said[-1][1].seconds
    )


def test_an_epoch_that_is_named_many_times_is_one() -> None:
    lines = [Line("1"), Line("1"), Line("1"), Line(None, 0.5), Line("2"), Line("2"), Line(None, 0.6), Line("3")]
    script, events = told([(line, at(float(i))) for i, line in enumerate(lines)])
    assert script.lines == 3
    assert sum(isinstance(one, EpochEnded) for one in events) == 3 - (script.ends is False)


# ---------------------------------------------------------------------- the metric that ends it


@pytest.mark.parametrize("ends", [None, True, False])
@pytest.mark.parametrize("style", STYLES)
@given(set_up=seconds, train=seconds, share=shares, epochs=st.integers(1, 9))
def test_the_metric_that_reaches_the_target_closes_its_epoch(
    style: str, ends: bool | None, set_up: float, train: float, share: float, epochs: int
) -> None:
    if ends is not None and style not in FIRST_IN_DOUBT:
        return
    if ends is not None:
        ends = style not in BEGIN
    said = numbered(style, story(style, set_up, train, share * train, epochs))
    last = max(i for i, (line, _) in enumerate(said) if line.metric is not None)
    script, events = Script(ends=means(style) if ends is None else ends), list[Event]()
    for i, (line, now) in enumerate(said[: last + 1]):
        reached = i == last
        script, more = script.read(Line(line.epoch, TARGET) if reached else line, now, is_last=reached)
        events += more
    ended = outcome_of(events)
    assert (ended.ending, ended.epochs, ended.metric) == (Ending.CONVERGED, epochs, TARGET)
    doubt = style in FIRST_IN_DOUBT and epochs == 1 and ends is None
    set_up_is_told = style in BEGIN and not doubt
    assert ended.seconds == pytest.approx(said[last][1].seconds - (set_up if set_up_is_told else 0.0))


# ---------------------------------------------------------------------- lines as scripts write them


@pytest.mark.parametrize("style", STYLES)
def test_the_lines_of_each_style_are_those_that_the_launcher_tests_write(style: str) -> None:
    """What `launch_place` has scripts print is what is told of here."""
    found = dict(re.findall(r"(\w+) = '(.*)'", FOUND.get(style, USUAL)))
    printed: list[str] = []
    code = LINES[style].replace('open("metrics.jsonl", "a")', "sink()")

    class Sink:
        def __enter__(self) -> Sink:
            return self

        def __exit__(self, *_: object) -> None: ...

    for epoch in (1, 2):
        given = {"epoch": epoch, "train": lambda n: n / 100, "sink": Sink}
        exec(code.strip().replace("\n    ", "\n"), {**given, "print": lambda text, file=None: printed.append(text)})
    lines = []
    for text in printed:
        if style == "file":
            row = json.loads(text)
            lines.append(Line(str(row["epoch"]), row["metric"]))
            continue
        name, metric = (re.search(found[key], text) if key in found else None for key in ("epoch_regex", "regex"))
        lines.append(Line(name and name[1], metric and float(metric[1])))
    assert lines == [line for line, _ in story(style, 1.0, 1.0, 0.5, 2)]
