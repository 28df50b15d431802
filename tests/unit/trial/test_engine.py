"""Laws of a trial's engine: what is charged, when it stops, what it says of itself, whoever feeds it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from zeus.cost import CostModel, Use, fits
from zeus.job import Ending, Kind, Outcome, Target, UsageSegment, replace
from zeus.ledger.units import UNSEEN
from zeus.trial.closed_form import run_through
from zeus.trial.driver import Driver
from zeus.trial.engine import (
    LOOKS,
    POINTS,
    AskPolicy,
    Ended,
    EpochBegan,
    EpochEnded,
    Evaluated,
    Event,
    Measured,
    PolicyAnswered,
    SamplesCounted,
    Started,
    Terms,
    TrialEngine,
)
from zeus.trial.knowledge import NEWEST_TRIALS, Knowledge, is_due

MISS, REACH = 0.0, 1.0
COST = CostModel(0.5, 250.0)
KeepGoing = Callable[[int, float], bool]

amounts = st.floats(1e-2, 1e6)
uses = st.builds(Use, amounts, amounts)
bounds = st.none() | st.floats(1e-2, 1e9)


def terms(max_epochs: int = 10, bound: float | None = None, **more: object) -> Terms:
    given = {"target_metric": REACH, "max_epochs": max_epochs, "cost": COST, "cost_limit": bound, **more}
    return Terms(**given)  # type: ignore[arg-type]


def within(bound: float | None) -> Callable[[AskPolicy], bool]:
    """The paper's word: as long as the bound allows."""
    return lambda question: fits(question.cost, bound)


def whole(use: Use, metric: float = MISS, *, kind: Kind = Kind.EPOCH, count: int = 1) -> list[Event]:
    return [EpochBegan(), Measured(kind, count, use, 250.0), EpochEnded(), Evaluated(metric)]


def outcome_of(driver: Driver) -> Outcome:
    assert driver.outcome is not None
    return driver.outcome


# ---------------------------------------------------------------------- in closed form


def stubborn(after: int, again: int, bound: float | None) -> KeepGoing:
    """A policy that is not monotone: it says no for some epochs, and yes again later."""
    return lambda epochs, cost: not after <= epochs < after + again and fits(cost, bound)


@st.composite
def policies(draw: st.DrawFn) -> tuple[KeepGoing, bool]:
    bound = draw(bounds)
    if draw(st.booleans()):
        return lambda epochs, cost: fits(cost, bound), True
    return stubborn(draw(st.integers(0, 12)), draw(st.integers(1, 5)), bound), False


@pytest.mark.parametrize("profiles", [False, True])
@given(first=uses, rest=uses, last=st.integers(1, 15), reaches=st.booleans(), policy=policies())
def test_event_by_event_is_the_closed_form(
    profiles: bool, first: Use, rest: Use, last: int, reaches: bool, policy: tuple[KeepGoing, bool]
) -> None:
    """Where the first epoch profiles, nobody is asked before it; else an epoch is known, and all are alike."""
    keep_going, monotone = policy
    first = first if profiles else rest
    known = Knowledge() if profiles else Knowledge(epoch=rest)
    edge: list[float] = []

    def ask(question: AskPolicy) -> bool:
        edge.append(question.cost)
        return keep_going(question.so_far.epochs, question.cost)

    driver = Driver(TrialEngine(terms(last), known), ask=ask)
    driver.feed(Started())
    while not driver.is_over:
        number = driver.engine.epochs + 1
        driver.feed(EpochBegan(), Measured(Kind.EPOCH, 0, rest if number > 1 else first, 250.0))
        if profiles and number == 1:
            driver.engine = replace(driver.engine, known=Knowledge(epoch=rest))
        driver.feed(Evaluated(REACH if reaches and number == last else MISS), EpochEnded())
    expected = run_through(
        first,
        rest,
        int(profiles),
        last,
        reaches=reaches,
        cost=COST,
        keep_going=keep_going,
        monotone=monotone,
    )
    got = outcome_of(driver)
    assert (got.ending, got.epochs) == (expected.ending, expected.epochs)
    assert got.joules == pytest.approx(expected.joules, rel=1e-9)
    assert got.seconds == pytest.approx(expected.seconds, rel=1e-9)
    assert got.next_epoch_cost == (
        None if expected.next_epoch_cost is None else pytest.approx(expected.next_epoch_cost, rel=1e-9)
    )


@given(rest=uses, last=st.integers(1, 15), bound=st.floats(0.1, 20), cold=st.floats(1, 3))
def test_what_few_units_foretell_is_doubted_in_favour_of_going_on(
    rest: Use, last: int, bound: float, cold: float
) -> None:
    """Measured units are held uncertain: a trial may do one epoch more than a profile would allow, and no fewer."""
    limit, first = bound * COST.of(rest), rest.times(cold)
    driver = Driver(TrialEngine(terms(last, limit)), ask=within(limit))
    driver.feed(Started())
    while not driver.is_over:
        driver.feed(*whole(first if not driver.engine.epochs else rest))
    expected = run_through(
        first,
        rest,
        1,
        last,
        reaches=False,
        cost=COST,
        keep_going=lambda epochs, cost: fits(cost, limit),
        monotone=True,
    )
    # After one epoch, which was cold, nothing is known of the next.
    assert expected.epochs <= outcome_of(driver).epochs <= min(last, max(expected.epochs + 1, 2))
    spent = COST.cost(outcome_of(driver).joules or 0.0, outcome_of(driver).seconds)
    if outcome_of(driver).epochs > max(2, expected.epochs):
        assert spent <= limit + (1 - math.exp(-UNSEEN)) * COST.of(rest) * (1 + 1e-6)


# ---------------------------------------------------------------------- what is charged

KINDS = st.sampled_from([Kind.STEP, Kind.EPOCH, Kind.EVALUATION, Kind.SET_UP])
pieces = st.builds(Measured, KINDS, st.integers(0, 5), uses, st.none() | st.sampled_from([250.0, 150.0]))
stories = st.lists(st.tuples(st.lists(pieces, max_size=4), st.lists(pieces, max_size=3)), min_size=1, max_size=8)


def told(story: list[tuple[list[Measured], list[Measured]]]) -> list[Event]:
    events: list[Event] = [Started()]
    for inside, beside in story:
        events += [EpochBegan(), *inside, EpochEnded(), *beside, Evaluated(MISS)]
    return events


@given(stories)
def test_everything_is_charged_but_set_up(story: list[tuple[list[Measured], list[Measured]]]) -> None:
    driver = Driver(TrialEngine(terms(99)))
    driver.feed(*told(story), Ended(Ending.NOT_CONVERGED))
    charged = [one.use for two in story for some in two for one in some if one.kind is not Kind.SET_UP]
    got = outcome_of(driver)
    assert got.epochs == len(story)
    assert got.seconds == pytest.approx(sum(one.seconds for one in charged), abs=1e-8)
    joules = sum(one.joules for one in charged)
    assert got.joules == (pytest.approx(joules) if joules else None)


@given(stories)
def test_stretches_add_up_to_what_was_told_of_units(story: list[tuple[list[Measured], list[Measured]]]) -> None:
    driver = Driver(TrialEngine(terms(99)))
    driver.feed(*told(story), Ended(Ending.NOT_CONVERGED))
    counted = [one for two in story for some in two for one in some if one.count]
    stretches = outcome_of(driver).stretches
    for kind in Kind:
        rows, units = [s for s in stretches if s.kind is kind], [m for m in counted if m.kind is kind]
        assert sum(s.count for s in rows) == sum(m.count for m in units)
        assert sum(s.measurements for s in rows) == len(units)
        assert sum(s.joules or 0.0 for s in rows) == pytest.approx(sum(m.use.joules for m in units))
        assert sum(s.seconds for s in rows) == pytest.approx(sum(m.use.seconds for m in units))
    assert len({(s.kind, s.limit_watts, s.cold) for s in stretches}) == len(stretches)


@given(stories)
def test_only_the_first_epoch_and_its_evaluation_are_cold(
    story: list[tuple[list[Measured], list[Measured]]],
) -> None:
    driver = Driver(TrialEngine(terms(99)))
    driver.feed(*told(story), Ended(Ending.NOT_CONVERGED))
    first = [one for some in story[0] for one in some if one.count]
    cold = [s for s in outcome_of(driver).stretches if s.cold]
    assert sum(s.count for s in cold) == sum(m.count for m in first)
    assert sum(s.seconds for s in cold) == pytest.approx(sum(m.use.seconds for m in first))


@given(st.lists(uses, min_size=1, max_size=8))
def test_the_curve_adds_up_to_what_was_charged(epochs: list[Use]) -> None:
    driver = Driver(TrialEngine(terms(99)))
    for number, use in enumerate(epochs, 1):
        driver.feed(*whole(use, MISS - number))
    driver.feed(Ended(Ending.NOT_CONVERGED))
    curve = outcome_of(driver).curve
    assert [point.number for point in curve] == list(range(1, len(epochs) + 1))
    assert [point.metric for point in curve] == [MISS - n for n in range(1, len(epochs) + 1)]
    assert [(point.joules, point.seconds) for point in curve] == [
        pytest.approx((use.joules, use.seconds)) for use in epochs
    ]
    assert {point.limit_watts for point in curve} == {250.0}


@pytest.mark.parametrize("epochs", [POINTS, POINTS + 1, 2 * POINTS, 4 * POINTS + 3])
def test_a_long_curve_is_thinned_evenly_and_keeps_its_span(epochs: int) -> None:
    engine = TrialEngine(terms(epochs + 1))
    for _ in range(epochs):
        for event in (EpochBegan(), Measured(Kind.EPOCH, 1, Use(100.0, 1.0), 250.0), EpochEnded(), Evaluated(MISS)):
            engine, actions = engine.handle(event)
            if any(isinstance(one, AskPolicy) for one in actions):
                engine, _ = engine.handle(PolicyAnswered(True))
    curve = engine.outcome(Ending.NOT_CONVERGED).curve
    assert len(curve) <= POINTS
    assert len(curve) >= min(epochs, POINTS) // 2
    strides = {after.number - before.number for before, after in pairwise(curve)}
    assert len(strides) == 1
    assert curve[0].number == min(strides) and curve[-1].number > epochs - 2 * min(strides)
    assert engine.epochs == epochs


# ---------------------------------------------------------------------- what stops it, and what does not


@given(st.floats(1.0, 1e3), st.floats(0.01, 1.99))
def test_a_cold_epoch_alone_stops_nothing(cold: float, share: float) -> None:
    """Unless what was spent is above the bound already."""
    first = Use(100.0, 1.0).times(cold)
    bound = share * COST.of(first)
    driver = Driver(TrialEngine(terms(9, bound)), ask=within(bound))
    driver.feed(Started(), *whole(first))
    assert driver.is_over == (share < 1)
    if driver.is_over:
        assert (outcome_of(driver).ending, outcome_of(driver).epochs) == (Ending.STOPPED, 1)
        assert outcome_of(driver).next_epoch_cost is None  # nobody knows it


@given(
    st.lists(st.tuples(uses, st.booleans()), min_size=1, max_size=6),
    st.floats(1e-3, 1e3),
    st.sampled_from([Kind.EPOCH, Kind.STEP]),
    st.sampled_from(list(Ending)[3:]),
)
def test_unknown_energy_stops_nothing_and_is_none(
    epochs: list[tuple[Use, bool]], bound: float, kind: Kind, ending: Ending
) -> None:
    """From the first epoch of unknown energy on, the bound is not asked about."""
    epochs = [(epochs[0][0], False), *epochs[1:]]
    driver = Driver(TrialEngine(terms(99, bound, steps_per_epoch=4)), ask=within(bound))
    driver.feed(Started())
    for use, known in epochs:
        driver.feed(*whole(use if known else Use(math.nan, use.seconds), kind=kind, count=4))
    assert not driver.is_over
    driver.feed(Ended(ending))
    got = outcome_of(driver)
    assert (got.joules, got.epochs, got.next_epoch_cost) == (None, len(epochs), None)
    assert got.ending is ending
    assert got.seconds == pytest.approx(sum(use.seconds for use, _ in epochs))
    assert all(s.joules is None or s.joules > 0 for s in got.stretches)
    assert all(point.joules is None or point.joules > 0 for point in got.curve)


def test_energy_of_nothing_that_ran_is_nothing_and_of_an_epoch_is_unknown() -> None:
    """A card that counts nothing does not tell that an epoch was free."""
    driver = Driver(TrialEngine(terms()))
    driver.feed(Started(), Ended(Ending.CRASHED))
    assert outcome_of(driver).joules == 0.0
    driver = Driver(TrialEngine(terms()))
    driver.feed(Started(), *whole(Use(0.0, 1.0)), Ended(Ending.CRASHED))
    assert outcome_of(driver).joules is None


after_the_end = st.lists(
    st.sampled_from([Started(), EpochBegan(), EpochEnded(), Evaluated(MISS), Evaluated(REACH), PolicyAnswered(False)])
    | st.builds(Measured, KINDS, st.integers(0, 3), uses)
    | st.builds(Ended, st.sampled_from(list(Ending)[3:]))
    | st.builds(SamplesCounted, st.integers(1, 9)),
    max_size=8,
)


@given(st.sampled_from(["reached", "max_epochs", "stopped", "crashed", "lost"]), uses, after_the_end)
def test_nothing_changes_after_the_end(how: str, use: Use, more: list[Event]) -> None:
    bound = 1.5 * COST.of(use)
    driver = Driver(TrialEngine(terms(1 if how == "max_epochs" else 9, bound), Knowledge(epoch=use)), ask=within(bound))
    driver.feed(Started(), *whole(use, REACH if how == "reached" else MISS))
    if how in ("crashed", "lost"):
        driver = Driver(TrialEngine(terms()))
        driver.feed(Started(), *whole(use), Ended(Ending(how)))
    before, outcome = driver.engine, outcome_of(driver)
    driver.feed(*more)
    assert driver.engine == before
    assert driver.outcome is outcome
    assert driver.engine.outcome(outcome.ending) == replace(outcome, curve=driver.engine.outcome(outcome.ending).curve)


@given(st.lists(st.floats(0.5, 2), min_size=3, max_size=10), st.integers(0, 5), st.floats(0.5, 3))
def test_after_a_stop_inside_an_epoch_its_rest_is_charged_and_nothing_else_changes(
    paces: list[float], rest: int, last: float
) -> None:
    step = Use(10.0, 0.1)
    bound = COST.of(step) * 2  # the first steps alone pass it
    driver = Driver(TrialEngine(terms(9, bound, steps_per_epoch=100)), ask=within(bound))
    driver.feed(Started(), EpochBegan())
    for pace in paces:
        driver.feed(Measured(Kind.STEP, 5, step.times(5 * pace), 250.0))
    assert driver.engine.ending is Ending.STOPPED
    at_stop = driver.engine
    driver.feed(*(Measured(Kind.STEP, 1, step.times(last), 250.0) for _ in range(rest)), EpochEnded(), Evaluated(REACH))
    now = driver.engine
    assert (now.ending, now.epochs, now.metric) == (Ending.STOPPED, at_stop.epochs, at_stop.metric)
    assert now.spent.joules == pytest.approx(at_stop.spent.joules + rest * last * step.joules)
    assert now.next_epoch_cost == at_stop.next_epoch_cost


# ---------------------------------------------------------------------- by how much a bound is passed


@example(epochs=2, per_look=1, slow=[], bound=1.0, noise=[1.0] * LOOKS, evaluation=0.5, other_size=1.0)
@example(epochs=3, per_look=1, slow=[], bound=0.7, noise=[1.0] * LOOKS, evaluation=0.5, other_size=1.0)
@example(epochs=1, per_look=1, slow=[1.55, 15], bound=0.07, noise=[1.0] * LOOKS, evaluation=0.5, other_size=0.95)
@given(
    epochs=st.integers(1, 6),
    per_look=st.integers(1, 4),
    slow=st.lists(st.floats(1, 20), min_size=0, max_size=3),
    bound=st.floats(0.05, 8),
    noise=st.lists(st.floats(0.9, 1.1), min_size=LOOKS, max_size=LOOKS),
    evaluation=st.floats(0, 0.5),
    other_size=st.floats(0.95, 1.05),
)
def test_with_visible_steps_no_trial_passes_its_bound_by_more_than_a_tenth_of_an_epoch(
    epochs: int,
    per_look: int,
    slow: list[float],
    bound: float,
    noise: list[float],
    evaluation: float,
    other_size: float,
) -> None:
    """The first looks of the first epoch may be slow, as libraries load; looks are a twentieth of an epoch apart.

    A script evaluates after its steps, also if it is stopped among them. Another size tells what that uses.
    """
    steps, step = LOOKS * per_look, Use(50.0, 0.25)
    evaluated = step.times(steps * evaluation)
    epoch_cost = COST.of(step) * steps * 1.1 + COST.of(evaluated)
    limit = bound * COST.of(step) * steps + COST.of(evaluated)
    known = Knowledge(evaluation=evaluated.times(other_size) if evaluation else None)
    driver = Driver(TrialEngine(terms(epochs, limit, steps_per_epoch=steps), known), ask=within(limit))
    driver.feed(Started())
    last = 0.0
    while not driver.is_over:
        driver.feed(EpochBegan())
        for look in range(LOOKS):
            if driver.is_over:
                break
            pace = noise[look] * (slow[look] if not driver.engine.epochs and look < len(slow) else 1.0)
            use = step.times(per_look * pace)
            last = COST.of(use)
            driver.feed(Measured(Kind.STEP, per_look, use, 250.0))
        driver.feed(Measured(Kind.EVALUATION, 1, evaluated, 250.0), EpochEnded(), Evaluated(MISS))
    spent = COST.of(driver.engine.spent)
    # Nobody can foresee the last look, which a slow beginning makes dear, nor by how much the other size misleads.
    misled = max(0.0, 1 - other_size) * COST.of(evaluated)
    assert spent <= limit + max(0.1 * epoch_cost, last + misled) * (1 + 1e-9)
    if outcome_of(driver).ending is Ending.STOPPED:
        assert outcome_of(driver).next_epoch_cost is not None


@given(slow=st.floats(1.5, 20), share=st.floats(0.3, 0.95))
def test_an_epoch_slower_than_the_last_is_stopped_by_its_own_pace(slow: float, share: float) -> None:
    """Its first two looks tell that it will not fit, however quick the steps of the epoch before were."""
    steps, step = 5 * LOOKS, Use(50.0, 0.25)
    limit = COST.of(step) * steps * (1 + share * slow)
    assume(share * slow > 1)  # or the second epoch is not begun
    driver = Driver(TrialEngine(terms(9, limit, steps_per_epoch=steps)), ask=within(limit))
    driver.feed(Started(), EpochBegan())
    driver.feed(*(Measured(Kind.STEP, 5, step.times(5), 250.0) for _ in range(LOOKS)), EpochEnded(), Evaluated(MISS))
    driver.feed(EpochBegan(), *(Measured(Kind.STEP, 5, step.times(5 * slow), 250.0) for _ in range(2)))
    assert driver.engine.ending is Ending.STOPPED


@given(epochs=st.lists(st.floats(0.5, 2), min_size=1, max_size=12), bound=st.floats(0.05, 20), warm=st.floats(1, 10))
def test_without_steps_no_trial_passes_its_bound_by_more_than_one_epoch(
    epochs: list[float], bound: float, warm: float
) -> None:
    use, limit = Use(100.0, 1.0), bound * COST.of(Use(100.0, 1.0))
    driver = Driver(TrialEngine(terms(len(epochs), limit)), ask=within(limit))
    driver.feed(Started())
    dearest = 0.0
    for number, factor in enumerate(epochs):
        if not driver.is_over:
            one = use.times(factor * (warm if number == 0 else 1.0))
            dearest = COST.of(one)
            driver.feed(*whole(one))
    assert COST.of(driver.engine.spent) <= limit + dearest * (1 + 1e-9)


@given(st.floats(0.01, 0.99), st.integers(1, 50))
def test_a_trial_of_which_not_even_one_epoch_fits_is_not_begun_and_charged_nothing(share: float, epochs: int) -> None:
    use = Use(100.0, 1.0)
    bound = share * COST.of(use)
    driver = Driver(TrialEngine(terms(epochs, bound), Knowledge(epoch=use)), ask=within(bound))
    driver.feed(Started())
    got = outcome_of(driver)
    assert (got.ending, got.epochs, got.joules, got.seconds) == (Ending.STOPPED, 0, 0.0, 0.0)
    assert got.next_epoch_cost == pytest.approx(COST.of(use))


@pytest.mark.parametrize("kind", [Kind.STEP, Kind.EPOCH])
@given(unit=uses, share=st.floats(0.2, 5), epochs=st.integers(2, 5))
def test_what_the_next_epoch_will_cost_has_its_evaluation_in_it(
    kind: Kind, unit: Use, share: float, epochs: int
) -> None:
    steps = 4 if kind is Kind.STEP else 1
    evaluation = unit.times(share * steps)
    asked: list[float] = []

    def ask(question: AskPolicy) -> bool:
        asked.append(question.cost)
        return True

    driver = Driver(TrialEngine(terms(9, steps_per_epoch=steps if kind is Kind.STEP else None)), ask=ask)
    driver.feed(Started())
    for _ in range(epochs):
        driver.feed(EpochBegan(), *(Measured(kind, 1, unit, 250.0) for _ in range(steps)))
        driver.feed(Measured(Kind.EVALUATION, 1, evaluation, 250.0), EpochEnded(), Evaluated(MISS))
    epoch = COST.of(unit.times(steps) + evaluation)
    assert epoch * (epochs + math.exp(-UNSEEN)) <= asked[-1] * (1 + 1e-6)
    assert asked[-1] <= epoch * (epochs + 1) * (1 + 1e-6)


@given(uses, st.integers(1, 6))
def test_what_earlier_trials_used_foretells_the_first_epoch(use: Use, trials: int) -> None:
    assume(COST.of(use) > 0)
    steady = UsageSegment.of(Kind.EPOCH, 250.0, False, 5, 5 * use.joules, 5 * use.seconds)
    questions: list[AskPolicy] = []

    def ask(question: AskPolicy) -> bool:
        questions.append(question)
        return True

    known = Knowledge(trials=((steady,),) * trials)
    driver = Driver(TrialEngine(terms(found_watts=250.0), known), ask=ask)
    driver.feed(Started())
    (question,) = questions
    assert COST.of(use) * math.exp(-UNSEEN) <= question.cost * (1 + 1e-9)
    assert question.cost <= COST.of(use) * (1 + 1e-9)


def test_the_highest_limit_is_due_where_it_was_not_seen_for_long_or_units_have_changed_by_a_fifth() -> None:
    def trial(*rows: tuple[float, float]) -> tuple[UsageSegment, ...]:
        return tuple(UsageSegment.of(Kind.EPOCH, limit, False, 2, 2 * joules, 2.0) for limit, joules in rows)

    first, later = trial((250.0, 100.0), (150.0, 80.0)), trial((150.0, 90.0))
    assert not is_due((), 250.0)
    assert not is_due((first, later), 250.0)
    assert is_due((first, later, trial((150.0, 97.0))), 250.0)
    assert not is_due((later,) * (NEWEST_TRIALS - 1), 250.0)
    assert is_due((later,) * NEWEST_TRIALS, 250.0)
    assert not is_due((*[later] * NEWEST_TRIALS, first), 250.0)
    grown = trial((150.0, 120.0))
    assert is_due((first, grown), 250.0)
    assert is_due((first, trial((250.0, 150.0)), grown), 250.0)  # a run at the top alone says nothing of 150 W


def test_a_slow_start_is_no_change_of_units() -> None:
    def row(limit: float, cold: bool, joules: float) -> UsageSegment:
        return UsageSegment.of(Kind.STEP, limit, cold, 10, 10 * joules, 10.0)

    profiled = (row(250.0, True, 300.0), row(150.0, True, 100.0), row(150.0, False, 80.0))
    stored = (row(150.0, True, 200.0), row(150.0, False, 80.0))
    assert not is_due((profiled, stored), 250.0)
    assert not is_due((profiled, (*stored, row(0.0, False, 500.0))), 250.0)


# ---------------------------------------------------------------------------------------------- several starts


def _trained(engine: TrialEngine, epochs: int) -> TrialEngine:
    for _ in range(epochs):
        for event in (EpochBegan(), Measured(Kind.EPOCH, 1, Use(100.0, 2.0), 250.0), EpochEnded(), Evaluated(0.1)):
            engine, _ = engine.handle(event)
    return engine


def test_what_earlier_starts_used_is_charged_but_is_no_epoch() -> None:
    terms = Terms(target_metric=0.9, max_epochs=9, cost=COST, before=Use(30.0, 1.0), micro_batch_size=16)
    outcome = _trained(TrialEngine(terms), 2).so_far
    assert (outcome.joules, outcome.seconds, outcome.epochs, outcome.micro_batch_size) == (230.0, 5.0, 2, 16)
    assert [point.joules for point in outcome.curve or _trained(TrialEngine(terms), 2).curve] == [100.0, 100.0]
    unknown = replace(terms, before=Use(math.nan, 1.0))
    assert _trained(TrialEngine(unknown), 2).so_far.joules is None


def test_the_samples_of_an_epoch_are_its_steps_times_the_batch_size_or_what_the_script_reports() -> None:
    terms = Terms(target_metric=0.9, max_epochs=9, cost=COST, batch_size=16)
    engine = TrialEngine(terms)
    for event in (Started(), EpochBegan(), Measured(Kind.STEP, 25, Use(10.0, 1.0), 250.0)):
        engine, _ = engine.handle(event)
    assert engine.so_far.samples is None  # no epoch is whole yet
    for event in (EpochEnded(), Evaluated(0.1), EpochBegan(), Measured(Kind.STEP, 3, Use(1.0, 0.1), 250.0)):
        engine, _ = engine.handle(event)
    assert engine.so_far.samples == 25 * 16
    told, _ = engine.handle(SamplesCounted(390))
    assert told.so_far.samples == 390
    assert _trained(TrialEngine(replace(terms, batch_size=None)), 2).so_far.samples is None


def test_the_limit_of_a_trial_is_that_of_its_latest_units_if_it_was_read() -> None:
    trial = TrialEngine(Terms(target_metric=None, max_epochs=9, cost=None))
    trial, _ = trial.handle(EpochBegan())
    assert trial.so_far.limit_watts is None
    for kind, limit, expected in (
        (Kind.STEP, 250.0, 250.0),
        (Kind.STEP, 150.0, 150.0),
        (Kind.EVALUATION, 200.0, 150.0),
        (Kind.STEP, 250.0, 250.0),
        (Kind.STEP, None, None),
    ):
        trial, _ = trial.handle(Measured(kind, 1, Use(1.0, 1.0), limit))
        assert trial.so_far.limit_watts == expected


def test_the_energy_of_a_trial_that_is_lost_in_its_first_epoch_is_unknown() -> None:
    terms = Terms(target_metric=0.9, max_epochs=9, cost=COST)
    begun, _ = TrialEngine(terms).handle(Started())
    assert begun.report.joules is None
    assert begun.so_far.joules == 0.0  # the shell sees its end, and no epoch has begun
    again = TrialEngine.resumed(terms, Knowledge(), 0, begun.report, Use(7.0, 1.0))
    assert again.report.joules == 7.0  # the counters told what the first start used


def test_a_trial_resumed_from_a_checkpoint_counts_on() -> None:
    terms = Terms(target_metric=0.9, max_epochs=9, cost=COST)
    reported = _trained(TrialEngine(terms), 3).so_far
    resumed = TrialEngine.resumed(terms, Knowledge(), 2, reported)  # the third epoch is trained again
    outcome = _trained(resumed, 2).so_far
    assert (outcome.epochs, outcome.joules, outcome.seconds) == (4, 500.0, 10.0)
    assert sum(one.count for one in outcome.stretches) == 5
    foreign = _trained(TrialEngine.resumed(terms, Knowledge(), 2, None), 1).so_far
    assert (foreign.epochs, foreign.joules) == (3, None)


@pytest.mark.parametrize(("metric", "higher"), [(math.inf, True), (-math.inf, False), (math.nan, True)])
def test_a_metric_that_is_not_a_number_reaches_nothing(metric: float, higher: bool) -> None:
    """A training that diverges may report infinity. It must not become the run that others are compared with."""
    engine = TrialEngine(Terms(target_metric=0.5, higher_is_better=higher, max_epochs=3, cost=COST))
    for event in (EpochBegan(), Measured(Kind.EPOCH, 1, Use(100.0, 1.0), 250.0), EpochEnded(), Evaluated(metric)):
        engine, _ = engine.handle(event)
    assert engine.ending is None and not Target(0.5, higher).reached(metric)
