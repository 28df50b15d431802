"""What a job has used and saved: nothing is lost in adding up, and nothing unknown counts as nothing."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.cost import CostModel
from zeus.job import Ask, Decision, Ending, JobSpec, Outcome, Phase, Profiled, Trial
from zeus.optimizer.batch_size.summary import End, Use, said, summarise
from zeus.profile import PowerProfile, Slice
from zeus.store.api import Job, Kept

WATTS = 250.0
SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16, mab_seed=0)
JOB = Job(spec=SPEC, policy_version=1, at="", generation="1")
TOLD = (Ending.CONVERGED, Ending.STOPPED, Ending.NOT_CONVERGED, Ending.CRASHED)


def kept(
    number: int, recurrence: int, size: int, ending: Ending, joules: float | None, *, model: str = "V100", **more: int
) -> Kept:
    """A trial as a store has it; its number also makes its sequence numbers."""
    ask = Ask(number=number, recurrence=recurrence, gpu_model=model, max_watts=WATTS, last=bool(more.get("last")))
    trial = Trial(ask=ask, decision=Decision(size, Phase.SAMPLING, "why not"), asked=2 * number - 1)
    said_last = Outcome(ending=Ending.LOST, joules=joules, seconds=7.0, epochs=1) if joules is not None else None
    so_far = None
    if ending is Ending.OPEN:
        so_far = said_last
    elif ending is Ending.LOST:
        trial = trial.lose(2 * number, said_last)
    else:
        trial = trial.end(2 * number, Outcome(ending=ending, joules=joules, seconds=7.0, epochs=more.get("epochs", 4)))
    return Kept(trial=trial, asked_at="", changed_at="", leased_until=None, so_far=so_far)


energies = st.none() | st.floats(1.0, 1e6)
endings = st.sampled_from([*TOLD, Ending.LOST])


@st.composite
def histories(draw: st.DrawFn) -> list[Kept]:
    trials: list[Kept] = []
    for recurrence in range(1, draw(st.integers(0, 5)) + 1):
        for ending in draw(st.lists(endings, min_size=1, max_size=4)):
            size = draw(st.sampled_from(SPEC.batch_sizes))
            trials.append(kept(len(trials) + 1, recurrence, size, ending, draw(energies)))
    return trials


@given(histories())
def test_energies_add_up_over_all_tries_whatever_became_of_them(trials: list[Kept]) -> None:
    known = [told.joules for one in trials if (told := said(one)) is not None and told.joules is not None]
    summary = summarise(JOB, trials)
    assert (summary.joules is None) == (not known)
    assert math.isclose(summary.joules or 0.0, sum(known))
    assert summary.unknown_tries == len(trials) - len(known)
    assert sum(one.tries for one in summary.recurrences) == len(trials)


@given(histories())
def test_the_cost_of_a_recurrence_is_equation_2_of_all_its_tries_or_not_known(trials: list[Kept]) -> None:
    cost = CostModel(SPEC.eta_knob, WATTS)
    for one in summarise(JOB, trials).recurrences:
        tries = [k for k in trials if k.trial.ask.recurrence == one.number]
        silent = [k for k in tries if k.trial.outcome is None or k.trial.outcome.joules is None]
        owed = [k for k in silent if k.trial.ending not in (Ending.LOST, Ending.CRASHED)]
        assert (one.use is None) == (bool(owed) or len(silent) == len(tries))
        if one.use is not None:
            joules = sum(k.trial.outcome.joules or 0.0 for k in tries if k.trial.outcome)
            assert math.isclose(one.use.cost, cost.cost(joules, 7.0 * (len(tries) - len(silent))))


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_in_which_trials_are_given_does_not_matter(trials: list[Kept], rng: random.Random) -> None:
    shuffled = list(trials)
    rng.shuffle(shuffled)
    assert summarise(JOB, shuffled) == summarise(JOB, trials)


@given(histories(), st.floats(1.0, 1e5))
def test_the_energy_of_a_lost_try_is_taken_off_the_saving(trials: list[Kept], joules: float) -> None:
    base = [*trials, kept(len(trials) + 1, 99, 16, Ending.CONVERGED, 5e5)]
    more = [*base, kept(len(base) + 1, 99, 8, Ending.LOST, joules)]
    before, after = summarise(JOB, base).saving(), summarise(JOB, more).saving()
    assert before is not None and after is not None
    assert math.isclose(before.saved.joules - after.saved.joules, joules, rel_tol=1e-6, abs_tol=1e-3)
    assert after.default == before.default


@given(histories())
def test_a_saving_is_a_default_for_each_recurrence_that_converged_minus_all_that_was_used(trials: list[Kept]) -> None:
    summary = summarise(JOB, trials)
    saving, default = summary.saving(), summary.defaults.get("V100")
    if default is None:
        assert saving is None
        return
    counted = [one for one in summary.finished if one.use is not None]
    worth = sum(one.end is End.CONVERGED for one in counted) * default.use.joules
    used = sum(one.use.joules for one in counted if one.use is not None)
    assert saving is None if not worth else saving is not None
    if saving is not None:
        assert math.isclose(saving.saved.joules, worth - used, rel_tol=1e-9, abs_tol=1e-3)
        assert saving.recurrences == len(counted)


def test_how_a_recurrence_ended() -> None:
    trials = [
        kept(1, 1, 16, Ending.STOPPED, 10.0),
        kept(2, 1, 8, Ending.CONVERGED, 20.0, epochs=6),
        kept(3, 2, 16, Ending.STOPPED, 10.0),
        kept(4, 3, 16, Ending.NOT_CONVERGED, 10.0, last=1),
        kept(5, 4, 16, Ending.LOST, None),
        kept(6, 4, 32, Ending.OPEN, 3.0),
    ]
    rows = summarise(JOB, trials).recurrences
    assert [one.end for one in rows] == [End.CONVERGED, End.UNFINISHED, End.FAILED, End.OPEN]
    assert [(one.batch_size, one.epochs) for one in rows[:1]] == [(8, 6)]
    assert rows[3].known_joules == 3.0
    assert [one.number for one in summarise(JOB, trials).finished] == [1, 2, 3]


def test_a_late_convergence_names_the_size_that_converged() -> None:
    trials = [kept(1, 1, 8, Ending.CONVERGED, 20.0), kept(2, 1, 32, Ending.STOPPED, 10.0)]
    assert summarise(JOB, trials).recurrences[0].batch_size == 8


def test_the_default_is_its_epochs_times_a_profiled_epoch_brought_to_the_highest_limit() -> None:
    trials = [
        kept(1, 1, 16, Ending.CONVERGED, 900.0, epochs=4),
        kept(2, 2, 16, Ending.CONVERGED, None, epochs=6),
        kept(3, 3, 32, Ending.CONVERGED, 500.0, epochs=50),
    ]
    epoch = Profiled(sequence=99, batch_size=16, gpu_model="V100", joules=256.0, seconds=2.0, max_watts=WATTS)
    profile = PowerProfile.of([Slice(250, 20, 2.0, 480.0), Slice(150, 10, 1.25, 160.0)])
    default = summarise(JOB, trials, [epoch], {"V100": profile}).defaults["V100"]
    assert (default.limit_watts, default.runs, default.epochs) == (250, 2, 5.0)
    assert math.isclose(default.use.joules, 5 * 256.0 * 24 / 16)
    assert math.isclose(default.use.seconds, 5 * 2.0 * 0.1 / 0.125)
    assert math.isclose(default.use.cost, CostModel(0.5, WATTS).cost(default.use.joules, default.use.seconds))


def test_an_epoch_that_was_only_observed_at_the_highest_limit_is_not_brought_there_twice() -> None:
    trials = [kept(1, 1, 16, Ending.CONVERGED, 900.0, epochs=4)]
    epoch = Profiled(sequence=99, batch_size=16, gpu_model="V100", joules=480.0, seconds=2.0, max_watts=WATTS)
    profile = PowerProfile.of([Slice(250, 20, 2.0, 480.0), Slice(150, 10, 1.25, 160.0)])
    default = summarise(JOB, trials, [epoch], {"V100": profile}).defaults["V100"]
    assert (default.use.joules, default.use.seconds) == (4 * 480.0, 4 * 2.0)


def test_what_runs_use_beside_their_epochs_is_the_defaults_too() -> None:
    trials = [kept(1, 1, 16, Ending.CONVERGED, 1000.0, epochs=2)]
    epoch = Profiled(sequence=99, batch_size=16, gpu_model="V100", joules=400.0, seconds=2.0, max_watts=WATTS)
    profile = PowerProfile.of([Slice(250, 20, 2.0, 400.0)])
    default = summarise(JOB, trials, [epoch], {"V100": profile}).defaults["V100"]
    assert (default.use.joules, default.use.seconds) == (1000.0, 7.0)


@pytest.mark.parametrize("profile", [None, PowerProfile.of([Slice(150, 10, 1.25, 160.0)], limits=[250])])
def test_without_a_profile_of_the_highest_limit_the_default_is_its_runs_as_they_ran(
    profile: PowerProfile | None,
) -> None:
    trials = [kept(1, 1, 16, Ending.CONVERGED, 900.0), kept(2, 2, 16, Ending.CONVERGED, 700.0)]
    epoch = Profiled(sequence=99, batch_size=16, gpu_model="V100", joules=200.0, seconds=2.0, max_watts=WATTS)
    default = summarise(JOB, trials, [epoch], {"V100": profile} if profile else {}).defaults["V100"]
    assert default.limit_watts is None
    assert default.use == Use(800.0, 7.0, CostModel(0.5, WATTS).cost(800.0, 7.0))


def test_a_default_that_never_reached_the_target_is_no_measure_of_saving() -> None:
    trials = [kept(1, 1, 16, Ending.NOT_CONVERGED, 900.0), kept(2, 1, 8, Ending.CONVERGED, 10.0)]
    assert summarise(JOB, trials).defaults == {}
    assert summarise(JOB, trials).saving() is None


def test_each_gpu_model_is_compared_with_its_own_default() -> None:
    trials = [
        kept(1, 1, 16, Ending.CONVERGED, 1000.0),
        kept(2, 2, 16, Ending.CONVERGED, 400.0, model="A40"),
        kept(3, 3, 8, Ending.CONVERGED, 300.0, model="A40"),
    ]
    saving = summarise(JOB, trials).saving()
    assert saving is not None
    assert saving.saved.joules == 100.0


def test_runs_towards_another_target_are_used_energy_and_no_measure() -> None:
    trials = [kept(1, 1, 16, Ending.CONVERGED, 50.0), kept(2, 2, 16, Ending.CONVERGED, 900.0)]
    summary = summarise(replace(JOB, since=2), trials)
    assert summary.joules == 950.0
    assert [one.number for one in summary.finished] == [2]
    assert summary.defaults["V100"].use.joules == 900.0


def test_what_a_job_has_come_to_is_seen_in_its_latest_recurrences() -> None:
    trials = [kept(n, n, 16, Ending.CONVERGED, 100.0) for n in range(1, 5)]
    trials += [kept(n, n, 8, Ending.CONVERGED, 50.0) for n in range(5, 10)]
    summary = summarise(JOB, trials)
    recent = summary.saving(summary.recent)
    assert recent is not None
    assert (recent.share, recent.recurrences) == (0.5, 5)


def test_what_a_job_has_come_to_is_seen_where_it_last_ran() -> None:
    trials = [kept(1, 1, 16, Ending.CONVERGED, 100.0), kept(2, 2, 16, Ending.CONVERGED, 40.0, model="A40")]
    assert [one.gpu_model for one in summarise(JOB, trials).recent] == ["A40"]
    assert summarise(JOB, []).recent == ()
