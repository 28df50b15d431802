"""One recurrence (Journey 3): ask, run, tell, and again with another size where that try did not reach the target.

    ask ──▶ run ──▶ tell ──▶ converged ───────▶ over
     ▲                 │
     └── tries left ───┴───▶ the last try, or every size has missed the target twice ────▶ over, failed

Knows no process: what `run` does, a command or a function, is its own affair.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from zeus.job import MAX_TRIES, Ending, Gpus, Outcome, Trial
from zeus.job.charge import Spent, Tally
from zeus.jobs.api import RecurringJob
from zeus.store.rules import is_over

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaunchedRecurrence:
    """All tries of one recurrence, each as it ended."""

    tries: tuple[Trial, ...]

    @property
    def number(self) -> int:
        """Which one it is of its job."""
        return self.tries[0].ask.recurrence

    @property
    def converged(self) -> bool:
        """Whether the last try reached the target."""
        return self.tries[-1].ending is Ending.CONVERGED

    def use(self, eta: float) -> Spent | None:
        """What all tries used, with C_t, their cost (Equation 2); None where that is not known."""
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
) -> LaunchedRecurrence:
    """One recurrence: tries until one reaches the target or none is left.

    Args:
        job: What recurs.
        gpus: The GPUs that each try runs on.
        run: Runs one trial and says how it ended; it may have told so itself. Where it raises, the trial is given up
            as LOST, with what its last renewal said it used, and the recurrence is left as it is.
        max_tries: The last of them runs the best known size with no bound. A size of which not even one epoch fits is
            not run and costs nothing, but counts, so that no policy can keep a recurrence from ending.
        on_change: Told of each trial when it was asked for and when it has ended.

    >>> from zeus.job import JobSpec
    >>> from zeus.jobs.local import LocalJob
    >>> from zeus.store.memory import MemoryStore
    >>> spec = JobSpec(job_id_prefix="asr", batch_sizes=[8, 16, 32], default_batch_size=16, eta_knob=1)
    >>> job = LocalJob.register(MemoryStore(), spec)
    >>> def run(trial):
    ...     ending = Ending.CONVERGED if trial.batch_size < 16 else Ending.NOT_CONVERGED
    ...     return Outcome(ending=ending, joules=1000.0, seconds=10.0, epochs=3)
    >>> once = recur(job, Gpus("V100", 1, 250.0), run)
    >>> [one.batch_size for one in once.tries], once.converged, once.use(spec.eta_knob).cost
    ([16, 8], True, 2000.0)
    """
    tries: list[Trial] = []
    while not is_over(job.spec, tries):
        trial = job.ask(gpus, tries[0].ask.recurrence if tries else None, max_tries)
        on_change(trial)
        try:
            outcome = run(trial)
        except BaseException:
            _give_up(job, trial, on_change)
            raise
        tries.append(job.tell(trial.number, outcome))
        on_change(tries[-1])
    return LaunchedRecurrence(tuple(tries))


def _give_up(job: RecurringJob, trial: Trial, on_change: Callable[[Trial], None]) -> None:
    """Whatever this runs into, what ended the trial is what the user must see."""
    try:
        so_far = job.so_far(trial.number)
        on_change(job.tell(trial.number, so_far or Outcome(ending=Ending.LOST)))
    except Exception as failed:
        log.warning("trial %s could not be given up, and is lost when its lease lapses: %s", trial.number, failed)
