"""Laws of the energy curve: counter readings and power samples -> joules with an error bound."""

from __future__ import annotations

import math
import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import examples
from zeus.monitor.energy import CounterCurve, EnergyCurve, Source
from zeus.monitor.sample_curve import POLLED, SAMPLE_BUFFER

watts = st.floats(min_value=1, max_value=1500)
OLD = 1e7  # joules on a counter that has run for a day


def steps(levels: list[float], each: float) -> list[tuple[float, float]]:
    """(begin, watts) of a load that changes its level every `each` seconds."""
    return [(i * each, level) for i, level in enumerate(levels)]


def truth(load: list[tuple[float, float]], begin: float, end: float) -> float:
    """Exact joules of a load of steps between two moments."""
    ends = [t for t, _ in load[1:]] + [math.inf]
    return sum(w * max(0.0, min(end, e) - max(begin, b)) for (b, w), e in zip(load, ends, strict=True))


def sensed(load: list[tuple[float, float]], until: float, period: float = 0.02) -> list[tuple[float, float]]:
    """What a sensor with the response of SAMPLE_BUFFER says of that load, in closed form step by step."""
    samples, value, now, k = [], load[0][1], 0.0, 0
    changes = [t + SAMPLE_BUFFER.delay for t, _ in load]
    for i in range(int(until / period)):
        moment = i * period
        while now < moment:
            reach = moment if k + 1 == len(load) else min(moment, changes[k + 1])
            fade = math.exp(-(reach - now) / SAMPLE_BUFFER.smoothing)
            value, now = load[k][1] + (value - load[k][1]) * fade, reach
            if k + 1 < len(load) and now >= changes[k + 1]:
                k += 1
        samples.append((moment, value))
    return samples


@given(watts, st.floats(min_value=0.5, max_value=5), st.floats(min_value=0.05, max_value=10))
def test_constant_power_is_power_times_time(power: float, begin: float, length: float) -> None:
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples((0.02 * i, power) for i in range(int((begin + length) / 0.02) + 10))
    window = curve.between(curve.at(begin), curve.at(begin + length))
    assert window.joules == pytest.approx(power * length, rel=1e-6)


@given(st.lists(watts, min_size=3, max_size=12), st.lists(st.floats(0.3, 2.5), min_size=3, max_size=8))
def test_windows_that_tile_an_interval_sum_to_it(levels: list[float], cuts: list[float]) -> None:
    load = steps(levels, 0.25)
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples(sensed(load, 3.0))
    edges = sorted(cuts)
    parts = [curve.between(curve.at(a), curve.at(b)).joules for a, b in pairwise(edges)]
    whole = curve.between(curve.at(edges[0]), curve.at(edges[-1]))
    assert sum(parts) == pytest.approx(whole.joules, abs=1e-6)


@settings(max_examples=examples(40))
@given(st.lists(watts, min_size=2, max_size=6), st.integers(0, 10**6))
def test_tiles_sum_to_the_whole_even_while_the_counter_bends_the_curve(levels: list[float], seed: int) -> None:
    """Each tile is read as soon as it is known, and later corrections must not change what was read."""
    luck = random.Random(seed)
    load = steps([level for level in levels for _ in range(4)], 1.3)
    until = 1.3 * 4 * len(levels)
    samples = sensed(load, until)
    curve = EnergyCurve(SAMPLE_BUFFER)
    edges, read, fed = [0.5], [], 0
    while edges[-1] + 1 < until - 1:
        edges.append(edges[-1] + luck.uniform(0.05, 0.9))
    off = luck.uniform(0.9, 1.1)  # the counter disagrees with the samples by up to 10 %
    for i in range(int(until)):
        upto = next((k for k, (t, _) in enumerate(samples) if t > i), len(samples))
        curve.add_samples(samples[fed:upto])
        fed = upto
        curve.add_counter(i - 0.03, 1000 + off * truth(load, 0, math.floor((i - 0.03) / 0.1) * 0.1))
        while len(read) < len(edges) and curve.covers(edges[len(read)]):
            read.append(curve.at(edges[len(read)]))
    parts = sum(curve.between(a, b).joules for a, b in pairwise(read))
    assert parts == pytest.approx(curve.between(read[0], read[-1]).joules, abs=1e-6)


@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), st.sampled_from([0.05, 0.1, 0.2, 0.5]))
def test_a_short_window_around_a_pulse_is_right_within_its_bound(seed: int, length: float) -> None:
    luck = random.Random(seed)
    begin = 1 + luck.random()
    load = [(0.0, 100.0), (begin, luck.uniform(200, 700)), (begin + length, 100.0)]
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples(sensed(load, 4.0))
    window = curve.between(curve.at(begin), curve.at(begin + length))
    exact = truth(load, begin, begin + length)
    assert abs(window.joules - exact) <= window.error
    assert window.error < 0.5 * exact


def test_a_long_run_follows_the_counter() -> None:
    """Samples that read 5 % low: over ten minutes the counter wins, to within its own step."""
    curve = EnergyCurve(SAMPLE_BUFFER)
    for i in range(600):
        curve.add_samples((i + 0.02 * k, 475.0) for k in range(50))
        curve.add_counter(i + 0.5, 500.0 * math.floor((i + 0.5) / 0.1) * 0.1)
        if i == 40:
            begin = curve.at(40.0)
    window = curve.between(begin, curve.at(590.0))
    assert window.joules == pytest.approx(500 * 550, rel=2e-3)
    assert window.source is Source.COUNTER_AND_SAMPLES


@settings(max_examples=examples(40))
@given(
    st.sampled_from([-SAMPLE_BUFFER.gain, SAMPLE_BUFFER.gain / 2, SAMPLE_BUFFER.gain]),
    st.sampled_from([(50.0, 700.0), (60.0, 400.0), (300.0, 300.0), (600.0, 60.0)]),
    st.sampled_from([10.0, 40.0, 100.0]),
    st.floats(0, 0.09),
    st.sampled_from([1, 4]),
)
def test_a_long_window_is_within_its_bound_whatever_the_power_at_its_ends(
    gain: float, powers: tuple[float, float], length: float, lag: float, every: int
) -> None:
    """The counter holds the curve only as well as it can be read at the power of its readings."""
    (idle, busy), begin, end = powers, 20.3, 20.3 + length
    load = [(0.0, busy), (begin - 2, idle), (begin + 1, busy), (end - 1, idle)]
    curve, points = EnergyCurve(SAMPLE_BUFFER, ceiling=1050.0), []
    samples = [(moment, watts * (1 + gain)) for moment, watts in sensed(load, end + 3)]
    for i in range(int(end + 3)):
        curve.add_samples(samples[50 * i : 50 * (i + 1)])
        if i % every == 0:
            curve.add_counter(i + 0.5, OLD + truth(load, 0, i + 0.5 - lag))
        points += [curve.at(moment) for moment in (begin, end)[len(points) :] if curve.covers(moment)]
    window = curve.between(*points)
    assert abs(window.joules - truth(load, begin, end)) <= window.error


def test_a_gap_in_the_samples_is_filled_by_the_counter() -> None:
    """The process was stopped for a minute while the card drew ten times as much: nobody sampled, the counter knows."""
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples((0.02 * i, 50.0) for i in range(100))
    curve.add_counter(1.0, OLD + 50.0)
    assert not curve.wants_counter
    curve.add_samples((62 + 0.02 * i, 50.0) for i in range(100))
    assert curve.wants_counter
    assert not curve.covers(63.0)
    curve.add_counter(63.0, OLD + 100.0 + 500.0 * 60 + 50.0)
    assert curve.covers(63.0)
    window = curve.between(curve.at(1.0), curve.at(63.0))
    assert window.joules == pytest.approx(500.0 * 60 + 100, rel=0.01)


def test_repeated_equal_readings_count() -> None:
    curve = EnergyCurve(POLLED)
    for i in range(400):
        curve.add_samples([(0.05 * i, 300.0)])
    window = curve.between(curve.at(5.0), curve.at(15.0))
    assert window.joules == pytest.approx(3000.0)
    assert window.source is Source.INTEGRATED


def test_a_sample_told_twice_counts_once() -> None:
    curve = EnergyCurve(SAMPLE_BUFFER)
    samples = [(0.02 * i, 100.0 + 50 * (i % 2)) for i in range(100)]
    once = EnergyCurve(SAMPLE_BUFFER)
    once.add_samples(samples)
    for end in range(10, 101, 10):
        curve.add_samples((t + 1e-6 * (end % 3), w) for t, w in samples[:end])  # stamps are restated with some noise
    assert curve.at(1.5).joules == pytest.approx(once.at(1.5).joules, rel=1e-3)


def counted(load: list[tuple[float, float]], phase: float, moment: float) -> float:
    """What a counter shows that moves every 0.1 s, at moments that are `phase` seconds after whole tenths."""
    return OLD + truth(load, 0.0, max(0.0, math.floor((moment - phase) / 0.1) * 0.1 + phase))


def watched(load: list[tuple[float, float]], phase: float, until: float, late: float = 0.0) -> CounterCurve:
    """A counter that is read every second, and again and again from `until` on, when somebody waits for its energy.

    It is read so many seconds after the middle of the call to the driver, or before.
    """
    curve, moment = CounterCurve(ceiling=1050.0), 0.0
    while not curve.covers(until):
        curve.add_counter(moment, counted(load, phase, max(0.0, moment + late)), abs(late))
        moment = min(moment + 1.0, until + 0.003) if moment < until else moment + 0.005
    return curve


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.floats(0.02, 3), st.floats(1, 1050)), min_size=1, max_size=6),
    st.floats(0, 0.1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([-0.2, -0.008, 0.0, 0.008, 0.2]),
)
def test_a_counter_without_power_is_right_within_its_bound(
    parts: list[tuple[float, float]], phase: float, begin: float, length: float, late: float
) -> None:
    """Wherever the power changes, also just before a window ends, where the counter does not show it yet."""
    ends = list(accumulate(seconds for seconds, _ in parts))
    load = list(zip([0.0, *ends], [*(watts for _, watts in parts), 300.0], strict=True))
    window = begin * ends[-1], (begin + (1 - begin) * length) * ends[-1]
    curve = watched(load, phase, window[1], late)
    told = curve.between(*map(curve.at, window))
    assert abs(told.joules - truth(load, *window)) <= told.error + 1e-6


@pytest.mark.parametrize("rise", [0.02, 0.05, 0.09, 0.25, 0.36, 0.6, 0.9])
def test_power_that_rises_just_before_a_window_ends_is_within_the_told_error(rise: float) -> None:
    load = [(0.0, 157.0), (11 - rise, 588.0)]
    curve = watched(load, 0.005, 11.0)  # the counter last moved at 10.905
    window = curve.between(curve.at(0.0), curve.at(11.0))
    assert abs(window.joules - truth(load, 0, 11)) <= window.error
    assert window.error < 0.12 * window.joules


@given(watts, st.floats(0, 0.1), st.floats(1, 3), st.floats(3, 60))
def test_a_counter_is_good_at_constant_power(power: float, phase: float, begin: float, end: float) -> None:
    load = [(0.0, min(power, 1050.0))]
    curve = watched(load, phase, end)
    window = curve.between(curve.at(begin), curve.at(end))
    assert window.joules == pytest.approx(truth(load, begin, end), abs=0.1 * power + 1e-6)
    assert window.source is Source.COUNTER


def test_a_reloaded_driver_that_counts_from_zero_again_loses_no_energy_seen_before() -> None:
    curve = CounterCurve()
    for moment, joules in ((0.0, 1e6), (1.0, 1e6 + 100), (2.0, 50.0), (3.0, 150.0), (3.1, 160.0)):
        curve.add_counter(moment, joules)
    assert curve.at(3.0).joules - curve.at(0.0).joules == pytest.approx(250.0)
    assert curve.between(curve.at(0.0), curve.at(1.0)).joules == pytest.approx(100.0, abs=5)
    assert math.isnan(curve.between(curve.at(0.0), curve.at(3.0)).joules)  # what it used before it began is not known


def test_the_curve_never_falls() -> None:
    luck = random.Random(3)
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples((0.02 * i, luck.choice([0.0, 800.0])) for i in range(200))
    joules = [curve.at(0.01 * i).joules for i in range(390)]
    assert all(b >= a - 1e-9 for a, b in pairwise(joules))


def test_two_gaps_before_the_counter_speaks_are_both_filled() -> None:
    """Nothing after the first gap may be read before the counter has said what was used in it."""
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples((0.02 * i, 50.0) for i in range(100))
    curve.add_counter(1.0, OLD + 50.0)
    curve.add_samples((62 + 0.02 * i, 50.0) for i in range(100))
    curve.add_samples((124 + 0.02 * i, 50.0) for i in range(100))
    assert not curve.covers(63.0)
    curve.add_counter(125.0, OLD + 50.0 * 5 + 500.0 * 120)
    window = curve.between(curve.at(1.0), curve.at(125.0))
    assert window.joules == pytest.approx(500.0 * 120 + 200, rel=0.01)


def test_a_window_that_ends_inside_a_gap_admits_that_it_does_not_know() -> None:
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples((0.02 * i, 50.0) for i in range(100))
    curve.add_counter(1.0, OLD + 50.0)
    curve.add_samples((62 + 0.02 * i, 50.0) for i in range(100))
    curve.add_counter(63.0, OLD + 100.0 + 500.0 * 60 + 50.0)
    inside = curve.between(curve.at(1.0), curve.at(32.0))
    assert inside.error > 0.5 * inside.joules  # all of it may have been used in the other half
    across = curve.between(curve.at(1.0), curve.at(63.0))
    assert across.error < 0.01 * across.joules


def test_readings_that_are_no_numbers_are_passed_over() -> None:
    curve = EnergyCurve(SAMPLE_BUFFER)
    curve.add_samples((0.02 * i, math.nan if i % 7 == 3 else 300.0) for i in range(600))
    curve.add_counter(5.0, math.nan)
    assert curve.between(curve.at(1.0), curve.at(11.0)).joules == pytest.approx(3000.0)


@settings(max_examples=examples(80))
@given(
    st.floats(50, 600),
    st.floats(50, 600),
    st.dictionaries(st.integers(1, 58), st.sampled_from([-OLD, -5e4, 5e4, 1e12]), max_size=8),
)
def test_whatever_a_counter_jumps_by_no_window_moves(before: float, after: float, jumps: dict[int, float]) -> None:
    curve, load, joules = EnergyCurve(SAMPLE_BUFFER, ceiling=1050.0), [(0.0, before), (30.0, after)], OLD
    samples, points = sensed(load, 60.0), {}
    for i in range(60):
        joules = max(0.0, joules + jumps.get(i, 0.0))
        curve.add_samples(samples[50 * i : 50 * (i + 1)])
        curve.add_counter(i + 0.5, joules + truth(load, 0, i + 0.5))
        points |= {moment: curve.at(moment) for moment in range(i) if moment not in points and curve.covers(moment)}
    for begin, end in ((1, 2), (1, 57), (29, 31), (40, 50)):
        window = curve.between(points[begin], points[end])
        assert abs(window.joules - truth(load, begin, end)) <= window.error + 1e-6


@given(st.floats(0, 650), st.floats(0.5, 60), st.floats(-2e4, 3e4))
def test_a_gap_is_told_truly_or_not_at_all(used: float, seconds: float, lost: float) -> None:
    """Idle before and after, anything in between; then the counter is right, has lost its count, or began anew."""
    began, ended = 5.0, 5.0 + seconds
    load = [(0.0, 75.0), (began, used), (ended, 75.0)]
    for counter in (OLD + truth(load, 0, ended + 1), max(0.0, lost), truth(load, began + seconds / 2, ended + 1)):
        curve = EnergyCurve(POLLED, ceiling=1050.0)
        curve.add_samples((0.05 * i, 75.0) for i in range(100))
        curve.add_counter(2.0, OLD + 150.0)
        curve.add_samples((ended + 0.05 * i, 75.0) for i in range(100))
        curve.add_counter(ended + 1, counter)
        curve.add_samples((ended + 5 + 0.05 * i, 75.0) for i in range(100))
        window = curve.between(curve.at(1.0), curve.at(ended + 2))
        assert math.isnan(window.joules) or abs(window.joules - truth(load, 1.0, ended + 2)) <= window.error


@given(st.floats(0, 1050), st.floats(0.5, 60))
def test_a_gap_that_no_counter_fills_is_within_its_bound_or_not_known(used: float, seconds: float) -> None:
    """A card without a counter, read before and after: in between it may have drawn anything that it can."""
    began, ended = 5.0, 5.0 + seconds
    load = [(0.0, 75.0), (began, used), (ended, 75.0)]
    curve = EnergyCurve(POLLED, ceiling=1050.0)
    curve.add_samples((0.05 * i, 75.0) for i in range(100))
    curve.add_samples((ended + 0.05 * i, 75.0) for i in range(100))
    window = curve.between(curve.at(1.0), curve.at(ended + 2))
    assert math.isnan(window.joules) or abs(window.joules - truth(load, 1.0, ended + 2)) <= window.error


@settings(max_examples=examples(20))
@given(st.floats(-0.018, 0.018), st.integers(20, 60))
def test_a_window_begun_before_the_counter_spoke_is_as_unsure_as_the_samples_alone(off: float, heard: int) -> None:
    """Polled power may be off by 2 %. What was used before the counter's first reading, the counter does not know."""
    curve = EnergyCurve(POLLED, ceiling=1050.0)
    for i in range(heard + 20):
        curve.add_samples((i + 0.05 * k, 500.0 * (1 + off)) for k in range(20))
        if i >= heard:
            curve.add_counter(i + 0.5, OLD + 500.0 * math.floor(10 * (i + 0.5)) / 10)
        if i == 5:
            begin = curve.at(4.0)
    window = curve.between(begin, curve.at(heard + 15.0))
    assert window.source is Source.COUNTER
    assert abs(window.joules - 500.0 * (heard + 11.0)) <= window.error


@pytest.mark.parametrize("watts", [-1.0, 4294967.295, math.inf])
def test_power_that_cannot_be_is_passed_over(watts: float) -> None:
    curve = EnergyCurve(SAMPLE_BUFFER, ceiling=1050.0)
    curve.add_samples((0.02 * i, watts if i % 7 == 3 else 300.0) for i in range(600))
    assert curve.between(curve.at(1.0), curve.at(11.0)).joules == pytest.approx(3000.0)


@settings(max_examples=examples(80))
@given(
    st.floats(50, 600),
    st.one_of(st.floats(-1000, -500), st.floats(500, 1000)),  # what the errors of samples and counter cannot explain
    st.sampled_from([1, 2, 5, 10]),
    st.sampled_from([1, 3, 5, 10]),
    st.sampled_from([0, 1]),
)
def test_a_counter_that_steps_back_and_forth_stays_within_its_bound_or_is_not_known(
    watts: float, jump: float, every: int, lasts: int, first: int
) -> None:
    curve, load, points = EnergyCurve(SAMPLE_BUFFER, ceiling=1050.0), [(0.0, watts)], {}
    samples = sensed(load, 60.0)
    for i in range(60):
        curve.add_samples(samples[50 * i : 50 * (i + 1)])
        if i % every == 0:
            away = jump if (i // lasts + first) % 2 else 0.0
            curve.add_counter(i + 0.5, OLD + truth(load, 0, i + 0.5) + away)
        points |= {moment: curve.at(moment) for moment in range(i) if moment not in points and curve.covers(moment)}
    for begin, end in ((1, 57), (2, 26), (20, 50), (40, 45)):
        window = curve.between(points[begin], points[end])
        assert math.isnan(window.joules) or abs(window.joules - watts * (end - begin)) <= window.error + 1e-6


def test_a_counter_is_given_up_after_three_strikes_and_back_after_as_many_agreements() -> None:
    curve, joules, sources = EnergyCurve(SAMPLE_BUFFER), OLD, []
    for i in range(12):
        joules += 0.0 if 3 <= i < 6 else 300.0  # it stands still for three readings
        curve.add_samples((i + 0.02 * k, 300.0) for k in range(50))
        curve.add_counter(i + 0.5, joules)
        sources.append(curve.source)
    broken = [i for i, source in enumerate(sources) if source is Source.INTEGRATED]
    assert broken == [5, 6, 7]


def test_a_gap_that_no_reading_fills_is_let_go_after_a_while() -> None:
    curve = EnergyCurve(SAMPLE_BUFFER, ceiling=1000.0)
    curve.add_samples((0.02 * i, 50.0) for i in range(100))
    curve.add_counter(1.0, OLD + 50.0)
    curve.add_samples((4 + 0.02 * i, 50.0) for i in range(200))
    assert curve.wants_counter and not curve.covers(5.0)
    curve.add_samples((8 + 0.02 * i, 50.0) for i in range(100))
    assert not curve.wants_counter and curve.covers(5.0)
    assert curve.source is Source.INTEGRATED
    assert math.isnan(curve.between(curve.at(1.0), curve.at(5.0)).joules)  # the card may have drawn 2 kJ in the gap
    curve.add_counter(9.0, OLD + 1e6)
    assert curve.source is Source.COUNTER_AND_SAMPLES  # compared with nothing, so trusted at once
