"""Set-up of a `GlobalPowerLimitOptimizer`: its GPUs, the limits to try, and the profile of an earlier run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zeus.cost import GPU_ONLY, Include, counted_as, included
from zeus.device.gpu import Clock, Gpu
from zeus.distributed.group import RankGroup
from zeus.errors import InputError
from zeus.launcher_env import LauncherEnv, launcher_env
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import cards_of, counted_once, refuse_without_cpu
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.candidates import limit_range
from zeus.optimizer.power_limit.profile_files import FileProfile, best_nearby
from zeus.optimizer.power_limit.profiler import Plan, State
from zeus.optimizer.power_limit.selector import OptimumSelector, ZeusCost
from zeus.profile import PowerProfile, ProfileKey, Profiles
from zeus.settings import ProfilingPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OptimizerArguments:
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

    def keep(self, profile: PowerProfile) -> None:
        """Store what was measured, beside what is known from earlier runs."""
        kept = profile.beside(self.stored)
        if self.profiles is not None and kept != self.stored:
            try:
                self.profiles.put(self.key, kept)
            except Exception as failed:
                log.warning("the power profile could not be stored: %s", failed)


def set_up(monitor: ZeusMonitor, ranks: RankGroup, given: OptimizerArguments) -> Setup:
    """Read the GPUs' limits and the stored profile. Every rank must call this, and all get the same result.

    If a launcher has opened a trial for this script, that trial says what the user does not: profiles, limits and η.

    Raises:
        InputError: An argument is not valid.
    """
    if not given.pl_step > 0:
        raise InputError(f"pl_step={given.pl_step!r}: give watts above 0.")
    order = launcher_env()
    if order.job_id is not None and order.trial is not None:
        given = _of_trial(given, order)
    include = included(order.include or given.include or GPU_ONLY)  # all joules of a job mean the same
    rows = ranks.gather((cards_of(monitor), monitor.why_no_cpu))  # now every rank has a monitor: who counts is clear
    count, max_watts = counted_once(cards for cards, _ in rows)
    refuse_without_cpu(include, (why for _, why in rows))
    gpus = tuple(monitor.counted.values())
    allowed = limit_range(list(monitor.gpus.values()), ranks)
    found = None if allowed.is_empty else allowed.found
    limits = allowed.candidates(given.pl_step, given.power_limits)
    selector = given.selector or ZeusCost(0.5, max(1, count))
    if isinstance(selector, ZeusCost) and limits:
        selector = selector.with_max_watts(max_watts)
    key = given.key or ProfileKey("", 0, "", 0)
    model = key.gpu_model or next((gpu.spec.name for gpu in monitor.gpus.values()), "")
    key = replace(key, gpu_model=counted_as(model, include), gpu_count=key.gpu_count or count)
    named = given.profile_path
    profiles: Profiles | None = given.profiles if named is None else FileProfile(Path(named))
    plan, stored = None, None
    if limits:
        wait_steps = max(1, given.wait_steps) if ranks.size > 1 else given.wait_steps  # ranks agree on a pace in it
        steps = (wait_steps, given.warmup_steps, given.profile_steps)
        plan = Plan(limits, selector, given.start_watts, *steps)
        if given.profiling is ProfilingPlan.PAPER:
            plan = plan.of_paper()
        stored, plan = _earlier(ranks, given, profiles, key, plan)
    return Setup(gpus, monitor.clock, max_watts, found, selector, plan, key, profiles, stored, include)


def _of_trial(given: OptimizerArguments, order: LauncherEnv) -> OptimizerArguments:
    """The arguments, with what the launcher's trial says where the user gave none."""
    from zeus.optimizer.launched_trial import LaunchedTrial, launched_trial  # takes some time to load

    trial = given.profiles if isinstance(given.profiles, LaunchedTrial) else launched_trial(order)
    if trial is None:
        return given
    size = order.batch_size or (0 if trial.trial is None else trial.trial.batch_size)
    # A user who says where profiles are kept must also say under which key. Without a size there is none.
    if size and given.profiles is None and given.profile_path is None and given.key is None:
        given = replace(given, profiles=trial, key=ProfileKey(order.job_id or "", size, "", 0))
    return replace(
        given,
        selector=given.selector or ZeusCost(0.5 if order.eta is None else order.eta),
        power_limits=given.power_limits or (() if trial.spec is None else trial.spec.power_limits),
        include=given.include if trial.trial is None else trial.trial.ask.gpus.include,
    )


def _earlier(
    ranks: RankGroup, given: OptimizerArguments, profiles: Profiles | None, key: ProfileKey, plan: Plan
) -> tuple[PowerProfile | None, Plan]:
    """The profile of an earlier run, and the plan with the limit to start at. The first rank looks them up for all."""
    stored: PowerProfile | None = None
    near, wrong = None, None
    if ranks.writes:
        try:
            stored = profiles.get(key) if profiles is not None else None
        except Exception as failed:
            wrong = failed
        if stored is None and plan.start_watts is None and given.profiling is ProfilingPlan.WALK:
            near = best_nearby(profiles, key, plan)
    stored, near, wrong = ranks.broadcast((stored, near, wrong))
    if wrong is not None and given.profile_path is not None:  # the user named this file
        raise wrong
    if wrong is not None:
        log.warning("the stored power profile of this training is ignored: %s", wrong)
    return stored, plan if near is None else replace(plan, start_watts=near)
