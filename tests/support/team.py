"""A team's jobs over twelve weeks, as their trainings would have reported them: for journeys through the page.

Time is an argument of the store, and chance a seed. Each job is a model of a workload: an epoch takes less time with a
larger batch, the epochs to the target grow on both sides of the best size, and a power limit saves more than it costs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as fresh

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.errors import InputError
from zeus.job import Ending, EpochPoint, Gpus, JobSpec, Kind, Origin, Outcome, Trial, UsageSegment, replace
from zeus.launch.recurrence import recur
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store import Store
from zeus.store.actor import Actor, acting

DAY = 86_400.0
LIMITS = {"Tesla V100": (100, 125, 150, 175, 200, 225, 250), "NVIDIA H100": (300, 400, 500, 600, 700)}
A_CRASH = """epoch 1 of 40: loss 2.31, val_acc 0.412
Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
  File "train.py", line 61, in main
    loss = step(model, batch)
RuntimeError: shape '[64, 3, 224, 224]' is invalid for input of size 9031680
"""


@dataclass
class Clock:
    """The store's time, moved by hand."""

    now: float

    def __call__(self) -> float:
        return self.now


@dataclass
class Workload:
    """One recurring job of somebody on some host."""

    name: str
    owner: str
    host: str
    sizes: tuple[int, ...]
    default: int
    best: int  # the size that needs the fewest joules
    every: float = 1.0  # days between recurrences
    gpu: str = "Tesla V100"
    count: int = 1
    epochs: float = 12.0  # to the target at the best size
    epoch_seconds: float = 240.0  # of the default size
    target: float = 0.76
    eta: float = 0.5
    steep: float = 0.3  # how many more epochs other sizes need
    drift: float = 1.0  # factor on the epochs of all sizes but the default, from the tenth recurrence on
    crashes: frozenset[int] = frozenset()  # recurrences whose trials all crash
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def actor(self) -> Actor:
        """Whoever registers it, through a service."""
        team, _, name = self.owner.partition("/")
        return Actor(name, "10.0.3.7", self.owner, team, may_all=False)

    @property
    def origin(self) -> Origin:
        name = self.actor.name
        return Origin(name, self.host, f"/home/{name}/{self.name}")

    @property
    def gpus(self) -> Gpus:
        return Gpus(self.gpu, self.count, self.count * max(LIMITS[self.gpu]))

    def spec(self) -> JobSpec:
        return JobSpec(
            job_id=self.name,
            job_id_prefix=self.name,
            batch_sizes=self.sizes,
            default_batch_size=self.default,
            target_metric=self.target,
            max_epochs=40,
            eta_knob=self.eta,
            mab_seed=1,
            command=f"python train.py --data {self.name} --batch-size {{batch_size}} --lr {{learning_rate}}",
        )

    def use(self, size: int, watts: float) -> tuple[float, float]:
        """Joules and seconds of an epoch at this limit of each GPU."""
        top = max(LIMITS[self.gpu])
        drawn = top * min(0.97, 0.72 + 0.05 * math.log2(size / self.sizes[0]))
        seconds = self.epoch_seconds * (self.default / size) ** 0.3 * max(1.0, (drawn / watts)) ** 0.35
        return min(drawn, watts) * self.count * seconds, seconds

    def best_limit(self, size: int) -> float:
        def cost(watts: float) -> float:
            joules, seconds = self.use(size, watts)
            return self.eta * joules + (1 - self.eta) * self.gpus.max_watts * seconds

        return min(LIMITS[self.gpu], key=cost)

    def cost(self, outcome: Outcome) -> float:
        """Equation 2."""
        return self.eta * (outcome.joules or 0.0) + (1 - self.eta) * self.gpus.max_watts * outcome.seconds

    def needed(self, trial: Trial) -> int:
        """Epochs to the target."""
        away = abs(math.log2(trial.batch_size / self.best))
        late = self.drift if trial.ask.recurrence >= 10 and trial.batch_size != self.default else 1.0
        return max(3, round(self.epochs * (1 + self.steep * away**1.5) * late * self.rng.gauss(1, 0.06)))

    def epoch(self, trial: Trial, number: int, needed: int) -> EpochPoint:
        """The first epoch visits other limits, to profile them."""
        limit = max(LIMITS[self.gpu]) if number == 1 else self.best_limit(trial.batch_size)
        joules, seconds = self.use(trial.batch_size, limit)
        noise = self.rng.gauss(1, 0.015)
        metric = self.target * (1 - math.exp(-3.2 * number / needed)) / (1 - math.exp(-3.2))
        metric *= 1.0 if number >= needed else self.rng.uniform(0.985, 0.999)
        return EpochPoint(number, round(metric, 4), joules * noise, seconds * noise, limit)

    def outcome(self, trial: Trial, ending: Ending, epochs: int, needed: int) -> Outcome:
        """What a trial reports after so many epochs."""
        curve = tuple(self.epoch(trial, n + 1, needed) for n in range(epochs))
        sums: dict[float, UsageSegment] = {}
        for point in curve:
            limit = point.limit_watts or 0.0
            one = UsageSegment.of(Kind.EPOCH, limit, point.number == 1, 1, point.joules, point.seconds)
            sums[limit] = sums[limit] + one if limit in sums else one
        return Outcome(
            ending=ending,
            joules=sum(point.joules or 0.0 for point in curve),
            seconds=sum(point.seconds for point in curve),
            epochs=epochs,
            metric=curve[-1].metric if curve else None,
            curve=curve,
            stretches=tuple(sums.values()),
            found_watts=max(LIMITS[self.gpu]),
            set_limits=True,
        )


TEAM = (
    Workload("sentiment-nightly", "nlp/alice", "gpu-03", (32, 64, 128, 256, 512), 64, 256, steep=0.5),
    Workload("speech-wer", "speech/bo", "gpu-07", (16, 32, 64, 128), 32, 64, 2.0, count=2, epochs=9, target=0.91),
    Workload(
        "recsys-ctr", "ads/chen", "h100-1", (512, 1024, 2048, 4096), 1024, 2048, 0.5, "NVIDIA H100", epoch_seconds=150
    ),
    Workload("image-quality", "vision/dora", "gpu-03", (64, 128, 256), 128, 128, 3.0, epochs=16, drift=1.9),
    Workload("translate-de", "nlp/alice", "h100-2", (64, 128, 256), 128, 256, 7.0, "NVIDIA H100", 4, epochs=7),
    Workload("forecast", "ads/chen", "gpu-07", (16, 32, 64, 128, 256), 64, 64, 9.0, epochs=14, steep=1.6),
    Workload("defects", "vision/emil", "gpu-07", (32, 64, 128), 64, 64, 2.0, crashes=frozenset(range(30, 99))),
)
RUNNING = {"sentiment-nightly": 6, "recsys-ctr": 3}  # epochs that are done in a trial that runs now
WEEKS = 12


def live_through(store: Store, clock: Clock, weeks: int = WEEKS) -> None:
    """Let the team's jobs recur up to now, where the clock stands, and leave some of them running."""
    until = clock.now
    clock.now -= weeks * 7 * DAY
    team = [fresh(one, rng=random.Random(7)) for one in TEAM]
    jobs = {one.name: _registered(store, one) for one in team}
    for at, one in sorted(_due(team, clock.now, weeks), key=lambda pair: pair[0]):
        clock.now = at
        with acting(one.actor), suppress(InputError):  # every size has crashed
            _recurrence(store, jobs[one.name], one, clock)
    for one in team:
        if one.name in RUNNING:
            _run_now(jobs[one.name], one, clock, until)
    clock.now = until


def _due(team: list[Workload], begin: float, weeks: int) -> Iterator[tuple[float, Workload]]:
    for offset, one in enumerate(team):
        yield from ((begin + DAY * one.every * n + 3600.0 * offset, one) for n in range(int(weeks * 7 / one.every)))


def _registered(store: Store, one: Workload) -> RecurringJob:
    with acting(one.actor):
        job = RecurringJob.register(LocalJobs(store, origin=lambda: one.origin), one.spec())
        for size in one.sizes:
            uses = [(float(watts), *one.use(size, watts)) for watts in LIMITS[one.gpu]]
            slices = [LimitSlice(watts, 40, seconds / 22, joules / 22 / one.count) for watts, joules, seconds in uses]
            store.put_profile(ProfileKey(one.name, size, one.gpu, one.count), PowerProfile.of(slices))
    return job


def _run_now(job: RecurringJob, one: Workload, clock: Clock, until: float) -> None:
    with acting(one.actor):
        clock.now = until - 1800.0
        trial = job.ask(one.gpus)
        clock.now = until - 20.0
        job.renew(trial.number, one.outcome(trial, Ending.LOST, RUNNING[one.name], one.needed(trial)))


def _recurrence(store: Store, job: RecurringJob, one: Workload, clock: Clock) -> None:
    def run(trial: Trial) -> Outcome:
        if trial.ask.recurrence in one.crashes:
            clock.now += 60
            store.logs.keep(one.name, trial.number, A_CRASH)
            return Outcome(ending=Ending.CRASHED, joules=9_000.0, seconds=55.0)
        needed = one.needed(trial)
        found, limit = one.outcome(trial, Ending.CONVERGED, needed, needed), trial.decision.cost_limit
        for n in range(1, needed):
            so_far = one.outcome(trial, Ending.STOPPED, n, needed)
            if limit is not None and one.cost(so_far) * (n + 1) / n > limit:
                found = replace(so_far, next_epoch_cost=one.cost(so_far) / n)
                break
        clock.now += found.seconds
        store.logs.keep(one.name, trial.number, printed(found))
        return found

    recur(job, one.gpus, run)


def printed(outcome: Outcome) -> str:
    """What the training script printed."""
    lines = [f"epoch {one.number} of 40: val_acc {one.metric}, {one.seconds:.0f} s" for one in outcome.curve]
    return "\n".join([*lines, "target reached" if outcome.ending is Ending.CONVERGED else "stopped by Zeus"]) + "\n"
