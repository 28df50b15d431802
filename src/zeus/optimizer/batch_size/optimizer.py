"""`BatchSizeOptimizer`: a recurring training asks for its batch size and is told when to stop (§4.3-4.4).

get_batch_size ──▶ on_train_begin ──▶ epoch ──▶ on_evaluate ──▶ epoch ... ──▶ training_finished
▲                                                                              │
└────────── another try of the same recurrence, or the next recurrence ◀───────┘
"""

from __future__ import annotations

import atexit
import logging
import math
import sys
from dataclasses import dataclass, replace

from zeus.callback import Callback
from zeus.cost import CostModel
from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.env import Orders, orders
from zeus.errors import InputError, ZeusError
from zeus.job import Ending, JobSpec, Outcome
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size.find import place_of, register_job
from zeus.optimizer.batch_size.running import RunningTrial, launched, used
from zeus.optimizer.batch_size.verbs import Place, RecurringJob
from zeus.optimizer.power_limit.crew import Alone, Crew
from zeus.optimizer.ranks import broadcast, crew
from zeus.store import Store

log = logging.getLogger(__name__)

_WINDOW = "zeus: trial"


@dataclass(frozen=True, slots=True)
class _Given:
    """What every rank knows of the trial."""

    number: int
    batch_size: int
    spec: JobSpec
    max_watts: float
    again: int | None  # the recurrence to try again where this trial does not reach the target


@dataclass(slots=True)
class _Books:
    """What the trial came to so far, all ranks together."""

    joules: float = 0.0  # NaN where not known
    seconds: float = 0.0
    metric: float | None = None
    begun: int = 0  # epochs, where the loop tells of them
    ended: int = 0  # epochs, or evaluations where it does not
    in_epoch: bool = False
    evaluated: bool = False  # in this epoch
    judged: int = 0  # epochs after which the policy was asked
    then: tuple[float, float] = (0.0, 0.0)  # joules and seconds when it was asked last


class BatchSizeOptimizer(Callback):
    """Chooses the batch size of each run of a recurring job, so that runs get cheaper.

        optimizer = BatchSizeOptimizer(ZeusMonitor(), job=JobSpec(...))
        batch_size = optimizer.get_batch_size()
        optimizer.on_train_begin()
        while not optimizer.training_finished:
            ...                                  # train for an epoch, evaluate
            optimizer.on_evaluate(metric)

    It never raises to stop a training: `training_finished` says that it should end, `converged` why. Under `zeus run`
    the trial is the one that the launcher has opened.

    Args:
        monitor: Measures the GPUs that the job runs on.
        server_url: Where jobs are kept, as an address; default: ZEUS_STORE, or the user's own file.
        job: What recurs; not needed under `zeus run`.
        rank: Of this process. The first rank decides and the others get it over torch.distributed, so that all call
            the same methods.
        store: Where jobs are kept, in place of `server_url`.
        clock: By which the trial's lease is renewed.
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
    ) -> None:
        if server_url is not None and store is not None:
            raise InputError("server_url and store both say where jobs are kept: give one of the two.")
        self._orders = orders()
        self._from_launcher = launched(self._orders) is not None
        if job is None and not self._from_launcher:
            raise InputError("job=None: give a JobSpec, or start this script with `zeus run`.")
        self.monitor = monitor
        self._wanted = job
        self._where = server_url if store is None else store
        self._rank = rank
        self._clock = clock
        self._crew: Crew = Alone()
        self._job: RecurringJob | None = None
        if rank == 0 and not self._from_launcher:
            self._registered()  # a store or a job that cannot be used is refused here, before anything is trained
        self._given: _Given | None = None
        self._running: RunningTrial | None = None  # on the rank that speaks
        self._books: _Books | None = None  # None: training has not begun
        self._again: int | None = None
        self.training_finished = False
        self.converged = False

    # ------------------------------------------------------------------ asking

    def get_batch_size(self) -> int:
        """The batch size to train with; the same one until the trial has ended.

        After that it opens the next: another try of the same recurrence where the target was not reached (20 at most),
        else the first of a new one.
        """
        if self._given is None or self.training_finished:
            self._crew = crew()
            if self._crew.size == 1 and self._rank != 0:
                raise InputError(
                    f"rank={self._rank}: it gets the first rank's batch size over torch.distributed, which is not set "
                    "up. Call init_process_group() before get_batch_size()."
                )
            place = place_of(self.monitor, self._crew)
            given = broadcast(self._open(place) if self._crew.writes else None)
            match given:
                case _Given():
                    self._given = given
                case ZeusError():
                    raise given
            self._books, self.training_finished, self.converged = None, False, False
        assert self._given is not None
        return self._given.batch_size

    def _open(self, place: Place) -> _Given | ZeusError:
        """A trial, or why there is none: what every rank must hear, so that none waits for the others."""
        try:
            return self._take(self._orders, place) if self._from_launcher else self._ask(place)
        except ZeusError as why:
            return why
        except Exception as failed:
            return ZeusError(f"no batch size, for the store failed: {failed}")

    def _ask(self, place: Place) -> _Given:
        job = self._registered()
        trial = job.ask(place, self._again)
        log.info("job %r, trial %s: %s", job.spec.id, trial.number, trial.decision.reason)
        limit = trial.decision.cost_limit
        self._running = RunningTrial(job.spec.id, trial.number, lambda: job, cost_limit=limit)
        self._running.hold(self._clock)
        atexit.register(self._at_exit)
        again = None if trial.ask.last else trial.ask.recurrence
        return _Given(trial.number, trial.batch_size, job.spec, trial.ask.max_watts, again)

    def _take(self, told: Orders, place: Place) -> _Given:
        """The launcher's trial, as far as its store and its environment tell."""
        if self.training_finished:
            raise InputError(f"trial {told.trial} is over. `zeus run` starts this script anew for the next one.")
        self._running = launched(told)
        assert self._running is not None
        trial, size = self._running.trial, told.batch_size
        if size is None:
            size = trial.batch_size if trial is not None else self._wanted.default_batch_size if self._wanted else None
        if size is None:
            raise InputError(f"trial {told.trial}: neither ZEUS_BATCH_SIZE nor its store says which batch size.")
        spec = self._running.spec or self._wanted or _spec(told, size)
        if told.eta is not None:
            spec = replace(spec, eta_knob=told.eta)  # that its bound is a cost of, whatever its owner has changed since
        return _Given(self._running.number, size, spec, trial.ask.max_watts if trial else place.max_watts, None)

    def _registered(self) -> RecurringJob:
        if self._job is None:
            assert self._wanted is not None
            self._job = register_job(self._wanted, self._where)
        return self._job

    # ------------------------------------------------------------------ the training's word

    def on_train_begin(self) -> None:
        """Time and energy of the trial count from here."""
        self.get_batch_size()
        if self._books is None:
            self._books = _Books()
            self.monitor.begin_window(_WINDOW, restart=True)
            self._crew.agree(0.0, 0.0)  # no rank works before those that measure it do

    def on_epoch_begin(self) -> None:
        """An epoch begins; a loop that does not tell of epochs has one evaluation in each."""
        if (books := self._open_books()) is not None:
            self._judge(books)
            books.begun += 1
            books.in_epoch, books.evaluated = True, False

    def on_epoch_end(self) -> None:
        """An epoch has ended, evaluated already or not."""
        if (books := self._open_books()) is not None:
            books.ended += 1
            books.in_epoch = False
            if books.evaluated:
                self._judge(books)

    def on_evaluate(self, metric: float) -> None:
        """The model was evaluated: at the target the trial has converged, else the policy says whether to go on."""
        if self._books is None:
            raise InputError(f"on_evaluate({metric!r}) before on_train_begin(): the training's energy is not known.")
        if (books := self._open_books()) is None or self._given is None:
            return
        mine = metric.detach() if hasattr(metric, "detach") else metric  # a tensor that still remembers its gradient
        books.metric = broadcast(float(mine))
        books.evaluated = True
        if not books.begun:
            books.ended += 1
        if self._given.spec.reached(books.metric):
            self._finish(books, Ending.CONVERGED)
        elif not books.in_epoch:
            self._judge(books)

    def on_train_end(self) -> None:
        """Training has ended: without the target it has not converged, and by an exception it has failed."""
        if (books := self._open_books()) is None:
            return
        error = sys.exc_info()[1]
        if error is not None:
            self.on_exception(error)
        else:
            self._finish(books, Ending.NOT_CONVERGED if books.evaluated or books.ended else Ending.LOST)

    def on_exception(self, error: BaseException | None = None) -> None:
        """Training has failed, and no other rank is waited for; where a launcher sees that, it says so."""
        if self._given is None or self.training_finished:
            return
        books, running = self._books or _Books(), self._running
        if self._books is not None:
            self._count_alone(books)
        if running is not None and self._from_launcher:
            running.leave(_outcome(books, Ending.LOST))
        elif running is not None:
            running.tell(_outcome(books, Ending.CRASHED if isinstance(error, Exception) else Ending.LOST))
        self._over(Ending.CRASHED)

    def _at_exit(self) -> None:
        """The process ends and nobody said how: a trial need not wait for its lease to lapse."""
        shell = hasattr(sys, "ps1")  # there an error is nothing to end a process by
        self.on_exception(None if shell else getattr(sys, "last_value", None))

    # ------------------------------------------------------------------ inside

    def _open_books(self) -> _Books | None:
        return None if self.training_finished else self._books

    def _judge(self, books: _Books) -> None:
        """After each epoch, once: is the next one worth its cost?"""
        if self._given is None or books.ended <= books.judged:
            return
        self._count(books)
        spec, (joules, seconds) = self._given.spec, books.then
        epochs = books.ended - books.judged
        epoch = (books.joules - joules) / epochs, (books.seconds - seconds) / epochs
        is_first, books.judged, books.then = not books.judged, books.ended, (books.joules, books.seconds)
        following = self._cost(*epoch)
        keep = True
        if books.ended >= spec.max_epochs:
            self._finish(books, Ending.NOT_CONVERGED)
            return
        if self._running is not None:
            if not is_first:  # in which power limits may have been tried out
                self._running.profiled(*epoch)
            spent = self._cost(books.joules, books.seconds)
            keep = self._running.keep_going(_outcome(books, Ending.LOST), spent + following)
        if not broadcast(keep):
            self._finish(books, Ending.STOPPED, following)

    def _cost(self, joules: float, seconds: float) -> float:
        """Equation 2; 0 where energy is not known, so that nothing unknown stops a run."""
        assert self._given is not None
        cost = CostModel(self._given.spec.eta_knob, self._given.max_watts).cost(joules, seconds)
        return cost if math.isfinite(cost) else 0.0

    def _count(self, books: _Books) -> None:
        """What all ranks used since the last time."""
        measured = self.monitor.end_window(_WINDOW, cancel=True)
        self.monitor.begin_window(_WINDOW, sync_execution=False, restart=True)
        joules, seconds = self._crew.agree(measured.total_energy, measured.seconds)
        books.joules += joules
        books.seconds += seconds

    def _count_alone(self, books: _Books) -> None:
        """What was used since the last time by a training that failed: where others share in it, nobody can say."""
        try:
            measured = self.monitor.end_window(_WINDOW, sync_execution=False, cancel=True)
            joules, seconds = measured.total_energy, measured.seconds
        except Exception as failed:  # what failed before is what the user must see
            log.warning("what the trial used at its end is not known: %s", failed)
            joules = seconds = math.nan
        known = self._crew.size == 1 and math.isfinite(joules)
        if known or not books.judged:
            books.joules += joules if known else math.nan
            books.seconds += seconds if known else 0.0

    def _finish(self, books: _Books, ending: Ending, next_epoch_cost: float | None = None) -> None:
        assert self._given is not None
        self._count(books)
        self.monitor.end_window(_WINDOW, sync_execution=False, cancel=True)
        outcome = _outcome(books, ending, next_epoch_cost)
        if self._running is not None:
            self._running.tell(outcome)
            name, number, metric = self._given.spec.id, self._given.number, outcome.metric
            level = logging.INFO if ending is Ending.CONVERGED else logging.WARNING
            log.log(level, "job %r, trial %s: %s after %s epochs at %s", name, number, ending, outcome.epochs, metric)
        self._over(ending)

    def _over(self, ending: Ending) -> None:
        self.converged, self.training_finished = ending is Ending.CONVERGED, True
        self._again = None if self.converged or self._given is None else self._given.again
        self._running = None
        atexit.unregister(self._at_exit)


def _outcome(books: _Books, ending: Ending, next_epoch_cost: float | None = None) -> Outcome:
    whole = ending in (Ending.CONVERGED, Ending.NOT_CONVERGED)  # an epoch that was evaluated in its midst counts
    epochs = max(books.begun, books.ended) if whole else books.ended
    joules, seconds, metric = books.joules, books.seconds, books.metric
    return used(ending, joules, seconds, epochs=epochs, metric=metric, next_epoch_cost=next_epoch_cost)


def _spec(told: Orders, size: int) -> JobSpec:
    """As much of a job as its launcher's environment tells."""
    target, higher, epochs, eta = told.target_metric, told.higher_is_better, told.max_epochs, told.eta
    if target is None or higher is None or epochs is None or told.job_id is None:
        raise InputError(f"job {told.job_id!r}: its store cannot be asked, and the environment says too little.")
    return JobSpec(
        job_id=told.job_id,
        job_id_prefix=told.job_id,
        batch_sizes=(size,),
        default_batch_size=size,
        eta_knob=0.5 if eta is None else eta,
        target_metric=target,
        higher_is_better_metric=higher,
        max_epochs=epochs,
    )
