"""Profiles power limits during the first training steps and keeps the best (§4.2). The shell around the profiler.

    training step ──▶ recorder ──segment of steps──▶ profiler ──▶ next limit ──training limits──▶ GPUs
                                                         └─ Done ─▶ best limit (optimize) or the one found (observe)

While the limits are lent (`training_limits`), it profiles until the profiler is done, and again if steps change. A
failure of a GPU, the keeper or a file ends the profiling, never the training.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from zeus.callback import Callback
from zeus.cost import GPU_ONLY, ZERO, Include, included
from zeus.distributed.group import RankGroup
from zeus.errors import DeviceError, InputError
from zeus.job import Kind
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.drift_watch import DriftWatch
from zeus.optimizer.power_limit.profiler import PROFILE_STEPS, Done, Measuring, Settling, State, Waiting
from zeus.optimizer.power_limit.selector import OptimumSelector
from zeus.optimizer.power_limit.setup import OptimizerArguments, set_up
from zeus.optimizer.power_limit.training_limits import GivenUp, Idle, Lent, TrainingLimits
from zeus.optimizer.raised import RaisedSince
from zeus.optimizer.recorder import Recorder
from zeus.profile import LimitSlice, PowerProfile, ProfileKey, Profiles
from zeus.settings import Mode, ProfilingPlan, profiling_plan
from zeus.settings import mode as chosen_mode
from zeus.trial.engine import Measured

log = logging.getLogger(__name__)

CHUNK_SECONDS = 0.1  # shortest measurement of steps: sensors cannot resolve shorter ones
COMPARED = 2  # after this pass an evaluation runs at another limit than the rest, so that both are measured


class GlobalPowerLimitOptimizer(Callback):
    """Finds the best power limit for all GPUs of a job in the first training steps, and keeps it.

    Call `on_epoch_begin`, `on_step_begin`, `on_step_end` and `on_epoch_end` from the training loop. `on_train_end`
    restores the limit found. So does the end of the process, even if it is killed.

    Args:
        monitor: Measures the GPUs whose limit is set.
        optimum_selector: Chooses the best limit. Default: `ZeusCost(0.5)` with MAXPOWER of all these GPUs.
        wait_steps: Steps before profiling begins.
        warmup_steps: Most steps to skip after a limit changes. 0 is allowed.
        profile_steps: Most steps to measure at one limit at a time. If `profiling` is "paper", 40 means as many as five
            seconds take.
        pl_step: Distance between the limits tried, in watts.
        profile_path: File for the profile. If it exists, it is read instead of profiling again.
        mode: "optimize", "observe" (profile, then restore the limit found) or "off". Default: ZEUS_MODE.
        power_limits: The limits to try, in watts, instead of all in steps of `pl_step`.
        profiles: Where profiles are kept under `key`, instead of `profile_path`.
        key: Identifies what is trained. A profile of another key is never used.
        start_watts: Limit to begin with. Default: the best limit of the nearest batch size profiled, else the highest.
        profiling: "walk" (short looks, until the next limits cannot be better) or "paper" (every limit for five
            seconds). Default: ZEUS_PROFILING, else "walk".
        recheck: Profile again if the step time changes by more than this share. None: never.
        group: The ranks of a distributed job.
        include: Whose energy decides: ["gpu"], or ["gpu", "cpu"] for the CPU and its memory too. Under `zeus run`, the
            job's. Default: ["gpu"].

    Raises:
        InputError: An argument is not valid, the energy of a CPU that counts cannot be measured, or the file at
            `profile_path` is not a profile of this training.

    >>> from zeus.device.virtual import VirtualMachine, step
    >>> machine = VirtualMachine.in_memory("v100")
    >>> monitor = ZeusMonitor(gpus={0: machine.gpus[0]})
    >>> optimizer = GlobalPowerLimitOptimizer(monitor, mode="off")
    >>> optimizer.on_epoch_begin(); step(machine.gpus, 64); optimizer.on_epoch_end()
    >>> machine.gpus[0].limit()
    250.0
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        optimum_selector: OptimumSelector | None = None,
        wait_steps: int = 1,
        warmup_steps: int = 10,
        profile_steps: int = PROFILE_STEPS,
        pl_step: int = 25,
        profile_path: str | Path | None = None,
        *,
        mode: str | Mode | None = None,
        power_limits: Sequence[float] = (),
        profiles: Profiles | None = None,
        key: ProfileKey | None = None,
        start_watts: float | None = None,
        profiling: str | ProfilingPlan | None = None,
        recheck: float | None = None,
        group: RankGroup | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        if recheck is not None and not recheck > 0:
            raise InputError(f"recheck={recheck!r}: give a share above 0 such as 0.2, or None.")
        self.mode = chosen_mode(given=mode)
        self.monitor = monitor
        self._group: RankGroup = group or RankGroup()
        given = OptimizerArguments(
            optimum_selector,
            wait_steps,
            warmup_steps,
            profile_steps,
            pl_step,
            power_limits,
            profile_path,
            profiles,
            key,
            start_watts,
            profiling_plan(given=profiling),
            None if include is None else included(include),
        )
        self._setup = set_up(monitor, self._group, given)
        self._limits = TrainingLimits(monitor, self._setup.gpus, self._group, self._setup.include)
        self._profiler: State | None = self._setup.begin()  # None: there is nothing to profile, or profiling failed
        self._best = self._profiler.best_limit if isinstance(self._profiler, Done) else None
        self._recorder = Recorder(monitor, self._group, self._learn, self._setup.include)  # idle except in profiling
        self._counts = False  # whether the steps that are delivered now ran at the limit that is being measured
        self._few = 0, ZERO  # steps that are still too few to be measured well, and what they used
        self._drift = DriftWatch(recheck, self._group)
        self._passes = 0  # passes of training steps: an epoch has one, or several around evaluations
        self._pace: float | None = None  # seconds per step, the same on all ranks
        self._last_end: float | None = None  # when the last step ended; None outside of epochs
        self._raised = RaisedSince()  # since the last epoch began

    @property
    def key(self) -> ProfileKey:
        """The key that the profile is kept under."""
        return self._setup.key

    @property
    def selector(self) -> OptimumSelector:
        """The selector that chooses the best limit."""
        return self._setup.selector

    @property
    def max_watts(self) -> float:
        """MAXPOWER: the highest power limit, summed over all GPUs of the job."""
        return self._setup.max_watts

    @property
    def include(self) -> Include:
        """Whose energy decides, and whose joules the profile holds."""
        return self._setup.include

    @property
    def profile(self) -> PowerProfile | None:
        """The measured profile once profiling is done. None before that, or if profiling failed."""
        return self._profiler.profile if isinstance(self._profiler, Done) and self._profiler.known else None

    @property
    def measured(self) -> PowerProfile | None:
        """The limits measured so far, also if profiling has not ended yet. None if there are none."""
        return profiler.so_far(self._profiler) if self._profiler is not None and self._profiler.known else None

    @property
    def best_limit(self) -> float | None:
        """The selector's choice in watts once profiling is done, else None."""
        return self._best if isinstance(self._profiler, Done) else None

    @property
    def sets_best(self) -> bool:
        """Whether the best limit is set as soon as it is known."""
        return self.mode is Mode.OPTIMIZE and self.why_not is None

    @property
    def limit_in_use(self) -> float | None:
        """The limit that training runs at besides profiling: the best one, or the one found if Zeus sets none.

        None while the best is not known, or if limits cannot be read.
        """
        return self.best_limit if self.sets_best else self.found_limit

    @property
    def found_limit(self) -> float | None:
        """The lowest limit in force before Zeus changed any, in watts. None if limits cannot be read."""
        return self._setup.found

    @property
    def is_profiling(self) -> bool:
        """Whether limits are being profiled."""
        return isinstance(self._limits.state, Lent) and not isinstance(self._profiler, Done)

    @property
    def _is_holding(self) -> bool:
        """Whether profiling is over, and the limit that it chose is in force, or in observer mode the one found."""
        return isinstance(self._limits.state, Lent) and isinstance(self._profiler, Done)

    @property
    def why_not(self) -> str | None:
        """Why no limits are set, or None if they are."""
        return self._limits.why_not

    def on_train_begin(self) -> None:
        """Training begins. Take the lease, and set the best limit at once if the profile is known already."""
        self._begin()

    def on_epoch_begin(self) -> None:
        """Training steps follow. Continue profiling where the last epoch stopped."""
        self._give_up_if_parted()
        self._begin()
        self._raised = RaisedSince()
        self._passes += 1
        self._drift.clear()
        self._last_end = self._setup.clock.now()
        with self._guarded():
            if self._passes == COMPARED + 1 and self._compares:
                self._set_best()
            self._recorder.cut(Kind.EVALUATION, 0)

    def on_step_begin(self) -> None:
        """Does nothing: a step lasts from the end of the last one."""

    def on_step_end(self) -> None:
        """A step has ended. Count and measure it."""
        self._recorder.step()
        now = self._setup.clock.now()
        seconds = now - (self._last_end if self._last_end is not None else now)
        self._last_end = now
        self._give_up_if_parted()
        with self._guarded():
            if self.is_profiling:
                self._advance(seconds)
            elif self._is_holding and self._drift.is_due(self._passes):
                self._watch_for_drift(seconds)

    def on_epoch_end(self) -> None:
        """Training steps pause, for example for an evaluation. Nothing is profiled until the next `on_epoch_begin`."""
        self._give_up_if_parted()
        left = self._group.size > 1 and self._raised.error() is not None  # do not wait for ranks that may be gone
        with self._guarded():
            if self._recorder.is_recording and not left:
                self._recorder.cut_steps()
                self._recorder.deliver(wait=self._group.size > 1)
            if self._passes == COMPARED and self._compares and self._setup.plan is not None:
                self._limits.set(self._setup.plan.limits[0] if self.mode is Mode.OPTIMIZE else self.best_limit)
        self._last_end = None

    @property
    def _compares(self) -> bool:
        """Whether one evaluation runs at another limit, the highest or the best. Only if this training has profiled."""
        return self._setup.stored is None and self._is_holding

    def on_train_end(self) -> None:
        """Training has ended. Restore the limit found. The profile is kept for another training with this object."""
        self._give_up_if_parted()
        self._stop_listening()
        ended = self._profiler if self.is_profiling else None
        self._limits.release(Idle(self.why_not if ended is None else profiler.cut_short(ended)))

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Catch every failure, such as of the user's selector or of a GPU, so that it does not reach the training."""
        try:
            yield
        except Exception as failed:
            self._give_up(failed)

    # ------------------------------------------------------------------ profiling

    def _begin(self) -> None:
        if not isinstance(self._limits.state, Idle) or self.mode is Mode.OFF or self._profiler is None:
            return
        with self._guarded():
            self._limits.take()
            if self._is_holding:
                self._hold_best()
            elif self.is_profiling:
                self._profile(self._profiler)

    def _profile(self, begun: State) -> None:
        self._profiler = begun
        self.monitor.watch_closely(True)
        self._recorder.begin()
        self._apply()

    def _advance(self, seconds: float) -> None:
        recorder = self._recorder
        if isinstance(self._profiler, Waiting) and self._group.size > 1 and self._pace is None:
            self._pace = max(self._group.gather(seconds))
        match self._profiler:
            case Waiting() | Settling() as before:
                self._profiler = profiler.step(before, self._pace if self._pace is not None else seconds)
                if profiler.wanted_limit(self._profiler) != profiler.wanted_limit(before):
                    self._apply()
                elif isinstance(self._profiler, Measuring):
                    self._measure_from_here()
            case Measuring():
                if self._is_long_enough(recorder):
                    recorder.cut_steps()
                    recorder.deliver(wait=self._group.size > 1)  # ranks wait for it, so that all agree
                elif self._group.size == 1:
                    recorder.deliver()

    def _is_long_enough(self, recorder: Recorder) -> bool:
        """Whether the steps since the last cut can be measured. Several ranks use a common pace: all cut alike."""
        if self._pace is not None:
            return recorder.steps * self._pace >= CHUNK_SECONDS
        return recorder.open_seconds >= CHUNK_SECONDS

    def _learn(self, segment: Measured) -> None:
        """Pass steps at the limit that is being measured to the profiler, and set the limit that it wants next."""
        before, steps = self._profiler, segment.count if segment.kind is Kind.STEP else 0
        if not (steps and self._counts and self.is_profiling and isinstance(before, Measuring)):
            return
        with self._guarded():
            error = self._recorder.local_error
            if error is not None or not math.isfinite(segment.use.joules):
                what = "a GPU" if self.include == GPU_ONLY else "a GPU or a CPU"
                raise DeviceError(error or f"the energy of {what} cannot be measured any more")
            self._few = steps, used = self._few[0] + steps, self._few[1] + segment.use
            if used.seconds < CHUNK_SECONDS / 2:
                return
            if self._group.size > 1:
                self._pace = used.seconds / steps  # more exact than the first step, which is slow
            self._few = 0, ZERO
            one = LimitSlice(before.limit, steps, used.seconds, used.joules)
            self._profiler = after = profiler.measured(before, one)
            if isinstance(after, Done):
                self._hold_best()
            elif profiler.wanted_limit(after) != before.limit or isinstance(after, Settling):
                self._apply()

    def _apply(self) -> None:
        """Set the limit that the profiler wants measured, if it wants one."""
        self._counts = False
        if (limit := profiler.wanted_limit(self._profiler)) is not None:
            self._limits.set(limit)
            if isinstance(self._profiler, Measuring):
                self._measure_from_here()

    def _measure_from_here(self) -> None:
        """Leave out the steps so far. Those that follow are measured for the profiler."""
        self._recorder.cut_steps()
        self._recorder.mark(self._count_from_here, self._profiler)

    def _count_from_here(self, wanted: State) -> None:
        if self._profiler is wanted:  # otherwise another limit was set meanwhile
            self._counts, self._few = True, (0, ZERO)

    def _stop_listening(self) -> None:
        """Profiling is over."""
        self.monitor.watch_closely(False)
        self._recorder.end()

    def _set_best(self) -> None:
        """Set the best limit, or in observer mode the one found."""
        self._limits.set(self.best_limit if self.mode is Mode.OPTIMIZE else None)

    def _hold_best(self) -> None:
        """End the profiling, and set and store the result."""
        self._stop_listening()
        self._best = None  # in case the selector raises
        if not isinstance(self._profiler, Done) or (profile := self.profile) is None:
            return
        self._best = best = self._profiler.best_limit
        self._drift.profiled(is_cold=self._passes == 1)
        self._set_best()
        self._limits.check()
        log.info("the best power limit is %g W of %s", best, [one.limit_watts for one in profile.slices])
        if self._group.writes:
            self._setup.keep(profile)

    def _watch_for_drift(self, seconds: float) -> None:
        """Profile again if the step time has changed much since profiling: it is then another workload."""
        plan, profile, is_known = self._setup.plan, self.profile, self.best_limit is not None
        if is_known and plan and profile and self._drift.has_changed(seconds, profile, self.limit_in_use):
            self._profile(profiler.start(plan))

    def _give_up_if_parted(self) -> None:
        """Give up if the ranks have parted. All learn it in the same exchange, so all give up in the same call."""
        if self._limits.parted is not None and isinstance(self._limits.state, Lent):
            self._give_up(DeviceError(self._limits.parted))

    def _give_up(self, why: Exception) -> None:
        """Restore the limit found, as far as it can still be set. Training continues."""
        if isinstance(self._limits.state, GivenUp):
            return
        log.warning("power limits are restored and not changed any more: %s", why)
        self._stop_listening()
        if self.best_limit is None:  # otherwise the profile is complete and still reported
            self._profiler = None
        self._limits.release(GivenUp(str(why) or repr(why)))
