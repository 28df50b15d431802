"""What must hold of any card under any load: the virtual GPU's physics."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zeus.device.virtual.physics import Card, Load, epoch, operate
from zeus.errors import InputError

NOISE = 1 + 1e-9  # of floating point
CLOSE = 1 - 1e-9


@st.composite
def cards(draw: st.DrawFn) -> Card:
    low = draw(st.floats(50, 300))
    high = low * draw(st.floats(1, 5))
    floor = draw(st.floats(0.05, 0.5))
    return Card(
        name="any",
        min_watts=low,
        max_watts=high,
        default_watts=draw(st.floats(low, high)),
        idle_watts=draw(st.floats(0, 0.95)) * low,
        min_clock=floor,
        knee_clock=draw(st.floats(floor, 1)),
        exponent=draw(st.floats(1, 6)),
    )


loads = st.builds(
    Load,
    samples_per_epoch=st.integers(1, 10**7),
    host_seconds_per_step=st.floats(0, 0.5),
    host_seconds_per_sample=st.floats(1e-8, 0.1),
    compute_seconds_per_sample=st.floats(0, 0.1),
    half_batch=st.floats(0, 500),
    crowd_batch=st.floats(10, 1e6) | st.just(math.inf),
    latency_seconds_per_step=st.floats(0, 0.5),
    memory_seconds_per_sample=st.floats(0, 0.1),
    compute_watts=st.floats(0, 2000),
    light_watts=st.floats(0, 2000),
)
batch_sizes = st.integers(1, 50_000)
shares = st.floats(0, 1)


def limit(card: Card, share: float) -> float:
    return card.min_watts + share * (card.max_watts - card.min_watts)


@given(cards(), loads, batch_sizes, shares, shares)
def test_a_lower_limit_is_never_faster_nor_draws_more(card: Card, load: Load, b: int, one: float, other: float) -> None:
    low = operate(card, load, b, limit(card, min(one, other)))
    high = operate(card, load, b, limit(card, max(one, other)))
    assert low.seconds >= high.seconds * CLOSE
    assert low.watts <= high.watts * NOISE
    assert low.clock <= high.clock


@given(cards(), loads, batch_sizes, shares)
def test_power_stays_within_the_limit_unless_the_clock_is_at_its_floor(
    card: Card, load: Load, b: int, share: float
) -> None:
    did = operate(card, load, b, limit(card, share))
    assert did.clock == card.min_clock or did.watts <= limit(card, share) * NOISE


@given(cards(), loads, batch_sizes, shares)
def test_power_lies_between_idle_and_the_greatest_limit(card: Card, load: Load, b: int, share: float) -> None:
    did = operate(card, load, b, limit(card, share))
    assert card.idle_watts <= did.watts <= card.max_watts
    assert card.min_clock <= did.clock <= 1


@given(cards(), loads, batch_sizes, batch_sizes, shares)
def test_a_larger_batch_never_takes_fewer_seconds(card: Card, load: Load, b: int, c: int, share: float) -> None:
    small, large = (operate(card, load, size, limit(card, share)) for size in sorted((b, c)))
    assert small.seconds <= large.seconds * NOISE


@given(cards(), loads, batch_sizes, shares)
def test_time_and_power_are_continuous_in_the_limit(card: Card, load: Load, b: int, share: float) -> None:
    watts = limit(card, share)
    assume(watts - card.idle_watts > 0.01)
    before, after = operate(card, load, b, watts), operate(card, load, b, watts * (1 + 1e-9))
    assert before.seconds == pytest.approx(after.seconds, rel=1e-4)
    assert before.watts == pytest.approx(after.watts, rel=1e-4)


@given(cards())
def test_dynamic_power_is_continuous_at_the_knee_and_grows_with_the_clock(card: Card) -> None:
    below, above = card.knee_clock * (1 - 1e-9), card.knee_clock
    assert card.dynamic(below) == pytest.approx(card.dynamic(above), rel=1e-6)
    steps = [card.dynamic(i / 50) for i in range(51)]
    assert steps == sorted(steps)
    assert steps[-1] == 1


@given(cards(), st.floats(1, 2000), shares)
def test_the_clock_is_the_fastest_that_fits(card: Card, full: float, share: float) -> None:
    watts = limit(card, share)
    clock = card.clock(full, watts)
    draw = card.idle_watts + full * card.dynamic(clock)
    assert clock == card.min_clock or draw <= watts * NOISE
    assert clock == 1 or draw >= watts * CLOSE


@given(cards(), loads, batch_sizes, shares)
def test_an_epoch_is_its_steps(card: Card, load: Load, b: int, share: float) -> None:
    step, whole = (does(card, load, b, limit(card, share)) for does in (operate, epoch))
    assert whole.seconds == pytest.approx(step.seconds * load.samples_per_epoch / b)
    assert whole.watts == step.watts
    assert whole.joules == pytest.approx(whole.seconds * whole.watts)


@given(cards(), loads, st.integers(max_value=0))
def test_an_empty_batch_is_refused(card: Card, load: Load, b: int) -> None:
    with pytest.raises(InputError, match="at least one sample"):
        operate(card, load, b, card.max_watts)


@given(cards(), loads, st.floats(max_value=0) | st.just(math.nan))
def test_a_limit_that_is_no_power_is_refused(card: Card, load: Load, watts: float) -> None:
    with pytest.raises(InputError, match="above 0"):
        operate(card, load, 1, watts)


@given(loads, st.sampled_from(sorted(Load.__slots__)), st.sampled_from([-1.0, math.nan, -math.inf]))
def test_a_load_with_an_impossible_number_is_refused_by_name(load: Load, field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        Load(**{**asdict(load), field: value})


@pytest.mark.parametrize(
    "change",
    [
        {"min_watts": 300},
        {"default_watts": 400},
        {"max_watts": math.inf},
        {"idle_watts": 100},
        {"idle_watts": -1},
        {"min_clock": 0},
        {"knee_clock": 0.1},
        {"knee_clock": 1.1},
        {"exponent": 0.5},
        {"exponent": math.nan},
    ],
)
def test_a_card_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    good = Card("some", 100, 250, 250, 30, 0.15, 0.7, 3)
    with pytest.raises(InputError, match="'some'"):
        Card(**{**asdict(good), **change})
