"""One training of a framework. All of Zeus's callbacks of a Trainer share it, and it prints one line at the end.

    epoch_begin ──▶ steps ──▶ pause ──▶ (evaluation) ──▶ resume ──▶ steps ... ──▶ epoch_end ──▶ ... ──▶ end

Each callback passes on every event, and the run tells the power limit optimizer and the trial of it. An event that has
been passed on already does nothing, so it does not matter how many callbacks there are. Nothing waits for a sensor: a
log shows the newest steps whose energy is already known.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

from zeus.cost import GPU_ONLY, ZERO, CostModel, Include, Use, included
from zeus.distributed.group import RankGroup, WaitRecord
from zeus.job import Ending, Kind, replace
from zeus.launcher_env import launcher_env
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.optimizer.recorder import Recorder
from zeus.training.summary import Summary, limit_saving, print_summary, summary_of
from zeus.trial.engine import EpochBegan, EpochEnded, Event, Measured, Terms, TrialEngine

if TYPE_CHECKING:
    from zeus.training.framework_trial import FrameworkTrial

ANY = 2**53  # epochs: the framework decides when to stop

_runs: dict[int, TrainingRun] = {}  # by the id of the object that all callbacks of a Trainer receive


class TrainingRun:
    """What a training uses, and what its power limit saves.

    Args:
        monitor: Measures the GPUs of this rank. None: there is no training, and nothing is measured.
        optimizer: Tunes the power limit. None: nobody does.
        group: The ranks that train together.

    >>> from zeus.device.virtual import VirtualMachine
    >>> machine = VirtualMachine.in_memory("v100")
    >>> run = TrainingRun(ZeusMonitor(gpus={0: machine.gpus[0]}))
    >>> run.epoch_begin()
    >>> machine.run([0], seconds=2, watts=200); run.batch(samples=16); run.step()
    >>> run.log_due()
    >>> run.energy_values()["zeus/joules_per_sample"], run.energy_values()["zeus/watts"]
    (25.0, 200.0)
    """

    def __init__(
        self,
        monitor: ZeusMonitor | None = None,
        optimizer: GlobalPowerLimitOptimizer | None = None,
        group: RankGroup | None = None,
    ) -> None:
        self.monitor, self.optimizer = monitor, optimizer
        self.group: RankGroup = group or RankGroup()
        self.trial: FrameworkTrial | None = None  # that this training is
        self._waits = WaitRecord(self.group)
        self._recorder: Recorder | None = None  # None: no epoch has begun
        self._engine = TrialEngine(Terms(target_metric=None, max_epochs=ANY, cost=None))
        self._callbacks = 0  # that have joined and not left
        self._failed = False
        self.in_epoch = self._in_steps = False
        self._is_first = True  # whether no step has ended yet
        self._evaluated = False  # since the steps paused
        self._counted_by: object = None  # the callback whose batches count
        self._step: int | None = None  # number of the last step
        self._steps = self._samples = 0  # since the last log
        self._since_log = ZERO  # what those steps used
        self._latest: dict[str, float] = {}

    # ------------------------------------------------------------------ the callbacks of one Trainer

    @classmethod
    def join(
        cls,
        trainer: object,
        group: RankGroup,
        monitor: ZeusMonitor | None = None,
        optimizer: GlobalPowerLimitOptimizer | None = None,
        trial: FrameworkTrial | None = None,
    ) -> TrainingRun:
        """The run of this Trainer. Every callback calls this before the first epoch, and `leave` at the end."""
        run = _runs.get(id(trainer))
        if run is None or not run._callbacks:
            if run is None:
                weakref.finalize(trainer, _runs.pop, id(trainer), None)
            _runs[id(trainer)] = run = cls(group=group)
        run._callbacks += 1
        run.monitor = run.monitor or monitor
        run.optimizer = run.optimizer or optimizer
        run.trial = run.trial or trial
        return run

    def leave(self, *, failed: bool = False) -> None:
        """A callback has seen the end of the training. The last one prints its line, unless the training failed."""
        self._callbacks -= 1
        self._failed |= failed
        if not self._callbacks and not self._failed and (summary := self.summary()) is not None:
            print_summary(summary)

    # ------------------------------------------------------------------ what happens

    @property
    def _include(self) -> Include:
        if self.optimizer is not None:
            return self.optimizer.include
        return included(launcher_env().include or GPU_ONLY)  # under `zeus run`, what the job's costs count

    def begin(self) -> None:
        """Start measuring. Every rank must call this."""
        if self._recorder is None and self.monitor is not None:
            found = None if self.optimizer is None else self.optimizer.found_limit
            self._engine = replace(self._engine, terms=replace(self._engine.terms, found_watts=found))
            self._recorder = Recorder(self.monitor, self.group, self._on_segment, self._include)
            self._recorder.begin()

    def epoch_begin(self) -> None:
        if self.in_epoch:
            return
        if self.trial is not None:
            self.trial.epoch_begin()
        self.begin()
        self.in_epoch = True
        if self._recorder is not None:
            self._recorder.mark(self._feed, EpochBegan())
        self.resume()

    def resume(self) -> None:
        """Training steps follow, after an evaluation or something else."""
        if not self.in_epoch or self._in_steps:
            return
        self._in_steps = True
        self._cut_evaluation()
        if self.optimizer is not None:
            self.optimizer.on_epoch_begin()

    def batch(self, samples: int, by: object = None) -> None:
        """A batch of so many samples was trained on, on this rank. The first callback that says so counts."""
        if self._counted_by is None:
            self._counted_by = by
        if self._counted_by is by:
            self._samples += samples

    def step(self, number: int | None = None) -> None:
        """The weights were updated. `number` is that of the step, by which it counts once."""
        if not self.in_epoch or (number == self._step and number is not None):
            return
        is_first, self._is_first, self._step = self._is_first, False, number
        self._steps += 1
        if self._recorder is not None:
            self._recorder.step()
            if is_first:  # it loads libraries: it is not an example
                self._recorder.cut(Kind.STEP, 0, wait=False)
        if self.optimizer is not None:
            self.optimizer.on_step_end()
        if self.trial is not None:
            self.trial.optimizer.on_step_end()

    def pause(self) -> None:
        """Training steps pause."""
        if self._in_steps:
            self._in_steps = False
            if self._recorder is not None:
                self._recorder.cut_steps(wait=False)
            if self.optimizer is not None:
                self.optimizer.on_epoch_end()
            if self.trial is not None:
                self.trial.optimizer.on_steps_end()

    def evaluating(self) -> None:
        """A batch of an evaluation was computed."""
        self.pause()
        self._evaluated = True

    def epoch_end(self) -> None:
        if self.in_epoch:
            self.in_epoch = False
            self.pause()
            if self._recorder is not None:
                self._recorder.mark(self._feed, EpochEnded())
                self._recorder.deliver(wait=self.group.size > 1)
            if self.trial is not None:
                self.trial.optimizer.on_epoch_end()

    @property
    def is_over(self) -> bool:
        """Whether the training should end, because its trial is over."""
        return self.trial is not None and self.trial.is_over

    def log_due(self) -> None:
        """A log is due, or an evaluation begins or ends. All ranks must call this at the same step."""
        if self._recorder is None or not self._recorder.is_recording:
            return
        if not self._in_steps:
            self._cut_evaluation()
        steps, samples, self._steps, self._samples = self._steps, self._samples, 0, 0
        self._recorder.mark(self._log, steps, samples * self.group.size)
        self._recorder.deliver()

    def end(self, *, wait: bool = True) -> None:
        """Stop measuring, and end the trial. Set `wait` to false if the training failed: other ranks may be gone."""
        self.in_epoch = self._in_steps = False
        self._cut_evaluation()
        if self._recorder is not None and self._recorder.is_recording:
            self._recorder.end()
            self._recorder.deliver(wait=True, alone=not wait)
        if self.trial is not None and wait:
            self.trial.end()

    def _cut_evaluation(self) -> None:
        if self._recorder is not None:
            self._recorder.cut(Kind.EVALUATION, int(self._evaluated), wait=False)
            self._evaluated = False

    def _feed(self, event: Event) -> None:
        self._engine, _ = self._engine.handle(event)

    def _on_segment(self, segment: Measured) -> None:
        self._feed(segment)
        if segment.kind is Kind.STEP:
            self._since_log += segment.use

    def _log(self, steps: int, samples: int) -> None:
        """Keep the values of these steps, which are known now."""
        use, self._since_log = self._since_log, ZERO
        if steps and samples and use.seconds > 0:
            values = {
                "zeus/joules_per_step": use.joules / steps,
                "zeus/joules_per_sample": use.joules / samples,
                "zeus/watts": use.joules / use.seconds,
            }
            self._latest = values if use.is_known else {}

    # ------------------------------------------------------------------ what is known

    @property
    def use(self) -> Use:
        """What all ranks have used since the first epoch began, evaluation included, as far as it is known by now."""
        return self._engine.spent

    @property
    def joules(self) -> float | None:
        """The same energy; None before the first epoch. NaN if a GPU does not report it."""
        return None if self._recorder is None else self.use.joules if self.use.is_known else math.nan

    def use_now(self) -> Use:
        """What was used until this moment. Waits for the sensors, usually 0.1 s."""
        if self._recorder is not None:
            self._recorder.cut_steps() if self._in_steps else self._cut_evaluation()
            self._recorder.deliver(wait=True)
        return self.use

    def energy_values(self) -> dict[str, float]:
        """For a log: the newest steps whose energy is known, the sum of all, and what it costs if that is given."""
        if self._recorder is not None and self.group.size == 1:
            self._recorder.deliver()
        use = self.use
        if not (use.seconds and use.is_known) or self._recorder is None:
            return self._latest
        values: dict[str, float | None] = {**self._latest, "zeus/joules": use.joules}
        if (paid := self._recorder.footprint(use.joules)) is not None:
            values |= {"zeus/kwh": paid.kwh, "zeus/money": paid.money, "zeus/gco2e": paid.gco2e}
        return {name: value for name, value in values.items() if value is not None}

    def limit_values(self) -> dict[str, float]:
        """For a log: the chosen limit, and what it has saved so far if that is known and seen."""
        if self._recorder is not None and self.group.size == 1:
            self._recorder.cut_steps(wait=False)
            self._recorder.deliver()
        optimizer = self.optimizer
        if optimizer is None or optimizer.best_limit is None or not optimizer.sets_best:
            return {}
        values = {"zeus/power_limit": optimizer.best_limit}
        saving = limit_saving(optimizer, self._engine.so_far)  # a log has no money: nothing is priced
        if saving is not None and saving.is_seen:  # a number in a log cannot say that it may be chance
            values |= {"zeus/saved_joules": saving.joules, "zeus/saved_joules_error": saving.joules_error}
        return values

    def summary(self) -> Summary | None:
        """What the training used and saved, and how its trial ended. None if nothing was measured."""
        recorder, optimizer = self._recorder, self.optimizer
        trial = None if self.trial is None else self.trial.summary
        if recorder is None:
            return trial
        outcome = recorder.priced(self._engine.so_far, wait=False)
        if not self._engine.spent.is_known:
            outcome = replace(outcome, joules=None)
        cost = None if optimizer is None else _cost_of(optimizer)
        size = 0 if optimizer is None else optimizer.key.batch_size
        found = summary_of(
            outcome,
            Ending.NOT_CONVERGED,
            optimizer,
            batch_size=size,
            cost=cost,
            include=self._include,
            waits=self._waits,
        )
        if trial is None:
            return found
        return replace(
            trial,
            waiting=found.waiting,
            limit=found.limit,
            found_limit=found.found_limit,
            mode=found.mode,
            saving=found.saving,
            why_not=found.why_not,
        )


def _cost_of(optimizer: GlobalPowerLimitOptimizer) -> CostModel | None:
    """The cost that the optimizer's selector minimises. None if it is another one, or MAXPOWER is not known."""
    selector = optimizer.selector
    eta = selector.eta_knob if isinstance(selector, ZeusCost) else None
    return CostModel(eta, optimizer.max_watts) if eta is not None and optimizer.max_watts > 0 else None
