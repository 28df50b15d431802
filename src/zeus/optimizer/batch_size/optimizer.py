"""`BatchSizeOptimizer` gives a recurring training its batch size and says when to stop (§4.3-4.4).

get_batch_size ──▶ on_train_begin ──▶ epoch ──▶ on_evaluate ──▶ epoch ... ──▶ training_finished
▲                                                                              │
└────────── another try of the same recurrence, or the next recurrence ◀───────┘

It turns the calls of a training loop into the events of a trial. `zeus.trial.engine` decides.
"""

from __future__ import annotations

import atexit
import logging
import sys
import traceback

from zeus.callback import Callback
from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.distributed.group import RankGroup, broadcast, rank_group
from zeus.errors import InputError
from zeus.job import Ending, JobSpec, Kind, Outcome, replace
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import gpus_of, need_included
from zeus.optimizer.batch_size.trial_source import GivenTrial, TrialSource
from zeus.optimizer.raised import RaisedSince
from zeus.optimizer.shared_window import limit_found
from zeus.optimizer.trial_run import TrialRun
from zeus.store import Store
from zeus.trial.engine import Ended, EpochBegan, EpochEnded, Started, Terms, TrialEngine

log = logging.getLogger(__name__)


class BatchSizeOptimizer(Callback):
    """Chooses the batch size of each run of a recurring job, so that runs get cheaper.

        optimizer = BatchSizeOptimizer(ZeusMonitor(), job=JobSpec(...))
        batch_size = optimizer.get_batch_size()
        optimizer.on_train_begin()
        while not optimizer.training_finished:
            ...                                  # train for an epoch, evaluate
            optimizer.on_evaluate(metric)

    It never raises to stop a training. `training_finished` says that it should end, and `converged` whether it reached
    the target. A loop that also calls `on_epoch_begin`, `on_step_end` and `on_epoch_end` can be stopped inside an epoch
    that costs too much. Under `zeus run` the trial is the one that the launcher has opened.

    Args:
        monitor: Measures the GPUs that the job runs on.
        server_url: Address of the store or service. Default: ZEUS_STORE, else the user's own file.
        job: The recurring job. Not needed under `zeus run`.
        rank: Rank of this process. The first rank gets the batch size, and the others get it from there over
            torch.distributed, whether they call `get_batch_size` or not. All ranks must call the other methods alike.
        store: The store, instead of `server_url`.
        clock: Clock for renewing the trial's lease.
        revise: Whether `job` may have another target or `include` than before. Trials for the old target then no longer
            count, and costs with and without the CPU are not compared.

    Raises:
        InputError: The arguments, the job or the store cannot be used, or the job counts a CPU whose energy cannot be
            measured.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        server_url: str | None = None,
        job: JobSpec | None = None,
        rank: int = 0,
        *,
        store: Store | str | None = None,
        clock: Clock = REAL,
        revise: bool = False,
    ) -> None:
        if server_url is not None and store is not None:
            raise InputError("server_url and store both name a store: give only one of them.")
        self.monitor = monitor
        self.rank = rank
        self._source = TrialSource(
            monitor, job, server_url if store is None else store, rank, clock=clock, revise=revise
        )
        self._group: RankGroup = RankGroup()
        self._given: GivenTrial | None = None
        self._run: TrialRun | None = None  # None: training has not begun
        self._has_epochs = False  # whether the loop reports epochs
        self._raised = RaisedSince()  # since training began
        self._again: int | None = None
        self.steps_per_epoch: int | None = None  # set by a framework that knows it before the first epoch
        self.epochs_before = 0  # set by a framework that resumes a training from a checkpoint
        self.training_finished = False

    # ------------------------------------------------------------------ what scripts look at

    @property
    def job(self) -> JobSpec | None:
        """The job with its id, as registered. None under `zeus run`, until there is a batch size."""
        spec = self._given.spec if self._given else self._source.spec
        return None if spec is None else replace(spec, job_id=spec.id)

    @property
    def server_url(self) -> str | None:
        """The address of the store or service that was given; None: ZEUS_STORE, else the user's own file."""
        return self._source.address

    @property
    def max_power(self) -> float:
        """MAXPOWER in watts: the highest power limit, summed over the GPUs. Before there is a trial, of this rank's."""
        return gpus_of(self.monitor).max_watts if self._given is None else self._given.cost.max_watts

    @property
    def trial_number(self) -> int:
        """The number of the trial; 0 before `get_batch_size`."""
        return 0 if self._given is None else self._given.number

    @trial_number.setter
    def trial_number(self, number: int) -> None:
        self._agree(self.trial_number, number, "trial_number")

    @property
    def current_batch_size(self) -> int:
        """The batch size of the trial; 0 before `get_batch_size`."""
        return 0 if self._given is None else self._given.batch_size

    @current_batch_size.setter
    def current_batch_size(self, size: int) -> None:
        self._agree(self.current_batch_size, size, "current_batch_size")

    @property
    def cur_epoch(self) -> int:
        """How many epochs of the trial have ended."""
        return 0 if self._run is None else self._run.engine.epochs

    @property
    def running_window(self) -> bool:
        """Whether the trial is being measured."""
        return self._run is not None and not self.training_finished

    @property
    def converged(self) -> bool:
        """Whether the last trial reached the target."""
        return self.outcome is not None and self.outcome.ending is Ending.CONVERGED

    @property
    def outcome(self) -> Outcome | None:
        """How the last trial ended and what it used; None before the end of the first."""
        return None if self._run is None or not self.training_finished else self._run.outcome

    # ------------------------------------------------------------------ asking

    def get_batch_size(self) -> int:
        """The batch size to train with. It stays the same until the trial has ended.

        After that, the next call opens another trial: another try of the same recurrence if the target was not reached
        (20 at most), else the first try of a new recurrence.

        Raises:
            InputError: No batch size is left, the launcher's trial is over, or torch.distributed is not set up.
            ZeusError: The store failed.
        """
        if self._given is None or self.training_finished:
            self._given = self._source.next(self._again, is_over=self.training_finished)
            if self._source.running is not None and not self._source.from_launcher:
                atexit.register(self._at_exit)
            self._run, self.training_finished = None, False
        assert self._given is not None
        return self._given.batch_size

    def _agree(self, known: int, given: int, name: str) -> None:
        """A script hands the trial on to the other ranks by itself: make sure that it is this one."""
        if not known and self.rank != 0:
            self.get_batch_size()
            known = getattr(self, name)
        if given != known:
            raise InputError(f"{name}={given!r}: it is {known}, and get_batch_size() alone changes it.")

    # ------------------------------------------------------------------ calls of the training loop

    def on_train_begin(self) -> None:
        """Training begins. Time and energy of the trial count from here. Raises like `get_batch_size`."""
        self.get_batch_size()
        if self._run is not None or self._given is None:
            return
        self._group = rank_group()
        need_included(self.monitor, self._group, self._given.include)
        running, include = self._source.running, self._given.include
        terms = Terms.of(
            self._given.spec,
            self._given.cost,
            self._given.cost_limit,
            found_watts=limit_found(list(self.monitor.gpus.values())),
            batch_size=self.current_batch_size,
            steps_per_epoch=self.steps_per_epoch,
        )
        self._run = TrialRun(
            TrialEngine(terms, self._given.known),
            self.monitor,
            self._group,
            include,
            orders=self._source.orders if self._source.from_launcher else None,
            ask=(lambda question: True) if running is None else running.answer,
            tell_epoch=(lambda use: None) if running is None else running.tell_epoch,
        )
        self._has_epochs, self._run.recorder.in_unit = False, True
        self._raised = RaisedSince()
        self._run.begin()
        self._resume(self._run)
        self._run.feed(Started())
        self._end_if_over()

    def _resume(self, run: TrialRun) -> None:
        """Continue a trial that was started before, perhaps from a checkpoint. Every rank must call this."""
        done = self.epochs_before
        so_far = None
        if done or self._source.from_launcher:
            running = self._source.running
            so_far = broadcast(None if running is None else running.so_far())
        if done and so_far is None and self._group.writes:
            log.warning(
                "training goes on after epoch %s of another trial, so the energy of the whole training is unknown", done
            )
        run.resume(done, so_far)

    def on_epoch_begin(self) -> None:
        """An epoch begins. If a loop never calls this, each evaluation ends an epoch."""
        if (run := self._open_run()) is not None:
            self._has_epochs = True
            run.cut(Kind.EVALUATION, 0)
            run.recorder.in_unit = True
            run.feed(EpochBegan())
            self._end_if_over()

    def on_step_begin(self) -> None:
        """Does nothing: a step lasts from the end of the last one."""

    def on_step_end(self) -> None:
        """A step has ended. A trial that costs too much can then be stopped inside an epoch."""
        if (run := self._open_run()) is not None:
            run.step()
            self._end_if_over()

    def on_steps_end(self) -> None:
        """Training steps pause for an evaluation or a checkpoint, which does not count as a step."""
        if (run := self._open_run()) is not None:
            run.recorder.cut_steps()

    def on_epoch_end(self) -> None:
        """An epoch has ended. Its evaluation may come before or after this call."""
        if (run := self._open_run()) is not None:
            self._cut_unit(run, otherwise=0)
            run.feed(EpochEnded())
            self._end_if_over()

    def on_evaluate(self, metric: float) -> None:
        """Report the metric of an evaluation. At the target the trial has converged, else the policy may stop it.

        Raises:
            InputError: Training has not begun.
        """
        if self._run is None:
            raise InputError(
                f"on_evaluate({metric!r}) was called before on_train_begin(), which starts the measurement."
            )
        if (run := self._open_run()) is None:
            return
        evaluated = run.evaluated(metric)
        if self._has_epochs:
            self._cut_unit(run, otherwise=1)  # if on_epoch_end comes later, the epoch ends here
            run.feed(*evaluated)
        else:
            run.feed(EpochBegan())
            run.cut(Kind.EPOCH if run.recorder.is_whole else Kind.EVALUATION, 1)
            run.feed(EpochEnded(), *evaluated)
        self._end_if_over()
        if not run.is_over:
            run.end_if_profiled()

    def on_train_end(self) -> None:
        """Training has ended. Without the target it has not converged.

        In a `finally` block, or while an exception is handled that came since `on_train_begin`, it has failed.
        """
        if (run := self._open_run()) is None:
            return
        error = self._raised.error()
        if error is not None:
            self.on_exception(error)
        else:
            run.cut(Kind.EVALUATION, 0)
            run.feed(Ended(Ending.NOT_CONVERGED))
            self._end_if_over()

    def on_exception(self, error: BaseException | None = None) -> None:
        """Training has failed. Other ranks are not waited for. Under a launcher, the exit code tells how it ended."""
        if self._given is None or self.training_finished:
            return
        run, running = self._run, self._source.running
        crashed = not self._source.from_launcher and isinstance(error, Exception)
        if run is not None:
            run.close(alone=True)
            run.feed(Ended(Ending.CRASHED if crashed else Ending.LOST))
        if running is not None:
            outcome = run.outcome if run is not None else None
            if crashed and error is not None:  # a launcher sends all of the output
                running.keep_log("".join(traceback.format_exception(error)))
            running.end(outcome, crashed=crashed)
        self._over()

    def _at_exit(self) -> None:
        """End the trial when the process exits without having ended it, instead of waiting for its lease to lapse."""
        shell = hasattr(sys, "ps1")  # an error in an interactive shell does not end the process
        self.on_exception(None if shell else getattr(sys, "last_value", None))

    # ------------------------------------------------------------------ inside

    def _cut_unit(self, run: TrialRun, otherwise: int) -> None:
        """End a piece: a whole epoch if its steps were not reported, otherwise so many evaluations."""
        is_epoch = self._has_epochs and run.recorder.is_whole
        run.cut(Kind.EPOCH if is_epoch else Kind.EVALUATION, 1 if is_epoch else otherwise)
        run.recorder.in_unit = False

    def _open_run(self) -> TrialRun | None:
        return None if self.training_finished else self._run

    def _end_if_over(self) -> None:
        """If the engine has ended the trial, report how."""
        run = self._run
        if run is None or not run.is_over or self._given is None:
            return
        run.end()
        outcome = run.outcome
        assert outcome is not None
        if self._source.running is not None:
            self._source.running.tell(outcome)
            name, number, metric = self._given.spec.id, self._given.number, outcome.metric
            level = logging.INFO if outcome.ending is Ending.CONVERGED else logging.WARNING
            what = "job %r, trial %s: %s (epochs: %s, metric: %s)"
            log.log(level, what, name, number, outcome.ending, outcome.epochs, metric)
        self._over()

    def _over(self) -> None:
        self.training_finished = True
        self._again = None if self.converged or self._given is None else self._given.again
        atexit.unregister(self._at_exit)
