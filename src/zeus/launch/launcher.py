"""Runs the recurrences of a job file on this machine: check everything, register the job, run it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from zeus import env
from zeus.cost import ZERO, CostModel, Use
from zeus.device.find import SLURM, find
from zeus.device.gpu import Gpu
from zeus.env import Mode, Orders, mode, profiling_plan, written
from zeus.errors import AlreadyDone, InputError, LaunchError, NotAllowed, NotKnown, ZeusError
from zeus.job import Ending, Outcome, Phase, Trial
from zeus.jobs.catalog import open_jobs
from zeus.jobs.open import gpus_of
from zeus.launch.crash_cause import Crash, is_scripts_own
from zeus.launch.epoch_limits import STEP_WATTS
from zeus.launch.job_file.values import AUTO, JobFile, trial_seed
from zeus.launch.metrics_lock import claim
from zeus.launch.process.guard import GRACE_SECONDS
from zeus.launch.progress import FinishedTrial, Live, Restart
from zeus.launch.recurrence import LaunchedRecurrence, recur
from zeus.launch.script import ScriptRunner, outcome_file
from zeus.launch.watch import Watcher
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit.candidates import candidates
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import Store
from zeus.store.address import log_file, log_folder
from zeus.tariff.settings import prices
from zeus.training.micro_batch import BatchSplit, smaller

NOT_ALWAYS = (
    *("COST_THRESH", "LEARNING_RATE", "NODES", "OUTCOME_FILE", "PROFILE_DIR", "RUN_ID", "SLURM_COMMENT", "TRIAL_ID"),
    *("PER_DEVICE_BATCH_SIZE", "ACCUMULATION_STEPS", "SPENT_JOULES", "SPENT_SECONDS"),
)
ORDERS = frozenset(f"ZEUS_{name}" for name in NOT_ALWAYS)  # not inherited from a launcher around this one
WINDOW = "zeus: start"
OTHERS = {"command_id": "command", "higher_is_better_metric": "direction (higher_is_better)"}


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a launcher."""

    on_trial: Callable[[Trial, FinishedTrial | None], None] = lambda trial, ran: None  # opened (no `ran`), or ended
    on_live: Callable[[Live], None] = lambda live: None
    on_restart: Callable[[Restart], None] = lambda restart: None


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a trial's command."""

    micro: int = 0  # most samples on each GPU at once; 0: any number
    before: Use = ZERO  # by earlier starts of the trial


class Launcher:
    """Runs one job file. Everything is checked before anything is registered, set or started.

    Args:
        file: The job file.
        hooks: Called as trials go on.
        store: A store, or the address of a store or service. Default: ZEUS_STORE, else the user's own file.
        grace: How many seconds a command has to end by itself.
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
        grace: float = GRACE_SECONDS,
        revise: bool = False,
        dry: bool = False,
    ) -> None:
        self.file = file
        self._grace = grace
        self._hooks = hooks or Hooks()
        self.mode = mode(file.mode)
        self._profiling = profiling_plan(file.profiling)
        # A mistake in them must not come up in the middle of a run, where it looks like a crash.
        rates = prices({**env.HERE, **file.prices})
        self.devices = find(file.gpus)
        self._monitor = ZeusMonitor(list(self.devices), sync_execution_with=None, prices=rates)
        nodes = env.nodes()
        file.check_nodes(nodes)
        self.gpus = gpus_of(self._monitor, include=file.spec.include).on_nodes(nodes)
        if file.metrics is None and file.micro_batch_size != AUTO:
            self._monitor.close()  # the script measures itself
        # Raises if a limit is out of range.
        self.power_limits = candidates(list(self.devices.values()), STEP_WATTS, file.spec.power_limits)
        _check_command(file)
        _check_sizes(file, self.gpus.count)
        self._claim = claim(Path(file.metrics.file)) if file.metrics is not None and file.metrics.file else None
        self.jobs = open_jobs(store)
        self.revision = self._revision(revise)  # what registering changes, as text; empty: nothing
        self.job = self.jobs.register(file.spec, void=revise)
        if not dry:
            _make(self.logs)
        self.ran: dict[int, FinishedTrial] = {}
        self._worked_here: set[int] = set()  # batch sizes that completed an epoch in this run
        self._fitting: int | None = None  # samples on each GPU that fit, once that was found out
        self.excused: set[int] = set()  # trials whose crash the store does not hold against their batch size

    def _revision(self, revise: bool) -> str:
        """What this job file changes about an existing job, as text.

        Raises:
            InputError: The job exists with another command or direction, and `revise` is false.
        """
        wanted = self.file.spec
        try:
            stored = self.jobs.find(wanted.id).spec
        except ZeusError:  # the job is new, or the store does not answer
            return ""
        other = [what for name, what in OTHERS.items() if _differs(getattr(stored, name), getattr(wanted, name))]
        if other and not revise:
            raise InputError(
                f"job {wanted.id!r} already exists with another {' and another '.join(other)}. Give this job another "
                "name, or add --revise to continue the existing job's history."
            )
        names = [one.name for one in fields(wanted) if one.name not in ("job_id", "job_id_prefix", "command_id")]
        changes = [
            f"{name} {getattr(stored, name)} -> {getattr(wanted, name)}"
            for name in names
            if getattr(wanted, name) is not None and getattr(stored, name) != getattr(wanted, name)
        ]
        return ", ".join([*changes, *(["another command"] if "command" in other else [])])

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
                self._blame(tried)

        try:
            return recur(
                self.job,
                self.gpus,
                self._run,
                max_tries=self.file.max_tries,
                on_change=changed,
                key=key,
                earlier=earlier,
            )
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
            f"The last lines of {last.log}:\n" + "\n".join(f"  {line}" for line in last.last_lines)
        )

    def _opened(self) -> set[int]:
        """The numbers of all trials until now; none if the store does not answer, because then none is continued."""
        try:
            return {one["number"] for one in self.jobs.full(self.job.spec.id)["tries"]}
        except ZeusError:
            return set()

    def _worked(self) -> set[int]:
        """Batch sizes that ever completed an epoch: of the job, or of this run alone if the job cannot be read.

        A size that only an unread past knows to work is then missing. That may excuse the crash of a size that is at
        fault, which costs one more crash; the other mistake would rule out good sizes for a fault of the script.
        """
        try:
            return {one["batch_size"] for one in self.jobs.full(self.job.spec.id)["tries"] if one["epochs"]}
        except ZeusError:
            return self._worked_here

    def profile(self, batch_size: int) -> PowerProfile | None:
        """The stored power profile of this batch size on these GPUs."""
        return self.job.get(ProfileKey(self.job.spec.id, batch_size, self.gpus.kind, self.gpus.count))

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
        self._monitor.close()
        self.jobs.close()

    def _run(self, trial: Trial) -> Outcome:
        log = log_file(_make(self.logs), trial.number, trial.id)
        seed = trial_seed(self.job.spec.mab_seed, trial.number)
        ran = self._until_it_fits(trial, seed, log)
        if self.file.metrics is None and self.mode is Mode.OPTIMIZE and (profile := self.profile(trial.batch_size)):
            ran = replace(ran, limit_watts=profile.best_limit(self.cost))
        self.ran[trial.number] = ran
        if ran.outcome.epochs:
            self._worked_here.add(trial.batch_size)
        return ran.outcome

    def _until_it_fits(self, trial: Trial, seed: int, log: Path) -> FinishedTrial:
        """Run the command, and again with smaller batches as long as it runs out of memory."""
        start, number = self._first(trial), trial.number
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
            split = self._split(trial.batch_size, start)
            assert failed is not None and split is not None
            with contextlib.suppress(Exception):  # a store that is away: this run goes on with what it knows
                self.job.renew(number, _so_far(start, split))
            self._hooks.on_restart(Restart(trial, failed.per_device, used, split))

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
        return self.file.split(batch_size, self.gpus.count, start.micro)

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
            micro_batch_size=_accumulated(self._split(trial.batch_size, start)),
        )

    def environ(
        self, trial: Trial, seed: int, log: Path, start: Start, profile_dir: str | None = None
    ) -> dict[str, str]:
        """The launcher's own environment, the job file's [env] and ZEUS_*. Never log it: it may hold secrets."""
        spec, size = self.job.spec, trial.batch_size
        split, before = self._split(size, start), start.before
        orders = Orders(
            job_id=spec.id,
            trial=trial.number,
            trial_id=trial.id or None,
            batch_size=size,
            learning_rate=self.file.rate(size),
            cost_limit=trial.decision.cost_limit,
            eta=trial.ask.eta,
            target_metric=spec.target_metric,
            higher_is_better=spec.higher_is_better_metric,
            max_epochs=spec.max_epochs,
            seed=seed,
            outcome_file=str(outcome_file(log)),
            profile_dir=profile_dir,
            include=trial.ask.gpus.include,
            per_device_batch_size=None if split is None else split.per_device,
            accumulation_steps=None if split is None else split.accumulation_steps,
            spent_joules=before.joules if before.seconds and before.is_known else None,
            spent_seconds=before.seconds or None,
        )
        inherited = env.inherited(ORDERS)
        mode = Mode.OFF if trial.decision.phase is Phase.BASELINE else self.mode
        chosen = {"ZEUS_MODE": str(mode), "ZEUS_PROFILING": str(self._profiling)}
        visible = mask(self.file.gpus, self.devices, env.HERE)
        return {**inherited, **self.file.env, **self.file.prices, **chosen, **visible, **written(orders)}


def mask(indices: Sequence[int] | None, gpus: Mapping[int, Gpu], environ: Mapping[str, str]) -> dict[str, str]:
    """Environment that hides all other GPUs from the command. Indices count the GPUs that the launcher itself sees.

    >>> mask([1], {}, {"CUDA_VISIBLE_DEVICES": "4,5"})
    {'CUDA_VISIBLE_DEVICES': '5'}
    """
    if indices is None:
        return {}
    amd = any(gpu.spec.vendor == "amd" for gpu in gpus.values())
    name = "HIP_VISIBLE_DEVICES" if amd and not environ.get("CUDA_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    if seen := environ.get(name, ""):
        entries = [entry.strip() for entry in seen.split(",")]
        return {name: ",".join(entries[index] for index in indices)}
    if any(environ.get(slurm, "").strip() for slurm in SLURM):  # indices within the SLURM share mean nothing to CUDA
        return {name: ",".join(gpus[index].spec.uuid for index in indices)}
    return {name: ",".join(map(str, indices))}


def _differs(stored: object, wanted: object) -> bool:
    """Whether both are given and differ."""
    return stored != wanted and "" not in (stored, wanted)


def _crash(batch_size: int, ran: FinishedTrial) -> Crash:
    return Crash(batch_size, ran.outcome.epochs, ran.exit_code, ran.end_of_output)


def _accumulated(split: BatchSplit | None) -> int | None:
    """The samples on each GPU at once if gradients are accumulated, else None."""
    return split.per_device if split is not None and split.accumulation_steps > 1 else None


def _so_far(start: Start, split: BatchSplit) -> Outcome:
    """What a trial has used before this start, for the store."""
    joules = start.before.joules if start.before.is_known else None
    return Outcome(
        ending=Ending.LOST, joules=joules, seconds=start.before.seconds, micro_batch_size=_accumulated(split)
    )


def _check_sizes(file: JobFile, gpus: int) -> None:
    """Raise InputError if the GPUs cannot share a batch size and the command must know its share."""
    try:
        for size in file.spec.batch_sizes:
            file.split(size, gpus, 0)
    except InputError as wrong:
        raise InputError(f"batch_sizes: {wrong} Or choose other GPUs with `gpus`.") from wrong


def _check_command(file: JobFile) -> None:
    program, paths = file.command[0], file.env.get("PATH", env.HERE.get("PATH"))
    if "{" not in program and shutil.which(program, path=paths) is None:
        raise InputError(
            f"command: {program!r} is not found or not executable. The command is run without a shell, in the current "
            "folder; to use shell syntax, write `sh -c '...'`."
        )
    script = next((part for part in file.command[1:] if not part.startswith("-")), "")
    if script.endswith(".py") and "{" not in script and not Path(script).exists():
        raise InputError(f"command: the script {script!r} is not found in {Path.cwd()}, where the command is run.")


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise InputError(
            f"the log folder {folder} cannot be made: {failed.strerror}. Set ZEUS_LOG_DIR to another folder."
        ) from failed
    return folder
