"""`ZeusDataLoader` of Listing 1: a DataLoader that measures energy, profiles power limits and decides when to stop."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from zeus import settings
from zeus.cost import CostModel
from zeus.device.find import find
from zeus.device.gpu import Gpu
from zeus.device.ranks import own, rank
from zeus.device.virtual.machine import step
from zeus.distributed.group import rank_group
from zeus.errors import InputError
from zeus.launcher_env import LauncherEnv, launcher_env
from zeus.monitor import ZeusMonitor
from zeus.optimizer.launched_trial import LaunchedTrial, launched_trial
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.profile_files import default_profiles
from zeus.optimizer.power_limit.selector import OptimumSelector, ZeusCost
from zeus.profile import ProfileKey, Profiles
from zeus.settings import Mode, ProfilingPlan
from zeus.training.micro_batch import split
from zeus.training.session import Session
from zeus.training.summary import Summary, print_summary
from zeus.trial.engine import Terms

log = logging.getLogger(__name__)


class ZeusDataLoader(DataLoader[Any]):
    """A DataLoader for training (with `max_epochs`) or for evaluation (without).

    The training loader profiles power limits in its first steps and keeps the best. It measures time and energy from
    the first epoch to the metric that reaches the target. `epochs()` ends at the target, after `max_epochs`, or when
    the next epoch is predicted to exceed the launcher's cost limit.

        train_loader = ZeusDataLoader(train_set, batch_size, max_epochs, target_metric)
        eval_loader = ZeusDataLoader(eval_set, batch_size)

        for epoch in train_loader.epochs():
            for batch in train_loader:
                ...                                  # learn from batch
            for batch in eval_loader:
                ...                                  # evaluate on batch
            train_loader.report_metric(metric)

    Args:
        dataset: As for DataLoader.
        batch_size: As for DataLoader. Under `zeus run`, the training loader uses this rank's part of ZEUS_BATCH_SIZE
            instead. If the job has a `micro_batch_size`, `accumulation_steps` batches make one step.
        max_epochs: Most epochs to train for. None makes an evaluation loader.
        target_metric: Training ends when the metric reaches it. None: train for max_epochs.
        higher_is_better: Whether a higher metric is better.
        mode: "optimize", "observe" or "off". Default: ZEUS_MODE.
        profiling: "walk" or "paper", as in `GlobalPowerLimitOptimizer`. Default: ZEUS_PROFILING, else "walk".
        eta: η of Equation 2. ZEUS_ETA_KNOB replaces it. Default: 0.5.
        optimum_selector: Chooses the best limit. Default: Equation 7 with this η.
        profiles: Where power profiles are kept between runs. Default: kept only for jobs that have an id.
        include: Whose energy the cost counts: ["gpu"], or ["gpu", "cpu"] for the CPU and its memory too.
            ZEUS_COST_INCLUDE replaces it. Default: ["gpu"].
        distributed: None, or "dp" if one process trains on all GPUs and each gets a share of the batch.
        dataloader_keywords: All other arguments of DataLoader.

    Raises:
        InputError: An argument is not valid, or the energy of a CPU that counts cannot be measured.
    """

    reports_steps = True  # to virtual GPUs: whoever iterates over it must not do so again

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        max_epochs: int | None = None,
        target_metric: float | None = None,
        *,
        higher_is_better: bool = True,
        mode: str | Mode | None = None,
        profiling: str | ProfilingPlan | None = None,
        eta: float | None = None,
        optimum_selector: OptimumSelector | None = None,
        profiles: Profiles | None = None,
        include: Iterable[str] | None = None,
        distributed: str | None = None,
        **dataloader_keywords: Any,
    ) -> None:
        if isinstance(max_epochs, bool):
            raise InputError(
                f"max_epochs={max_epochs}: the third argument is the number of epochs. Give shuffle by name: "
                f"ZeusDataLoader(..., shuffle={max_epochs})."
            )
        if distributed not in (None, "dp"):
            raise InputError(
                f"distributed={distributed!r}: give 'dp' for DataParallel, else None (also for DDP and FSDP)."
            )
        order = launcher_env()
        is_training = max_epochs is not None and max_epochs != -1
        self._zeus_accumulation = (order.accumulation_steps or 1) if is_training else 1
        has_sampler = dataloader_keywords.get("batch_sampler") is not None
        if is_training and order.batch_size is not None and not has_sampler and batch_size is not None:
            share = split(order.batch_size, rank_group().size * self._zeus_accumulation).per_device
            if batch_size != share:
                log.info(
                    "ZEUS_BATCH_SIZE=%s replaces the script's batch size %s: %s", order.batch_size, batch_size, share
                )
            batch_size = share
        if has_sampler:
            batch_size = 1  # what DataLoader demands beside a batch_sampler
        super().__init__(dataset, batch_size=batch_size, **dataloader_keywords)
        self._zeus_session: Session | None = None
        self._zeus_virtual = _working_gpus()
        shares = len(self._zeus_virtual) if distributed == "dp" else 1
        self._zeus_step = max(1, -(-self._samples_per_step() // max(1, shares)))  # samples on each GPU
        if max_epochs is not None and is_training:
            self._zeus_monitor = ZeusMonitor()
            eta = order.eta if order.eta is not None else 0.5 if eta is None else eta
            trial = launched_trial(order)
            optimizer = GlobalPowerLimitOptimizer(
                self._zeus_monitor,
                optimum_selector or ZeusCost(eta),
                mode=mode,
                profiling=profiling,
                profiles=profiles or trial or (None if order.job_id is None else default_profiles()),
                key=ProfileKey(order.job_id or "", order.batch_size or self._samples_per_step(), "", 0),
                include=include,
                group=rank_group(),
            )
            terms = self._terms(order, trial, optimizer, eta, max_epochs, target_metric, higher_is_better)
            self._zeus_session = Session(optimizer, terms, trial, group=rank_group())

    def _terms(
        self,
        order: LauncherEnv,
        trial: LaunchedTrial | None,
        optimizer: GlobalPowerLimitOptimizer,
        eta: float,
        max_epochs: int,
        target_metric: float | None,
        higher_is_better: bool,
    ) -> Terms:
        """The terms of the run. What the launcher says goes before the script's own arguments."""
        watts = optimizer.max_watts
        if trial is not None and trial.spec is not None and trial.trial is not None:
            higher_is_better, watts = trial.spec.higher_is_better_metric, trial.trial.ask.max_watts
        elif order.higher_is_better is not None:
            higher_is_better = order.higher_is_better
        return Terms(
            target_metric=order.target_metric if order.target_metric is not None else target_metric,
            higher_is_better=higher_is_better,
            max_epochs=order.max_epochs or max_epochs,
            cost=CostModel(eta, watts) if watts > 0 else None,
            cost_limit=order.cost_limit,
            batch_size=optimizer.key.batch_size,
            steps_per_epoch=None if trial is None and order.cost_limit is None else self._steps_per_epoch(),
        )

    # ------------------------------------------------------------------ Listing 1

    def epochs(self, done: int = 0) -> Iterator[int]:
        """Iterate over the epochs to train for. It may end before max_epochs.

        Args:
            done: Finished epochs in the checkpoint that the script has loaded, if any. Epochs count on from there. If
                the trial of `zeus run` was started before, what it has used is charged, whatever `done` is.

        Raises:
            InputError: This is an evaluation loader, its epochs were used already, or `done` is not valid.
        """
        session = self._training("epochs()")
        epochs = session.epochs(done)  # raises for a second use, whose summary would be that of the first
        try:
            yield from epochs
        finally:
            print_summary(session.summary)

    def __iter__(self) -> Any:
        """Iterate over the batches. A step lasts from one batch to the next."""
        batches = super().__iter__()
        session, size, gpus = self._zeus_session, self._zeus_step, self._zeus_virtual
        if session is None:
            return self._evaluate(batches, gpus, size) if gpus else batches
        return self._train(batches, session, size)

    def _train(self, batches: Iterator[Any], session: Session, size: int) -> Iterator[Any]:
        this, pending = session.begin_steps(), 0
        try:
            for batch in batches:
                yield batch
                self._zeus_monitor.report_step(size)
                pending = (pending + 1) % self._zeus_accumulation
                if not pending and not session.step_end():
                    break  # the rest of this epoch would exceed the cost limit
            if pending:
                session.step_end()  # the last step of an epoch may have fewer batches
        finally:
            session.end_steps(this)

    def _evaluate(self, batches: Iterator[Any], gpus: list[Gpu], size: int) -> Iterator[Any]:
        for batch in batches:
            yield batch
            step(gpus, size)

    @property
    def accumulation_steps(self) -> int:
        """How many batches of this loader make one update of the weights: 1, unless `zeus run` splits batches.

        Divide the loss by it, and update the weights after so many batches and at the end of an epoch.
        """
        return self._zeus_accumulation

    def report_metric(self, metric: float, higher_is_better: bool | None = None) -> None:
        """Report the validation metric of this epoch.

        Args:
            metric: The metric, a number or a tensor of one.
            higher_is_better: Overrides the argument of the loader.

        Raises:
            InputError: This is an evaluation loader.
        """
        self._training("report_metric()").report_metric(metric, higher_is_better)

    @property
    def summary(self) -> Summary:
        """Joules, seconds, cost, limit and saving of the run so far. Raises InputError in an evaluation loader."""
        return self._training("summary").summary

    def _training(self, what: str) -> Session:
        if self._zeus_session is None:
            raise InputError(f"{what} needs a training loader: give ZeusDataLoader a max_epochs.")
        return self._zeus_session

    def _steps_per_epoch(self) -> int | None:
        try:
            return -(-len(self) // self._zeus_accumulation)
        except Exception:  # an iterable dataset or a sampler may have no length, and may raise anything
            return None

    def _samples_per_step(self) -> int:
        return self.batch_size or getattr(self.batch_sampler, "batch_size", None) or 1


def _working_gpus() -> list[Gpu]:
    """The virtual GPUs that a step of this process runs on. Empty for real GPUs, which need no report of steps."""
    return own(list(find().values()), rank()) if settings.is_virtual() else []
