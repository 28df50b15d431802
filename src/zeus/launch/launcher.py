"""Runs the recurrences of a job file on this machine: check everything, register the job, run it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from zeus import env
from zeus.cost import CostModel
from zeus.device.find import SLURM, find
from zeus.device.gpu import Gpu
from zeus.env import Mode, Orders, mode, profiling_plan, written
from zeus.errors import AlreadyDone, InputError, LaunchError, NotAllowed, NotKnown, ZeusError
from zeus.job import Ending, Outcome, Phase, Trial
from zeus.jobs.catalog import open_jobs
from zeus.jobs.open import gpus_of
from zeus.launch.crash_cause import Crash, is_scripts_own
from zeus.launch.epoch_limits import STEP_WATTS
from zeus.launch.job_file.values import JobFile, trial_seed
from zeus.launch.metrics_lock import claim
from zeus.launch.process.guard import GRACE_SECONDS
from zeus.launch.progress import FinishedTrial, Live
from zeus.launch.recurrence import LaunchedRecurrence, recur
from zeus.launch.script import ScriptRunner, outcome_file
from zeus.launch.watch import Watcher
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit.candidates import candidates
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import Store
from zeus.store.address import log_file, log_folder
from zeus.tariff.settings import prices

NOT_ALWAYS = ("COST_THRESH", "LEARNING_RATE", "OUTCOME_FILE", "PROFILE_DIR", "TRIAL_ID")
ORDERS = frozenset(f"ZEUS_{name}" for name in NOT_ALWAYS)  # not inherited from a launcher around this one
OTHERS = {"command_id": "command", "higher_is_better_metric": "direction (higher_is_better)"}


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a launcher."""

    on_trial: Callable[[Trial, FinishedTrial | None], None] = lambda trial, ran: None  # opened (no `ran`), or ended
    on_live: Callable[[Live], None] = lambda live: None


class Launcher:
    """Runs one job file. Everything is checked before anything is registered, set or started.

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
        self.gpus = gpus_of(self._monitor, include=file.spec.include)
        if file.metrics is None:
            self._monitor.close()  # the script measures itself
        candidates(list(self.devices.values()), STEP_WATTS, file.spec.power_limits)  # raises if a limit is out of range
        _check_command(file)
        self._claim = claim(Path(file.metrics.file)) if file.metrics is not None and file.metrics.file else None
        self.jobs = open_jobs(store)
        self.revision = self._revision(revise)  # what registering changes, as text; empty: nothing
        self.job = self.jobs.register(file.spec, void=revise)
        _make(self.logs)
        self.ran: dict[int, FinishedTrial] = {}
        self._worked_here: set[int] = set()  # batch sizes that completed an epoch in this run
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

    def recur(self) -> LaunchedRecurrence:
        tried: list[Trial] = []

        def changed(trial: Trial) -> None:
            self._hooks.on_trial(trial, self.ran.get(trial.number))
            if trial.ending is not Ending.OPEN:
                tried.append(trial)
                self._blame(tried)

        try:
            return recur(self.job, self.gpus, self._run, max_tries=self.file.max_tries, on_change=changed)
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
        command, environ = self.file.arguments(trial.batch_size, seed), self.environ(trial, seed, log)
        ran = self._runner().run(trial, command, environ, log)
        if self.file.metrics is None and self.mode is Mode.OPTIMIZE and (profile := self.profile(trial.batch_size)):
            ran = replace(ran, limit_watts=profile.best_limit(self.cost))
        self.ran[trial.number] = ran
        if ran.outcome.epochs:
            self._worked_here.add(trial.batch_size)
        return ran.outcome

    def _runner(self) -> ScriptRunner | Watcher:
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
        )

    def environ(self, trial: Trial, seed: int, log: Path, profile_dir: str | None = None) -> dict[str, str]:
        """The launcher's own environment, the job file's [env] and ZEUS_*. Never log it: it may hold secrets."""
        spec, size = self.job.spec, trial.batch_size
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
