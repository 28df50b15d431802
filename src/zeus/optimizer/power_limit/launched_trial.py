"""Arguments of the power limit optimizer under `zeus run`: the profiles, limits and η of the launcher's trial.

The loader and all callbacks use this. The first rank asks the store, and all ranks get the same answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from zeus.cost import Include
from zeus.distributed.crew import Crew, broadcast, crew
from zeus.job import Outcome
from zeus.jobs.running import RunningTrial, launched
from zeus.launcher_env import LauncherEnv
from zeus.monitor import ZeusMonitor
from zeus.monitor.all_ranks import count_gpus
from zeus.optimizer.power_limit.profile_files import default_profiles
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.profile import PowerProfile, ProfileKey
from zeus.trial.knowledge import Knowledge, is_due


@dataclass(frozen=True, slots=True)
class LaunchedTerms:
    """What the store says about the job and its trial, beyond the environment."""

    batch_size: int
    power_limits: tuple[float, ...]
    higher_is_better: bool
    max_watts: float  # MAXPOWER of the GPUs that the trial was opened for
    include: Include  # whose energy its costs count


class LaunchedTrial:
    """The launcher's trial, on every rank. It is also a `Profiles` that keeps profiles in the job's store."""

    def __init__(self, trial: RunningTrial) -> None:
        ranks = crew()
        self._trial = trial if ranks.writes else None  # only on the rank that writes
        self.terms: LaunchedTerms | None = broadcast(self._terms())  # None: the store did not answer
        self.known: Knowledge = broadcast(trial.knowledge() if ranks.writes else Knowledge())
        self.so_far: Outcome | None = broadcast(trial.so_far() if ranks.writes else None)  # by an earlier start

    def _terms(self) -> LaunchedTerms | None:
        if self._trial is None:
            return None
        spec, opened = self._trial.spec, self._trial.trial
        if spec is None or opened is None:
            return None
        watts, include = opened.ask.max_watts, opened.ask.gpus.include
        return LaunchedTerms(opened.batch_size, spec.power_limits, spec.higher_is_better_metric, watts, include)

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of this key, the same on every rank. None if there is none, or if it is time to profile again."""
        kept = None if self._trial is None else self._trial.get(key)
        if kept is not None and kept.slices and is_due(self.known.trials, max(s.limit_watts for s in kept.slices)):
            kept = None
        return broadcast(kept)

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of the nearest other batch size, the same on every rank."""
        return broadcast(None if self._trial is None else self._trial.near(key))

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        if self._trial is not None:
            self._trial.put(key, profile)


def power_arguments(
    orders: LauncherEnv,
    monitor: ZeusMonitor,
    ranks: Crew,
    trial: LaunchedTrial | None,
    *,
    batch_size: int,
    eta: float,
) -> dict[str, Any]:
    """Arguments of the `GlobalPowerLimitOptimizer` for this training, by name. Every rank must call this.

    Args:
        orders: What the launcher set in the environment, if there is a launcher.
        monitor: Measures the GPUs of this rank.
        ranks: The ranks that train together.
        trial: The launcher's trial, if it has opened one.
        batch_size: Samples in a step; part of the key of the profile.
        eta: η of Equation 2.
    """
    count, _ = count_gpus(monitor, ranks)
    model = next((gpu.spec.name for gpu in monitor.gpus.values()), "")
    kept = trial if trial is not None or orders.job_id is None else default_profiles()
    return {
        "optimum_selector": ZeusCost(eta, max(1, count)),
        "power_limits": () if trial is None or trial.terms is None else trial.terms.power_limits,
        "profiles": kept,
        "key": ProfileKey(orders.job_id or "", batch_size, model, count),
        "crew": ranks,
        "include": None if trial is None or trial.terms is None else trial.terms.include,
    }


def launched_arguments(
    orders: LauncherEnv, monitor: ZeusMonitor, ranks: Crew, given: Collection[str]
) -> dict[str, Any]:
    """Like `power_arguments`, for a callback, and without the arguments that its user has given.

    A user who says where profiles are kept must also give their key. Without a launcher, only the ranks are returned.
    """
    running = launched(orders)
    if running is None:
        return {} if "crew" in given else {"crew": ranks}
    trial, eta = LaunchedTrial(running), 0.5 if orders.eta is None else orders.eta
    size = orders.batch_size or (0 if trial.terms is None else trial.terms.batch_size)
    found = power_arguments(orders, monitor, ranks, trial, batch_size=size, eta=eta)
    kept = {"profile_path", "profiles", "key"}
    without = {*given} | kept if not size or kept & {*given} else {*given}  # without a size there is no key
    return {name: value for name, value in found.items() if name not in without}
