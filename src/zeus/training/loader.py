"""`ZeusDataLoader`, the one import of Listing 1: a DataLoader that measures, profiles limits and knows when to stop."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from zeus import env
from zeus.cost import CostModel
from zeus.device.find import find
from zeus.device.gpu import Gpu
from zeus.device.ranks import own, rank
from zeus.device.virtual.machine import step
from zeus.distributed.crew import broadcast, crew
from zeus.env import Mode, Orders, orders, prices, quiet
from zeus.errors import InputError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.launched_trial import power_arguments
from zeus.optimizer.power_limit.selector import OptimumSelector
from zeus.profile import Profiles
from zeus.training.script_trial import ScriptTrial, open_report
from zeus.training.session import Session
from zeus.training.summary import Summary, sentence

log = logging.getLogger(__name__)


class ZeusDataLoader(DataLoader[Any]):
    """A DataLoader for training (with `max_epochs`) or for evaluation (without).

    The training loader profiles power limits in its first steps and keeps the best, counts time and energy from the
    first epoch to the report that reaches the target, and ends `epochs()` at the target, at `max_epochs`, or when the
    next epoch is predicted to exceed the launcher's cost limit.

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
        batch_size: As for DataLoader; under `zeus run` ZEUS_BATCH_SIZE takes its place in the training loader.
        max_epochs: At most so many epochs; None for an evaluation loader.
        target_metric: Training ends when it is reached; None: train for max_epochs.
        higher_is_better: Whether the metric should go up.
        mode: "optimize", "observe" or "off"; default: ZEUS_MODE.
        eta: η of Equation 2; default: ZEUS_ETA_KNOB, or 0.5.
        optimum_selector: What the best limit is; default: Equation 7 with this η.
        profiles: Where profiles are kept between runs; default: only for jobs that have an id.
        distributed: None, or "dp" where one process trains on all GPUs and each gets its share of a batch.
        dataloader_keywords: Everything that DataLoader takes.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        max_epochs: int | None = None,
        target_metric: float | None = None,
        *,
        higher_is_better: bool = True,
        mode: str | Mode | None = None,
        eta: float | None = None,
        optimum_selector: OptimumSelector | None = None,
        profiles: Profiles | None = None,
        distributed: str | None = None,
        **dataloader_keywords: Any,
    ) -> None:
        if isinstance(max_epochs, bool):
            raise InputError(
                f"max_epochs={max_epochs}: the third argument is the number of epochs. Give shuffle by name: "
                f"ZeusDataLoader(..., shuffle={max_epochs})."
            )
        if distributed not in (None, "dp"):
            raise InputError(f"distributed={distributed!r}: give None or 'dp'; DDP and FSDP need no word.")
        told = orders()
        is_training = max_epochs is not None and max_epochs != -1
        has_sampler = dataloader_keywords.get("batch_sampler") is not None
        if is_training and told.batch_size is not None and not has_sampler and batch_size is not None:
            if batch_size != told.batch_size:
                log.info("ZEUS_BATCH_SIZE=%s takes the place of the script's %s", told.batch_size, batch_size)
            batch_size = told.batch_size
        if has_sampler:
            batch_size = 1  # DataLoader's own rule: the sampler decides
        super().__init__(dataset, batch_size=batch_size, **dataloader_keywords)
        self._zeus_session: Session | None = None
        self._zeus_virtual = _working_gpus()
        shares = len(self._zeus_virtual) if distributed == "dp" else 1
        self._zeus_step = max(1, -(-self._samples_per_step() // max(1, shares)))  # on each card
        if max_epochs is not None and is_training:
            self._zeus_monitor = ZeusMonitor()
            self._zeus_session = self._session(
                told, max_epochs, target_metric, higher_is_better, mode, eta, optimum_selector, profiles
            )

    def _session(
        self,
        told: Orders,
        max_epochs: int,
        target_metric: float | None,
        higher_is_better: bool,
        mode: str | Mode | None,
        eta: float | None,
        selector: OptimumSelector | None,
        profiles: Profiles | None,
    ) -> Session:
        eta = told.eta if told.eta is not None else 0.5 if eta is None else eta
        ranks = crew()
        report = open_report(told)
        terms = report.terms if report is not None else None
        arguments = power_arguments(
            told, self._zeus_monitor, ranks, report, batch_size=self._samples_per_step(), eta=eta
        )
        given = {"optimum_selector": selector, "profiles": profiles}
        arguments |= {name: value for name, value in given.items() if value is not None}
        optimizer = GlobalPowerLimitOptimizer(self._zeus_monitor, mode=mode, **arguments)
        if terms is not None:
            higher_is_better = terms.higher_is_better
        elif told.higher_is_better is not None:
            higher_is_better = told.higher_is_better
        watts = optimizer.max_watts if terms is None else terms.max_watts
        return Session(
            self._zeus_monitor,
            optimizer,
            CostModel(eta, watts) if watts > 0 else None,
            max_epochs=told.max_epochs or max_epochs,
            batch_size=self._samples_per_step(),
            target_metric=told.target_metric if told.target_metric is not None else target_metric,
            higher_is_better=higher_is_better,
            cost_limit=told.cost_limit,
            **({} if report is None else _told_to(report)),
            steps_per_epoch=None if report is None and told.cost_limit is None else self._steps_per_epoch(),
            prices=prices(),
            crew=ranks,
            first=broadcast,
        )

    # ------------------------------------------------------------------ Listing 1

    def epochs(self) -> Iterator[int]:
        """The epochs to train for; it may end early."""
        session = self._training("epochs()")
        try:
            yield from session.epochs()
        finally:
            if not quiet() and env.global_rank() == "0":
                with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full or none at all
                    sys.stderr.write(f"zeus: {sentence(session.summary)}\n")

    def __iter__(self) -> Any:
        """The batches; a step lasts from one batch to the next."""
        batches = super().__iter__()
        session, size, gpus = self._zeus_session, self._zeus_step, self._zeus_virtual
        if session is None:
            return self._evaluate(batches, gpus, size) if gpus else batches
        return self._train(batches, session, size)

    def _train(self, batches: Iterator[Any], session: Session, size: int) -> Iterator[Any]:
        this = session.begin_steps()
        try:
            for batch in batches:
                yield batch
                self._zeus_monitor.report_step(size)
                if not session.step_end():
                    break  # the rest of this epoch costs more than the trial is worth
        finally:
            session.end_steps(this)

    def _evaluate(self, batches: Iterator[Any], gpus: list[Gpu], size: int) -> Iterator[Any]:
        for batch in batches:
            yield batch
            step(gpus, size)

    def report_metric(self, metric: float, higher_is_better: bool | None = None) -> None:
        """Tell the validation metric of this epoch."""
        value = metric.detach() if hasattr(metric, "detach") else metric  # a tensor that still remembers its gradient
        self._training("report_metric()").report_metric(float(value), higher_is_better)

    @property
    def summary(self) -> Summary:
        """Joules, seconds, cost, limit and saving of the run so far."""
        return self._training("summary").summary

    def _training(self, what: str) -> Session:
        if self._zeus_session is None:
            raise InputError(f"{what} is the training loader's: make it with max_epochs.")
        return self._zeus_session

    def _steps_per_epoch(self) -> int | None:
        try:
            return len(self)
        except Exception:  # an iterable dataset or a sampler need not know its length, and says so in any way
            return None

    def _samples_per_step(self) -> int:
        return self.batch_size or getattr(self.batch_sampler, "batch_size", None) or 1


def _working_gpus() -> list[Gpu]:
    """The virtual cards that a step of this process works on; empty where cards are real and need no telling."""
    return own(list(find().values()), rank()) if env.is_virtual() else []


def _told_to(report: ScriptTrial) -> dict[str, Any]:
    """What a session hears from a launcher's trial, and tells it."""
    return {
        "keep_going": report.keep_going,
        "tell_epoch": report.tell_epoch,
        "over": report.over,
        "known": report.known,
    }
