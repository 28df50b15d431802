"""Whether spikes make a policy try other sizes: yes where there is drift, no where there is none."""

from __future__ import annotations

from dataclasses import replace

from zeus.simulate import drift, virtual
from zeus.simulate.drift.reaction import BEFORE, reaction
from zeus.simulate.workload import Workload

SEEDS = range(30)


def shifted() -> list[Workload]:
    """After 30 slices, the size that was best needs three times as many epochs, and another is best."""
    base = virtual.load("v100", ["BERT-SA"])["BERT-SA"]
    return [workload for _, workload in drift.shifts(base, 60, (16, 128))]


def test_a_shift_of_the_best_size_is_a_spike_and_is_answered_with_other_sizes() -> None:
    found = reaction(shifted(), SEEDS)
    assert found is not None
    assert set(found.slices) <= set(range(31, 31 + BEFORE))
    assert found.after_spikes > 2 * found.at_other_times
    assert found.seen


def test_without_drift_there_is_no_spike_to_judge_by() -> None:
    path = shifted()
    assert reaction([path[0]] * len(path), SEEDS) is None


def test_at_the_same_slices_without_drift_nothing_is_seen() -> None:
    path = shifted()
    control = reaction([path[0]] * len(path), SEEDS, spikes_of=path)
    assert control is not None
    assert not control.seen


def test_a_policy_that_never_changes_its_size_does_not_react() -> None:
    path = [replace(one, default=16) for one in shifted()]
    found = reaction(path, SEEDS, policy="default")
    assert found is not None
    assert (found.after_spikes, found.at_other_times, found.seen) == (0, 0, False)


def test_trials_that_the_bound_stops_make_no_spike() -> None:
    """All slices are alike. A low bound makes recurrences expensive by stopped trials, but the data stay."""
    base = shifted()[0]
    lucky = replace(base, runs={size: (2, *[9] * 7) for size in base.sizes}, max_epochs=20)
    assert reaction([lucky] * 30, SEEDS) is None
