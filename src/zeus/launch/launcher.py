"""Runs the recurrences of a job file on this machine: check everything, register the job, run it."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from zeus import settings
from zeus.client.catalog import open_jobs
from zeus.client.recurring import RecurringJob
from zeus.cost import ZERO, CostModel
from zeus.device.find import find
from zeus.device.keeper.notes import near
from zeus.device.virtual.machine import passed_on
from zeus.device.virtual.watched import load_name, notice
from zeus.errors import AlreadyDone, InputError, LaunchError, NotAllowed, NotKnown, ZeusError
from zeus.job import Ending, Outcome, Phase, Trial, replace
from zeus.launch.diagnosis import Diagnosis
from zeus.launch.epoch_limits import STEP_WATTS
from zeus.launch.job_file.values import AUTO, JobFile, trial_seed
from zeus.launch.log_sender import LogSender
from zeus.launch.preflight import check_command, check_sizes, lock_metrics, revision
from zeus.launch.progress import FinishedTrial, Restart, RunView
from zeus.launch.recurrence import LaunchedRecurrence, recur
from zeus.launch.script import ScriptRunner, outcome_file
from zeus.launch.start import OF_A_LAUNCHER, Start, accumulated, mask
from zeus.launch.watch import Watcher
from zeus.launcher_env import LauncherEnv
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


class Launcher:
    """Runs one job file. Everything is checked before anything is registered, set or started.

    Args:
        file: The job file.
        view: Is told how the trials go.
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
        view: RunView | None = None,
        store: Store | str | None = None,
        grace: float | None = None,
        revise: bool = False,
        dry: bool = False,
    ) -> None:
        self.file = file
        self._grace = settings.time_limits().grace if grace is None else grace
        self._view = view or RunView()
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
        self.trials: dict[int, Trial] = {}  # of this run, by the number that they began with
        self.ran: dict[int, FinishedTrial] = {}
        self.diagnosis = Diagnosis(self.jobs, self.job, self.ran)
        self._fitting: int | None = None  # samples on each GPU that fit, once that was found out
        self.owed = ZERO  # by profiling before the first run, which is charged with it

    def _revision(self, revise: bool) -> str:
        try:
            stored = self.jobs.find(self.file.spec.id).spec
        except ZeusError:  # the job is new, or the store does not answer
            return ""
        return revision(stored, self._spec, allowed=revise)

    @property
    def logs(self) -> Path:
        """Folder of the job's logs since it was made or last reset."""
        return log_folder(self.file.spec.id, self.job.generation)

    @property
    def cost(self) -> CostModel:
        return CostModel(self.job.spec.eta_knob, self.gpus.max_watts)

    def recur(self, key: str | None = None) -> LaunchedRecurrence:
        """Run one recurrence, or continue the one that an interrupted run began with this key."""
        tried: list[Trial] = []
        earlier = set() if key is None else self.diagnosis.opened()

        def changed(trial: Trial) -> None:
            self.trials[trial.number] = trial
            self._view.trial(trial, self.ran.get(trial.number))
            if trial.ending is not Ending.OPEN:
                tried.append(trial)
                self.diagnosis.after(tried)

        try:
            recurrence = recur(
                self.job,
                self.gpus,
                self._run,
                max_tries=self.max_tries,
                on_change=changed,
                key=key,
                earlier=earlier,
                ever_converged=self.diagnosis.ever_converged,
            )
            if len(recurrence.tries) >= self.max_tries:
                self.diagnosis.blame(tried, nothing_left=True)
            return recurrence
        except (AlreadyDone, NotAllowed, NotKnown):  # the store refuses to go on; there may be sizes left
            raise
        except InputError:
            self.diagnosis.blame(tried, nothing_left=True)
            raise

    def to_profile_first(self) -> list[int]:
        """The batch sizes to profile before the first run of a new job; none if the store does not answer."""
        spec = self.job.spec
        try:
            if spec.start == "default" or self.mode is Mode.OFF or self.jobs.trials(spec.id, newest=1):
                return []
            return [size for size in spec.first_sizes if self.profile(size) is None]
        except ZeusError:
            return []

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
        sender = LogSender(self.job, trial.number, log)
        crashed = True
        try:
            ran = self._until_it_fits(trial, log)
            crashed = ran.outcome.ending is Ending.CRASHED
        finally:
            sender.end(crashed=crashed)
        if self.file.metrics is None and self.mode is Mode.OPTIMIZE and (profile := self.profile(trial.batch_size)):
            best = profile.best_limit(self.cost)
            read = [one.limit_watts for one in ran.outcome.stretches if one.limit_watts is not None]
            ran = replace(ran, limit_watts=best if any(near(watts, best) for watts in read) else None)
        self.ran[trial.number] = ran
        return ran.outcome

    def _until_it_fits(self, trial: Trial, log: Path) -> FinishedTrial:
        """Run the command, and again with smaller batches as long as it runs out of memory."""
        if self.file.micro_batch_size == AUTO and self._fitting is None:
            with contextlib.suppress(Exception):  # if the store is away, the run finds out by itself
                self._fitting = self.job.knowledge(trial).micro_batch_size
        start = self.first_start(trial)
        if self.owed.seconds:
            start, self.owed = replace(start, before=self.owed), ZERO
            self._renew(start)
        while True:
            if self.file.micro_batch_size != AUTO:
                return self._once(start, log)
            self._monitor.begin_window(WINDOW, sync_execution=False, restart=True)
            try:
                ran = self._once(start, log)
            finally:
                window = self._monitor.end_window(WINDOW, sync_execution=False, cancel=True)
            following = self.next_start(start, ran)
            if following is None or self.job.trial(trial.number).ended is not None:
                return ran
            used = window.use(self.gpus.include)
            following = replace(following, before=start.before + used)
            failed, split = self._split(start), self._renew(following)
            assert failed is not None and split is not None
            start = following
            self._view.restart(Restart(trial, failed.per_device, used, split))

    def _renew(self, start: Start) -> BatchSplit | None:
        """Store what the trial has used before this start. Returns how its batches are split."""
        split = self._split(start)
        with contextlib.suppress(Exception):  # a store that is away: this run goes on with what it knows
            self.job.renew(start.trial.number, start.so_far(split))
        return split

    # ------------------------------------------------------------------ one start of the command

    def first_start(self, trial: Trial) -> Start:
        """The first start of a trial, as far as this run knows what fits in memory."""
        micro = self.file.micro_batch_size
        seed = trial_seed(self.job.spec.mab_seed, trial.number)
        return Start(trial, seed, micro if isinstance(micro, int) else self._fitting or 0)

    def next_start(self, start: Start, ran: FinishedTrial) -> Start | None:
        """The start after one that ran out of memory, with fewer samples on each GPU; None: do not start again."""
        split = self._split(start)
        if self.file.micro_batch_size != AUTO or split is None or ran.outcome.ending is not Ending.CRASHED:
            return None
        if not ran.crash(start.trial.batch_size).for_want_of_memory:
            return None
        less = smaller(split.per_device)
        self._fitting = less or self._fitting
        return None if less is None else replace(start, micro=less)

    def _split(self, start: Start) -> BatchSplit | None:
        """How the batch is split. None: the command does not ask for that."""
        return self.file.split(start.trial.batch_size, self.gpus.count, start.micro)

    def _once(self, start: Start, log: Path) -> FinishedTrial:
        return self._runner(start).run(start.trial, self.command(start), self.environ(start, log), log)

    def _runner(self, start: Start) -> ScriptRunner | Watcher:
        if self.file.metrics is None:
            return ScriptRunner(job=self.job, on_live=self._view.live)
        return Watcher(
            job=self.job,
            monitor=self._monitor,
            metrics=self.file.metrics,
            mode=self.mode,
            profiling=self._profiling,
            on_live=self._view.live,
            grace=self._grace,
            before=start.before,
            micro_batch_size=accumulated(self._split(start)),
        )

    def command(self, start: Start) -> list[str]:
        return self.file.arguments(start.trial.batch_size, start.seed, self.gpus.count, start.micro)

    def environ(self, start: Start, log: Path, profile_dir: str | None = None) -> dict[str, str]:
        """The launcher's own environment, the job file's [env] and ZEUS_*. Never log it: it may hold secrets.

        Args:
            start: What is started.
            log: Where its output goes.
            profile_dir: Where the script leaves its power profile, under `zeus profile`.
        """
        trial, spec, split, before = start.trial, self.job.spec, self._split(start), start.before
        launched = LauncherEnv(
            job_id=spec.id,
            trial=trial.number,
            trial_id=trial.id or None,
            batch_size=trial.batch_size,
            learning_rate=self.file.rate(trial.batch_size),
            cost_limit=trial.decision.cost_limit,
            eta=trial.ask.eta,
            target_metric=spec.target_metric,
            higher_is_better=spec.higher_is_better_metric,
            max_epochs=spec.max_epochs,
            seed=start.seed,
            outcome_file=str(outcome_file(log)),
            profile_dir=profile_dir,
            include=trial.ask.gpus.include,
            per_device_batch_size=None if split is None else split.per_device,
            accumulation_steps=None if split is None else split.accumulation_steps,
            spent_joules=before.joules if before.seconds and before.is_known else None,
            spent_seconds=before.seconds or None,
        )
        own = Mode.OFF if trial.decision.phase is Phase.BASELINE else self.mode
        chosen = {"ZEUS_MODE": str(own), "ZEUS_PROFILING": str(self._profiling)}
        visible = mask(self.file.gpus, self.devices, settings.HERE)
        inherited = settings.inherited(OF_A_LAUNCHER) | passed_on()
        return {**inherited, **self.file.env, **self.file.prices, **chosen, **visible, **launched.variables()}


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise InputError(
            f"the log folder {folder} cannot be made: {failed.strerror}. Set ZEUS_LOG_DIR to another folder."
        ) from failed
    return folder
