"""Set-up of a `GlobalPowerLimitOptimizer`: its GPUs, the limits to try, and the profile of an earlier run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zeus.cost import GPU_ONLY, Include, counted_as, included
from zeus.device.clock import common_clock
from zeus.device.gpu import Clock, Gpu
from zeus.distributed.crew import Crew
from zeus.env import ProfilingPlan, orders
from zeus.errors import InputError
from zeus.monitor import ZeusMonitor
from zeus.monitor.all_ranks import count_gpus, need_included
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.candidates import limit_range
from zeus.optimizer.power_limit.profile_files import FileProfile, best_nearby
from zeus.optimizer.power_limit.profiler import Plan, State
from zeus.optimizer.power_limit.selector import OptimumSelector, ZeusCost
from zeus.profile import PowerProfile, ProfileKey, Profiles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wishes:
    """The arguments that the user gave, or the launcher."""

    selector: OptimumSelector | None
    wait_steps: int
    warmup_steps: int
    profile_steps: int
    pl_step: float
    power_limits: Sequence[float]
    profile_path: str | Path | None
    profiles: Profiles | None
    key: ProfileKey | None
    start_watts: float | None
    profiling: ProfilingPlan
    include: Include | None


@dataclass(frozen=True, slots=True)
class Setup:
    """What the optimizer starts with. The same on every rank, except for `gpus` and `clock`."""

    gpus: tuple[Gpu, ...]  # those that this rank counts
    clock: Clock
    max_watts: float  # MAXPOWER of all GPUs of the job
    found: float | None  # the lowest limit found, in watts; None: limits cannot be read
    selector: OptimumSelector
    plan: Plan | None  # None: there is no limit to choose
    key: ProfileKey
    profiles: Profiles | None
    stored: PowerProfile | None  # from an earlier run
    include: Include  # whose energy decides

    def begin(self) -> State | None:
        """The first state of the profiler, with the limits measured in earlier runs."""
        known = {one.limit_watts: (one,) for one in self.stored.slices} if self.stored is not None else {}
        return profiler.start(self.plan, known) if self.plan is not None else None


def set_up(monitor: ZeusMonitor, ranks: Crew, wishes: Wishes) -> Setup:
    """Read the GPUs' limits and the stored profile. Every rank must call this, and all get the same result.

    Raises:
        InputError: A wish is not valid.
    """
    if not wishes.pl_step > 0:
        raise InputError(f"pl_step={wishes.pl_step!r}: give watts above 0.")
    if wishes.profiles is None and wishes.profile_path is None and wishes.key is None:
        wishes = _of_launcher(wishes, monitor, ranks)
    include = included(orders().include or wishes.include or GPU_ONLY)  # all joules of a job mean the same
    need_included(monitor, ranks, include)
    count, max_watts = count_gpus(monitor, ranks)
    gpus = tuple(monitor.counted.values())
    allowed = limit_range(list(monitor.gpus.values()), ranks)
    found = None if allowed.is_empty else allowed.found
    limits = allowed.candidates(wishes.pl_step, wishes.power_limits)
    selector = wishes.selector or ZeusCost(0.5, max(1, count))
    if isinstance(selector, ZeusCost) and limits:
        selector = selector.with_max_watts(max_watts)
    wait_steps = max(1, wishes.wait_steps) if ranks.size > 1 else wishes.wait_steps  # ranks agree on a pace in it
    plan = None
    if limits:
        steps = (wait_steps, wishes.warmup_steps, wishes.profile_steps)
        plan = Plan(limits, selector, wishes.start_watts, *steps)
        if wishes.profiling is ProfilingPlan.PAPER:
            plan = plan.of_paper()
    model = next((gpu.spec.name for gpu in monitor.gpus.values()), "")
    key = wishes.key or ProfileKey("", 0, model, count)
    key = replace(key, gpu_model=counted_as(key.gpu_model, include))
    named = None if wishes.profile_path is None else Path(wishes.profile_path)
    profiles: Profiles | None = wishes.profiles if named is None else FileProfile(named)
    stored = None
    if plan is not None:
        kept = _kept(profiles, key, strictly=named is not None)
        stored = kept if _all_have(ranks, kept) else None
        if stored is None and plan.start_watts is None and wishes.profiling is ProfilingPlan.WALK:
            near = best_nearby(profiles, key, plan)
            plan = replace(plan, start_watts=near if _all_have(ranks, near) else None)
    clock = common_clock(gpus)
    return Setup(gpus, clock, max_watts, found, selector, plan, key, profiles, stored, include)


def _of_launcher(wishes: Wishes, monitor: ZeusMonitor, ranks: Crew) -> Wishes:
    """The wishes with the job's profiles, limits and η, if a launcher has opened a trial for this script."""
    order = orders()
    if order.job_id is None or order.trial is None:
        return wishes
    from zeus.optimizer.power_limit.launched_trial import launched_arguments  # takes some time to load

    found: dict[str, Any] = launched_arguments(order, monitor, ranks, ())
    return replace(
        wishes,
        profiles=found.get("profiles"),
        key=found.get("key"),
        selector=wishes.selector or found.get("optimum_selector"),
        power_limits=wishes.power_limits or found.get("power_limits", ()),
        include=found.get("include") or wishes.include,
    )


def _kept(profiles: Profiles | None, key: ProfileKey, *, strictly: bool) -> PowerProfile | None:
    """The profile of an earlier run. If `strictly`, a failure to read it is raised, else logged."""
    try:
        return profiles.get(key) if profiles is not None else None
    except Exception as failed:
        if strictly:
            raise
        log.warning("the stored power profile of this training is ignored: %s", failed)
        return None


def _all_have(ranks: Crew, value: PowerProfile | float | None) -> bool:
    """Whether every rank has the same value. Otherwise the ranks would profile in different orders."""
    mine = repr(value)
    return all(theirs == mine for theirs in ranks.gather(mine))
