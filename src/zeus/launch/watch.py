"""A trial of an unmodified script: watched and measured from outside, and ended when it reaches target or cost limit.

    start ──▶ line ──▶ go on? ──▶ line ... ──▶ it ends by itself: the target was not reached, or it crashed
                         ├── the target is reached ──▶ some time to save its work ──▶ ended
                         └── the next epoch does not fit ──▶ ended

`zeus.launch.script_events` says what the lines mean, `zeus.trial.engine` decides what to do, and this module does it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from zeus.client.recurring import RecurringJob
from zeus.client.running import RunningTrial
from zeus.cost import ZERO, CostModel, Use
from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.device.virtual.watched import WatchedLoad
from zeus.errors import LaunchError
from zeus.job import Ending, Kind, Outcome, Phase, Trial
from zeus.launch.epoch_limits import EpochLimits
from zeus.launch.job_file.values import MetricsSource
from zeus.launch.process.child import Child
from zeus.launch.progress import FinishedTrial, Live
from zeus.launch.script_events import Line, Script
from zeus.launch.script_lines import ScriptLines, reader_of
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor.hours import EnergyByHour
from zeus.profile import ProfileKey
from zeus.settings import Mode, ProfilingPlan, time_limits
from zeus.trial.driver import Driver
from zeus.trial.engine import Ended, Measured, Started, Terms, TrialEngine

log = logging.getLogger(__name__)

WINDOW = "zeus: trial"
LOOK_SECONDS = 0.2  # how soon the end of a silent script is noticed
START_UP = 1.5  # a first epoch longer than the second by this factor holds the start of the script too
SHOWN_LINES, SHOWN_LETTERS = 5, 200  # of an output that matches nothing
SILENT_LINES, SILENT_SECONDS = 200, 60.0  # warn after so many lines or so long without a line that matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Runs the trials of one job whose script does not use Zeus."""

    job: RecurringJob
    monitor: ZeusMonitor
    metrics: MetricsSource
    mode: Mode
    profiling: ProfilingPlan = ProfilingPlan.WALK
    on_live: Callable[[Live], None] = lambda live: None
    grace: float = field(default_factory=lambda: time_limits().grace)
    clock: Clock = REAL  # for lease renewals
    before: Use = ZERO  # by earlier starts of the trial, which ran out of memory, and by profiling before the first run
    micro_batch_size: int | None = None  # samples on each GPU at once, if gradients are accumulated
    most_seconds: float = math.inf  # after which it is ended with LaunchError; only `zeus profile` sets this

    def run(self, trial: Trial, command: list[str], environ: Mapping[str, str], log_file: Path) -> FinishedTrial:
        spec = self.job.spec
        cost = CostModel(trial.ask.eta, trial.ask.max_watts)
        gpus = list(self.monitor.gpus.values())
        running = RunningTrial(spec.id, trial.number, lambda: self.job, cost_limit=trial.decision.cost_limit)
        knowledge = running.knowledge()
        mode = Mode.OFF if trial.decision.phase is Phase.BASELINE else self.mode
        with EpochLimits(gpus, cost, mode, spec.power_limits, knowledge.trials, self.profiling) as limits:
            terms = Terms.of(
                spec,
                cost,
                trial.decision.cost_limit,
                found_watts=limits.found,
                before=self.before,
                earlier=self.before,
                micro_batch_size=self.micro_batch_size,
            )
            watch = _WatchedTrial(self, trial, running, TrialEngine(terms, knowledge), limits)
            watch.feed(Started())
            if watch.outcome is not None:
                return FinishedTrial(watch.outcome, log_file, limits.in_force)
            running.hold(self.clock)
            try:
                return watch.run(command, {"PYTHONUNBUFFERED": "1", **environ}, log_file)
            finally:
                running.let_go()


class _WatchedTrial(Driver):
    """Watches one trial: turns its lines into events of the engine, and carries out the engine's actions."""

    _lines: ScriptLines[Measurement]

    def __init__(
        self, watcher: Watcher, trial: Trial, running: RunningTrial, engine: TrialEngine, limits: EpochLimits
    ) -> None:
        self._hours = EnergyByHour(watcher.monitor.prices, trial.ask.gpus.include)  # since the script began
        super().__init__(engine, ask=running.answer, tell_epoch=running.tell_epoch, priced=self._hours.priced)
        self._watcher, self._trial, self._running, self._limits = watcher, trial, running, limits
        metrics = watcher.metrics
        means = {"begin": False, "end": True}.get(metrics.epoch_line, engine.known.lines_end)
        self._script = Script(ends=True if metrics.file or not metrics.epoch_regex else means)
        self._file = Path(metrics.file) if metrics.file else None
        per_device = watcher.micro_batch_size or math.ceil(trial.batch_size / trial.ask.gpus.count)
        self._load = WatchedLoad(watcher.monitor.gpus.values(), per_device)
        self._epochs: list[float] = []  # their seconds
        self._used = Use()  # since the start
        self._ended = False  # whether we ended it
        self._lock = threading.Lock()  # for the window, which the reading thread splits at each line

    def run(self, command: list[str], environ: Mapping[str, str], log_file: Path) -> FinishedTrial:
        monitor, job, file = self._watcher.monitor, self._watcher.job, self._file
        if file is not None and file.exists():
            file.replace(file.with_name(f"{file.name}.old"))  # it holds lines of an earlier trial
        self._lines = ScriptLines(reader_of(self._watcher.metrics), self._split)
        monitor.begin_window(WINDOW, sync_execution=False, restart=True)
        monitor.watch_closely(not self._limits.is_settled)
        try:
            receive = _ignore if file is not None else self._lines.receive
            with self._load, Child(command, environ, log_file, receive) as child:
                if file is not None:
                    self._lines.follow(file)
                outcome = self._watch(child)
                status = child.wait(0.0)
        except BaseException:  # keep what it used until now
            self._add(self._split())
            self.feed(*self._script.close(self._used, self._limits.in_force))
            with contextlib.suppress(Exception):
                job.renew(self._trial.number, self.engine.so_far)
            raise
        finally:
            self._lines.close()
            monitor.watch_closely(False)
        trial = job.trial(self._trial.number)
        no_metric = outcome.ending is Ending.NOT_CONVERGED and self.engine.metric is None
        if trial.ended is None and (no_metric or outcome.ending is Ending.LOST):  # no other size would tell more
            with contextlib.suppress(Exception):
                job.renew(self._trial.number, self.engine.so_far)
            raise LaunchError(
                f"trial {self._trial.number}: the command succeeded, but {self._no_match()}. "
                f"Its output is in {log_file}{_last_lines(child.end_of_output)}"
            )
        if trial.ended is not None and trial.outcome is not None:  # the script reported its own outcome after all
            outcome = trial.outcome
        end = child.end_of_output if outcome.ending is Ending.CRASHED else ""
        return FinishedTrial(outcome, log_file, self._limits.in_force, None if self._ended else status, end)

    # ------------------------------------------------------------------ the watch

    def _watch(self, child: Child) -> Outcome:
        for line, measured in self._seen(child):
            self._read(line, measured)
            if self.outcome is not None:
                self._finish(child, kindly=self.outcome.ending is not Ending.STOPPED)
                return self.outcome
        while (status := child.wait(1.0)) is None:  # it has closed its output but still runs
            pass
        child.check(status)
        self._add(self._split())
        self.feed(*self._script.close(self._used, self._limits.in_force))
        self.feed(Ended(Ending.CRASHED if status else Ending.NOT_CONVERGED))
        assert self.outcome is not None
        return self.outcome

    def _seen(self, child: Child) -> Iterator[tuple[Line, Measurement]]:
        """Each line that matches, with its measurement, until the script has ended."""
        closed, began, matched = False, time.monotonic(), False
        while True:
            if not matched and (self._lines.lines >= SILENT_LINES or time.monotonic() - began >= SILENT_SECONDS):
                matched = True  # warn once
                log.warning("trial %s is running, but so far %s", self._trial.number, self._no_match())
            if time.monotonic() - began >= (most := self._watcher.most_seconds):
                raise LaunchError(f"not enough epochs ended within {most:g} s. Raise --max-seconds.")
            try:
                seen = self._lines.next(LOOK_SECONDS)
            except queue.Empty:
                if not closed and child.wait(0.0) is not None:
                    child.close_output()
                    self._lines.close()
                    closed = True
                continue
            if seen is None:
                return
            matched = True
            yield seen

    def _finish(self, child: Child, kindly: bool) -> None:
        """End the script. If `kindly`, it may save its work until its next epoch begins, or for the grace time."""
        deadline = time.monotonic() + (self._watcher.grace if kindly else 0.0)
        while (left := deadline - time.monotonic()) > 0 and child.wait(0.0) is None:
            try:
                seen = self._lines.next(min(left, LOOK_SECONDS))
            except (queue.Empty, LaunchError):  # lines that cannot be read do not matter any more
                continue
            if seen is None:  # it has closed its output, so it is about to end
                child.wait(left)
            elif seen[0].epoch is not None:
                break
        if child.wait(0.0) is None:
            self._ended = True
            child.end(signal.SIGTERM, grace=self._watcher.grace)

    # ------------------------------------------------------------------ one line

    def _read(self, line: Line, measured: Measurement) -> None:
        self._add(measured)
        is_last = line.metric is not None and self._watcher.job.spec.reached(line.metric)
        self._script, events = self._script.read(line, self._used, self._limits.in_force, is_last=is_last)
        self.feed(*events)
        epochs = [one for one in events if isinstance(one, Measured) and one.kind is Kind.EPOCH and one.count]
        if epochs and self._limits.epoch(self.engine.stretches.values()):
            self._keep_profile()
        if epochs:
            self._epochs += [one.use.seconds for one in epochs]
            self._doubt_first_epoch()
            if len(self._epochs) == 2 and self.engine.metric is None:
                log.warning("trial %s: 2 epochs are over, but so far %s", self._trial.number, self._no_match())
        self._load.renew()  # the limit may have changed
        self._watcher.on_live(Live(self._trial, self.engine.so_far, self._limits.in_force))

    def _no_match(self) -> str:
        """What was looked for in vain: any line, or a metric if epochs were found."""
        metrics, epochs = self._watcher.metrics, self.engine.epochs
        if metrics.file:
            what = "metric" if epochs else "epoch or metric"
            return f"it wrote no {what} to {metrics.file}, the [metrics] file"
        other = f" or epoch_regex = {metrics.epoch_regex!r}" if metrics.epoch_regex and not epochs else ""
        return f"no line of its output matches [metrics] regex = {metrics.regex!r}{other}"

    def _doubt_first_epoch(self) -> None:
        """Warn, at the second epoch of a job's first trial, if the first one seems to hold the start of the script."""
        if len(self._epochs) != 2 or not self._script.ends or self.engine.known.lines_end is not None:
            return
        first, second = self._epochs
        if first > START_UP * second:
            log.warning(
                "trial %d: the first epoch took %.3g s and the second %.3g s. The lines of this script end its epochs, "
                "so its start-up counts as part of the first one. To leave it out, print a line when an epoch begins, "
                'and match that line with epoch_regex and epoch_line = "begin".',
                self._trial.number,
                first,
                second,
            )

    def _keep_profile(self) -> None:
        ask, profile = self._trial.ask, self._limits.profile
        if profile is not None:
            key = ProfileKey(self._watcher.job.spec.id, self._trial.batch_size, ask.gpus.kind, ask.gpus.count)
            self._running.put(key, profile)
        if self._limits.is_settled:
            self._watcher.monitor.watch_closely(False)  # all limits are measured

    # ------------------------------------------------------------------ measuring

    def _split(self) -> Measurement:
        """Measure what was used since the last split."""
        with self._lock:
            return self._watcher.monitor.split_window(WINDOW, sync_execution=False)

    def _add(self, measured: Measurement) -> None:
        self._hours.add(measured)
        self._used += measured.use(self._trial.ask.gpus.include)


def _last_lines(output: str) -> str:
    """The last lines of the output, so that they can be compared with the expressions."""
    lines = [line[:SHOWN_LETTERS] for line in output.splitlines() if line.strip()][-SHOWN_LINES:]
    return ". It ends with:\n" + "\n".join(f"  | {line}" for line in lines) if lines else ", which is empty."


def _ignore(chunk: bytes) -> None:
    """Ignores output, because the metrics are in a file."""
