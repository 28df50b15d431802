"""Where an optimizer's trials come from: the first rank opens each and hands it to all ranks.

    cards of all ranks ──▶ ask the store, or take the launcher's trial ──▶ GivenTrial ──▶ every rank

The first rank waits for the cards of the others, but not for their calls. It may be the only one that asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from zeus.client.catalog import register_job
from zeus.client.recurring import RecurringJob
from zeus.client.running import RunningTrial, launched
from zeus.cost import GPU_ONLY, CostModel, Include, included
from zeus.device.gpu import Clock
from zeus.distributed.group import RankGroup, connected_group, rank_group
from zeus.errors import InputError, ZeusError
from zeus.job import Gpus, JobSpec
from zeus.launcher_env import LauncherEnv, launcher_env
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import cards_of, counted_once, gpus_like, gpus_of, need_included, refuse_without_cpu
from zeus.store import Store
from zeus.trial.knowledge import Knowledge

log = logging.getLogger(__name__)

_serials = count(1)


@dataclass(frozen=True, slots=True)
class GivenTrial:
    """What every rank knows about the trial."""

    number: int
    batch_size: int
    spec: JobSpec
    cost: CostModel
    cost_limit: float | None
    known: Knowledge
    again: int | None  # the recurrence to try again if this trial does not reach the target
    include: Include  # whose energy its costs count


class TrialSource:
    """Opens the trials of one optimizer.

    Args:
        monitor: Measures the GPUs of this rank.
        job: The recurring job. None under `zeus run`, whose launcher has opened the trial.
        where: The store or its address. None: ZEUS_STORE, else the user's own file.
        rank: Rank of this process.
        clock: Clock for renewing the trial's lease.
        revise: Whether `job` may have another target or `include` than before.

    Raises:
        InputError: There is no job, the store cannot be used, or the energy of a CPU that counts cannot be measured.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        job: JobSpec | None,
        where: Store | str | None,
        rank: int,
        *,
        clock: Clock,
        revise: bool,
    ) -> None:
        self.orders = launcher_env()
        self.from_launcher = launched(self.orders) is not None
        if job is None and not self.from_launcher:
            raise InputError("job=None: give a JobSpec, or start this script with `zeus run`.")
        self._monitor = monitor
        self._wanted = job
        self._where = where
        self._rank = rank
        self._clock = clock
        self._revise = revise
        self._job: RecurringJob | None = None
        self.running: RunningTrial | None = None  # only on the rank that writes
        self._serial = next(_serials)  # the same on all ranks, as they make the same optimizers
        self._posted = False
        self._asked = 0
        self._post_cards()
        if job is not None and not self.from_launcher and rank_group().size == 1:
            need_included(monitor, RankGroup(), job.include)  # several ranks find out together, in `next`
        if rank == 0 and not self.from_launcher:
            self._registered()  # raises now, before any training, if the store or the job cannot be used

    @property
    def spec(self) -> JobSpec | None:
        """The job as registered, or as wanted. None under `zeus run`."""
        return self._job.spec if self._job else self._wanted

    @property
    def address(self) -> str | None:
        """The address of the store or service that was given."""
        return self._where if self._where is None or isinstance(self._where, str) else self._where.address

    def next(self, again: int | None, *, is_over: bool) -> GivenTrial:
        """The next trial, the same on every rank.

        Args:
            again: The recurrence to try again. None: begin another.
            is_over: Whether this process has ended a trial already.

        Raises:
            InputError: No batch size is left, the launcher's trial is over, or torch.distributed is not set up.
            ZeusError: The store failed.
        """
        match self._given_to_all(again, is_over):
            case GivenTrial() as given:
                return given
            case ZeusError() as failed:
                raise failed

    def _given_to_all(self, again: int | None, is_over: bool) -> GivenTrial | ZeusError:
        ranks = connected_group()
        if ranks is None or not ranks.everyone():
            if self._rank != 0:
                raise InputError(
                    f"rank={self._rank}: this rank gets its batch size from the first over torch.distributed, which is "
                    "not set up. Call init_process_group() before get_batch_size()."
                )
            return self._open(lambda: gpus_of(self._monitor, include=self._counts), again, is_over)
        self._post_cards()
        self._asked += 1
        key = f"optimizer {self._serial} trial {self._asked}"
        if ranks.rank == 0:
            ranks.post(key, self._open(lambda: self._all_cards(ranks), again, is_over))
        given: GivenTrial | ZeusError = ranks.read(key)
        return given

    def _post_cards(self) -> None:
        """Tell the other ranks which cards this one sees, as soon as there are other ranks."""
        ranks = None if self._posted else connected_group()
        if ranks is not None:
            seen = cards_of(self._monitor), self._monitor.why_no_cpu
            ranks.post(f"optimizer {self._serial} cards {ranks.rank}", seen)
            self._posted = True

    def _all_cards(self, ranks: RankGroup) -> Gpus:
        """The cards of all ranks, each once."""
        rows = [ranks.read(f"optimizer {self._serial} cards {rank}", by=rank) for rank in range(ranks.size)]
        refuse_without_cpu(self._counts, (why for _, why in rows))
        return gpus_like(self._monitor, *counted_once(cards for cards, _ in rows), self._counts)

    @property
    def _counts(self) -> Include:
        """Whose energy the job of this script counts. The launcher's trial says so itself."""
        return GPU_ONLY if self.from_launcher or self._wanted is None else self._wanted.include

    def _open(self, gpus: Callable[[], Gpus], again: int | None, is_over: bool) -> GivenTrial | ZeusError:
        """Open a trial, or return the error. Every rank must get it, so that none waits for the others."""
        try:
            return self._take(gpus(), is_over) if self.from_launcher else self._ask(gpus(), again)
        except ZeusError as why:
            return why
        except Exception as failed:
            return ZeusError(f"there is no batch size, because the store failed: {failed}")

    def _ask(self, gpus: Gpus, again: int | None) -> GivenTrial:
        job = self._registered()
        trial = job.ask(gpus, again)
        log.info("job %r, trial %s: %s", job.spec.id, trial.number, trial.decision.reason)
        limit = trial.decision.cost_limit
        self.running = RunningTrial(job.spec.id, trial.number, lambda: job, cost_limit=limit)
        self.running.hold(self._clock)
        following = None if trial.ask.last else trial.ask.recurrence
        cost = CostModel(trial.ask.eta, trial.ask.max_watts)
        known = self.running.knowledge()
        return GivenTrial(trial.number, trial.batch_size, job.spec, cost, limit, known, following, gpus.include)

    def _take(self, gpus: Gpus, is_over: bool) -> GivenTrial:
        """The launcher's trial, from its store and its environment."""
        orders = self.orders
        if is_over:
            raise InputError(f"trial {orders.trial} is over. `zeus run` starts the script again for the next one.")
        self.running = launched(orders)
        assert self.running is not None
        trial, size = self.running.trial, orders.batch_size
        if size is None:
            size = trial.batch_size if trial is not None else self._wanted.default_batch_size if self._wanted else None
        if size is None:
            raise InputError(
                f"trial {orders.trial}: its batch size is not known. Set ZEUS_BATCH_SIZE, or use `zeus run`."
            )
        spec = self.running.spec or self._wanted or _spec(orders, size)
        eta = trial.ask.eta if trial is not None else spec.eta_knob if orders.eta is None else orders.eta
        cost = CostModel(eta, trial.ask.max_watts if trial else gpus.max_watts)
        include = included(orders.include or spec.include) if trial is None else trial.ask.gpus.include
        known = self.running.knowledge()
        return GivenTrial(self.running.number, size, spec, cost, orders.cost_limit, known, None, include)

    def _registered(self) -> RecurringJob:
        if self._job is None:
            assert self._wanted is not None
            self._job = register_job(self._wanted, self._where, revise=self._revise)
        return self._job


def _spec(orders: LauncherEnv, size: int) -> JobSpec:
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
