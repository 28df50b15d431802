"""Simulated trainings whose truth is known: what a unit uses at each limit, and so what the default would have used.

A world reports only what a real shell would report about its runs: totals, stretches and a curve.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from zeus.cost import Use
from zeus.job import (
    Ask,
    Decision,
    Ending,
    EpochPoint,
    Gpus,
    JobSpec,
    Kind,
    Outcome,
    Phase,
    Trial,
    TrialRecord,
    UsageSegment,
)

LIMITS = (250.0, 200.0, 150.0)
TOP = LIMITS[0]
SIZES = (8, 16, 32)
GPUS = Gpus("V100", 1, 300.0)
SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=SIZES, default_batch_size=16, mab_seed=0)
LOOKS = 4  # measurements of an epoch where steps can be seen
STEPS = 100  # of an epoch of the default size in the first recurrence


@dataclass
class World:
    """One job, run by run."""

    kind: Kind  # of its units
    epoch: dict[tuple[int, float], Use]  # training, by size and limit, in the first recurrence
    evaluation: dict[float, Use]  # after each epoch, by limit
    warm_up: Use  # more of the first epoch, whatever the limit
    epochs: dict[int, int]  # that a run of each size needs
    growth: float = 1.0  # of the data, from recurrence to recurrence
    noise: float = 0.0  # relative standard deviation of a measurement
    luck: float = 0.0  # relative standard deviation of the epochs that a run needs
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    kepts: list[TrialRecord] = field(default_factory=list)
    at_top: dict[int, Use] = field(default_factory=dict)  # of each trial: what it would have used at the highest

    def level(self, recurrence: int) -> float:
        """How data have grown; whole steps only."""
        exact = self.growth ** (recurrence - 1)
        return round(STEPS * exact) / STEPS if self.kind is Kind.STEP else exact

    def steps(self, recurrence: int, size: int) -> int:
        """Of an epoch."""
        return round(STEPS * self.level(recurrence) * SPEC.default_batch_size / size)

    def default(self, recurrence: int) -> Use:
        """What a run with the defaults is expected to use then."""
        one = self.epoch[SPEC.default_batch_size, TOP] + self.evaluation[TOP]
        return one.times(self.epochs[SPEC.default_batch_size] * self.level(recurrence)) + self.warm_up

    def run(
        self, recurrence: int, size: int, limits: Sequence[float] = (), *, ending: Ending = Ending.CONVERGED
    ) -> None:
        """One more trial. The last of the limits stays to the end; none given: the highest throughout."""
        number = len(self.kepts) + 1
        count = len(limits) or 1
        if ending is Ending.CONVERGED:
            count = max(1, round(self.epochs[size] * (1 + self.luck * self.rng.gauss(0, 1))))
        used, there, stretches, curve = Use(), Use(), dict[tuple[Kind, float, bool], UsageSegment](), []
        for n in range(count):
            limit = (*limits, TOP)[min(n, max(0, len(limits) - 1))] if limits else TOP
            epoch, top = Use(), Use()
            for kind, use, of_top, units in self._parts(recurrence, size, limit, cold=n == 0):
                measured = use * self._noise()
                row = UsageSegment.of(kind, limit, n == 0, units, measured.joules, measured.seconds)
                sort = (kind, limit, n == 0)
                stretches[sort] = stretches[sort] + row if sort in stretches else row
                epoch, top = epoch + measured, top + of_top * measured / use
            curve.append(EpochPoint(n + 1, None, epoch.joules, epoch.seconds, limit))
            used, there = used + epoch, there + top
        set_up = UsageSegment.of(Kind.SET_UP, TOP, True, 1, 1e6, 1e4)
        outcome = Outcome(
            ending=ending,
            joules=used.joules,
            seconds=used.seconds,
            epochs=count,
            stretches=(set_up, *stretches.values()),
            curve=tuple(curve),
            found_watts=TOP,
            set_limits=True,
            samples=self.steps(recurrence, size) * size if self.kind is Kind.STEP else None,
        )
        self.at_top[number] = there
        self.kepts.append(kept(number, recurrence, size, outcome))

    def survey(self) -> None:
        """The first recurrence: a short try of each other size at each limit, and a run of the default one."""
        walk = (TOP, *LIMITS)
        for size in SIZES:
            if size != SPEC.default_batch_size:
                self.run(1, size, walk, ending=Ending.STOPPED)
        self.run(1, SPEC.default_batch_size, walk)

    def _parts(self, recurrence: int, size: int, limit: float, *, cold: bool) -> list[tuple[Kind, Use, Use, int]]:
        """What an epoch is measured as: kind, use, use at the highest limit, units."""
        level = self.level(recurrence)
        extra = self.warm_up if cold else Use()
        here, top = (self.epoch[size, one].times(level) for one in (limit, TOP))
        after, after_top = (self.evaluation[one].times(level) for one in (limit, TOP))
        if self.kind is Kind.EPOCH:
            return [(Kind.EPOCH, here + after + extra, top + after_top + extra, 1)]
        steps = self.steps(recurrence, size)
        parts = [steps // LOOKS + (n < steps % LOOKS) for n in range(LOOKS)]
        rows = [
            (Kind.STEP, (here + extra).times(part / steps), (top + extra).times(part / steps), part) for part in parts
        ]
        return rows if not after.joules else [*rows, (Kind.EVALUATION, after, after_top, 1)]

    def _noise(self) -> Use:
        return Use(*(max(0.1, 1 + self.noise * self.rng.gauss(0, 1)) for _ in range(2)))


def kept(
    number: int, recurrence: int, size: int, outcome: Outcome, *, gpus: Gpus = GPUS, last: bool = False
) -> TrialRecord:
    """A trial that is over, as a store has it; its number also makes its sequence numbers."""
    ask = Ask(number=number, recurrence=recurrence, gpus=gpus, eta=SPEC.eta_knob, last=last)
    trial = Trial(ask=ask, decision=Decision(size, Phase.SAMPLING, "why not"), asked=2 * number - 1)
    trial = trial.lose(2 * number, outcome) if outcome.ending is Ending.LOST else trial.end(2 * number, outcome)
    return TrialRecord(trial=trial, asked_at="", changed_at="", leased_until=None)


def steady_world(kind: Kind = Kind.EPOCH, growth: float = 1.0) -> World:
    """A job without noise or warm-up, whose runs need six epochs."""
    limits = {TOP: 1.0, 200.0: 0.9, 150.0: 0.8}
    return World(
        kind=kind,
        epoch={(size, limit): Use(100.0 * by, 10.0 / by) for size in SIZES for limit, by in limits.items()},
        evaluation=dict.fromkeys(LIMITS, Use()),
        warm_up=Use(),
        epochs=dict.fromkeys(SIZES, 6),
        growth=growth,
    )
