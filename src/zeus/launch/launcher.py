"""A job file's recurrences on this machine: everything is checked, then registered, then run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from zeus import env
from zeus.cost import CostModel
from zeus.device.find import SLURM, find
from zeus.device.gpu import Gpu
from zeus.env import Mode, Orders, mode, written
from zeus.errors import InputError, LaunchError, ZeusError
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

NOT_ALWAYS = ("COST_THRESH", "LEARNING_RATE", "OUTCOME_FILE", "TRIAL_ID")
ORDERS = frozenset(f"ZEUS_{name}" for name in NOT_ALWAYS)  # what may be left over from a launcher around this one
OTHERS = {"command_id": "command", "higher_is_better_metric": "direction (higher_is_better)"}


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who wants to know what."""

    on_trial: Callable[[Trial, FinishedTrial | None], None] = lambda trial, ran: None  # asked for (no Ran), or ended
    on_live: Callable[[Live], None] = lambda live: None


class Launcher:
    """Runs one job file. Nothing is registered, set or started before all of it was found to be possible.

    Raises:
        InputError: The file asks for what is not here: a GPU, a power limit, a command.
    """

    def __init__(
        self,
        file: JobFile,
        hooks: Hooks | None = None,
        store: Store | None = None,
        grace: float = GRACE_SECONDS,
        revise: bool = False,
    ) -> None:
        self.file = file
        self._grace = grace
        self._hooks = hooks or Hooks()
        self._mode = mode(file.mode)
        self._gpus = find(file.gpus)
        self._monitor = ZeusMonitor(list(self._gpus), sync_execution_with=None)
        self.gpus = gpus_of(self._monitor)
        if file.metrics is None:
            self._monitor.close()  # the script measures itself
        candidates(list(self._gpus.values()), STEP_WATTS, file.spec.power_limits)  # refuses what the cards do not take
        _check_command(file)
        self._claim = claim(Path(file.metrics.file)) if file.metrics is not None and file.metrics.file else None
        self.jobs = open_jobs(store)
        self.revision = self._revision(revise)  # what registering changes, in words; empty: nothing
        self.job = self.jobs.register(file.spec, void=revise)
        _make(self.logs)
        self.ran: dict[int, FinishedTrial] = {}

    def _revision(self, revise: bool) -> str:
        """What this job file changes about a job that is there already.

        Raises:
            InputError: It is the job of another command, or of the other direction, and nobody said to revise it.
        """
        wanted = self.file.spec
        try:
            known = self.jobs.find(wanted.id).spec
        except ZeusError:  # it is new, or cannot be asked for now
            return ""
        other = [what for name, what in OTHERS.items() if _differs(getattr(known, name), getattr(wanted, name))]
        if other and not revise:
            raise InputError(
                f"job {wanted.id!r} is there already, with another {' and another '.join(other)}. Give this one "
                "another name, or add --revise to go on with that job's history."
            )
        names = [one.name for one in fields(wanted) if one.name not in ("job_id", "job_id_prefix", "command_id")]
        changes = [
            f"{name} {getattr(known, name)} -> {getattr(wanted, name)}"
            for name in names
            if getattr(wanted, name) is not None and getattr(known, name) != getattr(wanted, name)
        ]
        return ", ".join([*changes, *(["another command"] if "command" in other else [])])

    @property
    def logs(self) -> Path:
        """Where the logs of this life of the job lie."""
        return log_folder(self.file.spec.id, self.job.life)

    @property
    def cost(self) -> CostModel:
        """What a trial here is charged."""
        return CostModel(self.job.spec.eta_knob, self.gpus.max_watts)

    def recur(self) -> LaunchedRecurrence:
        """One recurrence."""
        tried: list[Trial] = []

        def changed(trial: Trial) -> None:
            self._hooks.on_trial(trial, self.ran.get(trial.number))
            if trial.ending is not Ending.OPEN:
                tried.append(trial)
                self._blame(tried)

        try:
            return recur(self.job, self.gpus, self._run, max_tries=self.file.max_tries, on_change=changed)
        except InputError:
            self._blame(tried, nothing_left=True)
            raise

    def _blame(self, tried: Sequence[Trial], nothing_left: bool = False) -> None:
        """Refuse to go on where it is the script that crashes, whatever its batch size. No size is held back for it.

        Raises:
            LaunchError: It is.
        """
        if any(one.ending is not Ending.CRASHED or one.number not in self.ran for one in tried):
            return
        crashes = [_crash(one.batch_size, self.ran[one.number]) for one in tried]
        if not is_scripts_own(crashes, (), nothing_left=nothing_left):  # spares asking for the past
            return
        job_id = self.job.spec.id
        try:
            past = self.jobs.full(job_id)["tries"]
        except ZeusError:  # whether a size has ever worked is not known
            return
        if not is_scripts_own(crashes, {one["batch_size"] for one in past if one["epochs"]}, nothing_left=nothing_left):
            return
        try:
            self.job.excuse(one.number for one in tried)
            now = "No size is held back for it: mend it and run it again."
        except ZeusError as refused:
            now = f"Mend it, and allow the sizes again: `zeus jobs reset {job_id} --batch-size N` ({refused})"
        last = self.ran[tried[-1].number]
        raise LaunchError(
            f"job {job_id!r}: the command crashed before its first epoch at each batch size that was tried, "
            f"{[one.batch_size for one in crashes]}, and not for want of memory: the command itself fails. {now} The "
            f"last lines of {last.log}:\n" + "\n".join(f"  {line}" for line in last.last_lines)
        )

    def profile(self, batch_size: int) -> PowerProfile | None:
        """What is known of power limits at this size."""
        return self.job.get(ProfileKey(self.job.spec.id, batch_size, self.gpus.model, self.gpus.count))

    def close(self) -> None:
        """Let go of monitor and store."""
        if self._claim is not None:
            self._claim.close()
        self._monitor.close()
        self.jobs.close()

    def _run(self, trial: Trial) -> Outcome:
        log = log_file(_make(self.logs), trial.number, trial.id)
        seed = trial_seed(self.job.spec.mab_seed, trial.number)
        command, environ = self.file.arguments(trial.batch_size, seed), self._environ(trial, seed, log)
        ran = self._runner().run(trial, command, environ, log)
        if self.file.metrics is None and self._mode is Mode.OPTIMIZE and (profile := self.profile(trial.batch_size)):
            ran = replace(ran, limit_watts=profile.best_limit(self.cost))
        self.ran[trial.number] = ran
        return ran.outcome

    def _runner(self) -> ScriptRunner | Watcher:
        if self.file.metrics is None:
            return ScriptRunner(job=self.job, on_live=self._hooks.on_live)
        return Watcher(
            job=self.job,
            monitor=self._monitor,
            metrics=self.file.metrics,
            mode=self._mode,
            on_live=self._hooks.on_live,
            grace=self._grace,
        )

    def _environ(self, trial: Trial, seed: int, log: Path) -> dict[str, str]:
        """The launcher's own, the user's and what Zeus has to say. It is never logged: it may hold secrets."""
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
        )
        inherited = env.inherited(ORDERS)
        mode = Mode.OFF if trial.decision.phase is Phase.BASELINE else self._mode
        chosen = {"ZEUS_MODE": str(mode), **mask(self.file.gpus, self._gpus, env.HERE)}
        return {**inherited, **self.file.env, **chosen, **written(orders)}


def mask(indices: Sequence[int] | None, gpus: Mapping[int, Gpu], environ: Mapping[str, str]) -> dict[str, str]:
    """What hides all other GPUs from the command; the indices count those that the launcher itself sees.

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
    if any(environ.get(slurm, "").strip() for slurm in SLURM):  # counted within the share, which CUDA does not know
        return {name: ",".join(gpus[index].spec.uuid for index in indices)}
    return {name: ",".join(map(str, indices))}


def _differs(known: object, wanted: object) -> bool:
    """Whether both are said, and not the same."""
    return known != wanted and "" not in (known, wanted)


def _crash(batch_size: int, ran: FinishedTrial) -> Crash:
    return Crash(batch_size, ran.outcome.epochs, ran.exit_code, ran.end_of_output)


def _check_command(file: JobFile) -> None:
    program, paths = file.command[0], file.env.get("PATH", env.HERE.get("PATH"))
    if "{" not in program and shutil.which(program, path=paths) is None:
        raise InputError(
            f"command: {program!r} is not found, or may not be run. It is run without a shell, in the current folder; "
            "for a shell's own words write `sh -c '...'`."
        )
    script = next((part for part in file.command[1:] if not part.startswith("-")), "")
    if script.endswith(".py") and "{" not in script and not Path(script).exists():
        raise InputError(f"command: the script {script!r} is not found. The command is run in {Path.cwd()}.")


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise InputError(f"no log can be kept in {folder}: {failed.strerror}. Set ZEUS_LOG_DIR to another.") from failed
    return folder
