"""Profiles power limits during the first training steps and keeps the best (§4.2): the shell around the profiler.

    training step ──▶ chunk of steps ──measured──▶ profiler ──▶ next limit ──keeper──▶ GPUs
                                                       └─ Done ─▶ best limit (optimize) or the one found (observe)

Its own states, apart from the profiler's:

    Idle ──training begins──▶ Profiling ──profiler is Done──▶ Holding
      ▲                           │  ▲────steps changed────────┘ │
      │                           └──────┬───────────────────────┘ something failed, or no lease
      └──training ends────────────── GivenUp(reason)

Whatever goes wrong with a GPU, the keeper or a file ends the profiling, never the training.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zeus.callback import Callback
from zeus.device.keeper import Lease, Observing, lend
from zeus.distributed.crew import Alone, Crew
from zeus.env import Mode
from zeus.env import mode as chosen_mode
from zeus.errors import DeviceError, InputError, ZeusError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.chunks import Chunks
from zeus.optimizer.power_limit.profiler import Done, Measuring, Settling, State, Waiting
from zeus.optimizer.power_limit.selector import OptimumSelector
from zeus.optimizer.power_limit.setup import Wishes, set_up
from zeus.profile import PowerProfile, ProfileKey, Profiles

log = logging.getLogger(__name__)

COMPARED = 2  # the pass after which an evaluation runs at another limit than the rest, so that both are known
COLD = 0.1  # by which steps of a later epoch differ where the first one, in which limits were profiled, was cold


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is lent: no training runs, or there is nothing to choose."""

    why_not: str | None = None  # why limits were not set in the training before


@dataclass(frozen=True, slots=True)
class Profiling:
    """Limits are being tried out."""

    lease: Lease | None  # None: this rank counts no GPU; others set the limits


@dataclass(frozen=True, slots=True)
class Holding:
    """Profiling is over: the best limit is in force, or in observer mode the one found."""

    lease: Lease | None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Limits are left alone for the rest of this training."""

    why_not: str


Phase = Idle | Profiling | Holding | GivenUp


class GlobalPowerLimitOptimizer(Callback):
    """One power limit for all GPUs of a job: profiled in the first steps, then the selector's best.

    Tell it of epochs and steps: `on_epoch_begin`, `on_step_begin`, `on_step_end`, `on_epoch_end`; `on_train_end` (or
    the end of the process, however it ends) puts the limit back that was found.

    Args:
        monitor: Measures the GPUs whose limit is set.
        optimum_selector: What is best; default `ZeusCost(0.5)` with MAXPOWER of all these GPUs.
        wait_steps: Steps to let pass before anything is done.
        warmup_steps: At most so many steps are passed over after a limit changes; 0 works.
        profile_steps: At most so many steps are measured under one limit at a time.
        pl_step: Distance of the limits tried, in watts.
        profile_path: File to keep the profile in; it is read if it is there.
        mode: "optimize", "observe" (profile, then go back to the limit found) or "off"; default: ZEUS_MODE.
        power_limits: The limits to try, in watts, in place of all in steps of `pl_step`.
        profiles: Where profiles are kept under `key`, in place of `profile_path`.
        key: What is trained; a profile of another key is never used.
        start_watts: Where the walk begins; default: at the best of the nearest batch size profiled, else at the top.
        recheck: Profile again when steps have become slower or faster by more than this share; None: never.
        crew: The ranks of a distributed job.

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
        profile_steps: int = 40,
        pl_step: int = 25,
        profile_path: str | Path | None = None,
        *,
        mode: str | Mode | None = None,
        power_limits: Sequence[float] = (),
        profiles: Profiles | None = None,
        key: ProfileKey | None = None,
        start_watts: float | None = None,
        recheck: float | None = None,
        crew: Crew | None = None,
    ) -> None:
        if recheck is not None and not recheck > 0:
            raise InputError(f"recheck={recheck!r}: give a share above 0 such as 0.2, or None.")
        self.mode = chosen_mode(mode)
        self.monitor = monitor
        self._crew: Crew = crew or Alone()
        wishes = Wishes(
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
        )
        self._setup = set_up(monitor, self._crew, wishes)
        self._profiler: State | None = self._setup.begin()  # None: there is nothing to profile, or it failed
        self._best = self._profiler.best_limit if isinstance(self._profiler, Done) else None
        self._phase: Phase = Idle()
        self._chunks = Chunks(monitor, self._crew, self._setup.clock)
        self._ailment: str | None = None  # what broke on this rank; told to the others when all next agree
        self._recheck = recheck
        self._passes = 0  # of training steps: an epoch has one, or several around evaluations
        self._profiled_cold = False  # limits were profiled in the first pass, which may have been slow
        self._pace: float | None = None  # seconds per step, the same on all ranks
        self._drift: deque[float] = deque(maxlen=10)
        self._last_end: float | None = None  # of a step; None outside of epochs

    @property
    def key(self) -> ProfileKey:
        """What profiles are kept by."""
        return self._setup.key

    @property
    def selector(self) -> OptimumSelector:
        """Says which limit is best."""
        return self._setup.selector

    @property
    def max_watts(self) -> float:
        """MAXPOWER of all GPUs of the job."""
        return self._setup.max_watts

    @property
    def profile(self) -> PowerProfile | None:
        """What was measured, once profiling is done; None before, and where it could not be."""
        return self._profiler.profile if isinstance(self._profiler, Done) and self._profiler.known else None

    @property
    def best_limit(self) -> float | None:
        """The selector's choice in watts, once profiling is done."""
        return self._best if isinstance(self._profiler, Done) else None

    @property
    def found_limit(self) -> float | None:
        """The lowest limit found before anything was changed, in watts; None where limits cannot be read."""
        return self._setup.found

    @property
    def is_profiling(self) -> bool:
        """Whether limits are being tried out."""
        return isinstance(self._phase, Profiling)

    @property
    def why_not(self) -> str | None:
        """Why limits are not set, where they are not."""
        return self._phase.why_not if isinstance(self._phase, Idle | GivenUp) else None

    def on_train_begin(self) -> None:
        """Take the lease; a profile known already takes effect at once."""
        self._begin()

    def on_epoch_begin(self) -> None:
        """Training steps follow: go on where the last epoch left off."""
        self._begin()
        self._passes += 1
        self._drift.clear()
        self._last_end = self._setup.clock.now()
        with self._unharmed():
            if self._passes == COMPARED + 1 and self._compares:
                self._settle()
            self._open_chunk()

    def on_step_begin(self) -> None:
        """A step begins."""

    def on_step_end(self) -> None:
        """A step has ended: count it, measure it, move on."""
        now = self._setup.clock.now()
        seconds = now - (self._last_end if self._last_end is not None else now)
        self._last_end = now
        match self._phase:
            case Profiling():
                with self._unharmed():
                    self._advance(seconds)
            case Holding() if self._recheck is not None or (self._profiled_cold and self._passes > 1):
                with self._unharmed():
                    self._watch_for_drift(seconds)

    def on_epoch_end(self) -> None:
        """Evaluation may follow: what is measured of a chunk is kept, and nothing is counted until the next epoch."""
        left = self._crew.size > 1 and sys.exc_info()[0] is not None  # the others may be elsewhere: wait for none
        with self._unharmed():
            self._chunks.abandon() if left else self._chunks.close(_limit(self._profiler))
            self._learn()
            if self._passes == COMPARED and self._compares and self._setup.plan is not None:
                self._set(self._setup.plan.limits[0] if self.mode is Mode.OPTIMIZE else self.best_limit)
        self._last_end = None

    @property
    def _compares(self) -> bool:
        """A training that has to profile its limits runs one evaluation at the other: the highest, or the best."""
        return self._setup.stored is None and isinstance(self._phase, Holding)

    def on_train_end(self) -> None:
        """Put the limit back. Another training may begin after this one: what was learnt is kept for it."""
        with self._unharmed():
            self._chunks.abandon()
        self.monitor.watch_closely(False)
        self._leave(Idle(self.why_not))

    @contextlib.contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Nothing that fails in here reaches the training: not the user's selector, nor a GPU that died."""
        try:
            yield
        except Exception as failed:
            self._give_up(failed)

    # ------------------------------------------------------------------ profiling

    def _begin(self) -> None:
        if not isinstance(self._phase, Idle) or self.mode is Mode.OFF or self._profiler is None:
            return
        with self._unharmed():
            lease, refusal = None, None
            match lend(self._setup.gpus) if self._setup.gpus else None:
                case Lease() as lent:
                    lease = lent
                case Observing(reason):
                    refusal = reason
            if any(self._crew.gather(refusal is not None)):
                if lease is not None:
                    lease.release()
                self._phase = GivenUp(refusal or "another rank of this training may not set limits")
            elif isinstance(self._profiler, Done):
                self._hold_best(lease)
            else:
                self._profile(lease, self._profiler)

    def _profile(self, lease: Lease | None, begun: State) -> None:
        self._phase, self._profiler = Profiling(lease), begun
        self.monitor.watch_closely(True)
        self._apply()

    def _advance(self, seconds: float) -> None:
        if isinstance(self._profiler, Waiting) and self._crew.size > 1 and self._pace is None:
            self._pace = max(self._crew.gather(seconds))
        match self._profiler:
            case Waiting() | Settling() as before:
                self._profiler = profiler.step(before, self._pace if self._pace is not None else seconds)
                if _limit(self._profiler) != _limit(before):
                    self._apply()
            case Measuring(limit=limit):
                self._chunks.step()
                if self._chunks.is_long_enough(self._pace):
                    self._chunks.close(limit)
                self._learn()
        self._open_chunk()

    def _open_chunk(self) -> None:
        if isinstance(self._phase, Profiling) and isinstance(self._profiler, Measuring) and self._last_end is not None:
            self._chunks.open()

    def _learn(self) -> None:
        """Tell the profiler of the chunks whose energy is known by now."""
        while isinstance(self._phase, Profiling) and (piece := self._chunks.next(self._ailment)) is not None:
            before = self._profiler
            if before is None:
                return
            if self._crew.size > 1:
                self._pace = piece.seconds / piece.steps  # truer than that of the first step, which is slow
            self._profiler = profiler.measured(before, piece)
            if _limit(self._profiler) != _limit(before) or isinstance(self._profiler, Done | Settling):
                self._chunks.drop()
                self._hold_best(self._phase.lease) if isinstance(self._profiler, Done) else self._apply()

    def _apply(self) -> None:
        if (limit := _limit(self._profiler)) is not None:
            self._set(limit)

    def _set(self, limit: float | None) -> None:
        """This limit on all cards of this rank, or (None) on each the one that it was found at."""
        lease = self._lease
        if lease is None:
            return
        try:
            if limit is not None:
                lease.set_limit(limit)
            else:
                for uuid, watts in dict(lease.found).items():
                    lease.set_limit(watts, uuid)
        except ZeusError as failed:
            if self._crew.size == 1:
                raise
            self._ailment = str(failed)

    def _settle(self) -> None:
        """From here on at the best limit; only observed, at the one found."""
        self._set(self.best_limit if self.mode is Mode.OPTIMIZE else None)

    def _hold_best(self, lease: Lease | None) -> None:
        """Profiling is over."""
        self._phase = Holding(lease)
        self.monitor.watch_closely(False)
        self._best = None  # until the selector has spoken
        if not isinstance(self._profiler, Done) or (profile := self.profile) is None:
            return
        self._best = best = self._profiler.best_limit
        self._profiled_cold = self._passes == 1
        self._settle()
        if any(self._crew.gather(self._ailment is not None)):
            raise DeviceError(self._ailment or "another rank could not set its limit")
        log.info("best power limit %g W of %s", best, [one.limit_watts for one in profile.slices])
        self._keep(profile)

    def _keep(self, profile: PowerProfile) -> None:
        stored, profiles = self._setup.stored, self._setup.profiles
        kept = profile.beside(stored)
        if self._crew.writes and profiles is not None and kept != stored:
            try:
                profiles.put(self.key, kept)
            except Exception as failed:
                log.warning("the power profile could not be kept: %s", failed)

    def _watch_for_drift(self, seconds: float) -> None:
        """Steps that have become much slower or faster than when they were profiled are another workload."""
        plan, profile = self._setup.plan, self.profile
        if not isinstance(self._phase, Holding) or self.best_limit is None or plan is None or profile is None:
            return
        self._drift.append(seconds)
        if len(self._drift) < (self._drift.maxlen or 0):
            return
        now = sorted(self._drift)[len(self._drift) // 2]
        if self._crew.size > 1:
            self._drift.clear()  # they look at each other's pace once in a while, not after every step
            now = max(self._crew.gather(now))
        here = self.best_limit if self.mode is Mode.OPTIMIZE else self.found_limit
        then = next((one for one in profile.slices if one.limit_watts == here), None)
        if then is None:
            return
        beyond, self._profiled_cold = self._recheck or (COLD if self._profiled_cold else math.inf), False
        if abs(now / (then.seconds / then.steps) - 1) > beyond:
            log.info("steps take %.3g s, not %.3g s as when profiled: profiling again", now, then.seconds / then.steps)
            self._drift.clear()
            self._profile(self._phase.lease, profiler.start(plan))

    # ------------------------------------------------------------------ giving back

    @property
    def _lease(self) -> Lease | None:
        return self._phase.lease if isinstance(self._phase, Profiling | Holding) else None

    def _give_up(self, why: Exception) -> None:
        """Training goes on at the limit found, or at whatever can still be set."""
        log.warning("power limits are left alone from here on: %s", why)
        self._chunks.forget()
        self.monitor.watch_closely(False)
        if self.best_limit is None:  # what is known already is still reported
            self._profiler = None
        self._leave(GivenUp(str(why) or repr(why)))

    def _leave(self, phase: Idle | GivenUp) -> None:
        """Give the lease back, whose keeper puts the limits back that it found."""
        lease, self._phase = self._lease, phase
        if lease is not None:
            lease.release()


def _limit(state: State | None) -> float | None:
    return state.limit if isinstance(state, Settling | Measuring) else None
