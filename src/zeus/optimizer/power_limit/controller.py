"""Profiles power limits during the first training steps and keeps the best (§4.2): the shell around the profiler.

    training step ──▶ chunk of steps ──measured──▶ profiler ──▶ next limit ──keeper──▶ GPUs
                                                       └─ Done ─▶ best limit (optimize) or the one found (observe)

Whatever goes wrong with a GPU, the keeper or a file ends the profiling, never the training.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import sys
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zeus.callback import Callback
from zeus.device.clock import REAL, clock_of
from zeus.device.keeper import Lease, Observing, lend
from zeus.env import Mode
from zeus.env import mode as chosen_mode
from zeus.errors import DeviceError, InputError, ZeusError
from zeus.monitor import Measurement, ZeusMonitor
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.candidates import candidates
from zeus.optimizer.power_limit.crew import Alone, Crew
from zeus.optimizer.power_limit.profiler import Done, Measuring, Plan, Settling, State, Waiting
from zeus.optimizer.power_limit.profiles import FileProfile, Profiles, best_nearby
from zeus.optimizer.power_limit.selector import OptimumSelector, ZeusCost
from zeus.profile import PowerProfile, ProfileKey, Slice

log = logging.getLogger(__name__)

COMPARED = 2  # the pass after which an evaluation runs at another limit than the rest, so that both are known
COLD = 0.1  # by which steps of a later epoch differ where the first one, in which limits were profiled, was cold
CHUNK_SECONDS = 0.1  # what a chunk of steps lasts at least: shorter ones the sensors blur
WINDOW = "zeus: profiling chunk"


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

    def __init__(  # noqa: PLR0915 (to be split with the controller's states)
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
        self.mode = chosen_mode(mode)
        self.monitor = monitor
        self._crew: Crew = crew or Alone()
        if profiles is None and profile_path is None and key is None:  # made by hand, perhaps under `zeus run`
            found = _launched(monitor, self._crew)
            profiles, key = found.get("profiles"), found.get("key")
            optimum_selector = optimum_selector or found.get("optimum_selector")
            power_limits = power_limits or found.get("power_limits", ())
        self._crew.agree(0.0, 0.0)  # every rank's monitor is there by now, so that it is settled who counts what
        self._gpus = list(monitor.counted.values())
        self._clock = clock_of(self._gpus[0]) if self._gpus else REAL
        if not pl_step > 0:
            raise InputError(f"pl_step={pl_step!r}: give watts above 0.")
        if recheck is not None and not recheck > 0:
            raise InputError(f"recheck={recheck!r}: give a share above 0 such as 0.2, or None.")
        limits = candidates(list(monitor.gpus.values()), pl_step, (), self._crew)
        self._found = limits[0] if limits else None
        if power_limits:
            limits = candidates(list(monitor.gpus.values()), pl_step, power_limits, self._crew)
        count, _ = self._crew.agree(float(len(self._gpus)), 0.0)
        self.max_watts, _ = self._crew.agree(sum(gpu.spec.max_watts for gpu in self._gpus), 0.0)
        self.selector = optimum_selector or ZeusCost(0.5, max(1, int(count)))
        if isinstance(self.selector, ZeusCost) and self.selector.max_watts is None and limits:
            self.selector = copy.copy(self.selector)  # the user's own may serve other GPUs, of another MAXPOWER
            self.selector.max_watts = self.max_watts
        if self._crew.size > 1:
            wait_steps = max(1, wait_steps)  # in which the ranks learn each other's pace
        self._plan = (
            Plan(limits, self.selector, start_watts, wait_steps, warmup_steps, profile_steps) if limits else None
        )
        model = next((gpu.spec.name for gpu in monitor.gpus.values()), "")
        self.key = key or ProfileKey("", 0, model, int(count))
        self._profiles: Profiles | None = FileProfile(Path(profile_path)) if profile_path is not None else profiles
        stored = self._kept(named=profile_path is not None) if self._plan else None
        self._stored = stored if self._all_have(stored) else None
        if self._plan and self._stored is None and start_watts is None:
            near = best_nearby(self._profiles, self.key, self._plan)
            self._plan = replace(self._plan, start_watts=near if self._all_have(near) else None)
        known = {one.limit_watts: (one,) for one in self._stored.slices} if self._stored is not None else {}
        self._state: State | None = profiler.start(self._plan, known) if self._plan else None
        self._best = self._state.best_limit if isinstance(self._state, Done) else None
        self._lease: Lease | None = None
        self._begun = False
        self._active = False  # limits may be set: by this rank, or by those whose GPUs they are
        self._ailment: str | None = None  # what broke on this rank; told to the others when all next agree
        self.why_not: str | None = None  # why limits are not set, where they are not
        self._recheck = recheck
        self._passes = 0  # of training steps: an epoch has one, or several around evaluations
        self._profiled_cold = False  # limits were profiled in the first pass, which may have been slow
        self._pace: float | None = None
        self._drift: deque[float] = deque(maxlen=10)
        self._last_end: float | None = None
        self._chunk_began, self._chunk_steps, self._chunk_open = 0.0, 0, False
        self._pending: deque[tuple[float, int, Measurement]] = deque()

    @property
    def profile(self) -> PowerProfile | None:
        """What was measured, once profiling is done; None before, and where it could not be."""
        return self._state.profile if isinstance(self._state, Done) and self._state.known else None

    @property
    def best_limit(self) -> float | None:
        """The selector's choice in watts, once profiling is done."""
        return self._best if isinstance(self._state, Done) else None

    @property
    def found_limit(self) -> float | None:
        """The lowest limit found before anything was changed, in watts; None where limits cannot be read."""
        return self._found

    @property
    def is_profiling(self) -> bool:
        """Whether limits are being tried out."""
        return isinstance(self._state, Waiting | Settling | Measuring) and self._active

    def on_train_begin(self) -> None:
        """Take the lease; a profile known already takes effect at once."""
        self._begin()

    def on_epoch_begin(self) -> None:
        """Training steps follow: go on where the last epoch left off."""
        self._begin()
        self._passes += 1
        self._drift.clear()
        self._last_end = self._clock.now()
        with self._unharmed():
            if self._passes == COMPARED + 1 and self._compares:
                self._settle()
            self._open_chunk()

    def on_step_begin(self) -> None:
        """A step begins."""

    def on_step_end(self) -> None:
        """A step has ended: count it, measure it, move on."""
        now = self._clock.now()
        seconds = now - (self._last_end if self._last_end is not None else now)
        self._last_end = now
        if self.is_profiling:
            with self._unharmed():
                self._advance(seconds)
        elif self._recheck is not None or (self._profiled_cold and self._passes > 1):
            with self._unharmed():
                self._watch_for_drift(seconds)

    def on_epoch_end(self) -> None:
        """Evaluation may follow: what is measured of a chunk is kept, and nothing is counted until the next epoch."""
        left = self._crew.size > 1 and sys.exc_info()[0] is not None  # the others may be elsewhere: wait for none
        with self._unharmed():
            self._close_chunk(keep=not left)
            self._learn()
            if self._passes == COMPARED and self._compares and self._plan is not None:
                self._set(self._plan.limits[0] if self.mode is Mode.OPTIMIZE else self.best_limit)
        self._last_end = None

    @property
    def _compares(self) -> bool:
        """A training that has to profile its limits runs one evaluation at the other: the highest, or the best."""
        return self._stored is None and self._active and isinstance(self._state, Done)

    def on_train_end(self) -> None:
        """Put the limit back. Another training may begin after this one: what was learnt is kept for it."""
        with self._unharmed():
            self._close_chunk(keep=False)
        self.monitor.watch_closely(False)
        self._let_go()
        self._begun = False

    @contextlib.contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Nothing that fails in here reaches the training: not the user's selector, nor a GPU that died."""
        try:
            yield
        except Exception as failed:
            self._give_up(failed)

    # ------------------------------------------------------------------ profiling

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        if self.mode is Mode.OFF or self._plan is None or self._state is None:
            return
        self.why_not = None
        with self._unharmed():
            match lend(self._gpus) if self._gpus else None:
                case Lease() as lease:
                    self._lease = lease
                case Observing(reason):
                    self.why_not = reason
            missing, _ = self._crew.agree(1.0 if self._gpus and self._lease is None else 0.0, 0.0)
            if missing:
                self.why_not = self.why_not or "another rank of this training may not set limits"
                self._let_go()
                return
            self._active = True
            if isinstance(self._state, Done):
                self._keep_best()
            else:
                self.monitor.watch_closely(True)
                self._apply()

    def _advance(self, seconds: float) -> None:
        if isinstance(self._state, Waiting) and self._crew.size > 1 and self._pace is None:
            _, self._pace = self._crew.agree(0.0, seconds)
        match self._state:
            case Waiting() | Settling():
                before = self._state
                self._state = profiler.step(before, self._pace if self._pace is not None else seconds)
                if _limit(self._state) != _limit(before):
                    self._apply()
                self._open_chunk()
            case Measuring():
                self._chunk_steps += self._chunk_open
                if self._is_chunk_long_enough():
                    self._close_chunk()
                self._learn()
                self._open_chunk()

    def _is_chunk_long_enough(self) -> bool:
        if self._pace is not None:  # several ranks: by step count, so that all cut at the same step
            return self._chunk_steps * self._pace >= CHUNK_SECONDS
        return self._chunk_open and self._clock.now() - self._chunk_began >= CHUNK_SECONDS

    def _open_chunk(self) -> None:
        if isinstance(self._state, Measuring) and not self._chunk_open and self._last_end is not None:
            with self._together():
                self.monitor.begin_window(WINDOW, restart=True)
            self._chunk_began = self._clock.now()
            self._chunk_steps = 0
            self._chunk_open = True

    def _close_chunk(self, keep: bool = True) -> None:
        if not self._chunk_open:
            return
        self._chunk_open = False
        with self._together() if keep else contextlib.nullcontext():
            measurement = self.monitor.end_window(WINDOW, sync_execution=keep, cancel=True)
        limit = _limit(self._state)
        if keep and self._chunk_steps and limit is not None:
            self._pending.append((limit, self._chunk_steps, measurement))

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Several ranks: all have done the same steps here, and none goes on before this is done."""
        if self._crew.size > 1:
            self._crew.agree(0.0, 0.0)
        yield
        if self._crew.size > 1:
            self._crew.agree(0.0, 0.0)

    def _learn(self) -> None:
        """Tell the profiler of the chunks whose energy is known by now; several ranks wait, so that all learn alike."""
        wait = self._crew.size > 1
        while self._pending and (wait or self._pending[0][2].is_ready):
            limit, steps, measurement = self._pending.popleft()
            own = math.nan if self._ailment else measurement.total_energy
            joules, seconds = self._crew.agree(own, measurement.seconds)
            if not math.isfinite(joules):
                raise DeviceError(self._ailment or "the energy of a GPU is not known any more")
            before = self._state
            if before is None or seconds <= 0:
                continue
            if wait:
                self._pace = seconds / steps  # truer than that of the first step, which is slow in ways of its own
            self._state = profiler.measured(before, Slice(limit, steps, seconds, joules))
            if _limit(self._state) != _limit(before) or isinstance(self._state, Done | Settling):
                self._pending.clear()
                self._close_chunk(keep=False)
                self._keep_best() if isinstance(self._state, Done) else self._apply()

    def _apply(self) -> None:
        if (limit := _limit(self._state)) is not None:
            self._set(limit)

    def _set(self, limit: float | None) -> None:
        """This limit on all cards of this rank, or (None) on each the one that it was found at."""
        if self._lease is None:
            return
        try:
            if limit is not None:
                self._lease.set_limit(limit)
            else:
                for uuid, watts in dict(self._lease.found).items():
                    self._lease.set_limit(watts, uuid)
        except ZeusError as failed:
            if self._crew.size == 1:
                raise
            self._ailment = str(failed)

    def _settle(self) -> None:
        """From here on at the best limit; only observed, at the one found."""
        self._set(self.best_limit if self.mode is Mode.OPTIMIZE else None)

    def _keep_best(self) -> None:
        """Profiling is over."""
        self.monitor.watch_closely(False)
        self._best = None  # until the selector has spoken
        if not isinstance(self._state, Done) or self.profile is None:
            return
        self._best = best = self._state.best_limit
        self._profiled_cold = self._passes == 1
        self._settle()
        if self._crew.agree(1.0 if self._ailment else 0.0, 0.0)[0]:
            raise DeviceError(self._ailment or "another rank could not set its limit")
        log.info("best power limit %g W of %s", best, [one.limit_watts for one in self.profile.slices])
        kept = self.profile.beside(self._stored)
        if self._crew.writes and self._profiles is not None and kept != self._stored:
            try:
                self._profiles.put(self.key, kept)
            except Exception as failed:
                log.warning("the power profile could not be kept: %s", failed)

    def _give_up(self, why: Exception) -> None:
        """Training goes on at the limit found, or at whatever can still be set."""
        log.warning("power limits are left alone from here on: %s", why)
        self.why_not = str(why) or repr(why)
        self._pending.clear()
        self._chunk_open = False
        self.monitor.watch_closely(False)
        if self.best_limit is None:  # what is known already is still reported
            self._state = None
        self._let_go()

    def _kept(self, named: bool) -> PowerProfile | None:
        """The profile kept of an earlier run; only a file that the user named is worth an error."""
        try:
            return self._profiles.get(self.key) if self._profiles is not None else None
        except Exception as failed:
            if named:
                raise
            log.warning("the power profile kept for this training is not used: %s", failed)
            return None

    def _all_have(self, stored: PowerProfile | float | None) -> bool:
        """Whether every rank read the same: a walk from another beginning would part them."""
        mark = float(zlib.crc32(repr(stored).encode()))
        total, highest = self._crew.agree(mark, mark)
        return total == self._crew.size * highest

    def _let_go(self) -> None:
        self._active = False
        if self._lease is not None:
            lease, self._lease = self._lease, None
            lease.release()

    def _watch_for_drift(self, seconds: float) -> None:
        """Steps that have become much slower or faster than when they were profiled are another workload."""
        if not isinstance(self._state, Done) or self._plan is None or not self._active or self.best_limit is None:
            return
        self._drift.append(seconds)
        if len(self._drift) < (self._drift.maxlen or 0) or self.profile is None:
            return
        now = sorted(self._drift)[len(self._drift) // 2]
        if self._crew.size > 1:
            self._drift.clear()  # they look at each other's pace once in a while, not after every step
            _, now = self._crew.agree(0.0, now)
        here = self.best_limit if self.mode is Mode.OPTIMIZE else self._found
        then = next((one for one in self.profile.slices if one.limit_watts == here), None)
        if then is None:
            return
        beyond, self._profiled_cold = self._recheck or (COLD if self._profiled_cold else math.inf), False
        if abs(now / (then.seconds / then.steps) - 1) > beyond:
            log.info("steps take %.3g s, not %.3g s as when profiled: profiling again", now, then.seconds / then.steps)
            self._drift.clear()
            self._state = profiler.start(self._plan)
            self.monitor.watch_closely(True)
            self._apply()


def _launched(monitor: ZeusMonitor, crew: Crew) -> dict[str, Any]:
    """The job's profiles, limits and η, where a launcher has opened a trial for this script."""
    from zeus.env import orders

    told = orders()
    if told.job_id is None or told.trial is None:
        return {}
    from zeus.optimizer.launched import launched_arguments  # which takes some time to load

    return launched_arguments(told, monitor, crew, ())


def _limit(state: State | None) -> float | None:
    return state.limit if isinstance(state, Settling | Measuring) else None
