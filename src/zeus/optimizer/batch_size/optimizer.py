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
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from socket import gethostname

from zeus.callback import Callback
from zeus.cost import GPU_ONLY, CostModel, Include, included
from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.distributed.crew import Alone, Board, Crew, board, broadcast, crew
from zeus.env import Orders, orders
from zeus.errors import InputError, ZeusError
from zeus.job import Ending, Gpus, JobSpec, Kind, Outcome
from zeus.jobs.api import RecurringJob
from zeus.jobs.open import gpus_like, gpus_of, register_job
from zeus.jobs.profile_folder import ProfileFolder
from zeus.jobs.running import RunningTrial, launched, start_terms
from zeus.monitor import ZeusMonitor
from zeus.monitor.all_ranks import need_included, refuse_without_cpu
from zeus.optimizer.recorder import Recorder
from zeus.optimizer.trial_run import TrialRun
from zeus.store import Store
from zeus.trial.engine import Ended, EpochBegan, EpochEnded, Evaluated, Started, Terms, TrialEngine
from zeus.trial.knowledge import Knowledge

log = logging.getLogger(__name__)

_serials = count(1)


@dataclass(frozen=True, slots=True)
class _Given:
    """What every rank knows about the trial."""

    number: int
    batch_size: int
    spec: JobSpec
    cost: CostModel
    cost_limit: float | None
    known: Knowledge
    again: int | None  # the recurrence to try again if this trial does not reach the target
    include: Include  # whose energy its costs count


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
        self._orders = orders()
        self._from_launcher = launched(self._orders) is not None
        if job is None and not self._from_launcher:
            raise InputError("job=None: give a JobSpec, or start this script with `zeus run`.")
        self.monitor = monitor
        self._wanted = job
        self._revise = revise
        self._where = server_url if store is None else store
        self.rank = rank
        self._clock = clock
        self._crew: Crew = Alone()
        self._serial = next(_serials)  # the same on all ranks, as they make the same optimizers
        self._posted = False
        self._asked = 0
        self._post_cards()
        self._job: RecurringJob | None = None
        if job is not None and not self._from_launcher and crew().size == 1:
            need_included(monitor, Alone(), job.include)  # several ranks find out together, in `get_batch_size`
        if rank == 0 and not self._from_launcher:
            self._registered()  # raises now, before any training, if the store or the job cannot be used
        self._given: _Given | None = None
        self._running: RunningTrial | None = None  # only on the rank that writes
        self._run: TrialRun | None = None  # None: training has not begun
        self._has_epochs = False  # whether the loop reports epochs
        self._has_steps = False  # whether it reports steps
        self._is_unit = False  # whether the next piece is a whole epoch whose steps are not reported
        self._again: int | None = None
        self.steps_per_epoch: int | None = None  # set by a framework that knows it before the first epoch
        self.epochs_before = 0  # set by a framework that resumes a training from a checkpoint
        self.training_finished = False
        self.converged = False

    # ------------------------------------------------------------------ what scripts look at

    @property
    def job(self) -> JobSpec | None:
        """The job with its id, as registered. None under `zeus run`, until there is a batch size."""
        spec = self._given.spec if self._given else self._job.spec if self._job else self._wanted
        return None if spec is None else replace(spec, job_id=spec.id)

    @property
    def server_url(self) -> str | None:
        """The address of the store or service that was given; None: ZEUS_STORE, else the user's own file."""
        return self._where if self._where is None or isinstance(self._where, str) else self._where.address

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
            match self._given_to_all():
                case _Given() as given:
                    self._given = given
                case ZeusError() as failed:
                    raise failed
            self._run, self.training_finished, self.converged = None, False, False
        assert self._given is not None
        return self._given.batch_size

    def _given_to_all(self) -> _Given | ZeusError:
        """The trial that the first rank opens. It waits for the cards of the others, but not for their calls."""
        ranks = board()
        if ranks is None or not ranks.everyone():
            if self.rank != 0:
                raise InputError(
                    f"rank={self.rank}: this rank gets its batch size from the first over torch.distributed, which is "
                    "not set up. Call init_process_group() before get_batch_size()."
                )
            return self._open(lambda: gpus_of(self.monitor, include=self._counts))
        self._post_cards()
        self._asked += 1
        key = f"optimizer {self._serial} trial {self._asked}"
        if ranks.rank == 0:
            ranks.post(key, self._open(lambda: self._all_cards(ranks)))
        given: _Given | ZeusError = ranks.read(key)
        return given

    def _post_cards(self) -> None:
        """Tell the other ranks which cards this one sees, as soon as there are other ranks."""
        ranks = None if self._posted else board()
        if ranks is not None:
            cards = {(gethostname(), gpu.spec.uuid): gpu.spec.max_watts for gpu in self.monitor.gpus.values()}
            ranks.post(f"optimizer {self._serial} cards {ranks.rank}", (cards, self.monitor.why_no_cpu))
            self._posted = True

    def _all_cards(self, ranks: Board) -> Gpus:
        """The cards of all ranks, each once."""
        rows = [ranks.read(f"optimizer {self._serial} cards {rank}") for rank in range(ranks.size)]
        refuse_without_cpu(self._counts, (why for _, why in rows))
        cards: dict[tuple[str, str], float] = {}
        for seen, _ in rows:
            cards |= seen
        return gpus_like(self.monitor, len(cards), sum(cards.values()), self._counts)

    def _agree(self, known: int, said: int, name: str) -> None:
        """A script hands the trial on to the other ranks by itself: make sure that it is this one."""
        if not known and self.rank != 0:
            self.get_batch_size()
            known = getattr(self, name)
        if said != known:
            raise InputError(f"{name}={said!r}: it is {known}, and get_batch_size() alone changes it.")

    @property
    def _counts(self) -> Include:
        """Whose energy the job of this script counts. The launcher's trial says so itself."""
        return GPU_ONLY if self._from_launcher or self._wanted is None else self._wanted.include

    def _open(self, gpus: Callable[[], Gpus]) -> _Given | ZeusError:
        """Open a trial, or return the error. Every rank must get it, so that none waits for the others."""
        try:
            return self._take(self._orders, gpus()) if self._from_launcher else self._ask(gpus())
        except ZeusError as why:
            return why
        except Exception as failed:
            return ZeusError(f"there is no batch size, because the store failed: {failed}")

    def _ask(self, gpus: Gpus) -> _Given:
        job = self._registered()
        trial = job.ask(gpus, self._again)
        log.info("job %r, trial %s: %s", job.spec.id, trial.number, trial.decision.reason)
        limit = trial.decision.cost_limit
        self._running = RunningTrial(job.spec.id, trial.number, lambda: job, cost_limit=limit)
        self._running.hold(self._clock)
        atexit.register(self._at_exit)
        again = None if trial.ask.last else trial.ask.recurrence
        cost = CostModel(trial.ask.eta, trial.ask.max_watts)
        known = self._running.knowledge()
        return _Given(trial.number, trial.batch_size, job.spec, cost, limit, known, again, gpus.include)

    def _take(self, orders: Orders, gpus: Gpus) -> _Given:
        """The launcher's trial, from its store and its environment."""
        if self.training_finished:
            raise InputError(f"trial {orders.trial} is over. `zeus run` starts the script again for the next one.")
        self._running = launched(orders)
        assert self._running is not None
        trial, size = self._running.trial, orders.batch_size
        if size is None:
            size = trial.batch_size if trial is not None else self._wanted.default_batch_size if self._wanted else None
        if size is None:
            raise InputError(
                f"trial {orders.trial}: its batch size is not known. Set ZEUS_BATCH_SIZE, or use `zeus run`."
            )
        spec = self._running.spec or self._wanted or _spec(orders, size)
        eta = trial.ask.eta if trial is not None else spec.eta_knob if orders.eta is None else orders.eta
        cost = CostModel(eta, trial.ask.max_watts if trial else gpus.max_watts)
        include = included(orders.include or spec.include) if trial is None else trial.ask.gpus.include
        known = self._running.knowledge()
        return _Given(self._running.number, size, spec, cost, orders.cost_limit, known, None, include)

    def _registered(self) -> RecurringJob:
        if self._job is None:
            assert self._wanted is not None
            self._job = register_job(self._wanted, self._where, revise=self._revise)
        return self._job

    # ------------------------------------------------------------------ calls of the training loop

    def on_train_begin(self) -> None:
        """Training begins. Time and energy of the trial count from here. Raises like `get_batch_size`."""
        self.get_batch_size()
        if self._run is not None or self._given is None:
            return
        self._crew = crew()
        need_included(self.monitor, self._crew, self._given.include)
        recorder, running = Recorder(self.monitor, self._crew, self._given.include), self._running
        found, steps = recorder.found(), self.steps_per_epoch
        terms = Terms.of(
            self._given.spec,
            self._given.cost,
            self._given.cost_limit,
            found_watts=found,
            steps_per_epoch=steps,
            **(start_terms(self._orders) if self._from_launcher else {}),
        )
        engine = self._engine(terms, self._given.known)
        quick = ProfileFolder.of(self._orders) if self._from_launcher else None
        self._run = (
            TrialRun(engine, recorder, self._crew, quick=quick)
            if running is None
            else TrialRun(engine, recorder, self._crew, ask=running.answer, tell_epoch=running.tell_epoch, quick=quick)
        )
        self._has_epochs = self._has_steps = self._is_unit = False
        recorder.begin()
        self._run.feed(Started())
        self._end_if_over()

    def _engine(self, terms: Terms, known: Knowledge) -> TrialEngine:
        """The engine of this trial, which may go on from a checkpoint. Every rank must call this."""
        done = self.epochs_before
        if not done:
            return TrialEngine(terms, known)
        so_far = broadcast(self._running.so_far() if self._running is not None else None)
        if so_far is None and self._crew.writes:
            log.warning(
                "training goes on after epoch %s of another trial, so the energy of the whole training is unknown", done
            )
        return TrialEngine.resumed(terms, known, done, so_far)

    def on_epoch_begin(self) -> None:
        """An epoch begins. If a loop never calls this, each evaluation ends an epoch."""
        if (run := self._open_run()) is not None:
            self._has_epochs = self._is_unit = True
            run.recorder.cut(Kind.EVALUATION, 0)
            run.feed(*run.recorder.all(), EpochBegan())
            self._end_if_over()

    def on_step_begin(self) -> None:
        """A step begins. Call this if a power limit optimizer runs too: it separates steps at different limits."""
        if (run := self._open_run()) is not None:
            run.step_begins()

    def on_step_end(self) -> None:
        """A step has ended. A trial that costs too much can then be stopped inside an epoch."""
        if (run := self._open_run()) is not None:
            self._has_steps, self._is_unit = True, False
            run.step()
            self._end_if_over()

    def on_steps_end(self) -> None:
        """Training steps pause for an evaluation or a checkpoint, which does not count as a step."""
        if (run := self._open_run()) is not None:
            run.cut_steps()

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
        mine = metric.detach() if hasattr(metric, "detach") else metric  # a tensor with a gradient
        value = broadcast(float(mine))
        if self._has_epochs:
            self._cut_unit(run, otherwise=1)  # if on_epoch_end comes later, the epoch ends here
            run.feed(Evaluated(value))
        else:
            run.feed(EpochBegan())
            run.cut(Kind.EVALUATION if self._has_steps else Kind.EPOCH, 1)
            run.feed(EpochEnded(), Evaluated(value))
        self._end_if_over()
        if not run.is_over:
            run.end_if_profiled()

    def on_train_end(self) -> None:
        """Training has ended. Without the target it has not converged; while an exception is handled, it has failed."""
        if (run := self._open_run()) is None:
            return
        error = sys.exc_info()[1]
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
        run, running = self._run, self._running
        crashed = not self._from_launcher and isinstance(error, Exception)
        if run is not None:
            run.close(alone=True)
            run.feed(Ended(Ending.CRASHED if crashed else Ending.LOST))
        if running is not None:
            outcome = run.outcome if run is not None else None
            running.end(outcome, crashed=crashed)
        self._over(Ending.CRASHED)

    def _at_exit(self) -> None:
        """End the trial when the process exits without having ended it, instead of waiting for its lease to lapse."""
        shell = hasattr(sys, "ps1")  # an error in an interactive shell does not end the process
        self.on_exception(None if shell else getattr(sys, "last_value", None))

    # ------------------------------------------------------------------ inside

    def _cut_unit(self, run: TrialRun, otherwise: int) -> None:
        """End a piece: a whole epoch if its steps were not reported, otherwise so many evaluations."""
        run.cut(Kind.EPOCH if self._is_unit else Kind.EVALUATION, 1 if self._is_unit else otherwise)
        self._is_unit = False

    def _open_run(self) -> TrialRun | None:
        return None if self.training_finished else self._run

    def _end_if_over(self) -> None:
        """If the engine has ended the trial, report how."""
        run = self._run
        if run is None or not run.is_over or self._given is None:
            return
        run.recorder.end()
        outcome = run.outcome
        assert outcome is not None
        if self._running is not None:
            self._running.tell(outcome)
            name, number, metric = self._given.spec.id, self._given.number, outcome.metric
            level = logging.INFO if outcome.ending is Ending.CONVERGED else logging.WARNING
            what = "job %r, trial %s: %s (epochs: %s, metric: %s)"
            log.log(level, what, name, number, outcome.ending, outcome.epochs, metric)
        self._over(outcome.ending)

    def _over(self, ending: Ending) -> None:
        self.converged, self.training_finished = ending is Ending.CONVERGED, True
        self._again = None if self.converged or self._given is None else self._given.again
        self._running = None
        atexit.unregister(self._at_exit)


def _spec(orders: Orders, size: int) -> JobSpec:
    """The job as far as the launcher's environment describes it."""
    target, higher, epochs, eta = orders.target_metric, orders.higher_is_better, orders.max_epochs, orders.eta
    if target is None or higher is None or epochs is None or orders.job_id is None:
        raise InputError(
            f"job {orders.job_id!r}: its store does not answer, and the environment has no full description of it. "
            "Start the script with `zeus run`, or give BatchSizeOptimizer a job."
        )
    return JobSpec(
        job_id=orders.job_id,
        job_id_prefix=orders.job_id,
        batch_sizes=(size,),
        default_batch_size=size,
        eta_knob=0.5 if eta is None else eta,
        target_metric=target,
        higher_is_better_metric=higher,
        max_epochs=epochs,
        include=orders.include or GPU_ONLY,
    )
