"""One trial of a hyperparameter search: measures it and tunes its power limit. Common to all tuners.

with ──▶ pass of steps ──▶ (evaluation) ──▶ pass of steps ... ──▶ end of the block, also by pruning or failure
 └─ lease of the GPUs; limits are profiled, or the best is set         └─ limit restored, last values recorded

What is recorded, and when, is the same for every tuner. Where it goes is up to the tuner's own class.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from zeus import settings
from zeus.cost import CostModel, Use
from zeus.device.find import no_gpu
from zeus.errors import InputError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, ZeusCost
from zeus.optimizer.power_limit.profile_files import FolderProfiles
from zeus.profile import PowerProfile, ProfileKey
from zeus.settings import Mode
from zeus.training.training_run import TrainingRun
from zeus.tuning.cost_bound import COST

log = logging.getLogger(__name__)
_Batch = TypeVar("_Batch")


class MeasuredTrial:
    """Measures a trial, and finds and keeps the best power limit for it. Use it once, in a `with` block.

        with MeasuredTrial("resnet", batch_size=64) as measured:
            for epoch in range(10):
                for batch in measured.steps(loader):
                    ...
        print(measured.cost)

    Trials with the same model, batch size and GPUs share a power profile: what one has measured, the next does not
    measure again. The limit found is restored at the end of the block, also if the trial is pruned or fails.

    Args:
        model: Names what is trained. If a hyperparameter changes how long a step takes, make it part of the name.
        batch_size: Samples in a step on each GPU.
        eta: η of the cost, from 0 (only time counts) to 1 (only energy counts).
        mode: "optimize", "observe" (profile, then restore the limit found) or "off" (only measure). Default: ZEUS_MODE.
        monitor: Measures the GPUs of the trial. Default: one over all visible GPUs.
        profiles: Folder of the shared power profiles. Default: `tuning` in the user's data folder.

    Raises:
        InputError: An argument is not valid.

    >>> from zeus.device.virtual import VirtualMachine
    >>> monitor = ZeusMonitor(gpus={0: VirtualMachine.in_memory("v100").gpus[0]})
    >>> with MeasuredTrial("mlp", 64, mode="off", monitor=monitor) as measured:
    ...     for batch in measured.steps(range(10)):
    ...         pass
    >>> measured.cost == 0.5 * measured.use.joules + 0.5 * 250 * measured.use.seconds
    True
    """

    def __init__(
        self,
        model: str,
        batch_size: int,
        *,
        eta: float = 0.5,
        mode: str | Mode | None = None,
        monitor: ZeusMonitor | None = None,
        profiles: str | Path | None = None,
    ) -> None:
        if not (isinstance(model, str) and model.strip()):
            raise InputError(f"model={model!r}: give a name. Trials of one name share their power profiles.")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size={batch_size!r}: give a whole number of samples, at least 1.")
        CostModel(eta, 1.0)  # raises if η is outside [0, 1]
        self._batch_size = batch_size
        self._eta = eta
        self._own_monitor = monitor is None
        self.monitor = ZeusMonitor() if monitor is None else monitor
        cards = [gpu.spec.name for gpu in self.monitor.gpus.values()]
        self._gpus = f"{len(cards)} x {cards[0]}" if cards else ""
        self._profiles = FolderProfiles(settings.data_folder() / "tuning" if profiles is None else Path(profiles))
        self.optimizer = GlobalPowerLimitOptimizer(
            self.monitor,
            ZeusCost(eta, max(1, len(cards))),
            mode=mode,
            profiles=self._profiles,
            key=ProfileKey(model, batch_size, cards[0] if cards else "", len(cards)),
        )
        self._run = TrainingRun(self.monitor, self.optimizer)
        self._began = self._is_open = False
        self._pass = 0

    # ------------------------------------------------------------------ the block and its steps

    def __enter__(self) -> Self:
        if self._began:
            raise InputError("this trial was measured already: make a new object for each trial.")
        self._began = self._is_open = True
        self.optimizer.on_train_begin()
        self._run.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._end_steps()
            self._is_open = False
            self._run.end()
        finally:
            self.optimizer.on_train_end()
        self._share_profile()
        self._record()
        if self._own_monitor:
            self.monitor.close()

    def steps(self, batches: Iterable[_Batch]) -> Iterator[_Batch]:
        """Iterate over the batches of a pass of training steps. Power limits are profiled only during these.

        Raises:
            InputError: The trial's `with` block has not begun, or has ended.
        """
        if not self._is_open:
            raise InputError("steps() was called outside of the trial's `with` block. Call it inside.")
        return self._steps(batches)

    def _steps(self, batches: Iterable[_Batch]) -> Iterator[_Batch]:
        self._end_steps()
        self._pass += 1
        mine = self._pass
        reports = getattr(batches, "reports_steps", False)  # as ZeusDataLoader does
        self._run.epoch_begin()
        try:
            for batch in batches:
                yield batch
                if not reports:
                    self.monitor.report_step(self._batch_size)
                self._run.step()
        finally:
            if mine == self._pass:  # a loop left by an exception may be finalised only after the block has ended
                self._end_steps()

    def _end_steps(self) -> None:
        if self._run.in_epoch:
            self._run.epoch_end()
            self._record()

    def _record(self) -> None:
        """Give the values so far to the tuner. Called after each pass of steps, and when the trial has ended."""

    def _share_profile(self) -> None:
        """Keep the limits that were measured although the trial ended too soon: the next one continues from there."""
        part = self.optimizer.measured
        if part is None or self.optimizer.profile is not None:  # a complete profile is kept by the optimizer
            return
        try:
            kept = self._profiles.get(self.optimizer.key) or PowerProfile((), ())
            have = {one.limit_watts for one in part.slices}
            others = [one for one in kept.slices if one.limit_watts not in have]
            if have - {one.limit_watts for one in kept.slices}:
                self._profiles.put(
                    self.optimizer.key, PowerProfile.of([*part.slices, *others], [*part.limits, *kept.limits])
                )
        except Exception as failed:  # it only saves time
            log.warning("the power profile could not be shared with other trials: %s", failed)

    # ------------------------------------------------------------------ what it used

    @property
    def use(self) -> Use:
        """Energy and time since the block began, evaluations included. Unknown energy is NaN.

        While the trial runs, this waits until the sensors have reported, usually 0.1 s.
        """
        return self._run.use_now()

    @property
    def cost(self) -> float:
        """Equation 2 for `use`, in joules. Can be returned as an objective.

        Raises:
            InputError: The energy of this trial is not known.
        """
        return self._cost_of(self.use)

    def _cost_of(self, use: Use) -> float:
        if not (self.monitor.gpus and use.is_known):
            why = "a GPU does not report its energy (`zeus env` shows which)" if self.monitor.gpus else no_gpu()
            raise InputError(
                f"the cost of this trial is not known: {why.rstrip('.')}. "
                "Use another objective, or run where the energy can be measured."
            )
        return CostModel(self._eta, self.optimizer.max_watts).of(use)

    @property
    def limit_watts(self) -> float | None:
        """The power limit that the trial runs at: the best one, or the one found if Zeus sets none.

        None while limits are being profiled, or if limits cannot be read.
        """
        return self.optimizer.limit_in_use

    def values(self) -> dict[str, float | str]:
        """What the tuner records. A value that is not known is left out.

        `zeus/joules`, `zeus/seconds`, `zeus/cost`, `zeus/limit_watts`, `zeus/eta`, `zeus/gpus`, and `zeus/why_no_limit`
        if Zeus may not set the power limit.
        """
        use = self.use
        found: dict[str, float | str] = {"zeus/seconds": use.seconds, "zeus/eta": self._eta}
        if self._gpus:
            found["zeus/gpus"] = self._gpus
        if self.monitor.gpus and use.is_known:
            found |= {"zeus/joules": use.joules, COST: self._cost_of(use)}
        if (watts := self.limit_watts) is not None:
            found["zeus/limit_watts"] = watts
        if (why_not := self.optimizer.why_not) is not None:
            found["zeus/why_no_limit"] = why_not
        return found
