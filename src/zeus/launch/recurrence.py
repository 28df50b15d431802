"""One recurrence: ask, run, tell, and again with another batch size if that trial did not reach the target.

    ask ──▶ run ──▶ tell ──▶ converged ───────▶ over
     ▲                 │
     └── trials left ──┴───▶ the last trial, or every size has missed the target twice ──▶ over, failed
                             or FULL_MISSES full-length trials of a job that never converged

If a run is interrupted, a later one with the same key continues its recurrence. It asks as the first one did, and the
store returns the same trials: those that ended are not run again, and an open one is given up as LOST.

This module starts no process: `run` may start a command or call a function.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from zeus.client.recurring import RecurringJob
from zeus.job import MAX_TRIES, Ending, Gpus, Outcome, Trial
from zeus.ledger.charge import Spent, Tally
from zeus.store.rules import is_over

log = logging.getLogger(__name__)

FULL_MISSES = 3  # full-length trials of one recurrence that miss the target, while the job has never reached it


@dataclass(frozen=True, slots=True)
class LaunchedRecurrence:
    """The ended trials of one recurrence."""

    tries: tuple[Trial, ...]

    @property
    def number(self) -> int:
        """The recurrence's number within its job."""
        return self.tries[0].ask.recurrence

    @property
    def converged(self) -> bool:
        return self.tries[-1].ending is Ending.CONVERGED

    def use(self, eta: float) -> Spent | None:
        """What all trials used and their cost C_t (Equation 2), or None if that is not known."""
        tally = Tally()
        for one in self.tries:
            tally = tally.add(one.outcome, eta, one.ask.max_watts)
        return tally.total


def recur(
    job: RecurringJob,
    gpus: Gpus,
    run: Callable[[Trial], Outcome],
    *,
    max_tries: int = MAX_TRIES,
    on_change: Callable[[Trial], None] = lambda trial: None,
    key: str | None = None,
    earlier: Container[int] = (),
    ever_converged: Callable[[], bool] = lambda: True,
) -> LaunchedRecurrence:
    """Run one recurrence: open trials until the target is reached or none is left.

    Args:
        job: The job.
        gpus: The GPUs that each trial runs on.
        run: Runs one trial and returns its outcome, which it may also have reported itself. If it raises, the trial
            is given up as LOST with the use of its last renewal, and the recurrence stays unfinished. The same holds
            if it returns LOST, but then nothing is raised.
        max_tries: The last trial runs the best size so far with no cost limit. A size whose first epoch would exceed
            its cost limit is not run and costs nothing, but counts as a trial, so that every recurrence ends.
        on_change: Called for each trial when it is opened and when it has ended.
        key: Identifies the recurrence, so that it can be continued. No two runs at a time may use the same key.
        earlier: Numbers of trials that were opened before this run. With a key, these are continued and not run.
        ever_converged: Whether any trial of the job has reached the target. If none has, the recurrence ends after
            FULL_MISSES full-length trials: the target may be wrong, and each further trial costs as much.

    >>> from zeus.job import JobSpec
    >>> from zeus.client.local import LocalJobs
    >>> from zeus.store import MemoryStore
    >>> spec = JobSpec(job_id_prefix="asr", batch_sizes=[8, 16, 32], default_batch_size=16, eta_knob=1)
    >>> job = RecurringJob.register(LocalJobs(MemoryStore()), spec)
    >>> def run(trial):
    ...     ending = Ending.CONVERGED if trial.batch_size < 16 else Ending.NOT_CONVERGED
    ...     return Outcome(ending=ending, joules=1000.0, seconds=10.0, epochs=3)
    >>> once = recur(job, Gpus("V100", 1, 250.0), run)
    >>> [one.batch_size for one in once.tries], once.converged, once.use(spec.eta_knob).cost
    ([16, 8], True, 2000.0)
    """
    tries: list[Trial] = []
    while not is_over(job.spec, tries) and (full_misses(tries) < FULL_MISSES or ever_converged()):
        asked = None if key is None else f"{key}.{len(tries) + 1}"
        trial = job.ask(gpus, tries[0].ask.recurrence if tries else None, max_tries, key=asked)
        on_change(Trial(ask=trial.ask, decision=trial.decision, asked=trial.asked))
        if trial.ending is not Ending.OPEN or trial.number in earlier:
            tries.append(_tell_lost(job, trial) if trial.ending is Ending.OPEN else trial)
            on_change(tries[-1])
            continue
        try:
            outcome = run(trial)
        except BaseException:
            _give_up(job, trial, on_change)
            raise
        tries.append(job.tell(trial.number, outcome))
        on_change(tries[-1])
        if tries[-1].ending is Ending.LOST:
            break
    return LaunchedRecurrence(tuple(tries))


def full_misses(tries: Sequence[Trial]) -> int:
    """How many of these trials ran to their end and missed the target."""
    return sum(one.ending is Ending.NOT_CONVERGED for one in tries)


def _tell_lost(job: RecurringJob, trial: Trial) -> Trial:
    """Tell that the trial is lost, with what it had used at its last renewal."""
    return job.tell(trial.number, job.so_far(trial.number) or Outcome(ending=Ending.LOST))


def _give_up(job: RecurringJob, trial: Trial, on_change: Callable[[Trial], None]) -> None:
    """Give up a trial. This never raises, because the user must see the exception that ended it."""
    try:
        on_change(_tell_lost(job, trial))
    except Exception as failed:
        log.warning("trial %s could not be marked as lost; it is lost when its lease lapses: %s", trial.number, failed)
