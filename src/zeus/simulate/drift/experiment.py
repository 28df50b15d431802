"""Data drift (§6.4, Figure 10): one recurring job whose data change between recurrences.

There are two experiments. Both use the policies of real jobs. In `shifts` the batch size that needs the fewest epochs
changes from time to time. In `tweets` a real text classifier is trained on each slice of Capriccio.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from zeus.device.virtual import presets
from zeus.errors import InputError
from zeus.policy.registry import find_policy
from zeus.simulate.drift import capriccio, tweet_model
from zeus.simulate.replay import job_of, replay_each
from zeus.simulate.virtual import profile
from zeus.simulate.workload import Workload

WINDOW: Final = 10  # as in the paper
RUNS: Final = 8  # for each batch size
# Settings of the classifier. They were chosen by looking at its epochs to target on some slices: batch sizes should
# differ, and nearly all runs should reach the target. With a target of 0.68 and a learning rate of 0.3, runs needed
# only one or two epochs, and the smallest size always won.
SIZES: Final = (8, 16, 32, 64, 128)  # as BERT-SA on the V100
DEFAULT: Final = 128
TARGET: Final = 0.70  # validation accuracy
LEARNING_RATE: Final = 0.1  # at the default size; scales with the square root of the size
MAX_EPOCHS: Final = 25


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One slice: a point of Figure 10."""

    slice: int  # from 1
    label: str  # date of the slice, or which size needs the fewest epochs
    batch_size: int  # of the last trial
    power_limit: float
    tries: int
    converged: bool
    energy: float  # joules, over all trials
    time: float
    cost: float


def run(
    workloads: Sequence[tuple[str, Workload]],
    policy: str = "paper",
    *,
    window: int = WINDOW,
    eta: float = 0.5,
    beta: float = 2.0,
    seed: int = 0,
    progress: Callable[[int], None] = lambda slices: None,
) -> list[DriftRow]:
    """Run a policy over labelled workloads, one recurrence each. All need the same batch sizes and the same GPU."""
    if not workloads:
        raise InputError("no slices given: at least one is needed.")
    job = job_of(workloads[0][1], eta_knob=eta, beta_knob=beta, window_size=window)
    steps = replay_each((workload for _, workload in workloads), find_policy(policy), job, seed)
    rows = []
    for number, ((label, _), one) in enumerate(zip(workloads, steps, strict=True), start=1):
        size, watts = one.choice
        rows.append(
            DriftRow(number, label, size, watts, len(one.tries), one.converged, one.joules, one.seconds, one.cost)
        )
        progress(1)
    return rows


# ---------------------------------------------------------------------- (a) tables that shift


def valley(workload: Workload, best: int, *, least: int = 10, seed: int = 0) -> Workload:
    """The same workload, except that the size `best` now needs the fewest epochs.

    A size k doublings away needs 1 + k²/4 times as many epochs. Runs vary by about 10 %. All runs end within
    max_epochs. Like real workloads, the result is convex around its best size (Figure 5).
    """
    if best not in workload.runs:
        raise InputError(f"{best} is not a batch size of {workload.name}. Choose one of {list(workload.sizes)}.")
    chance = random.Random(f"{workload.name}:{best}:{seed}")
    runs: dict[int, tuple[int, ...]] = {}
    for size in workload.sizes:
        needed = least * (1 + math.log2(size / best) ** 2 / 4)
        runs[size] = tuple(max(1, round(needed * chance.lognormvariate(0, 0.1))) for _ in range(RUNS))
    most = max(n for each in runs.values() for n in each)
    return replace(workload, runs=runs, max_epochs=max(workload.max_epochs, most))


def shifts(workload: Workload, slices: int, best: Sequence[int], seed: int = 0) -> list[tuple[str, Workload]]:
    """This many slices, in equal stretches. In each stretch another of the sizes `best` needs the fewest epochs."""
    each = [valley(workload, size, seed=seed) for size in best]
    most = max(one.max_epochs for one in each)
    same = [replace(one, max_epochs=most) for one in each]
    return [(f"fewest at {best[i]}", same[i]) for i in (i * len(best) // slices for i in range(slices))]


# ---------------------------------------------------------------------- (b) tweets


def tweets(
    cut: Sequence[capriccio.DataSlice], *, gpu: str = "v100", seed: int = 0, target: float = TARGET
) -> list[tuple[str, Workload]]:
    """Turn slices into workloads. Epochs to target come from real training, which runs when they are first needed.

    Energy and time are modelled (`zeus.device.virtual.physics`) as those of BERT-SA on this GPU, for as many tweets as
    the slice trains on.
    """
    card, load = presets.card(gpu), presets.load(gpu, "bert-sa")
    found = []
    for number, one in enumerate(cut):
        data = _Data(one)
        samples = len(one.tweets) * (tweet_model.VALIDATED - 1) // tweet_model.VALIDATED
        runs = {size: _Runs(data, size, target, (seed, number)) for size in SIZES}
        profiles = {size: profile(card, replace(load, samples_per_epoch=samples), size) for size in SIZES}
        workload = Workload("Capriccio", f"virtual {gpu}", card.max_watts, MAX_EPOCHS, DEFAULT, runs, profiles)
        found.append((one.date, workload))
    return found


class _Data:
    """A slice in the form that the classifier needs."""

    def __init__(self, one: capriccio.DataSlice) -> None:
        self.texts = [tweet.text for tweet in one.tweets]
        self.held = tweet_model.held_back(self.texts)
        self.labels = np.array([tweet.positive for tweet in one.tweets], dtype=float)


@lru_cache(maxsize=2)  # a slice is used a few times and then never again; for the full data set it takes 80 MB
def _table(data: _Data) -> npt.NDArray[np.int32]:
    return tweet_model.features(data.texts)


class _Runs(Sequence[int | None]):
    """Runs of one size on one slice. They differ in the order of tweets. Each is trained when it is first read."""

    def __init__(self, data: _Data, size: int, target: float, seed: tuple[int, int]) -> None:
        self._data = data
        self._size = size
        self._target = target
        self._seed = seed
        self._epochs: dict[int, int | None] = {}

    def __len__(self) -> int:
        return RUNS

    @overload
    def __getitem__(self, index: int) -> int | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int | None]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int | None] | None:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        run = range(len(self))[index]
        if run not in self._epochs:
            self._epochs[run] = tweet_model.epochs_to_target(
                _table(self._data),
                self._data.labels,
                self._data.held,
                batch_size=self._size,
                learning_rate=LEARNING_RATE * (self._size / DEFAULT) ** 0.5,
                target=self._target,
                max_epochs=MAX_EPOCHS,
                seed=(*self._seed, run),
            )
        return self._epochs[run]
