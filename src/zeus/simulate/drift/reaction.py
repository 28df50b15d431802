"""Whether a policy reacts to drift (§6.4): does a spike in the cost of the size in use make it try another size?

A spike is a property of the data. It is measured on the runs of the size in use that reach the target, all of them, and
not on what the policy ran. So a recurrence that was expensive only because many trials were stopped is no spike.

- The size in use is that of the last trial of the recurrence before.
- Its cost spikes on a slice if the mean over its runs there is SPIKE times the median over the BEFORE slices before.
- The policy reacts if the next recurrence begins with another size than the one in use.

Exploration goes on at all times, so the rate after spikes is compared with the rate after all other slices. Recurrences
of the pruning phase are left out, as they try other sizes in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Final

from zeus.job import Phase
from zeus.policy.registry import find_policy
from zeus.simulate.drift.experiment import WINDOW
from zeus.simulate.replay import ReplayedRecurrence, job_of, replay_each
from zeus.simulate.workload import Workload

SPIKE: Final = 1.3
BEFORE: Final = 5
FEWEST_SEEDS: Final = 5  # with fewer, the standard error of the difference says little


@dataclass(frozen=True, slots=True)
class Reaction:
    """How often the next recurrence began with another size, after spikes and after other slices, over all seeds."""

    after_spikes: float  # share, from 0 to 1
    at_other_times: float
    spikes: int
    others: int
    slices: tuple[int, ...]  # that were spikes for any seed, from 1
    difference: float  # mean over seeds
    error: float  # standard error of that mean

    @property
    def seen(self) -> bool:
        """Whether other sizes are tried more often after a spike, by more than two standard errors."""
        return self.difference > 2 * self.error


def reaction(
    path: Sequence[Workload],
    seeds: Iterable[int],
    *,
    window: int = WINDOW,
    policy: str = "paper",
    spikes_of: Sequence[Workload] | None = None,
) -> Reaction | None:
    """Run the policy on one workload per recurrence, with each seed. None if there is too little to compare.

    Spikes are looked for in `spikes_of` (default: `path`). With other workloads there, the result is a control: what
    the policy does at these slices if nothing happens.
    """
    data = path if spikes_of is None else spikes_of
    costs = _Costs(data)
    spiked: list[list[bool]] = []
    usual: list[list[bool]] = []
    found: set[int] = set()
    for seed in seeds:
        job = job_of(path[0], window_size=window)
        past = list(replay_each(path, find_policy(policy), job, seed))
        after: dict[bool, list[bool]] = {True: [], False: []}
        for at in range(BEFORE, len(path) - 1):
            if past[at].tries[0].decision.phase is Phase.PRUNING:
                continue
            size = past[at - 1].choice[0]
            spike = costs.spike(at, size)
            if spike is not None:
                after[spike].append(_first(past[at + 1]) != size)
                found |= {at + 1} if spike else set()
        if after[True] and after[False]:
            spiked.append(after[True])
            usual.append(after[False])
    if len(spiked) < FEWEST_SEEDS:
        return None
    differences = [fmean(one) - fmean(other) for one, other in zip(spiked, usual, strict=True)]
    every, rest = ([one for some in lists for one in some] for lists in (spiked, usual))
    error = stdev(differences) / len(differences) ** 0.5
    return Reaction(fmean(every), fmean(rest), len(every), len(rest), tuple(sorted(found)), fmean(differences), error)


class _Costs:
    """The mean epochs of the runs that reach the target, by slice and size. An epoch always costs the same."""

    def __init__(self, data: Sequence[Workload]) -> None:
        self._data = data
        self._known: dict[tuple[int, int], float | None] = {}

    def _epochs(self, at: int, size: int) -> float | None:
        if (at, size) not in self._known:
            reached = [n for n in self._data[at].runs[size] if n is not None and n <= self._data[at].max_epochs]
            self._known[at, size] = fmean(reached) if reached else None
        return self._known[at, size]

    def spike(self, at: int, size: int) -> bool | None:
        """Whether the size costs much more on this slice. None if no run of it reaches the target there or before."""
        now = self._epochs(at, size)
        before = [one for k in range(at - BEFORE, at) if (one := self._epochs(k, size)) is not None]
        return None if now is None or not before else now >= SPIKE * median(before)


def _first(one: ReplayedRecurrence) -> int:
    return one.tries[0].decision.batch_size
