"""Runs the recurrences of a job file on this machine: check everything, register the job, run it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from zeus import settings
from zeus.client.catalog import open_jobs
from zeus.client.recurring import RecurringJob
from zeus.cost import ZERO, CostModel
from zeus.device.find import find
from zeus.device.keeper.notes import near
from zeus.device.virtual.watched import load_name, notice
from zeus.errors import AlreadyDone, InputError, LaunchError, NotAllowed, NotKnown, ZeusError
from zeus.job import Ending, Outcome, Trial, replace
from zeus.launch.crash_cause import Crash, is_scripts_own
from zeus.launch.epoch_limits import STEP_WATTS
from zeus.launch.job_file.values import AUTO, JobFile, trial_seed
from zeus.launch.log_sender import LogSender
from zeus.launch.preflight import check_command, check_sizes, lock_metrics, revision
from zeus.launch.progress import FinishedTrial, Live, Restart
from zeus.launch.recurrence import FULL_MISSES, LaunchedRecurrence, recur
from zeus.launch.script import ScriptRunner
from zeus.launch.start import Start, accumulated, environ_of
from zeus.launch.watch import Watcher
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import gpus_of
from zeus.optimizer.power_limit.candidates import candidates
from zeus.profile import PowerProfile, ProfileKey
from zeus.settings import Mode, mode, profiling_plan
from zeus.store import Store
from zeus.store.address import log_file, log_folder
from zeus.tariff.settings import prices
from zeus.training.micro_batch import BatchSplit, smaller

log = logging.getLogger(__name__)

WINDOW = "zeus: start"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a launcher."""

    on_trial: Callable[[Trial, FinishedTrial | None], None] = lambda trial, ran: None  # opened (no `ran`), or ended
    on_live: Callable[[Live], None] = lambda live: None
    on_restart: Callable[[Restart], None] = lambda restart: None


class Launcher:
    """Runs one job file. Everything is checked before anything is registered, set or started.

    Args:
        file: The job file.
        hooks: Called as trials go on.
        store: A store, or the address of a store or service. Default: ZEUS_STORE, else the user's own file.
        grace: How many seconds a command has to end by itself. Default: 10.
        revise: Continue the job even if its command or target has changed.
        dry: Make no folder for logs, because nothing is going to be run.

    Raises:
        InputError: A GPU, a power limit, the CPU's energy or the command of the file is not available here.
    """

    def __init__(
        self,
        file: JobFile,
        hooks: Hooks | None = None,
        store: Store | str | None = None,
        grace: float | None = None,
        revise: bool = False,
        dry: bool = False,
    ) -> None:
        self.file = file
        self._grace = settings.time_limits().grace if grace is None else grace
        self._hooks = hooks or Hooks()
        self.mode = mode(given=file.mode)
        self._profiling = profiling_plan(given=file.profiling)
        # A mistake in them must not come up in the middle of a run, where it looks like a crash.
        rates = prices({**settings.HERE, **file.prices})
        self.devices = find(file.gpus)
        self._monitor = ZeusMonitor(list(self.devices), sync_execution_with=None, prices=rates)
        nodes = settings.nodes()
        file.check_nodes(nodes)
        self.gpus = gpus_of(self._monitor, include=file.spec.include).on_nodes(nodes)
        if file.metrics is None and file.micro_batch_size != AUTO:
            self._monitor.close()  # the script measures itself
        # Raises if a limit is out of range.
        self.power_limits = candidates(list(self.devices.values()), STEP_WATTS, file.spec.power_limits)
        if file.metrics is not None and (load := load_name(self.devices.values())):
            log.warning("%s", notice(load, "batch size of the trial"))
        check_command(file)
        check_sizes(file, self.gpus.count)
        self._metrics_lock = (
            lock_metrics(Path(file.metrics.file)) if file.metrics is not None and file.metrics.file else None
        )
        self.jobs = open_jobs(store)
        # With mode "off", each recurrence is one trial of the default size, as it is without Zeus.
        is_off = self.mode is Mode.OFF
        self._spec = replace(file.spec, baseline_every=1) if is_off else file.spec
        self.max_tries = 1 if is_off else file.max_tries
        self.revision = self._revision(revise)  # what registering changes, as text; empty: nothing
        self.job = RecurringJob.register(self.jobs, self._spec, void=revise)
        if not dry:
            _make(self.logs)
        self.ran: dict[int, FinishedTrial] = {}
        self._worked_here: set[int] = set()  # batch sizes that completed an epoch in this run
        self._fitting: int | None = None  # samples on each GPU that fit, once that was found out
        self.owed = ZERO  # by profiling before the first run, which is charged with it
        self.excused: set[int] = set()  # trials whose crash the store does not hold against their batch size

    def _revision(self, revise: bool) -> str:
        try:
            stored = self.jobs.find(self.file.spec.id).spec
        except ZeusError:  # the job is new, or the store does not answer
            return ""
        return revision(stored, self._spec, allowed=revise)

    @property
    def logs(self) -> Path:
        """Folder of the job's logs since it was made or last reset."""
        return log_folder(self.file.spec.id, self.job.life)

    @property
    def cost(self) -> CostModel:
        return CostModel(self.job.spec.eta_knob, self.gpus.max_watts)

    def recur(self, key: str | None = None) -> LaunchedRecurrence:
        """Run one recurrence, or continue the one that an interrupted run began with this key."""
        tried: list[Trial] = []
        earlier = set() if key is None else self._opened()

        def changed(trial: Trial) -> None:
            self._hooks.on_trial(trial, self.ran.get(trial.number))
            if trial.ending is not Ending.OPEN:
                tried.append(trial)
                self._doubt_target(tried)
                self._blame(tried)

        try:
            recurrence = recur(
                self.job,
                self.gpus,
                self._run,
                max_tries=self.max_tries,
                on_change=changed,
                key=key,
                earlier=earlier,
                ever_converged=self._ever_converged,
            )
            if len(recurrence.tries) >= self.max_tries:
                self._blame(tried, nothing_left=True)
            return recurrence
        except (AlreadyDone, NotAllowed, NotKnown):  # the store refuses to go on; there may be sizes left
            raise
        except InputError:
            self._blame(tried, nothing_left=True)
            raise

    def _blame(self, tried: Sequence[Trial], nothing_left: bool = False) -> None:
        """Stop if the script crashes at every batch size. The crashes are then not held against the sizes.

        Raises:
            LaunchError: The script itself is at fault.
        """
        if any(one.ending is not Ending.CRASHED or one.number not in self.ran for one in tried):
            return
        crashes = [_crash(one.batch_size, self.ran[one.number]) for one in tried]
        if not is_scripts_own(crashes, (), nothing_left=nothing_left):  # avoids asking the store for the job's past
            return
        job_id = self.job.spec.id
        if not is_scripts_own(crashes, self._worked(), nothing_left=nothing_left):
            return
        try:
            numbers = [one.number for one in tried]
            self.job.excuse(numbers)
            self.excused.update(numbers)
            now = "Fix it and run it again: no batch size was ruled out."
        except ZeusError as refused:
            now = (
                f"Fix it, then allow the batch sizes again with `zeus jobs reset {job_id} --batch-size N`. The store "
                f"did not record that they are not at fault: {refused}"
            )
        last = self.ran[tried[-1].number]
        raise LaunchError(
            f"job {job_id!r}: the command crashed before its first epoch at every batch size tried, "
            f"{[one.batch_size for one in crashes]}, and did not run out of memory. The command itself fails. {now} "
            f"Its output is in {last.log}."
        )

    def _doubt_target(self, tried: Sequence[Trial]) -> None:
        """Warn if the last of these trials of a recurrence says that the target may be wrong."""
        spec, last = self.job.spec, tried[-1]
        if last.number not in self.ran or last.outcome is None:
            return
        metric, at_once = last.outcome.metric, last.ending is Ending.CONVERGED and last.outcome.epochs <= 1
        if at_once and metric is not None and self._is_first_metric(last):
            log.warning(
                "job %r: the first metric that was ever reported, %g, already reaches the target (metric %s), so the "
                "training ended after its first epoch. higher_is_better is %s: if that is wrong, set it to %s. "
                "Otherwise check target_metric, and where the metric is read from.",
                spec.id,
                metric,
                spec.target,
                str(spec.higher_is_better_metric).lower(),
                str(not spec.higher_is_better_metric).lower(),
            )
        misses = [one.batch_size for one in tried if one.ending is Ending.NOT_CONVERGED]
        is_default = last.ending is Ending.NOT_CONVERGED and last.batch_size == spec.default_batch_size
        if is_default and misses.count(last.batch_size) == 1 and not self._ever_converged():
            log.warning(
                "job %r: the default batch size %d missed the target (metric %s): its last metric was %s. No trial of "
                "this job has reached it yet. A recurrence runs at most %d such trials until one does. Check "
                "target_metric, higher_is_better and max_epochs.",
                spec.id,
                last.batch_size,
                spec.target,
                "not reported" if last.outcome.metric is None else f"{last.outcome.metric:g}",
                FULL_MISSES,
            )

    def to_profile_first(self) -> list[int]:
        """The batch sizes to profile before the first run of a new job; none if the store does not answer."""
        spec = self.job.spec
        try:
            if spec.start == "default" or self.mode is Mode.OFF or self.jobs.full(spec.id)["tries"]:
                return []
            return [size for size in spec.first_sizes if self.profile(size) is None]
        except ZeusError:
            return []

    def _is_first_metric(self, trial: Trial) -> bool:
        """Whether no other trial of the job has reported a metric. False if the store does not answer."""
        try:
            others = [one for one in self.jobs.trials(self.job.spec.id) if one["number"] != trial.number]
        except ZeusError:
            return False
        return all(one["metric"] is None for one in others)

    def _ever_converged(self) -> bool:
        """Whether a trial of the job has reached the target. True if the store does not answer."""
        try:
            return any(one["ending"] == Ending.CONVERGED for one in self.jobs.trials(self.job.spec.id))
        except ZeusError:
            return True

    def _opened(self) -> set[int]:
        """The numbers of all trials until now; none if the store does not answer, because then none is continued."""
        try:
            return {one["number"] for one in self.jobs.trials(self.job.spec.id)}
        except ZeusError:
            return set()

    def _worked(self) -> set[int]:
        """Batch sizes that ever completed an epoch: of the job, or of this run alone if the job cannot be read.

        A size that only an unread past knows to work is then missing. That may excuse the crash of a size that is at
        fault, which costs one more crash; the other mistake would rule out good sizes for a fault of the script.
        """
        try:
            return {one["batch_size"] for one in self.jobs.trials(self.job.spec.id) if one["epochs"]}
        except ZeusError:
            return self._worked_here

    def profile(self, batch_size: int) -> PowerProfile | None:
        """The stored power profile of this batch size on these GPUs."""
        return self.job.get(ProfileKey(self.job.spec.id, batch_size, self.gpus.kind, self.gpus.count))

    def close(self) -> None:
        if self._metrics_lock is not None:
            self._metrics_lock.release()
        self._monitor.close()
        self.jobs.close()

    def _run(self, trial: Trial) -> Outcome:
        if self.mode is Mode.OFF and trial.batch_size != self._spec.default_batch_size:
            raise LaunchError(
                f"job {self._spec.id!r}: another `zeus run` has switched Zeus on for this job meanwhile, so its next "
                f"trial would run batch size {trial.batch_size}. Nothing was run. Start this one again."
            )
        log = log_file(_make(self.logs), trial.number, trial.id)
        seed = trial_seed(self.job.spec.mab_seed, trial.number)
        sender = LogSender(self.job, trial.number, log)
        crashed = True
        try:
            ran = self._until_it_fits(trial, seed, log)
            crashed = ran.outcome.ending is Ending.CRASHED
        finally:
            sender.end(crashed=crashed)
        if self.file.metrics is None and self.mode is Mode.OPTIMIZE and (profile := self.profile(trial.batch_size)):
            best = profile.best_limit(self.cost)
            read = [one.limit_watts for one in ran.outcome.stretches if one.limit_watts is not None]
            ran = replace(ran, limit_watts=best if any(near(watts, best) for watts in read) else None)
        self.ran[trial.number] = ran
        if ran.outcome.epochs:
            self._worked_here.add(trial.batch_size)
        return ran.outcome

    def _until_it_fits(self, trial: Trial, seed: int, log: Path) -> FinishedTrial:
        """Run the command, and again with smaller batches as long as it runs out of memory."""
        start, number = replace(self._first(trial), before=self.owed), trial.number
        if self.owed.seconds:
            self.owed = ZERO
            self._renew(trial, start)
        while True:
            command, environ = self.command(trial.batch_size, seed, start), self.environ(trial, seed, log, start)
            if self.file.micro_batch_size != AUTO:
                return self._runner(trial, start).run(trial, command, environ, log)
            self._monitor.begin_window(WINDOW, sync_execution=False, restart=True)
            try:
                ran = self._runner(trial, start).run(trial, command, environ, log)
            finally:
                window = self._monitor.end_window(WINDOW, sync_execution=False, cancel=True)
            micro = self.next_micro(trial.batch_size, start, ran)
            if micro is None or self.job.trial(number).ended is not None:
                return ran
            used, failed = window.use(self.gpus.include), self._split(trial.batch_size, start)
            start = Start(micro, start.before + used)
            split = self._renew(trial, start)
            assert failed is not None and split is not None
            self._hooks.on_restart(Restart(trial, failed.per_device, used, split))

    def _renew(self, trial: Trial, start: Start) -> BatchSplit | None:
        """Store what the trial has used before this start. Returns how its batches are split."""
        split = self._split(trial.batch_size, start)
        with contextlib.suppress(Exception):  # a store that is away: this run goes on with what it knows
            self.job.renew(trial.number, start.so_far(split))
        return split

    def _first(self, trial: Trial) -> Start:
        micro = self.file.micro_batch_size
        if isinstance(micro, int):
            return Start(micro)
        if self._fitting is None:
            with contextlib.suppress(Exception):  # if the store is away, the run finds out by itself
                self._fitting = self.job.knowledge(trial).micro_batch_size
        return self.first_start

    @property
    def first_start(self) -> Start:
        """The start of a trial, as far as this run knows what fits in memory."""
        micro = self.file.micro_batch_size
        return Start(micro if isinstance(micro, int) else self._fitting or 0)

    def next_micro(self, batch_size: int, start: Start, ran: FinishedTrial) -> int | None:
        """How many samples each GPU gets at once after a start that ran out of memory; None: do not start again."""
        split = self._split(batch_size, start)
        if self.file.micro_batch_size != AUTO or split is None or ran.outcome.ending is not Ending.CRASHED:
            return None
        if not _crash(batch_size, ran).for_want_of_memory:
            return None
        less = smaller(split.per_device)
        self._fitting = less or self._fitting
        return less

    def _split(self, batch_size: int, start: Start) -> BatchSplit | None:
        return start.split(self.file, batch_size, self.gpus.count)

    def command(self, batch_size: int, seed: int, start: Start) -> list[str]:
        return self.file.arguments(batch_size, seed, self.gpus.count, start.micro)

    def _runner(self, trial: Trial, start: Start) -> ScriptRunner | Watcher:
        if self.file.metrics is None:
            return ScriptRunner(job=self.job, on_live=self._hooks.on_live)
        return Watcher(
            job=self.job,
            monitor=self._monitor,
            metrics=self.file.metrics,
            mode=self.mode,
            profiling=self._profiling,
            on_live=self._hooks.on_live,
            grace=self._grace,
            before=start.before,
            micro_batch_size=accumulated(self._split(trial.batch_size, start)),
        )

    def environ(
        self, trial: Trial, seed: int, log: Path, start: Start, profile_dir: str | None = None
    ) -> dict[str, str]:
        """The environment of one start of a trial. Never log it: it may hold secrets."""
        return environ_of(
            self.file,
            self.job.spec,
            trial,
            start,
            seed=seed,
            log=log,
            mode=self.mode,
            profiling=self._profiling,
            gpus=self.devices,
            count=self.gpus.count,
            profile_dir=profile_dir,
        )


def _crash(batch_size: int, ran: FinishedTrial) -> Crash:
    return Crash(batch_size, ran.outcome.epochs, ran.exit_code, ran.end_of_output)


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise InputError(
            f"the log folder {folder} cannot be made: {failed.strerror}. Set ZEUS_LOG_DIR to another folder."
        ) from failed
    return folder
