"""What a job has used and saved: nothing is lost in adding up, and nothing unknown counts as nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.worlds import GPUS, LIMITS, SIZES, SPEC, TOP, World, kept
from zeus.cost import CostModel, Use
from zeus.job import Ask, Decision, Ending, EpochPoint, Gpus, Kept, Kind, Outcome, Phase, Stretch, Target, Trial
from zeus.job.charge import Spent, Tally, overshoot, spent
from zeus.job.defaults import Basis
from zeus.job.ledger import RecurrenceEnd, Saving, open_ledger, totals
from zeus.profile import LimitSlice, PowerProfile, ProfileKey

COST = CostModel(SPEC.eta_knob, GPUS.max_watts)
A40 = Gpus("A40", 1, 300.0)
OVER = (Ending.CONVERGED, Ending.STOPPED, Ending.NOT_CONVERGED, Ending.CRASHED, Ending.LOST)


def plain(
    number: int,
    recurrence: int,
    size: int,
    ending: Ending,
    joules: float | None,
    *,
    epochs: int = 4,
    gpus: Gpus = GPUS,
    last: bool = False,
) -> Kept:
    """A trial of version 0.1: totals only."""
    outcome = Outcome(ending=ending, joules=joules, seconds=7.0, epochs=epochs)
    return kept(number, recurrence, size, outcome, gpus=gpus, last=last)


def running(number: int, recurrence: int, size: int, so_far: Outcome | None) -> Kept:
    """A trial that is not over."""
    ask = Ask(number=number, recurrence=recurrence, gpus=GPUS, eta=SPEC.eta_knob)
    trial = Trial(ask=ask, decision=Decision(size, Phase.SAMPLING, "why not"), asked=2 * number - 1)
    return Kept(trial=trial, asked_at="", changed_at="", leased_until="soon", so_far=so_far)


@st.composite
def histories(draw: st.DrawFn) -> list[Kept]:
    """Trials of version 0.1, whatever became of them."""
    trials: list[Kept] = []
    for recurrence in range(1, draw(st.integers(0, 5)) + 1):
        for ending in draw(st.lists(st.sampled_from(OVER), min_size=1, max_size=4)):
            least = 1 if ending in (Ending.CONVERGED, Ending.STOPPED) else 0
            joules, epochs = draw(st.none() | st.floats(1.0, 1e6)), draw(st.integers(least, 9))
            size = draw(st.sampled_from(SIZES))
            trials.append(plain(len(trials) + 1, recurrence, size, ending, joules, epochs=epochs))
    return trials


# ---------------------------------------------------------------------- adding up


@given(histories())
def test_energies_add_up_over_all_tries_whatever_became_of_them(trials: list[Kept]) -> None:
    known = [one.told.joules for one in trials if one.told is not None and one.told.joules is not None]
    ledger = open_ledger(SPEC, trials)
    assert (ledger.joules is None) == (not known)
    assert math.isclose(ledger.joules or 0.0, sum(known))
    assert ledger.unknown_tries == len(trials) - len(known)
    assert sum(one.tries for one in ledger.recurrences) == len(trials)


@given(histories())
def test_the_cost_of_a_recurrence_is_equation_2_of_all_its_tries_or_not_known(trials: list[Kept]) -> None:
    for one in open_ledger(SPEC, trials).recurrences:
        told = [k.told for k in trials if k.trial.ask.recurrence == one.number and k.told is not None]
        known = [o for o in told if o.joules is not None]
        owed = [o for o in told if o.joules is None and o.epochs > 0]
        assert (one.use is None) == (bool(owed) or not known)
        assert one.unknown_tries == len(told) - len(known)
        if one.use is not None:
            assert math.isclose(one.use.cost, COST.cost(sum(o.joules or 0.0 for o in known), 7.0 * len(known)))


@given(histories())
def test_a_tally_does_not_mind_the_order_of_the_tries(trials: list[Kept]) -> None:
    there, back = Tally(), Tally()
    for one, other in zip(trials, reversed(trials), strict=True):
        there, back = there.add(one.told, 0.5, 300.0), back.add(other.told, 0.5, 300.0)
    assert (there.total is None) == (back.total is None)
    assert (there.unknown, there.told) == (back.unknown, back.told)
    assert math.isclose(there.known.cost, back.known.cost)


@pytest.mark.parametrize(
    ("tries", "total", "known", "unknown"),
    [
        ([], None, None, 0),
        ([(Ending.CRASHED, 0, None)], None, None, 1),
        ([(Ending.NOT_CONVERGED, 0, None), (Ending.CONVERGED, 3, 100.0)], 100.0, 100.0, 1),
        ([(Ending.LOST, 2, None), (Ending.CONVERGED, 3, 100.0)], None, 100.0, 1),
        ([(Ending.STOPPED, 0, 0.0)], 0.0, 0.0, 0),
        ([(Ending.STOPPED, 0, 0.0), (Ending.CRASHED, 0, None)], 0.0, 0.0, 1),
    ],
)
def test_a_total_is_known_where_no_epoch_of_it_is_unknown(
    tries: list[tuple[Ending, int, float | None]], total: float | None, known: float | None, unknown: int
) -> None:
    tally = Tally()
    for ending, epochs, joules in tries:
        seconds = 0.0 if joules == 0 else 1.0
        tried = Outcome(ending=ending, joules=joules, seconds=seconds, epochs=epochs, next_epoch_cost=9.0)
        tally = tally.add(tried, 1.0, 300.0)
    assert (None if tally.total is None else tally.total.joules) == total
    assert (tally.known_joules, tally.unknown) == (known, unknown)


def test_a_trial_that_never_told_anything_adds_nothing() -> None:
    assert Tally().add(None, 0.5, 300.0).unknown == 1
    assert spent(None, 0.5, 300.0) is None


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_in_which_trials_are_given_does_not_matter(trials: list[Kept], rng: random.Random) -> None:
    shuffled = list(trials)
    rng.shuffle(shuffled)
    assert open_ledger(SPEC, shuffled) == open_ledger(SPEC, trials)
    assert open_ledger(SPEC, shuffled).saving() == open_ledger(SPEC, trials).saving()


def test_how_a_recurrence_ended() -> None:
    trials = [
        plain(1, 1, 16, Ending.STOPPED, 10.0),
        plain(2, 1, 8, Ending.CONVERGED, 20.0, epochs=6),
        plain(3, 2, 16, Ending.STOPPED, 10.0),
        plain(4, 3, 16, Ending.NOT_CONVERGED, 10.0, last=True),
        plain(5, 4, 16, Ending.LOST, None, epochs=0),
        running(6, 4, 32, Outcome(ending=Ending.LOST, joules=3.0, seconds=1.0, epochs=1)),
        running(7, 5, 32, None),
    ]
    rows = open_ledger(SPEC, trials).recurrences
    assert [one.end for one in rows] == [
        RecurrenceEnd.CONVERGED,
        RecurrenceEnd.UNFINISHED,
        RecurrenceEnd.FAILED,
        RecurrenceEnd.OPEN,
        RecurrenceEnd.OPEN,
    ]
    assert (rows[0].batch_size, rows[0].epochs) == (8, 6)
    assert [one.known_joules for one in rows] == [30.0, 10.0, 10.0, 3.0, None]
    assert [one.unknown_tries for one in rows] == [0, 0, 0, 1, 0]
    assert [one.number for one in open_ledger(SPEC, trials).finished] == [1, 2, 3]


def test_a_late_convergence_names_the_size_that_converged() -> None:
    trials = [plain(1, 1, 8, Ending.CONVERGED, 20.0), plain(2, 1, 32, Ending.STOPPED, 10.0)]
    assert open_ledger(SPEC, trials).recurrences[0].batch_size == 8


def test_costs_are_under_the_eta_that_the_job_has_now_and_an_overshoot_under_its_own() -> None:
    ask = Ask(number=1, recurrence=1, gpus=GPUS, eta=1.0)
    decided = Decision(8, Phase.SAMPLING, "why not", cost_limit=80.0)
    trial = Trial(ask=ask, decision=decided, asked=1)
    done = trial.end(2, Outcome(ending=Ending.STOPPED, joules=100.0, seconds=2.0, epochs=1))
    one = Kept(trial=done, asked_at="", changed_at="", leased_until=None)
    assert overshoot(one) == 20.0
    use = open_ledger(SPEC, [one]).recurrences[0].use
    assert use is not None and use.cost == 0.5 * 100 + 0.5 * 300 * 2
    assert overshoot(replace(one, trial=replace(done, decision=replace(decided, cost_limit=200.0)))) == 0.0
    assert overshoot(replace(one, trial=replace(done, decision=replace(decided, cost_limit=None)))) is None
    assert overshoot(replace(one, trial=trial)) is None


@given(st.lists(st.tuples(st.floats(250.0, 5e3), st.floats(1.0, 1e6)), min_size=1, max_size=4))
def test_each_try_is_charged_with_the_maxpower_of_the_gpus_that_it_ran_on(tries: list[tuple[float, float]]) -> None:
    trials, expected = [], 0.0
    for number, (watts, joules) in enumerate(tries, 1):
        ending = Ending.STOPPED if number < len(tries) else Ending.CONVERGED
        trials.append(plain(number, 1, 16, ending, joules, gpus=Gpus(f"{watts} W", 1, watts)))
        expected += CostModel(SPEC.eta_knob, watts).cost(joules, 7.0)
    (one,) = open_ledger(SPEC, trials).recurrences
    assert one.use is not None and math.isclose(one.use.cost, expected)


# ---------------------------------------------------------------------- savings of facts with totals only


@given(histories(), st.floats(1.0, 1e5))
def test_the_energy_of_a_lost_try_is_taken_off_the_saving(trials: list[Kept], joules: float) -> None:
    base = [*trials, plain(len(trials) + 1, 99, 16, Ending.CONVERGED, 5e5)]
    more = [*base, plain(len(base) + 1, 99, 8, Ending.LOST, joules)]
    before, after = open_ledger(SPEC, base).saving(), open_ledger(SPEC, more).saving()
    assert before is not None and after is not None
    assert math.isclose(before.saved.joules - after.saved.joules, joules, rel_tol=1e-6, abs_tol=1e-3)
    assert after.default == before.default


@given(histories())
def test_a_saving_is_a_default_for_each_recurrence_that_converged_minus_all_that_was_used(trials: list[Kept]) -> None:
    ledger = open_ledger(SPEC, trials)
    saving = ledger.saving()
    if not ledger.defaults:
        assert saving is None
        return
    counted = [one for one in ledger.finished if one.use is not None]
    worth = [ledger.default_of(one) for one in counted if one.end is RecurrenceEnd.CONVERGED]
    used = sum(one.use.joules for one in counted if one.use is not None)
    assert (saving is None) == (not worth)
    if saving is not None:
        total = sum(one.use.joules for one in worth if one is not None)
        assert math.isclose(saving.default.joules, total)
        assert math.isclose(saving.saved.joules, total - used, rel_tol=1e-9, abs_tol=1e-3)
        assert saving.recurrences == len(counted)
        assert saving.basis is Basis.AS_IT_RAN


def test_totals_alone_are_taken_as_they_ran() -> None:
    trials = [plain(1, 1, 16, Ending.CONVERGED, 900.0), plain(2, 2, 16, Ending.CONVERGED, 700.0)]
    default = open_ledger(SPEC, trials).defaults["V100"]
    assert (default.basis, default.limit_watts, default.runs, default.runs_measured) == (Basis.AS_IT_RAN, None, 2, 0)
    assert default.use == Spent(800.0, 7.0, COST.cost(800.0, 7.0))


def test_the_first_run_of_the_default_alone_may_have_been_lucky_by_10_percent() -> None:
    default = open_ledger(SPEC, [plain(1, 1, 16, Ending.CONVERGED, 900.0)]).defaults["V100"]
    assert close(default.joules_error, 90.0) and close(default.seconds_error, 0.7)


def test_runs_of_equal_length_show_by_and_by_that_luck_plays_no_part() -> None:
    trials = [plain(number, number, 16, Ending.CONVERGED, 900.0) for number in range(1, 11)]
    errors = [open_ledger(SPEC, trials[:count]).defaults["V100"].joules_error for count in (1, 2, 5, 10)]
    assert all(close(error, 90.0 / count) for error, count in zip(errors, (1, 2, 5, 10), strict=True))


def test_a_default_that_never_reached_the_target_is_no_measure_of_saving() -> None:
    trials = [plain(1, 1, 16, Ending.NOT_CONVERGED, 900.0), plain(2, 1, 8, Ending.CONVERGED, 10.0)]
    ledger = open_ledger(SPEC, trials)
    assert ledger.defaults == {}
    assert ledger.saving() is None
    assert ledger.why_no_default("V100") == "the default batch size has not reached the target yet"


def test_a_default_that_is_not_known_says_why() -> None:
    silent, other = plain(1, 1, 16, Ending.CONVERGED, None), plain(2, 2, 8, Ending.CONVERGED, 10.0, gpus=A40)
    ledger = open_ledger(SPEC, [silent, other])
    assert ledger.defaults == {}
    assert "the energy of its runs is not known" in (ledger.why_no_default("V100") or "")
    assert "not reached the target on A40 yet" in (ledger.why_no_default("A40") or "")
    known = open_ledger(SPEC, [silent, plain(2, 2, 16, Ending.CONVERGED, 900.0)])
    assert known.why_no_default("V100") is None


def test_each_gpu_model_is_compared_with_its_own_default() -> None:
    trials = [
        plain(1, 1, 16, Ending.CONVERGED, 1000.0),
        plain(2, 2, 16, Ending.CONVERGED, 400.0, gpus=A40),
        plain(3, 3, 8, Ending.CONVERGED, 300.0, gpus=A40),
    ]
    saving = open_ledger(SPEC, trials).saving()
    assert saving is not None
    assert saving.saved.joules == 100.0


def test_another_number_of_gpus_is_another_place() -> None:
    two = Gpus("V100", 2, 600.0)
    trials = [plain(1, 1, 16, Ending.CONVERGED, 1000.0), plain(2, 2, 8, Ending.CONVERGED, 400.0, gpus=two)]
    ledger = open_ledger(SPEC, trials)
    assert ledger.default_of(ledger.recurrences[1]) is None
    saving = ledger.saving()
    assert saving is not None and saving.recurrences == 1


def test_runs_towards_another_target_are_used_energy_and_no_measure() -> None:
    trials = [plain(1, 1, 16, Ending.CONVERGED, 50.0), plain(2, 2, 16, Ending.CONVERGED, 900.0)]
    other = replace(trials[0].trial, ask=replace(trials[0].trial.ask, target=Target(0.1)))
    ledger = open_ledger(SPEC, [replace(trials[0], trial=other), trials[1]])
    assert ledger.joules == 950.0
    assert [one.number for one in ledger.finished] == [2]
    assert ledger.defaults["V100"].use.joules == 900.0


def test_what_a_job_has_come_to_is_seen_in_its_latest_recurrences() -> None:
    trials = [plain(n, n, 16, Ending.CONVERGED, 100.0) for n in range(1, 5)]
    trials += [plain(n, n, 8, Ending.CONVERGED, 50.0) for n in range(5, 10)]
    ledger = open_ledger(SPEC, trials)
    recent = ledger.saving(ledger.recent)
    assert recent is not None
    assert (recent.share, recent.recurrences, recent.difference_seen) == (0.5, 5, True)


def test_what_a_job_has_come_to_is_seen_where_it_last_ran() -> None:
    trials = [plain(1, 1, 16, Ending.CONVERGED, 100.0), plain(2, 2, 16, Ending.CONVERGED, 40.0, gpus=A40)]
    assert [one.gpu_model for one in open_ledger(SPEC, trials).recent] == ["A40"]
    assert open_ledger(SPEC, []).recent == ()


def test_several_jobs_together_count_each_joule_alike() -> None:
    halved = [plain(1, 1, 16, Ending.CONVERGED, 100.0), plain(2, 2, 8, Ending.CONVERGED, 50.0)]
    same = [plain(1, 1, 16, Ending.CONVERGED, 100.0), plain(2, 2, 8, Ending.CONVERGED, 100.0)]
    ledgers = [open_ledger(SPEC, trials) for trials in (halved, same)]
    each = [ledger.saving(ledger.recurrences[1:]) for ledger in ledgers]
    assert [one.share for one in each if one is not None] == [0.5, 0.0]
    both = totals([*ledgers, open_ledger(SPEC, [])])
    assert both is not None
    assert (both.saved.joules, both.default.joules, both.recurrences) == (50.0, 400.0, 4)
    assert math.isclose(both.joules_error, math.hypot(10.0, 10.0))
    assert totals([]) is None


@given(st.floats(-1e6, 1e6), st.floats(0, 1e5))
def test_a_difference_is_seen_from_two_standard_errors_on(saved: float, error: float) -> None:
    one = Saving(Spent(saved, 0.0, 0.0), Spent(1e6, 1e3, 1e6), 1, Basis.ESTIMATED, error, 0.0)
    assert one.difference_seen == (saved != 0 and abs(saved) >= 2 * error)


# ---------------------------------------------------------------------- worlds whose truth is known


def amounts(least: float, most: float) -> st.SearchStrategy[Use]:
    """Joules and seconds."""
    return st.builds(Use, st.floats(least, most), st.floats(least, most))


@st.composite
def worlds(draw: st.DrawFn, *, growth: bool = True) -> World:
    """Some job without noise, whose first epoch is either steady or far from it."""
    limits = {limit: draw(amounts(0.5, 1.0)) if limit < TOP else Use(1.0, 1.0) for limit in LIMITS}
    sizes = {size: draw(amounts(100.0, 1000.0)) for size in SIZES}
    evaluation = draw(st.sampled_from([0.0, 0.1, 0.5]))
    kind = draw(st.sampled_from([Kind.STEP, Kind.EPOCH]))
    warm_up = draw(st.sampled_from([0.0, 1.0, 10.0])) * 1000.0
    return World(
        kind=kind,
        epoch={(size, limit): use * limits[limit] for size, use in sizes.items() for limit in LIMITS},
        evaluation={limit: Use(100.0, 100.0).times(evaluation) * limits[limit] for limit in LIMITS},
        warm_up=Use(warm_up, warm_up),
        epochs={size: draw(st.integers(4, 8)) for size in SIZES},
        growth=draw(st.sampled_from([1.0, 1.05, 1.2])) if growth else 1.0,
    )


schedules = st.lists(
    st.tuples(st.sampled_from(SIZES), st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3)), max_size=6
)


def close(told: float, truth: float) -> bool:
    return math.isclose(told, truth, rel_tol=1e-6, abs_tol=1e-6)


def near(told: float, truth: float) -> bool:
    """But for evaluations that were never seen at both limits, half of which is taken to change as the steps do."""
    return math.isclose(told, truth, rel_tol=0.03)


@given(worlds(), schedules)
def test_told_defaults_are_the_truth_where_limits_are_known(world: World, later: list[tuple[int, list[float]]]) -> None:
    world.survey()
    for n, (size, limits) in enumerate(later):
        world.run(n + 2, size, limits)
    ledger = open_ledger(SPEC, world.kepts)
    for one in ledger.recurrences:
        default, last = ledger.default_of(one), world.kepts[one.number + 1]
        assert default is not None and default.basis is not Basis.AS_IT_RAN and default.limit_watts == TOP
        own = one.batch_size == SPEC.default_batch_size
        truth = world.at_top[last.trial.number] if own else world.default(one.number)
        assert near(default.use.joules, truth.joules) and near(default.use.seconds, truth.seconds)
        assert math.isclose(default.use.cost, COST.cost(default.use.joules, default.use.seconds))


@given(worlds(), schedules)
def test_told_savings_are_the_truth_where_limits_are_known(world: World, later: list[tuple[int, list[float]]]) -> None:
    world.survey()
    for n, (size, limits) in enumerate(later):
        world.run(n + 2, size, limits)
    ledger = open_ledger(SPEC, world.kepts)
    saving = ledger.saving()
    used = sum(k.told.joules or 0.0 for k in world.kepts if k.told is not None)
    truth = sum(world.default(n + 1).joules for n in range(len(later) + 1))
    assert saving is not None
    assert abs(saving.saved.joules - (truth - used)) <= 0.03 * truth
    assert saving.recurrences == len(later) + 1


@given(worlds(growth=False), st.integers(1, 3))
def test_a_run_at_the_highest_limit_throughout_is_its_own_default_and_saves_nothing(world: World, runs: int) -> None:
    for recurrence in range(1, runs + 1):
        world.run(recurrence, SPEC.default_batch_size)
    ledger = open_ledger(SPEC, world.kepts)
    default, saving = ledger.defaults["V100"], ledger.saving()
    assert (default.basis, default.runs_measured) == (Basis.MEASURED, runs)
    assert saving is not None and saving.saved == Spent() and not saving.difference_seen
    assert (saving.basis, saving.joules_error, saving.seconds_error) == (Basis.MEASURED, 0.0, 0.0)


@given(worlds(), schedules)
def test_nothing_is_claimed_for_limits_where_the_highest_was_never_seen(
    world: World, later: list[tuple[int, list[float]]]
) -> None:
    for n, (_, limits) in enumerate([(16, [150.0]), *later]):
        world.run(n + 1, SPEC.default_batch_size, [min(limit, 200.0) for limit in limits])
    ledger = open_ledger(SPEC, world.kepts)
    saving = ledger.saving()
    assert ledger.defaults["V100"].basis is Basis.AS_IT_RAN and ledger.defaults["V100"].limit_watts is None
    assert saving is not None and saving.saved == Spent()


@given(worlds(growth=False), st.floats(1.5, 20.0))
def test_a_cold_unit_is_never_compared_with_a_steady_one(world: World, factor: float) -> None:
    """A first epoch at the highest limit, and all others at another one: nobody knows what a steady one would use."""
    cold = world.epoch[16, TOP].joules * factor + 1e4
    world.warm_up = Use(cold, cold)
    world.run(1, 16, (TOP, 150.0))
    default = open_ledger(SPEC, world.kepts).defaults["V100"]
    assert default.basis is Basis.AS_IT_RAN


@given(worlds(growth=False), st.floats(0.0, 1e6))
def test_warm_up_is_counted_once_whatever_the_limits(world: World, more: float) -> None:
    """Two jobs that differ in their warm-up alone have defaults that differ by just that, and save the same."""
    dear = replace(world, warm_up=world.warm_up + Use(more, more), kepts=[], at_top={})
    world.warm_up = Use(1e4, 1e4) + world.warm_up
    dear.warm_up = dear.warm_up + Use(1e4, 1e4)
    told = []
    for one in (world, dear):
        one.survey()
        one.run(2, 16, [150.0])
        one.run(3, 16, [200.0, 150.0])
        told.append(open_ledger(SPEC, one.kepts))
    few, many = (ledger.defaults["V100"].use for ledger in told)
    assert math.isclose(many.joules - few.joules, more, rel_tol=1e-6, abs_tol=1e-3)
    saved = [[ledger.saving([one]) for one in ledger.recurrences[1:]] for ledger in told]
    for one, other in zip(*saved, strict=True):
        assert one is not None and other is not None
        assert math.isclose(one.saved.joules, other.saved.joules, rel_tol=1e-6, abs_tol=1e-3)


@given(worlds(growth=False), st.floats(0.0, 1e5))
def test_trainings_of_one_epoch_compare_cold_with_cold(world: World, warm_up: float) -> None:
    """Whose limits run in one trial each."""
    world.epochs = dict.fromkeys(SIZES, 1)
    world.evaluation = dict.fromkeys(LIMITS, Use())
    world.warm_up = Use(warm_up, warm_up)
    world.epoch = {at: Use(use.joules, 100.0 + 1000.0 / at[1]) for at, use in world.epoch.items()}
    for recurrence, limit in enumerate(LIMITS):
        world.run(recurrence + 1, 16, [limit])
    ledger = open_ledger(SPEC, world.kepts)
    for one in ledger.recurrences:
        default = ledger.default_of(one)
        assert default is not None and default.basis is (Basis.MEASURED if one.number == 1 else Basis.ESTIMATED)
        assert close(default.use.joules, world.default(one.number).joules)
        assert close(default.use.seconds, world.default(one.number).seconds)


@given(st.floats(1.1, 5.0), st.booleans())
def test_steady_units_that_only_cold_ones_can_move_are_doubted(factor: float, adds: bool) -> None:
    """Steps that went through the limits in the first epoch alone, whose warm-up adds to each step or multiplies it."""
    high, low = Use(1.0, 1.0), Use(0.8, 1.2)

    def cold(unit: Use) -> Use:
        return unit + Use(factor - 1, factor - 1) if adds else unit.times(factor)

    def rows(limit: float, use: Use, is_cold: bool, count: int) -> Stretch:
        return Stretch.of(Kind.STEP, limit, is_cold, count, use.joules * count, use.seconds * count)

    parts = [rows(TOP, cold(high), True, 20), rows(150.0, cold(low), True, 80), rows(150.0, low, False, 900)]
    joules, seconds = sum(one.joules or 0.0 for one in parts), sum(one.seconds for one in parts)
    outcome = Outcome(ending=Ending.CONVERGED, joules=joules, seconds=seconds, epochs=10, stretches=tuple(parts))
    default = open_ledger(SPEC, [kept(1, 1, 16, replace(outcome, found_watts=TOP))]).defaults["V100"]
    truth = cold(high).times(100) + high.times(900)
    assert default.basis is Basis.ESTIMATED
    assert abs(default.use.joules - truth.joules) <= 2 * default.conversion.joules
    assert abs(default.use.seconds - truth.seconds) <= 2 * default.conversion.seconds


def test_runs_that_cannot_be_converted_are_left_out_where_others_can() -> None:
    world = _steady_world()
    world.survey()
    silent = plain(len(world.kepts) + 1, 2, 16, Ending.CONVERGED, 1e9)
    ledger = open_ledger(SPEC, [*world.kepts, silent])
    default = ledger.defaults["V100"]
    assert (default.basis, default.runs) == (Basis.ESTIMATED, 1)
    assert close(default.use.joules, world.default(1).joules)
    of_silent = ledger.default_of(ledger.recurrences[1])
    assert of_silent is not None and close(of_silent.use.joules, default.use.joules)


def test_measured_runs_stand_alone() -> None:
    world = _steady_world()
    world.survey()
    world.run(2, 16, [150.0])
    world.run(3, 16)
    default = open_ledger(SPEC, world.kepts).defaults["V100"]
    assert (default.basis, default.runs, default.runs_measured) == (Basis.MEASURED, 1, 1)


def test_measured_runs_of_data_long_gone_give_way_to_newer_ones() -> None:
    world = _steady_world(growth=1.3)
    world.survey()
    world.run(2, 16)
    for recurrence in range(3, 7):
        world.run(recurrence, 16, [150.0])
    default = open_ledger(SPEC, world.kepts).defaults["V100"]
    assert (default.basis, default.runs, default.runs_measured) == (Basis.ESTIMATED, 6, 1)
    assert close(default.use.joules, world.default(6).joules)


def test_a_power_profile_serves_where_units_say_nothing() -> None:
    world = _steady_world()
    world.run(1, 16, [150.0])
    high, low = world.epoch[16, TOP], world.epoch[16, 150.0]
    slices = [LimitSlice(250, 40, high.seconds, high.joules), LimitSlice(150, 20, low.seconds / 2, low.joules / 2)]
    key = ProfileKey("asr", 16, "V100", 1)
    ledger = open_ledger(SPEC, world.kepts, profiles={key: PowerProfile.of(slices)})
    assert ledger.defaults["V100"].basis is Basis.ESTIMATED
    assert close(ledger.defaults["V100"].use.joules, world.default(1).joules)
    for other in (
        {replace(key, gpu_count=2): PowerProfile.of(slices)},
        {replace(key, batch_size=8): PowerProfile.of(slices)},
        {key: PowerProfile.of([slices[0], LimitSlice(150, 1, 1.0, 1.0)])},
        {key: PowerProfile.of(slices[:1])},
    ):
        assert open_ledger(SPEC, world.kepts, profiles=other).defaults["V100"].basis is Basis.AS_IT_RAN


def test_evaluation_that_never_ran_at_the_highest_limit_is_half_moved_and_doubted_as_much() -> None:
    world = _steady_world(kind=Kind.STEP)
    world.evaluation = {TOP: Use(50.0, 50.0), 200.0: Use(50.0, 50.0), 150.0: Use(50.0, 50.0)}
    world.survey()
    rows = [
        replace(kept, trial=replace(kept.trial, outcome=replace(kept.trial.outcome, stretches=tuple(some))))
        for kept in world.kepts
        if kept.trial.outcome is not None
        for some in [[s for s in kept.trial.outcome.stretches if s.kind is not Kind.EVALUATION or s.limit_watts != TOP]]
    ]
    world.run(2, 16, [150.0])
    ledger = open_ledger(SPEC, [*rows, world.kepts[-1]])
    default = ledger.default_of(ledger.recurrences[1])
    assert default is not None
    ratio = world.epoch[16, TOP].joules / world.epoch[16, 150.0].joules
    half = 0.5 * 6 * 50.0 * (ratio - 1)
    assert close(default.use.joules, world.default(2).joules + half)
    assert close(default.joules_error, half)


def test_a_few_units_of_unknown_limits_stay_as_they_were_and_many_leave_nothing_to_say() -> None:
    for share, basis in ((0.05, Basis.ESTIMATED), (0.5, Basis.AS_IT_RAN)):
        world = _steady_world()
        world.epochs[16] = 20
        world.run(1, 16, [TOP, TOP, 150.0])
        told = world.kepts[0].trial.outcome
        assert told is not None
        *others, last = told.stretches
        unknown = round(20 * share)
        cut = replace(
            last,
            count=last.count - unknown,
            joules=(last.joules or 0) * (1 - unknown / last.count),
            seconds=last.seconds * (1 - unknown / last.count),
        )
        blurred = replace(told, stretches=(*others, cut, Stretch.of(Kind.EPOCH, None, False, unknown, 9.0, 9.0)))
        default = open_ledger(SPEC, [kept(1, 1, 16, blurred)]).defaults["V100"]
        assert default.basis is basis
        assert (default.conversion.joules > 0) == (basis is Basis.ESTIMATED)


def test_the_highest_limit_is_the_highest_allowed_below_the_one_found() -> None:
    world = _steady_world()
    world.survey()
    assert open_ledger(SPEC, world.kepts).top("V100") == 250.0
    assert open_ledger(replace(SPEC, power_limits=(300.0, 200.0)), world.kepts).top("V100") == 200.0
    assert open_ledger(replace(SPEC, power_limits=(300.0,)), world.kepts).top("V100") == 250.0
    assert open_ledger(SPEC, world.kepts).top("A40") is None


def survey_first(world: World, rng: random.Random) -> None:
    """Each size is seen before data grow; then any size at any limit."""
    world.survey()
    for recurrence in range(2, rng.randint(2, 20) + 1):
        world.run(recurrence, rng.choice(SIZES), [rng.choice(LIMITS)])


def size_by_size(world: World, rng: random.Random) -> None:
    """Each size twice and then the best one; the first run of each goes through the limits, the others take one."""
    best, seen = rng.choice(SIZES), set[int]()
    for n in range(rng.randint(2, 25)):
        size = (16, 16, 8, 8, 32, 32)[n] if n < 6 else best
        world.run(n + 1, size, [150.0] if size in seen else [TOP, *LIMITS])
        seen.add(size)


def once_each(world: World, rng: random.Random) -> None:
    """The first recurrences of a job: no size runs twice, so nothing shows how much luck there is."""
    for n, size in enumerate((16, 8, 32)[: rng.randint(2, 3)]):
        world.run(n + 1, size, [TOP, *LIMITS])


@pytest.mark.parametrize(("life", "width"), [(survey_first, 0.05), (size_by_size, 0.05), (once_each, 0.08)])
def test_savings_told_of_noisy_runs_are_within_two_errors_of_the_truth_95_times_in_100(
    life: Callable[[World, random.Random], None], width: float
) -> None:
    rng, hits, tried, widths = random.Random(1), 0, 0, []
    for _ in range(250):
        world = noisy(rng)
        life(world, rng)
        ledger = open_ledger(SPEC, world.kepts)
        saving = ledger.saving()
        assert saving is not None
        truth = used = Use()
        for one in world.kepts:
            trial, told = one.trial, one.told
            assert told is not None
            used += Use(told.joules or 0.0, told.seconds)
            if told.ending is Ending.CONVERGED:
                own = trial.batch_size == SPEC.default_batch_size
                truth += world.at_top[trial.number] if own else world.default(trial.ask.recurrence)
        off = abs(Use(saving.saved.joules, saving.saved.seconds) - (truth - used))
        hits += (off.joules <= 2 * saving.joules_error) + (off.seconds <= 2 * saving.seconds_error)
        tried += 2
        widths.append(saving.joules_error / saving.default.joules)
    assert hits / tried >= 0.95
    assert sorted(widths)[len(widths) // 2] < width  # at 0.05, a saving of a tenth is mostly seen


def noisy(rng: random.Random) -> World:
    """A job whose measurements and epochs scatter."""
    limits = {limit: Use(rng.uniform(0.6, 1), rng.uniform(1, 1.4)) for limit in LIMITS} | {TOP: Use(1.0, 1.0)}
    sizes = {size: Use(rng.uniform(100, 1000), rng.uniform(1, 10)) for size in SIZES}
    warm_up = rng.choice([0.0, 0.5, 5.0])
    share = rng.choice([0.0, 0.2])
    return World(
        kind=rng.choice([Kind.STEP, Kind.EPOCH]),
        epoch={(size, limit): use * limits[limit] for size, use in sizes.items() for limit in LIMITS},
        evaluation={limit: sizes[16].times(share) * limits[limit] for limit in LIMITS},
        warm_up=sizes[16].times(warm_up),
        epochs={size: rng.randint(6, 20) for size in SIZES},
        growth=rng.choice([1.0, 1.0, 1.005, 1.05]),
        noise=rng.choice([0.005, 0.02, 0.05]),
        luck=rng.choice([0.0, 0.1]),
        rng=rng,
    )


def _steady_world(kind: Kind = Kind.EPOCH, growth: float = 1.0) -> World:
    limits = {TOP: 1.0, 200.0: 0.9, 150.0: 0.8}
    return World(
        kind=kind,
        epoch={(size, limit): Use(100.0 * by, 10.0 / by) for size in SIZES for limit, by in limits.items()},
        evaluation=dict.fromkeys(LIMITS, Use()),
        warm_up=Use(),
        epochs=dict.fromkeys(SIZES, 6),
        growth=growth,
    )


# ---------------------------------------------------------------------- what follows from the units


def test_the_plane_of_time_and_energy_holds_each_size_at_each_limit() -> None:
    world = _steady_world(kind=Kind.STEP)
    world.survey()
    world.run(2, 8, [150.0])
    found = open_ledger(SPEC, world.kepts).points("V100")
    assert [(one.batch_size, one.limit_watts) for one in found] == [(s, limit) for s in (8, 16) for limit in LIMITS]
    for one in found:
        truth = world.epoch[one.batch_size, one.limit_watts].times(6)
        assert close(one.joules, truth.joules) and close(one.seconds, truth.seconds)
    assert [one.is_default for one in found] == [False] * 3 + [True, False, False]
    assert open_ledger(SPEC, [plain(1, 1, 16, Ending.CONVERGED, 9.0)]).points("V100") == ()


def test_before_any_level_is_known_data_grow_as_the_first_epochs_that_can_be_compared() -> None:
    world = _steady_world(growth=1.1)
    for n, (size, limit) in enumerate([(16, TOP), (8, TOP), (32, TOP), (8, TOP)]):
        world.run(n + 1, size, [limit])
    ledger = open_ledger(SPEC, world.kepts)
    for one in ledger.recurrences:
        default = ledger.default_of(one)
        assert default is not None
        assert close(default.use.joules, world.default(one.number).joules)


def test_a_first_run_that_warmed_up_longer_than_those_that_follow_is_doubted() -> None:
    def run(number: int, size: int, first: float) -> Kept:
        joules = (first, 100.0, 100.0)
        curve = tuple(EpochPoint(n + 1, None, one, one / 100, 250.0) for n, one in enumerate(joules))
        rows = tuple(Stretch.of(Kind.EPOCH, 250.0, one != 100.0, 1, one, one / 100) for one in joules)
        outcome = Outcome(ending=Ending.CONVERGED, joules=sum(joules), seconds=sum(joules) / 100, epochs=3, curve=curve)
        return kept(number, number, size, replace(outcome, stretches=rows, found_watts=250.0))

    def error(first: float) -> float:
        trials = [run(1, 16, first), *(run(number, 8, 200.0) for number in (2, 3, 4, 5))]
        return open_ledger(SPEC, trials).defaults["V100"].joules_error

    assert error(200.0) < 0.06 * 400
    assert error(700.0) > 200.0


def test_noise_that_is_taken_for_growth_is_not_taken_for_certainty() -> None:
    def run(number: int, *epochs: tuple[float, float, bool]) -> Kept:
        rows = tuple(Stretch.of(Kind.EPOCH, limit, cold, 1, joules, 1.0) for limit, joules, cold in epochs)
        curve = tuple(EpochPoint(n + 1, None, joules, 1.0, limit) for n, (limit, joules, _) in enumerate(epochs))
        total = sum(joules for _, joules, _ in epochs)
        outcome = Outcome(ending=Ending.CONVERGED, joules=total, seconds=len(epochs), epochs=len(epochs), curve=curve)
        return kept(number, number, 16, replace(outcome, stretches=rows, found_watts=250.0))

    first = run(1, (250.0, 100.0, True), (250.0, 100.0, False), (150.0, 80.0, False))
    second = run(2, (150.0, 82.5, True), (150.0, 82.5, False), (125.0, 75.0, False))
    ledger = open_ledger(SPEC, [first, second])
    default = ledger.default_of(ledger.recurrences[1])
    assert default is not None
    assert default.joules_error > 0.03 * default.use.joules


def test_a_recurrence_is_compared_with_the_default_of_its_own_data() -> None:
    world = _steady_world(growth=1.5)
    world.survey()
    world.run(2, 8, [150.0])
    ledger = open_ledger(SPEC, world.kepts)
    default = ledger.default_of(ledger.recurrences[1])
    assert default is not None and default.basis is Basis.ESTIMATED
    assert close(default.use.joules, world.default(2).joules)


def test_a_size_first_run_when_data_had_grown_is_read_off_the_trend() -> None:
    world = _steady_world(growth=1.1)
    for n, size in enumerate((16, 8, 32, 16, 8, 32, 32)):
        world.run(n + 1, size, [TOP, *LIMITS])
    ledger = open_ledger(SPEC, world.kepts)
    for one in ledger.recurrences:
        default = ledger.default_of(one)
        assert default is not None
        assert close(default.use.joules, world.default(one.number).joules)


def test_a_trend_is_believed_no_further_ahead_than_it_was_looked_back() -> None:
    world = _steady_world(growth=1.1)
    for n, (size, limit) in enumerate([(16, 250.0), (16, 250.0), (8, 250.0), (8, 200.0), (8, 150.0)]):
        world.run(n + 1, size, [limit])
    ledger = open_ledger(SPEC, world.kepts)
    told = [default.use.joules for one in ledger.recurrences if (default := ledger.default_of(one)) is not None]
    truth = [world.default(n).joules for n in (1, 2, 3, 3, 3)]
    assert all(close(one, other) for one, other in zip(told, truth, strict=True))


def test_changes_of_two_percent_are_noise() -> None:
    def run(number: int, joules: float, size: int = 8) -> Kept:
        curve = tuple(EpochPoint(n, None, joules, 1.0, 250.0) for n in (1, 2, 3))
        stretch = Stretch.of(Kind.EPOCH, 250.0, False, 3, 3 * joules, 3.0)
        outcome = Outcome(ending=Ending.CONVERGED, joules=3 * joules, seconds=3.0, epochs=3, curve=curve)
        return kept(number, number, size, replace(outcome, stretches=(stretch,), found_watts=250.0))

    ledger = open_ledger(SPEC, [run(1, 100.0, 16), run(2, 50.0), run(3, 50.9), run(4, 49.1), run(5, 51.5)])
    told = [default for one in ledger.recurrences if (default := ledger.default_of(one)) is not None]
    assert [one.use.joules for one in told[:4]] == [300.0] * 4
    assert [one.basis for one in told] == [Basis.MEASURED] * 4 + [Basis.ESTIMATED]
    assert close(told[4].use.joules, 300.0 * 1.03)


def found_at(watts: float, one: Kept) -> Kept:
    """The trial on a card whose limit was this before the trial, and which set none."""
    outcome = replace(one.trial.outcome, found_watts=watts, set_limits=False) if one.trial.outcome else None
    return replace(one, trial=replace(one.trial, outcome=outcome))


@pytest.mark.parametrize("founds", [(150.0, 150.0, 250.0, 250.0), (250.0, 250.0, 150.0, 150.0), (150.0, 250.0) * 2])
def test_a_card_whose_limit_somebody_else_changes_saves_nothing(founds: tuple[float, ...]) -> None:
    """No run set a limit: each is its own default, at the limit that its card had then."""
    world = _steady_world()
    for n, watts in enumerate(founds):
        world.run(n + 1, 16, [watts])
    ledger = open_ledger(SPEC, [found_at(watts, one) for watts, one in zip(founds, world.kepts, strict=True)])
    for one in ledger.recurrences:
        saving, default = ledger.saving([one]), ledger.default_of(one)
        assert default is not None and default.basis is Basis.MEASURED and default.limit_watts == founds[one.number - 1]
        assert saving is not None and close(saving.saved.joules, 0.0) and not saving.difference_seen
    assert ledger.defaults["V100"].limit_watts == founds[-1] == ledger.top("V100")


def test_another_size_is_compared_with_the_default_at_the_limit_of_its_own_card() -> None:
    world, founds = _steady_world(), (250.0, 150.0, 150.0, 250.0)
    for n, (size, watts) in enumerate(zip((16, 16, 8, 8), founds, strict=True)):
        world.run(n + 1, size, [watts])
    ledger = open_ledger(SPEC, [found_at(watts, one) for watts, one in zip(founds, world.kepts, strict=True)])
    told = [ledger.default_of(one) for one in ledger.recurrences[2:]]
    used = [one.trial.outcome.joules for one in world.kepts[:2] if one.trial.outcome]
    assert [default and default.use.joules for default in told] == [pytest.approx(used[1]), pytest.approx(used[0])]
