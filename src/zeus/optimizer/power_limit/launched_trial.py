"""The power limit of a training under `zeus run`: with the profiles, the limits and the η of its trial.

One way for the loader and for every callback. The first rank asks the store, and all hear the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from zeus.distributed.crew import Crew, broadcast, crew
from zeus.env import Orders
from zeus.jobs.running import RunningTrial, launched
from zeus.monitor import ZeusMonitor
from zeus.monitor.all_ranks import count_gpus
from zeus.optimizer.power_limit.profile_files import default_profiles
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.profile import PowerProfile, ProfileKey
from zeus.trial.knowledge import Knowledge, is_due


@dataclass(frozen=True, slots=True)
class LaunchedTerms:
    """What the job says that the environment does not, or need not."""

    batch_size: int
    power_limits: tuple[float, ...]
    higher_is_better: bool
    max_watts: float  # MAXPOWER, as the trial was asked for


class LaunchedTrial:
    """The trial on every rank. It is a `Profiles` too: the store's, in place of a folder."""

    def __init__(self, trial: RunningTrial) -> None:
        ranks = crew()
        self._alone = ranks.size == 1
        self._trial = trial if ranks.writes else None  # on the rank that speaks
        self.terms: LaunchedTerms | None = broadcast(self._terms())  # None: the store could not be asked
        self.known: Knowledge = broadcast(trial.knowledge() if ranks.writes else Knowledge())

    def _terms(self) -> LaunchedTerms | None:
        if self._trial is None:
            return None
        spec, opened = self._trial.spec, self._trial.trial
        if spec is None or opened is None:
            return None
        return LaunchedTerms(opened.batch_size, spec.power_limits, spec.higher_is_better_metric, opened.ask.max_watts)

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key, the same on every rank; None where it is time to profile again."""
        kept = None if self._trial is None else self._trial.get(key)
        if kept is not None and kept.slices and is_due(self.known.trials, max(s.limit_watts for s in kept.slices)):
            kept = None
        return broadcast(kept)

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of the nearest other batch size, likewise."""
        return broadcast(None if self._trial is None else self._trial.near(key))

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep it."""
        if self._trial is not None:
            self._trial.put(key, profile)


def power_arguments(
    told: Orders,
    monitor: ZeusMonitor,
    ranks: Crew,
    trial: LaunchedTrial | None,
    *,
    batch_size: int,
    eta: float,
) -> dict[str, Any]:
    """What a `GlobalPowerLimitOptimizer` is made with for this training, by its names. Every rank must ask.

    Args:
        told: The launcher's word, if there is a launcher.
        monitor: Over the GPUs of this rank.
        ranks: Those that train together.
        trial: The launcher's, if it has opened one.
        batch_size: Samples in a step, which profiles are kept by.
        eta: η of Equation 2.
    """
    count, _ = count_gpus(monitor, ranks)
    model = next((gpu.spec.name for gpu in monitor.gpus.values()), "")
    kept = trial if trial is not None or told.job_id is None else default_profiles()
    return {
        "optimum_selector": ZeusCost(eta, max(1, count)),
        "power_limits": () if trial is None or trial.terms is None else trial.terms.power_limits,
        "profiles": kept,
        "key": ProfileKey(told.job_id or "", batch_size, model, count),
        "crew": ranks,
    }


def launched_arguments(told: Orders, monitor: ZeusMonitor, ranks: Crew, given: Collection[str]) -> dict[str, Any]:
    """The same for a callback that knows nothing but the launcher's word, less what its user has given.

    Whoever names where profiles are kept names what they are kept by, too. Without a launcher: the ranks alone.
    """
    running = launched(told)
    if running is None:
        return {} if "crew" in given else {"crew": ranks}
    trial, eta = LaunchedTrial(running), 0.5 if told.eta is None else told.eta
    size = told.batch_size or (0 if trial.terms is None else trial.terms.batch_size)
    found = power_arguments(told, monitor, ranks, trial, batch_size=size, eta=eta)
    kept = {"profile_path", "profiles", "key"}
    without = {*given} | kept if not size or kept & {*given} else {*given}  # of no size, nothing can be kept
    return {name: value for name, value in found.items() if name not in without}
