"""What earlier trials of a job tell of a new one: those of its own size on its own GPUs, and no others."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from support.worlds import SIZES, kept
from zeus.cost import ONE, Use
from zeus.job import Ending, Gpus, Kind, Outcome, Profiled, UsageSegment
from zeus.job.wire import dumps, loads, plain, read
from zeus.trial.knowledge import NEWEST_TRIALS, Knowledge, gather

PLACEMENTS = (Gpus("V100", 1, 300.0), Gpus("V100", 2, 600.0), Gpus("A40", 1, 300.0))
places = st.sampled_from(PLACEMENTS)
sizes = st.sampled_from(SIZES)


@given(st.lists(st.tuples(sizes, places), max_size=2 * NEWEST_TRIALS), sizes, places)
def test_only_trials_of_its_size_on_its_gpus_foretell_its_units(
    ran: list[tuple[int, Gpus]], size: int, gpus: Gpus
) -> None:
    trials, same = [], []
    for number, (its_size, its_gpus) in enumerate(ran, 1):
        stretch = UsageSegment.of(Kind.EPOCH, 250.0, False, 1, float(number), 1.0)
        outcome = Outcome(ending=Ending.CONVERGED, joules=9.0, seconds=1.0, epochs=1, stretches=(stretch,))
        trials.append(kept(number, number, its_size, outcome, gpus=its_gpus))
        if (its_size, its_gpus) == (size, gpus):
            same.append((stretch,))
    assert gather(trials, (), size, gpus).trials == tuple(same[-NEWEST_TRIALS:])


@given(st.lists(st.tuples(sizes, places, st.floats(1, 1e3)), max_size=8), sizes, places)
def test_a_profiled_epoch_foretells_its_own_size_and_the_nearest_one_another_on_its_gpus_alone(
    told: list[tuple[int, Gpus, float]], size: int, gpus: Gpus
) -> None:
    events = [
        Profiled(sequence=n, batch_size=one, gpu_model=there.label, joules=joules, seconds=1.0, max_watts=300.0)
        for n, (one, there, joules) in enumerate(told, 1)
    ]
    here = {one: Use(joules, 1.0) for one, there, joules in told if there == gpus}  # the newest word of each size
    known = gather((), events, size, gpus)
    assert known.epoch == here.pop(size, None)
    if here:
        octaves = min(abs(math.log2(one / size)) for one in here)
        assert known.octaves == octaves
        assert known.near in [use for one, use in here.items() if abs(math.log2(one / size)) == octaves]
    else:
        assert known.near is None


@given(st.lists(st.tuples(sizes, places, st.floats(1, 1e3), st.integers(1, 3)), max_size=8), sizes, places)
def test_an_evaluation_is_foretold_by_the_newest_trial_of_the_nearest_other_size_on_its_gpus(
    ran: list[tuple[int, Gpus, float, int]], size: int, gpus: Gpus
) -> None:
    trials, newest = [], dict[int, Use]()
    for number, (its_size, its_gpus, joules, evaluations) in enumerate(ran, 1):
        evaluated = UsageSegment.of(Kind.EVALUATION, 250.0, False, evaluations, evaluations * joules, evaluations * 1.0)
        outcome = Outcome(ending=Ending.CONVERGED, joules=9.0, seconds=1.0, epochs=1, stretches=(evaluated,))
        trials.append(kept(number, number, its_size, outcome, gpus=its_gpus))
        if its_gpus == gpus and its_size != size:
            newest[its_size] = Use(joules, 1.0)
    found = gather(trials, (), size, gpus).evaluation
    octaves = {one: abs(math.log2(one / size)) for one in newest}
    near = [use for one, use in newest.items() if octaves[one] == min(octaves.values())]
    assert (found is None) == (not near)
    assert found is None or any(abs(found / one - ONE).within(1e-9) for one in near)


@given(st.none() | st.builds(Use, st.floats(1, 1e6), st.floats(1, 1e6)), st.integers(0, 3))
def test_knowledge_comes_back_from_json(evaluation: Use | None, octaves: int) -> None:
    known = Knowledge(step=Use(1.0, 2.0), evaluation=evaluation, octaves=octaves, micro_batch_size=4)
    assert read(loads(dumps(plain(known))), Knowledge) == known
