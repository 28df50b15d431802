"""`zeus profile`: starts the command of a job with each batch size, only until it is known what an epoch uses.

    start ──▶ a few steps at each power limit ──▶ the script ends itself ──▶ profile and epoch are kept ──▶ next size
                └── an unmodified script: its second epoch, at the highest limit ──▶ ended

Each start gets a trial in a store of its own, which is thrown away. So whatever a script does under `zeus run`, it does
here too, but the job's store gets no trial, no recurrence and no cost.
"""

from __future__ import annotations

import math
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from zeus.client.local import LocalJobs
from zeus.client.profile_folder import ProfileFolder
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.spool import default_folder
from zeus.cost import Use
from zeus.device.keeper.lease import status
from zeus.errors import LaunchError
from zeus.job import Ending, Outcome, Trial, replace
from zeus.launch.launcher import Launcher
from zeus.launch.process.child import Child
from zeus.launch.progress import FinishedTrial
from zeus.launch.start import Start
from zeus.launch.watch import Watcher
from zeus.monitor import ZeusMonitor
from zeus.profile import PowerProfile, ProfileKey
from zeus.settings import Mode
from zeus.store import open_store
from zeus.store.address import address_of
from zeus.trial.quick_profile import EpochUse, EpochUses, epoch_uses

WINDOW = "zeus: profile"
MOST_SECONDS = 600.0  # for one batch size
WATCHED_EPOCHS = 2  # of an unmodified script: the first one is cold
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class SizeProfile:
    """What was found out about one batch size."""

    batch_size: int
    uses: EpochUses
    used: Use  # by the profiling itself, set-up included
    log: Path
    best: EpochUse | None = None  # at the job's η; None: nothing was measured
    has_limits: bool = False  # whether several power limits could be compared
    failure: str = ""  # why nothing was measured


class SizeProfiler:
    """Profiles the batch sizes of a launcher's job.

    Args:
        launcher: The launcher of the job. It has checked everything.
        most_seconds: Most time for one batch size. Its command is then ended.
    """

    def __init__(self, launcher: Launcher, most_seconds: float = MOST_SECONDS) -> None:
        self._launcher = launcher
        self._most_seconds = most_seconds
        self._monitor = ZeusMonitor(list(launcher.devices), sync_execution_with=None)
        self.why_not = self._obstacle()  # why no power limits are compared; empty: they are

    def _obstacle(self) -> str:
        if self._launcher.mode is Mode.OFF:
            return "the mode is off, so power limits are not changed: only the limit found is profiled."
        refused = status(list(self._launcher.devices.values()))["why_not"]
        if refused:
            return f"only the power limit found is profiled: {refused}"
        if self._launcher.file.metrics is not None:
            return (
                "the script is not modified, so its steps cannot be seen and power limits cannot be compared quickly. "
                "Its second epoch is measured at the highest limit. `zeus run` compares limits, one in each epoch."
            )
        return ""

    def run(self, sizes: Iterable[int], started: Callable[[int], None] = lambda size: None) -> Iterator[SizeProfile]:
        """Profile these sizes one after the other. What is found is stored with the job at once."""
        for size in sizes:
            started(size)
            with tempfile.TemporaryDirectory(prefix="zeus-profile-") as scratch:
                url = f"sqlite:///{Path(scratch) / 'zeus.db'}"
                try:
                    found = self._profile(size, ProfileFolder(Path(scratch)), url)
                finally:
                    shutil.rmtree(default_folder(address_of(url)), ignore_errors=True)  # the script's outbox for it
            yield found

    def close(self) -> None:
        self._monitor.close()

    # ------------------------------------------------------------------ one size

    def _profile(self, size: int, folder: ProfileFolder, url: str) -> SizeProfile:
        log = self._launcher.logs / f"profile-{size}.log"
        log.unlink(missing_ok=True)
        store = open_store(url)
        self._monitor.begin_window(WINDOW, sync_execution=False, restart=True)
        outcome, failure = Outcome(ending=Ending.LOST), ""
        try:
            ran = self._until_it_fits(size, LocalJobs(store), url, folder, log)
            outcome, failure = ran.outcome, _failure(size, ran)
        except LaunchError as failed:
            failure = str(failed)
        finally:
            window = self._monitor.end_window(WINDOW, sync_execution=False, cancel=True)
            store.close()
        used = window.use(self._launcher.gpus.include)
        measured, found, uses = folder.measured(), folder.profile(), EpochUses()
        if not failure:
            steps = None if measured is None else measured[1]
            uses = epoch_uses(outcome.stretches, None if found is None else found[1], steps, outcome.epochs)
        if not uses.at:
            return SizeProfile(size, uses, used, log, failure=failure or self._nothing(log))
        best = self._keep(size, uses, found)
        return SizeProfile(size, uses, used, log, best, has_limits=found is not None and len(uses.at) > 1)

    def _until_it_fits(self, size: int, jobs: LocalJobs, url: str, folder: ProfileFolder, log: Path) -> FinishedTrial:
        """Run the command, with `micro_batch_size = "auto"` again while it runs out of memory."""
        launcher = self._launcher
        spec = replace(
            launcher.job.spec, batch_sizes=(size,), default_batch_size=size, policy="default", baseline_every=0
        )
        job = _WatchedJob.register(jobs, spec)
        start: Start | None = launcher.first_start(job.ask(launcher.gpus))
        while start is not None:
            command = launcher.command(start)
            environ = launcher.environ(start, log, str(folder.path)) | {"ZEUS_STORE": url}
            if launcher.file.metrics is None:
                ran = self._run(command, environ, log, folder, partial(job.trial, start.trial.number))
            else:
                watcher = Watcher(
                    job=job,
                    monitor=self._monitor,
                    metrics=launcher.file.metrics,
                    mode=launcher.mode,
                    most_seconds=self._most_seconds,
                )
                ran = watcher.run(start.trial, command, environ, log)
            start = launcher.next_start(start, ran)
        return ran

    def _run(
        self, command: list[str], environ: dict[str, str], log: Path, folder: ProfileFolder, trial: Callable[[], Trial]
    ) -> FinishedTrial:
        """Run a script that uses Zeus. It ends itself once enough is measured."""
        began, late = time.monotonic(), False
        with Child(command, environ, log) as child:
            while (status := child.wait(LOOK_SECONDS)) is None and not late:
                late = time.monotonic() - began >= self._most_seconds
            if late and status is None:
                child.end(signal.SIGTERM)
        if (measured := folder.measured()) is not None:
            return FinishedTrial(measured[0], log)
        if late:
            raise LaunchError(f"not enough steps ended within {self._most_seconds:g} s. Raise --max-seconds.")
        assert status is not None
        child.check(status)
        told = trial().outcome  # the training was over before enough was measured
        if status and told is None:
            return FinishedTrial(Outcome(ending=Ending.CRASHED), log, None, status, child.end_of_output)
        return FinishedTrial(told or Outcome(ending=Ending.LOST), log)

    def _keep(self, size: int, uses: EpochUses, found: tuple[ProfileKey, PowerProfile] | None) -> EpochUse:
        """Store the profile, and what an epoch uses at the limit that `zeus run` will use. Returns the best limit."""
        launcher, job = self._launcher, self._launcher.job
        if found is not None:
            key, profile = found
            job.put(key, profile.beside(job.get(key)))
        best = uses.best(launcher.cost)
        usual = best if launcher.mode is Mode.OPTIMIZE else uses.at[0]
        if all(math.isfinite(value) and value > 0 for value in (usual.use.joules, usual.use.seconds)):
            job.profiled(size, launcher.gpus, joules=usual.use.joules, seconds=usual.use.seconds)
        return best

    def _nothing(self, log: Path) -> str:
        if self._launcher.file.metrics is not None:
            return f"no second epoch was seen. Its output is in {log}."
        return (
            "the command reported no steps. Let the script train with ZeusDataLoader or with BatchSizeCallback, or add "
            f"a [metrics] table to the job file. Its output is in {log}."
        )


def profile_first(launcher: Launcher, started: Callable[[int], None]) -> Iterator[SizeProfile]:
    """`start = "profiled"`: profile the sizes that the first run of a new job may have. That run is charged with it.

    The default goes first. If it cannot be profiled, there is nothing to compare the others with.
    """
    default = launcher.job.spec.default_batch_size
    sizes = sorted(launcher.to_profile_first(), key=lambda size: size != default)
    if sizes:
        profiler = SizeProfiler(launcher)
        try:
            for one in profiler.run(sizes, started):
                launcher.owed += one.used
                yield one
                if one.failure and one.batch_size == default:
                    return
        finally:
            profiler.close()


class _WatchedJob(RecurringJob):
    """The job of a throw-away store. Its trial of an unmodified script ends after the second epoch."""

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        self.renew(number, so_far)
        return so_far.epochs < WATCHED_EPOCHS


def _failure(size: int, ran: FinishedTrial) -> str:
    """Why a command crashed; empty: it did not."""
    if ran.exit_code is None or ran.outcome.ending is not Ending.CRASHED:
        return ""
    if ran.crash(size).for_want_of_memory:
        return f"it does not fit in memory. Its output is in {ran.log}."
    last = next((line for line in reversed(ran.last_lines) if line.strip()), "")
    return f"the command failed with exit code {ran.exit_code}: {last or 'no output'}. Its output is in {ran.log}."
