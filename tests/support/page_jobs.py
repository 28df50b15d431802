"""Small jobs for the page's tests."""

from __future__ import annotations

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import Ending, Gpus, JobSpec, Outcome, Trial
from zeus.launch.recurrence import recur
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store.memory import MemoryStore

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><b>job</b>"
PLACE = Gpus("V100", 1, 250.0)


def fill(store: MemoryStore, name: str, factor: float = 1.0) -> None:
    """A job that has run for a while; 32 never reaches the target."""
    sizes = (8, 16, 32)
    spec = JobSpec(
        job_id=name, job_id_prefix=name, batch_sizes=sizes, default_batch_size=16, mab_seed=1, policy="paper"
    )
    job = RecurringJob.register(LocalJobs(store), spec)

    def run(trial: Trial) -> Outcome:
        epochs = {8: 4, 16: 6, 32: 9}[trial.batch_size]
        reached = trial.batch_size != 32
        return Outcome(
            ending=Ending.CONVERGED if reached else Ending.NOT_CONVERGED,
            joules=1000.0 * factor * epochs,
            seconds=8.0 * epochs,
            epochs=epochs,
            metric=0.6 if reached else 0.2,
        )

    for size in (8, 16):
        slices = [LimitSlice(float(w), 10, 100 / w, 0.8 * 100) for w in (250, 200, 150)]
        store.put_profile(ProfileKey(name, size, "V100", 1), PowerProfile.of(slices))
        job.profiled(size, PLACE, joules=1000.0 * factor, seconds=8.0)
    for _ in range(8):
        recur(job, PLACE, run)
