"""What the default would have used: noise is not taken for growth, growth is followed, and errors hold the truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.worlds import LIMITS, SIZES, SPEC, TOP, World, kept, steady_world
from zeus.cost import CostModel, Use
from zeus.job import Ending, EpochPoint, Kind, Outcome, TrialRecord, UsageSegment, replace
from zeus.ledger.charge import Spent
from zeus.ledger.ledger import JobLedger, open_ledger
from zeus.ledger.savings import Basis
from zeus.profile import LimitSlice, PowerProfile, ProfileKey

COST = CostModel(SPEC.eta_knob, 300.0)


def run(
    recurrence: int,
    size: int,
    epochs: int = 10,
    *,
    joules: float = 100.0,
    seconds: float = 1.0,
    warm_up: float = 0.0,
    steps: int = 0,
) -> TrialRecord:
    """A trial at the highest limit. An epoch uses `joules` and `seconds`; with `steps`, they are seen."""
    curve, rows = [], list[UsageSegment]()
    for number in range(1, epochs + 1):
        by = 1 + warm_up * (number == 1)
        curve.append(EpochPoint(number, None, joules * by, seconds * by, TOP))
        unit = (Kind.STEP, steps) if steps else (Kind.EPOCH, 1)
        rows.append(UsageSegment.of(unit[0], TOP, number == 1, unit[1], joules * by, seconds * by))
    outcome = Outcome(
        ending=Ending.CONVERGED,
        joules=joules * (epochs + warm_up),
        seconds=seconds * (epochs + warm_up),
        epochs=epochs,
        stretches=tuple(rows),
        curve=tuple(curve),
        found_watts=TOP,
        samples=steps * size or None,
    )
    return kept(recurrence, recurrence, size, outcome)


def told_default(ledger: JobLedger, recurrence: int) -> float:
    found = ledger.default_of(ledger.recurrences[recurrence - 1])
    assert found is not None
    return found.use.joules


# ---------------------------------------------------------------------- how sure


def test_one_run_of_the_default_is_told_with_an_error_of_15_and_17_percent() -> None:
    default = open_ledger(SPEC, [run(1, 16)]).defaults["V100"]
    assert (default.basis, default.use.joules) == (Basis.MEASURED, pytest.approx(1000.0))
    assert 0.13 < default.joules_error / 1000 < 0.17
    assert 0.14 < default.seconds_error / 10 < 0.19


def test_equal_runs_show_by_and_by_that_there_is_no_luck_or_noise() -> None:
    trials = [run(number, 16) for number in range(1, 41)]
    errors = [open_ledger(SPEC, trials[:count]).defaults["V100"].joules_error for count in (1, 2, 5, 10, 40)]
    assert errors == sorted(errors, reverse=True)
    assert errors[3] < 0.025 * 1000 and errors[4] < 0.005 * 1000


def test_luck_is_pooled_over_all_sizes() -> None:
    def error(lengths: Sequence[int]) -> float:
        trials = [run(1, 16), *(run(n + 2, 8, length) for n, length in enumerate(lengths))]
        return open_ledger(SPEC, trials).defaults["V100"].joules_error

    assert error([10] * 10) < error([10]) < error([5, 15] * 5)


def test_a_single_epoch_leaves_no_room_for_luck() -> None:
    few, many = (open_ledger(SPEC, [run(1, 16, epochs)]).defaults["V100"] for epochs in (1, 20))
    assert few.joules_error / few.use.joules < 0.6 * many.joules_error / many.use.joules


def test_neighbouring_sizes_correct_a_run_of_the_default_that_was_unlucky() -> None:
    """Epochs(b) is smooth: 16 hardly needs twice as many epochs as both 8 and 32 do."""
    sizes = [8, 32] * 5
    lengths = [10, 10, 8, 12, 12, 8, 9, 11, 11, 9]
    trials = [run(1, 16, 20), *(run(n + 2, sizes[n], length) for n, length in enumerate(lengths))]
    default = open_ledger(SPEC, trials).defaults["V100"]
    assert 1200.0 < default.use.joules < 1950.0
    often = [*trials, *(run(n, 16, 20) for n in range(12, 22))]
    assert open_ledger(SPEC, often).defaults["V100"].use.joules == pytest.approx(2000.0, rel=0.05)


def test_warm_up_counts_once_and_is_doubted() -> None:
    plain, warm = (open_ledger(SPEC, [run(1, 16, 3, warm_up=by)]).defaults["V100"] for by in (0.0, 5.0))
    assert warm.use.joules - plain.use.joules == pytest.approx(500.0)
    assert warm.joules_error > plain.joules_error + 50.0


def test_the_warm_up_of_the_first_process_is_no_saving_of_all_later_ones() -> None:
    """As of a data set that is downloaded once, or kernels that are compiled once."""
    trials = [run(1, 16, warm_up=5.0), *(run(n, 8) for n in range(2, 13))]
    saving = open_ledger(SPEC, trials).saving()
    assert saving is not None and not saving.difference_seen


def test_the_warm_up_of_a_default_of_one_epoch_is_not_counted_twice() -> None:
    trials = [run(1, 16, 1, warm_up=4.0), *(run(n, 8, 3, warm_up=4.0) for n in range(2, 8))]
    assert open_ledger(SPEC, trials).defaults["V100"].use.joules == pytest.approx(500.0, rel=0.01)


def test_chance_is_seldom_told_as_a_saving() -> None:
    """All sizes are the same: what a few runs of other sizes save or lose beside many of the default is luck."""
    rng, seen = random.Random(1), 0
    for _ in range(100):
        trials = []
        for number, size in enumerate([16] * 5 + [8, 32] + [16] * 15, 1):
            epochs = max(1, round(20 * math.exp(rng.gauss(0, 0.1))))
            trials.append(run(number, size, epochs, joules=100 * math.exp(rng.gauss(0, 0.05))))
        saving = open_ledger(SPEC, trials).saving()
        assert saving is not None
        seen += abs(saving.saved.joules) >= 2 * saving.joules_error
    assert seen <= 10


def test_one_run_that_hung_says_nothing_about_the_data() -> None:
    trials = [run(1, 16), *(run(n, 8, joules=1600.0 if n == 5 else 80.0) for n in range(2, 41))]
    default = open_ledger(SPEC, trials).defaults["V100"]
    assert default.use.joules == pytest.approx(1000.0, rel=0.05)


def test_recurrences_may_have_any_numbers() -> None:
    """Imported histories have: what matters is their order."""
    trials = [run(1, 16), run(2, 8)]
    far = [
        replace(one, trial=replace(one.trial, ask=replace(one.trial.ask, recurrence=2**31 * n)))
        for n, one in enumerate(trials, 1)
    ]
    savings = [open_ledger(SPEC, some).saving() for some in (trials, far)]
    assert savings[0] == savings[1]


# ---------------------------------------------------------------------- data that grow


def test_noise_between_runs_is_not_taken_for_growth() -> None:
    """As on a shared machine: epochs of the same size take 10 to 25 % more or less from run to run."""
    rng, off, changed = random.Random(5), list[float](), 0
    for _ in range(60):
        noise = rng.uniform(0.1, 0.25)
        trials = [
            run(n + 1, 16 if n == 0 else 8, joules=100 * math.exp(noise * rng.gauss(0, 1)), seconds=1.0)
            for n in range(12)
        ]
        ledger = open_ledger(SPEC, trials)
        changed += ledger.defaults["V100"].basis is not Basis.MEASURED
        off.append(
            told_default(ledger, 12) / (trials[0].latest_outcome.joules or 0.0) - 1
            if trials[0].latest_outcome
            else math.nan
        )
    assert changed <= 12
    assert sorted(map(abs, off))[30] < 0.03


@pytest.mark.parametrize("growth", [1.05, 0.98])
def test_a_trend_is_followed(growth: float) -> None:
    trials = [run(n + 1, 16 if n == 0 else 8, joules=100 * growth**n, seconds=growth**n) for n in range(20)]
    ledger = open_ledger(SPEC, trials)
    assert ledger.defaults["V100"].basis is Basis.ESTIMATED
    assert told_default(ledger, 20) == pytest.approx(1000 * growth**19, rel=0.1)


def test_a_jump_is_followed() -> None:
    levels = [1.0] * 6 + [1.6] * 6
    trials = [run(n + 1, 16 if n == 0 else 8, joules=100 * by, seconds=by) for n, by in enumerate(levels)]
    ledger = open_ledger(SPEC, trials)
    assert told_default(ledger, 6) == pytest.approx(1000.0, rel=0.05)
    assert told_default(ledger, 12) == pytest.approx(1600.0, rel=0.05)


def test_counted_samples_show_a_jump_that_no_size_ran_on_both_sides_of() -> None:
    trials = [run(1, 16, steps=1000), run(2, 16, steps=1000)]
    trials += [run(n, 8, steps=4000, joules=150.0, seconds=2.0) for n in (3, 4)]
    ledger = open_ledger(SPEC, trials)
    assert told_default(ledger, 4) == pytest.approx(2000.0, rel=0.02)
    assert ledger.defaults["V100"].basis is Basis.ESTIMATED


def test_samples_that_a_last_batch_explains_have_not_changed() -> None:
    trials = [run(1, 16, steps=63), run(2, 32, steps=32), run(3, 8, steps=125), run(4, 16, steps=62)]
    assert open_ledger(SPEC, trials).defaults["V100"].basis is Basis.MEASURED


def test_an_epoch_of_as_many_steps_for_any_size_says_nothing_of_the_data() -> None:
    trials = [run(1, 16, steps=100), run(2, 8, steps=100), run(3, 32, steps=100), run(4, 8, steps=100)]
    ledger = open_ledger(SPEC, trials)
    assert ledger.defaults["V100"].basis is Basis.MEASURED
    assert told_default(ledger, 4) == pytest.approx(1000.0, rel=0.01)


# ---------------------------------------------------------------------- worlds whose truth is known


def amounts(least: float, most: float) -> st.SearchStrategy[Use]:
    """Joules and seconds."""
    return st.builds(Use, st.floats(least, most), st.floats(least, most))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some job without noise, whose sizes need equally many epochs, and whose first epoch may be far from steady."""
    lower = st.builds(Use, st.floats(0.6, 1.0), st.floats(1.0, 1.3))  # a lower limit is slower and uses less
    limits = {limit: draw(lower) if limit < TOP else Use(1.0, 1.0) for limit in LIMITS}
    largest, slope = draw(amounts(100.0, 1000.0)), draw(st.floats(-0.3, 0.0))  # an epoch of a small size uses more
    sizes = {size: largest.times(math.exp(slope * math.log2(size / SIZES[-1]))) for size in SIZES}
    evaluation = draw(st.sampled_from([0.0, 0.1, 0.5]))
    warm_up = draw(st.sampled_from([0.0, 1.0, 10.0])) * 1000.0
    return World(
        kind=draw(st.sampled_from([Kind.STEP, Kind.EPOCH])),
        epoch={(size, limit): use * limits[limit] for size, use in sizes.items() for limit in LIMITS},
        evaluation={limit: Use(100.0, 100.0).times(evaluation) * limits[limit] for limit in LIMITS},
        warm_up=Use(warm_up, warm_up),
        epochs=dict.fromkeys(SIZES, draw(st.integers(4, 8))),
    )


schedules = st.lists(
    st.tuples(st.sampled_from(SIZES), st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3)), max_size=6
)


@given(worlds(), schedules)
def test_told_defaults_are_the_truth_where_limits_are_known(world: World, later: list[tuple[int, list[float]]]) -> None:
    world.survey()
    for n, (size, limits) in enumerate(later):
        world.run(n + 2, size, limits)
    ledger = open_ledger(SPEC, world.kepts)
    for one in ledger.recurrences:
        default, last = ledger.default_of(one), world.kepts[one.number + 1]
        assert default is not None and default.basis is not Basis.AS_IT_RAN
        own = one.batch_size == SPEC.default_batch_size
        truth = world.at_top[last.trial.number] if own else world.default(one.number)
        # Evaluations that were never seen at both limits are half moved.
        assert default.use.joules == pytest.approx(truth.joules, rel=0.05)
        assert default.use.seconds == pytest.approx(truth.seconds, rel=0.05)
        assert default.use.cost == pytest.approx(COST.cost(default.use.joules, default.use.seconds))


@given(worlds(), st.integers(1, 3))
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


def test_runs_that_cannot_be_moved_are_left_out_where_others_can() -> None:
    world = steady_world()
    world.survey()
    totals = Outcome(ending=Ending.CONVERGED, joules=1e9, seconds=7.0, epochs=6)
    ledger = open_ledger(SPEC, [*world.kepts, kept(len(world.kepts) + 1, 2, 16, totals)])
    default = ledger.defaults["V100"]
    assert (default.basis, default.runs) == (Basis.ESTIMATED, 1)
    assert default.use.joules == pytest.approx(world.default(1).joules, rel=0.05)
    assert told_default(ledger, 2) == 1e9  # a run of the default is compared with itself


def test_measured_means_that_every_run_was_at_the_highest_limit() -> None:
    world = steady_world()
    world.run(1, 16)
    world.run(2, 16)
    assert open_ledger(SPEC, world.kepts).defaults["V100"].basis is Basis.MEASURED
    world.run(3, 16, [TOP, TOP, 150.0])
    default = open_ledger(SPEC, world.kepts).defaults["V100"]
    assert (default.basis, default.runs, default.runs_measured) == (Basis.ESTIMATED, 3, 2)


def test_a_power_profile_serves_where_units_say_nothing() -> None:
    world = steady_world()
    world.run(1, 16, [150.0])
    high, low = world.epoch[16, TOP], world.epoch[16, 150.0]
    slices = [LimitSlice(250, 40, high.seconds, high.joules), LimitSlice(150, 20, low.seconds / 2, low.joules / 2)]
    key = ProfileKey("asr", 16, "V100", 1)
    ledger = open_ledger(SPEC, world.kepts, profiles={key: PowerProfile.of(slices)})
    assert ledger.defaults["V100"].basis is Basis.ESTIMATED
    assert ledger.defaults["V100"].use.joules == pytest.approx(world.default(1).joules)
    for other in (
        {replace(key, gpu_count=2): PowerProfile.of(slices)},
        {replace(key, batch_size=8): PowerProfile.of(slices)},
        {key: PowerProfile.of([slices[0], LimitSlice(150, 1, 1.0, 1.0)])},
        {key: PowerProfile.of(slices[:1])},
    ):
        assert open_ledger(SPEC, world.kepts, profiles=other).defaults["V100"].basis is Basis.AS_IT_RAN


# ---------------------------------------------------------------------- noisy worlds


def survey_first(world: World, rng: random.Random) -> None:
    """Each size is seen at first; then any size at any limit."""
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


@pytest.mark.parametrize(("life", "width"), [(survey_first, 0.05), (size_by_size, 0.06), (once_each, 0.12)])
def test_savings_told_of_noisy_runs_are_within_two_errors_of_the_truth_95_times_in_100(
    life: Callable[[World, random.Random], None], width: float
) -> None:
    rng, hits, tried, widths = random.Random(1), 0, 0, []
    for _ in range(250):
        world = noisy(rng)
        life(world, rng)
        saving = open_ledger(SPEC, world.kepts).saving()
        assert saving is not None
        truth = used = Use()
        for one in world.kepts:
            trial, told = one.trial, one.latest_outcome
            assert told is not None
            used += Use(told.joules or 0.0, told.seconds)
            if told.ending is Ending.CONVERGED:
                own = trial.batch_size == SPEC.default_batch_size
                truth += world.at_top[trial.number] if own else world.default(trial.ask.recurrence)
        off = abs(Use(saving.saved.joules, saving.saved.seconds) - (truth - used))
        hits += (off.joules <= 2 * saving.joules_error) + (off.seconds <= 2 * saving.seconds_error)
        tried += 2
        widths.append(saving.joules_error / saving.default.joules)
    assert hits / tried >= 0.93
    assert sorted(widths)[len(widths) // 2] < width  # at 0.05, a saving of a tenth is mostly seen


def noisy(rng: random.Random) -> World:
    """A job whose measurements and epochs scatter."""
    limits = {limit: Use(rng.uniform(0.6, 1), rng.uniform(1, 1.4)) for limit in LIMITS} | {TOP: Use(1.0, 1.0)}
    sizes = {size: Use(rng.uniform(100, 1000), rng.uniform(1, 10)) for size in SIZES}
    warm_up, share, epochs = rng.choice([0.0, 0.5, 5.0]), rng.choice([0.0, 0.2]), rng.randint(6, 20)
    return World(
        kind=rng.choice([Kind.STEP, Kind.EPOCH]),
        epoch={(size, limit): use * limits[limit] for size, use in sizes.items() for limit in LIMITS},
        evaluation={limit: sizes[16].times(share) * limits[limit] for limit in LIMITS},
        warm_up=sizes[16].times(warm_up),
        epochs={size: round(epochs * rng.uniform(0.8, 1.25)) for size in SIZES},
        growth=rng.choice([1.0, 1.0, 1.005, 1.05]),
        noise=rng.choice([0.005, 0.02, 0.05]),
        luck=rng.choice([0.0, 0.1]),
        rng=rng,
    )


@pytest.mark.parametrize("steps", [0, 50])
@pytest.mark.parametrize("warm_up", [0.0, 2.0])
def test_what_was_used_before_the_training_is_charged_and_is_no_part_of_the_default(steps: int, warm_up: float) -> None:
    """Profiling before the first run, or starts that ran out of memory: a job without Zeus has neither."""
    runs = [run(number, SPEC.default_batch_size, steps=steps, warm_up=warm_up) for number in (1, 2, 3)]
    first = runs[0].trial.outcome
    assert first is not None and first.joules is not None
    more = replace(first, joules=first.joules + 500.0, seconds=first.seconds + 5.0)
    told = [
        open_ledger(SPEC, [replace(runs[0], trial=replace(runs[0].trial, outcome=outcome)), *runs[1:]])
        for outcome in (first, replace(more, earlier_joules=500.0, earlier_seconds=5.0))
    ]
    for recurrence in (1, 2, 3):
        assert told_default(told[1], recurrence) == pytest.approx(told_default(told[0], recurrence))
    before, after = (ledger.saving() for ledger in told)
    assert before is not None and after is not None
    assert after.saved.joules == pytest.approx(before.saved.joules - 500.0)
