"""What a job has used and saved: nothing is lost in adding up, and nothing unknown counts as nothing."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.worlds import GPUS, LIMITS, SIZES, SPEC, TOP, kept, steady_world
from zeus.cost import CostModel
from zeus.job import Ask, Decision, Ending, Gpus, JobSpec, Kind, Outcome, Phase, Target, Trial, TrialRecord, replace
from zeus.ledger.charge import Spent, Tally, overshoot, spent
from zeus.ledger.ledger import RecurrenceEnd, Saving, open_ledger
from zeus.ledger.savings import Basis

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
) -> TrialRecord:
    """A trial of version 0.1: totals only."""
    outcome = Outcome(ending=ending, joules=joules, seconds=7.0, epochs=epochs, metric=0.1)
    return kept(number, recurrence, size, outcome, gpus=gpus, last=last)


def running(number: int, recurrence: int, size: int, so_far: Outcome | None) -> TrialRecord:
    """A trial that is not over."""
    ask = Ask(number=number, recurrence=recurrence, gpus=GPUS, eta=SPEC.eta_knob)
    trial = Trial(ask=ask, decision=Decision(size, Phase.SAMPLING, "why not"), asked=2 * number - 1)
    return TrialRecord(trial=trial, asked_at="", changed_at="", leased_until="soon", so_far=so_far)


@st.composite
def histories(draw: st.DrawFn) -> list[TrialRecord]:
    """Trials of version 0.1, whatever became of them."""
    trials: list[TrialRecord] = []
    for recurrence in range(1, draw(st.integers(0, 5)) + 1):
        for ending in draw(st.lists(st.sampled_from(OVER), min_size=1, max_size=4)):
            least = 1 if ending in (Ending.CONVERGED, Ending.STOPPED) else 0
            joules, epochs = draw(st.none() | st.floats(1.0, 1e6)), draw(st.integers(least, 9))
            size = draw(st.sampled_from(SIZES))
            trials.append(plain(len(trials) + 1, recurrence, size, ending, joules, epochs=epochs))
    return trials


# ---------------------------------------------------------------------- adding up


@given(histories())
def test_energies_add_up_over_all_tries_whatever_became_of_them(trials: list[TrialRecord]) -> None:
    known = [
        one.latest_outcome.joules
        for one in trials
        if one.latest_outcome is not None and one.latest_outcome.joules is not None
    ]
    ledger = open_ledger(SPEC, trials)
    assert (ledger.joules is None) == (not known)
    assert math.isclose(ledger.joules or 0.0, sum(known))
    assert ledger.unknown_tries == len(trials) - len(known)
    assert sum(one.tries for one in ledger.recurrences) == len(trials)


@given(histories())
def test_the_cost_of_a_recurrence_is_equation_2_of_all_its_tries_or_not_known(trials: list[TrialRecord]) -> None:
    for one in open_ledger(SPEC, trials).recurrences:
        told = [
            k.latest_outcome for k in trials if k.trial.ask.recurrence == one.number and k.latest_outcome is not None
        ]
        known = [o for o in told if o.joules is not None]
        owed = [o for o in told if o.joules is None and o.epochs > 0]
        assert (one.use is None) == (bool(owed) or not known)
        assert one.unknown_tries == len(told) - len(known)
        if one.use is not None:
            assert math.isclose(one.use.cost, COST.cost(sum(o.joules or 0.0 for o in known), 7.0 * len(known)))


@given(histories())
def test_a_tally_does_not_mind_the_order_of_the_tries(trials: list[TrialRecord]) -> None:
    there, back = Tally(), Tally()
    for one, other in zip(trials, reversed(trials), strict=True):
        there, back = there.add(one.latest_outcome, 0.5, 300.0), back.add(other.latest_outcome, 0.5, 300.0)
    assert (there.total is None) == (back.total is None)
    assert (there.unknown, there.reported) == (back.unknown, back.reported)
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
def test_the_order_in_which_trials_are_given_does_not_matter(trials: list[TrialRecord], rng: random.Random) -> None:
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


def test_a_recurrence_of_which_no_metric_was_ever_seen_is_lost_and_no_part_of_the_saving() -> None:
    """As with a wrong regular expression, which costs a night and teaches nothing."""
    base = [plain(1, 1, 16, Ending.CONVERGED, 900.0), plain(2, 2, 8, Ending.CONVERGED, 700.0)]
    silent = Outcome(ending=Ending.NOT_CONVERGED, joules=5000.0, seconds=70.0, epochs=20)
    before, after = open_ledger(SPEC, base), open_ledger(SPEC, [*base, kept(3, 3, 8, silent)])
    assert (before.lost, [one.number for one in after.lost]) == ((), [3])
    saved, still = before.saving(), after.saving()
    assert saved is not None and still is not None and still.recurrences == saved.recurrences == 2
    assert still.saved.joules == pytest.approx(saved.saved.joules, abs=50.0)  # its epochs still tell what they use
    assert after.joules == 900.0 + 700.0 + 5000.0
    told = open_ledger(SPEC, [*base, kept(3, 3, 8, replace(silent, metric=0.2))])
    charged = told.saving()
    assert told.lost == () and charged is not None and charged.saved.joules < -4000.0


@pytest.mark.parametrize("ending", [Ending.NOT_CONVERGED, Ending.CRASHED])
def test_what_the_default_itself_wastes_is_neither_saved_nor_lost(ending: Ending) -> None:
    failed = Outcome(ending=ending, joules=5000.0, seconds=50.0, epochs=9, metric=0.1)
    trials = [
        plain(1, 1, 16, Ending.CONVERGED, 900.0),
        kept(2, 2, 16, failed),
        plain(3, 3, 16, Ending.CONVERGED, 1100.0),
    ]
    saving = open_ledger(SPEC, trials).saving()
    assert saving is not None and saving.saved.joules == pytest.approx(0.0) and not saving.difference_seen


def test_a_recurrence_in_which_a_size_crashed_is_a_loss_and_not_lost() -> None:
    crashed = Outcome(ending=Ending.CRASHED, joules=600.0, seconds=6.0, epochs=1)
    ledger = open_ledger(SPEC, [plain(1, 1, 16, Ending.CONVERGED, 900.0), kept(2, 2, 32, crashed)])
    saving = ledger.saving()
    assert ledger.lost == () and saving is not None and saving.saved.joules == pytest.approx(-600.0)


def test_a_late_convergence_names_the_size_that_converged() -> None:
    trials = [plain(1, 1, 8, Ending.CONVERGED, 20.0), plain(2, 1, 32, Ending.STOPPED, 10.0)]
    assert open_ledger(SPEC, trials).recurrences[0].batch_size == 8


def test_costs_are_under_the_eta_that_the_job_has_now_and_an_overshoot_under_its_own() -> None:
    ask = Ask(number=1, recurrence=1, gpus=GPUS, eta=1.0)
    decided = Decision(8, Phase.SAMPLING, "why not", cost_limit=80.0)
    trial = Trial(ask=ask, decision=decided, asked=1)
    done = trial.end(2, Outcome(ending=Ending.STOPPED, joules=100.0, seconds=2.0, epochs=1))
    one = TrialRecord(trial=done, asked_at="", changed_at="", leased_until=None)
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
def test_the_energy_of_a_lost_try_is_taken_off_the_saving(trials: list[TrialRecord], joules: float) -> None:
    base = [*trials, plain(len(trials) + 1, 99, 16, Ending.CONVERGED, 5e5)]
    more = [*base, plain(len(base) + 1, 99, 8, Ending.LOST, joules)]
    before, after = open_ledger(SPEC, base).saving(), open_ledger(SPEC, more).saving()
    assert before is not None and after is not None
    assert math.isclose(before.saved.joules - after.saved.joules, joules, rel_tol=1e-6, abs_tol=1e-3)
    assert after.default == before.default


@given(histories())
def test_a_saving_is_a_default_for_each_recurrence_that_converged_or_ran_it_alone_minus_all_that_was_used(
    trials: list[TrialRecord],
) -> None:
    ledger = open_ledger(SPEC, trials)
    saving = ledger.saving()
    if not ledger.defaults:
        assert saving is None
        return
    counted = [one for one in ledger.finished if one.use is not None]
    others = {one.trial.ask.recurrence for one in trials if one.trial.batch_size != SPEC.default_batch_size}
    reached = [one for one in counted if one.end is RecurrenceEnd.CONVERGED or one.number not in others]
    worth = [ledger.default_of(one) for one in reached]
    used = sum(one.use.joules for one in counted if one.use is not None)
    assert (saving is None) == (not worth)
    if saving is not None:
        total = sum(one.use.joules for one in worth if one is not None)
        assert math.isclose(saving.default.joules, total)
        assert math.isclose(saving.saved.joules, total - used, rel_tol=1e-9, abs_tol=1e-3)
        assert saving.recurrences == len(counted)
        assert saving.basis is Basis.AS_IT_RAN


def test_totals_alone_are_taken_as_they_ran() -> None:
    trials = [plain(1, 1, 16, Ending.CONVERGED, 900.0), plain(2, 2, 16, Ending.CONVERGED, 900.0)]
    default = open_ledger(SPEC, trials).defaults["V100"]
    assert (default.basis, default.limit_watts, default.runs, default.runs_measured) == (Basis.AS_IT_RAN, None, 2, 0)
    assert default.use == Spent(900.0, 7.0, COST.cost(900.0, 7.0))


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
    assert saving.saved.joules == pytest.approx(100.0, abs=25.0)


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
    assert ledger.defaults["V100"].use.joules == pytest.approx(900.0)


def test_what_a_job_has_come_to_is_seen_in_its_latest_recurrences() -> None:
    trials = [plain(n, n, 16, Ending.CONVERGED, 100.0) for n in range(1, 5)]
    trials += [plain(n, n, 8, Ending.CONVERGED, 50.0) for n in range(5, 10)]
    ledger = open_ledger(SPEC, trials)
    recent = ledger.saving(ledger.recent)
    assert recent is not None
    assert (recent.share, recent.recurrences, recent.difference_seen) == (pytest.approx(0.5, abs=0.02), 5, True)


def test_what_a_job_has_come_to_is_seen_where_it_last_ran() -> None:
    trials = [plain(1, 1, 16, Ending.CONVERGED, 100.0), plain(2, 2, 16, Ending.CONVERGED, 40.0, gpus=A40)]
    assert [one.gpu_model for one in open_ledger(SPEC, trials).recent] == ["A40"]
    assert open_ledger(SPEC, []).recent == ()


@given(st.floats(-1e6, 1e6), st.floats(0, 1e5))
def test_a_difference_is_seen_from_two_standard_errors_on(saved: float, error: float) -> None:
    one = Saving(Spent(saved, 0.0, 0.0), Spent(1e6, 1e3, 1e6), 1, Basis.ESTIMATED, error, 0.0)
    assert one.difference_seen == (abs(saved) > 1e-9 * 1e6 and abs(saved) >= 2 * error)  # less is rounding


def noisy_job(runs: int) -> list[TrialRecord]:
    """The default once, and then another size that uses as much on average."""
    joules = [1000.0, *(1000.0 + 80.0 * (-1) ** n for n in range(1, runs))]
    return [plain(n + 1, n + 1, 16 if n == 0 else 8, Ending.CONVERGED, one) for n, one in enumerate(joules)]


def test_after_ten_recurrences_an_error_above_the_saving_says_how_to_lower_it() -> None:
    assert open_ledger(SPEC, noisy_job(9)).surer() is None
    ledger = open_ledger(SPEC, noisy_job(12))
    saving, text = ledger.saving(), ledger.surer()
    assert saving is not None and abs(saving.saved.joules) < saving.joules_error
    assert text is not None and "`[baseline] every = 5`" in text
    now, then = (int(part) / 100 for part in re.findall(r"(\d+) %", text))
    default = ledger.defaults["V100"]
    assert now == round(default.joules_error / default.use.joules, 2) and 0.5 * now < then < 0.7 * now
    assert open_ledger(replace(SPEC, baseline_every=5), noisy_job(12)).surer() is None


# ---------------------------------------------------------------------- the highest limit of each time


def top(spec: JobSpec, trials: list[TrialRecord]) -> float | None:
    return open_ledger(spec, trials).defaults["V100"].limit_watts


def test_the_highest_limit_is_the_highest_allowed_below_the_one_found() -> None:
    world = steady_world()
    world.survey()
    assert top(SPEC, world.kepts) == 250.0
    assert top(replace(SPEC, power_limits=(300.0, 200.0)), world.kepts) == 200.0
    assert top(replace(SPEC, power_limits=(300.0,)), world.kepts) == 250.0


def found_at(watts: float, one: TrialRecord) -> TrialRecord:
    """The trial on a card whose limit was this before the trial, and which set none."""
    outcome = replace(one.trial.outcome, found_watts=watts, set_limits=False) if one.trial.outcome else None
    return replace(one, trial=replace(one.trial, outcome=outcome))


@pytest.mark.parametrize("founds", [(150.0, 150.0, 250.0, 250.0), (250.0, 250.0, 150.0, 150.0), (150.0, 250.0) * 2])
def test_a_card_whose_limit_somebody_else_changes_saves_nothing(founds: tuple[float, ...]) -> None:
    """No run set a limit: each is its own default, at the limit that its card had then."""
    world = steady_world()
    for n, watts in enumerate(founds):
        world.run(n + 1, 16, [watts])
    ledger = open_ledger(SPEC, [found_at(watts, one) for watts, one in zip(founds, world.kepts, strict=True)])
    for one in ledger.recurrences:
        saving, default = ledger.saving([one]), ledger.default_of(one)
        assert default is not None and default.basis is Basis.MEASURED
        assert saving is not None and saving.saved.joules == 0.0 and not saving.difference_seen
    assert ledger.defaults["V100"].limit_watts == founds[-1]


def test_another_size_is_compared_with_the_default_at_the_limit_of_its_own_card() -> None:
    world, founds = steady_world(), (250.0, 150.0, 150.0, 250.0)
    for n, (size, watts) in enumerate(zip((16, 16, 8, 8), founds, strict=True)):
        world.run(n + 1, size, [watts])
    ledger = open_ledger(SPEC, [found_at(watts, one) for watts, one in zip(founds, world.kepts, strict=True)])
    told = [ledger.default_of(one) for one in ledger.recurrences[2:]]
    used = [one.trial.outcome.joules for one in world.kepts[:2] if one.trial.outcome]
    assert [default and default.use.joules for default in told] == [pytest.approx(used[1]), pytest.approx(used[0])]


# ---------------------------------------------------------------------- time and energy of every setting


def test_the_plane_of_time_and_energy_holds_each_size_at_each_limit() -> None:
    world = steady_world(kind=Kind.STEP)
    world.survey()
    world.run(2, 8, [150.0])
    found = open_ledger(SPEC, world.kepts).points("V100")
    assert [(one.batch_size, one.limit_watts) for one in found] == [(s, limit) for s in (8, 16) for limit in LIMITS]
    for one in found:
        truth = world.epoch[one.batch_size, one.limit_watts].times(6)
        assert (one.joules, one.seconds) == (pytest.approx(truth.joules), pytest.approx(truth.seconds))
    assert [one.is_default for one in found] == [False] * 3 + [True, False, False]
    assert open_ledger(SPEC, [plain(1, 1, 16, Ending.CONVERGED, 9.0)]).points("V100") == ()


def test_the_plane_is_that_of_todays_data() -> None:
    world = steady_world(kind=Kind.STEP, growth=1.5)
    world.survey()
    world.run(2, 16)
    found = {(one.batch_size, one.limit_watts): one.joules for one in open_ledger(SPEC, world.kepts).points("V100")}
    assert found[16, TOP] == pytest.approx(world.default(2).joules, rel=0.1)


def test_a_job_can_be_compared_with_the_default_that_another_has_measured() -> None:
    measured = open_ledger(SPEC, [plain(n, n, 16, Ending.CONVERGED, 1000.0) for n in range(1, 4)])
    longer = open_ledger(SPEC, [plain(n, n, 8, Ending.CONVERGED, 600.0) for n in range(1, 10)])
    saving = longer.against(measured).saving()
    assert saving is not None and saving.share == pytest.approx(0.4)
