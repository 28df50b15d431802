"""A trial of an unmodified script: watched and measured from outside, and ended where its bound ends it.

    start ──▶ line ──▶ go on? ──▶ line ... ──▶ it ends by itself: the target was not reached, or it crashed
                         ├── the target is reached ──▶ some time to save its work ──▶ ended
                         └── the next epoch does not fit ──▶ ended

`zeus.launch.epochs` says what the lines mean; here is what is done about it.
"""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zeus.cost import CostModel
from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.env import Mode
from zeus.errors import LaunchError
from zeus.job import Ending, Outcome, Trial
from zeus.launch.child import Child
from zeus.launch.epochs import Epochs, Line, Used
from zeus.launch.guard import GRACE_SECONDS
from zeus.launch.job_file import Metrics
from zeus.launch.limits import EpochLimits
from zeus.launch.lines import Lines, reader_of
from zeus.launch.patience import patiently
from zeus.launch.report import Live, Ran
from zeus.monitor import Measurement, ZeusMonitor
from zeus.optimizer.batch_size.running import RunningTrial, used
from zeus.optimizer.batch_size.verbs import Place, RecurringJob
from zeus.profile import ProfileKey

WINDOW = "zeus: trial"
LOOK_SECONDS = 0.2  # how soon the end of a silent script is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Runs the trials of one job from outside."""

    job: RecurringJob
    place: Place
    monitor: ZeusMonitor
    metrics: Metrics
    mode: Mode
    on_live: Callable[[Live], None] = lambda live: None
    grace: float = GRACE_SECONDS
    clock: Clock = REAL  # that leases are renewed by, and a store is waited for

    def run(self, trial: Trial, command: list[str], environ: Mapping[str, str], log: Path) -> Ran:
        """Run one trial to its end."""
        spec = self.job.spec
        cost = CostModel(spec.eta_knob, self.place.max_watts)
        key = ProfileKey(spec.id, trial.batch_size, self.place.gpu_name, self.place.gpus)
        gpus = list(self.monitor.gpus.values())
        running = RunningTrial(spec.id, trial.number, lambda: self.job, cost_limit=trial.decision.cost_limit)
        with EpochLimits(gpus, cost, self.mode, spec.power_limits, running.get(key)) as limits:
            first = limits.cheapest_epoch()
            if first is not None and not running.keep_going(Outcome(ending=Ending.LOST), first):
                return Ran(Outcome(ending=Ending.STOPPED, joules=0.0, next_epoch_cost=first), log, limits.in_force)
            running.hold(self.clock)
            try:
                watch = _Watch(self, trial, running, cost, key, limits)
                return watch.run(command, {"PYTHONUNBUFFERED": "1", **environ}, log)
            finally:
                running.let_go()


class _Watch:
    """One trial that is watched."""

    def __init__(
        self,
        by: Watcher,
        trial: Trial,
        running: RunningTrial,
        cost: CostModel,
        key: ProfileKey,
        limits: EpochLimits,
    ) -> None:
        self._by, self._trial, self._running = by, trial, running
        self._cost, self._key, self._limits = cost, key, limits
        said = by.metrics
        known = {"begin": False, "end": True}.get(said.epoch_line)
        self._epochs = Epochs(ends=True if said.file or not said.epoch_regex else known)
        self._file = Path(said.file) if said.file else None
        self._used = Used()  # since the start
        self._ended = False  # by us
        self._lines: Lines[Measurement] = Lines(reader_of(said), self._split)
        self._lock = threading.Lock()  # over the window, which is split where a line is read

    def run(self, command: list[str], environ: Mapping[str, str], log: Path) -> Ran:
        monitor, job, file = self._by.monitor, self._by.job, self._file
        if file is not None and file.exists():
            file.replace(file.with_name(f"{file.name}.old"))  # what an earlier trial said is not this one's
        monitor.begin_window(WINDOW, sync_execution=False, restart=True)
        monitor.watch_closely(self._limits.best is None)
        try:
            with Child(command, environ, log, read=True) as child:
                self._lines.follow_output(child.output, log, says=file is None)
                if file is not None:
                    self._lines.follow_file(file)
                ending, following = self._watch(child)
                status = child.wait(0.0)
        except BaseException:  # what it used until now outlives it
            self._add(self._split())
            with contextlib.suppress(Exception):
                job.renew(self._trial.number, self._outcome(Ending.LOST))
            raise
        finally:
            self._lines.close()
            monitor.watch_closely(False)
        if ending is Ending.NOT_CONVERGED and not self._epochs.done:
            raise LaunchError(
                f"trial {self._trial.number} ended well, but {_silence(self._by.metrics)}. Its output is in {log}."
            )
        told = patiently(lambda: job.trial(self._trial.number), self._by.clock)
        outcome = self._outcome(ending, following)
        if told.ended is not None and told.outcome is not None:  # a script that speaks for itself after all
            outcome = told.outcome
        last = tuple(child.last_lines()) if ending is Ending.CRASHED else ()
        return Ran(outcome, log, self._limits.in_force, None if self._ended else status, last)

    # ------------------------------------------------------------------ the watch

    def _watch(self, child: Child) -> tuple[Ending, float | None]:
        """How it ended, and the cost of the epoch that did not fit, where one did not."""
        spec = self._by.job.spec
        for line, measured in self._seen(child):
            self._read(line, measured)
            if line.metric is not None and spec.reached(line.metric):
                self._finish(child, kindly=True)
                return Ending.CONVERGED, None
            following = self._next_epoch()
            if self._epochs.due and not self._may_go_on(following):
                enough = self._epochs.done >= spec.max_epochs
                self._finish(child, kindly=enough)
                return (Ending.NOT_CONVERGED, None) if enough else (Ending.STOPPED, following)
        while (status := child.wait(1.0)) is None:  # it has closed its output
            pass
        child.check(status)
        self._add(self._split())
        return (Ending.CRASHED if status else Ending.NOT_CONVERGED), None

    def _seen(self, child: Child) -> Iterator[tuple[Line, Measurement]]:
        """Each line that says something, until the script has ended."""
        closed = False
        while True:
            try:
                seen = self._lines.next(LOOK_SECONDS)
            except queue.Empty:
                if not closed and child.wait(0.0) is not None:
                    self._lines.close()
                    closed = True
                continue
            if seen is None:
                return
            yield seen

    def _finish(self, child: Child, kindly: bool) -> None:
        """End it. One that has done its work may save it first: until its next epoch begins, or for a while."""
        deadline = time.monotonic() + (self._by.grace if kindly else 0.0)
        while (left := deadline - time.monotonic()) > 0 and child.wait(0.0) is None:
            try:
                seen = self._lines.next(min(left, LOOK_SECONDS))
            except queue.Empty:
                continue
            if seen is None:  # it has closed its output, and so is about to end
                child.wait(left)
            elif seen[0].epoch is not None:
                break
        if child.wait(0.0) is None:
            self._ended = True
            child.end(signal.SIGTERM, grace=self._by.grace)

    # ------------------------------------------------------------------ one line

    def _read(self, line: Line, measured: Measurement) -> None:
        self._add(measured)
        before = self._epochs
        self._epochs = before.read(line, self._used)
        epoch = self._epochs.epoch
        if self._epochs.lines > before.lines and epoch is not None and self._limits.epoch(epoch.joules, epoch.seconds):
            self._keep_profile()
        self._by.on_live(Live(self._trial, self._outcome(Ending.LOST), self._limits.in_force))

    def _keep_profile(self) -> None:
        profile, best = self._limits.profile, self._limits.best
        if profile is not None:
            self._running.put(self._key, profile)
        if best is not None:
            self._by.monitor.watch_closely(False)  # no limit is waiting for an epoch's energy any more
            self._running.profiled(best.joules, best.seconds)

    def _next_epoch(self) -> float:
        """EpochCost, by what is known of the limit in force, or else by the last epoch; 0 before there was one."""
        known, last = self._limits.next_epoch(), self._epochs.epoch
        if known is not None:
            return known
        cost = self._cost.cost(last.joules, last.seconds) if last is not None else 0.0
        return cost if math.isfinite(cost) else 0.0

    def _may_go_on(self, following: float) -> bool:
        charged = self._epochs.charged(self._used)
        spent = self._cost.cost(charged.joules, charged.seconds)
        cost = spent + following if math.isfinite(spent) else 0.0  # what is not known stops nothing
        has_epochs_left = self._epochs.done < self._by.job.spec.max_epochs
        return self._running.keep_going(self._outcome(Ending.LOST), cost) and has_epochs_left

    # ------------------------------------------------------------------ the books

    def _split(self) -> Measurement:
        """What was used since the last split."""
        with self._lock:
            measured = self._by.monitor.end_window(WINDOW, sync_execution=False, cancel=True)
            self._by.monitor.begin_window(WINDOW, sync_execution=False)
            return measured

    def _add(self, measured: Measurement) -> None:
        self._used += Used(measured.total_energy, measured.seconds)

    def _outcome(self, ending: Ending, following: float | None = None) -> Outcome:
        epochs = max(1, self._epochs.done) if ending is Ending.CONVERGED else self._epochs.done
        charged, metric = self._epochs.charged(self._used), self._epochs.metric
        return used(ending, charged.joules, charged.seconds, epochs=epochs, metric=metric, next_epoch_cost=following)


def _silence(said: Metrics) -> str:
    if said.file:
        return f"wrote nothing to {said.file}, where [metrics] looks for its epochs and metric"
    wanted = f"regex = {said.regex!r}" + (f" and epoch_regex = {said.epoch_regex!r}" if said.epoch_regex else "")
    return f"none of its lines is what [metrics] {wanted} looks for"
