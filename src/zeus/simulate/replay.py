"""Replays a policy against a known workload: the same decisions as in a real job, charged by the trace (§6.1).

    submit ──▶ ask ──▶ [first epoch, if it profiles] ──▶ the rest ──▶ tell ──▶ over
                ▲                                                      │
                └────────────── missed the target: another try ◀───────┘

With `concurrency` K, K recurrences are in flight (§4.4): the next is submitted when one is over. What happens is in the
order of simulated time, so that a decision knows what has ended by then, and which trials are still open.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

from zeus.errors import InputError
from zeus.job import MAX_TRIES, Ask, Decision, Ending, JobSpec, Outcome, Profiled, Trial
from zeus.optimizer.batch_size.policy import Policy
from zeus.simulate.limits import JustInTime, Limits, Plan
from zeus.simulate.workload import Workload


@dataclass(frozen=True, slots=True)
class Try:
    """One run of a recurrence."""

    decision: Decision
    limit_watts: float
    outcome: Outcome
    cost: float
    charged: bool = True


@dataclass(frozen=True, slots=True)
class Recurrence:
    """All tries of one recurrence."""

    tries: tuple[Try, ...]

    @property
    def converged(self) -> bool:
        """Whether the last try reached the target."""
        return self.tries[-1].outcome.ending is Ending.CONVERGED

    @property
    def cost(self) -> float:
        """Equation 2 over all tries."""
        return sum(one.cost for one in self.tries if one.charged)

    @property
    def joules(self) -> float:
        """Energy of all tries."""
        return sum(one.outcome.joules or 0.0 for one in self.tries if one.charged)

    @property
    def seconds(self) -> float:
        """Time of all tries."""
        return sum(one.outcome.seconds for one in self.tries if one.charged)

    @property
    def choice(self) -> tuple[int, float]:
        """Batch size and power limit of the last try."""
        return self.tries[-1].decision.batch_size, self.tries[-1].limit_watts

    def charged_if_converged(self) -> Recurrence:
        """The same, but tries that missed the target are free."""
        return Recurrence(tuple(replace(t, charged=t.outcome.ending is Ending.CONVERGED) for t in self.tries))


def job_of(workload: Workload, **knobs: Any) -> JobSpec:
    """The workload as a job; `knobs` are JobSpec's own."""
    return JobSpec(
        job_id=f"{workload.name} on {workload.gpu}",
        job_id_prefix=workload.name,
        batch_sizes=workload.sizes,
        default_batch_size=workload.default,
        max_epochs=workload.max_epochs,
        **knobs,
    )


def draw(workload: Workload, seed: int, recurrence: int, attempt: int, size: int) -> int | None:
    """A traced run of this size: the epochs that it needed. Policies meet the same luck."""
    runs = workload.runs[size]
    key = blake2b(b"%d:%d:%d:%d" % (seed, recurrence, attempt, size), digest_size=8)
    return runs[int.from_bytes(key.digest(), "big") % len(runs)]


def replay(
    workload: Workload,
    policy: Policy[Any],
    job: JobSpec,
    seed: int,
    *,
    limits: Callable[[Workload, float], Limits] = JustInTime,
    concurrency: int = 1,
    recurrences: int | None = None,
) -> Iterator[Recurrence]:
    """One recurrence after another, in the order in which they were submitted: so many of them, or for ever."""
    if concurrency < 1:
        raise InputError(f"concurrency={concurrency}: at least one recurrence is in flight.")
    world = World(workload, policy, job, seed, limits(workload, job.eta_knob))
    flight: list[tuple[float, int, Flight]] = []  # by when something next happens to each
    over: dict[int, Recurrence] = {}
    now, submitted, following = 0.0, 0, 1
    while True:
        while len(flight) < concurrency and submitted != recurrences:
            submitted += 1
            one = world.submit(submitted)
            heappush(flight, (now + one.run.seconds, submitted, one))
        if not flight:
            return
        now, number, one = heappop(flight)
        if world.goes_on(one):
            heappush(flight, (now + one.run.seconds, number, one))
            continue
        over[number] = Recurrence(tuple(one.tries))
        while following in over:
            yield over.pop(following)
            following += 1


def replay_each(
    workloads: Iterable[Workload],
    policy: Policy[Any],
    job: JobSpec,
    seed: int,
    *,
    limits: Callable[[Workload, float], Limits] = JustInTime,
) -> Iterator[Recurrence]:
    """One recurrence after another, each on the next of these: one job whose data drift (§6.4).

    They differ in the epochs that runs need. What an epoch uses is profiled once, so it is taken from the first. As in
    real runs the last try has no bound: else a rise of all costs would stop every run for ever.
    """
    world: World | None = None
    for recurrence, workload in enumerate(workloads, start=1):
        world = world or World(workload, policy, job, seed, limits(workload, job.eta_knob), frees_last_try=True)
        world.workload = workload
        one = world.submit(recurrence)
        while world.goes_on(one):
            pass
        yield Recurrence(tuple(one.tries))


@dataclass(frozen=True, slots=True)
class Run:
    """A run under way: after so many more seconds its profile is there, or its outcome."""

    trial: Trial
    plan: Plan
    seconds: float
    outcome: Outcome | None  # None while its first epoch profiles


@dataclass(slots=True)
class Flight:
    """A recurrence in flight: its present run, and the tries before."""

    recurrence: int
    run: Run
    tries: list[Try]


class World:
    """A job on a GPU: what its policy knows, what has been profiled, and chance.

    Whoever drives it keeps the time: each flight says in how many seconds something happens to its run.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy[Any],
        job: JobSpec,
        seed: int,
        limits: Limits,
        *,
        frees_last_try: bool = False,
    ) -> None:
        self.workload = workload
        self._frees_last_try = frees_last_try
        self._policy = policy
        self._limits = limits
        self._seed = seed
        self._cost = workload.cost_model(job.eta_knob)
        self._monotone = getattr(policy, "monotone", False)
        self._state = policy.start(job)
        # One stream for all decisions: here none has to be made again alone, and a new one for each takes a tenth of
        # the time of a replay.
        self._rng = random.Random(seed)
        self._sequence = 0
        self._number = 0

    def submit(self, recurrence: int) -> Flight:
        """A recurrence begins."""
        return Flight(recurrence, self.ask(recurrence, 1), [])

    def ask(self, recurrence: int, attempt: int) -> Run:
        """Decide, and begin to run."""
        self._number += 1
        ask = Ask(
            number=self._number,
            recurrence=recurrence,
            attempt=attempt,
            gpu_model=self.workload.gpu,
            max_watts=self.workload.max_watts,
            last=self._frees_last_try and attempt == MAX_TRIES,
        )
        decision = self._policy.decide(self._state, self._rng, ask)
        trial = Trial(ask=ask, decision=decision, asked=self._next())
        self._state = self._policy.observe(self._state, trial)
        plan = self._limits.plan(decision)
        if plan.profiles and self._may_begin(trial, plan, 0):
            return Run(trial, plan, plan.first.seconds, None)
        outcome = self._run(trial, plan, 0)
        return Run(trial, plan, outcome.seconds, outcome)

    def goes_on(self, one: Flight) -> bool:
        """What was awaited has happened. Whether something else is to come, or this recurrence is over."""
        trial, plan, outcome = one.run.trial, one.run.plan, one.run.outcome
        if outcome is None:
            self._learn(trial, plan)
            outcome = self._run(trial, plan, 1)
            one.run = Run(trial, plan, outcome.seconds - plan.first.seconds, outcome)
            return True
        self._state = self._policy.observe(self._state, trial.end(self._next(), outcome))
        if outcome.epochs:  # a size of which not even one epoch fits is not run: no try, no charge
            cost = self._cost.cost(outcome.joules or 0.0, outcome.seconds)
            one.tries.append(Try(trial.decision, plan.limit_watts, outcome, cost))
        if outcome.ending is Ending.CONVERGED or len(one.tries) == MAX_TRIES:
            return False
        one.run = self.ask(one.recurrence, len(one.tries) + 1)
        return True

    def _run(self, trial: Trial, plan: Plan, done: int) -> Outcome:
        """How a run ends of which this many epochs are done. It depends on (seed, recurrence, try, size) alone."""
        ask = trial.ask
        needed = draw(self.workload, self._seed, ask.recurrence, ask.attempt, trial.batch_size)
        reaches = needed is not None and needed <= self.workload.max_epochs
        last = needed if needed is not None and reaches else self.workload.max_epochs
        epochs = self._stop(trial, plan, done, last)
        joules = plan.first.joules + (epochs - 1) * plan.rest.joules if epochs else 0.0
        seconds = plan.first.seconds + (epochs - 1) * plan.rest.seconds if epochs else 0.0
        if epochs == last:
            ending = Ending.CONVERGED if reaches else Ending.NOT_CONVERGED
            return Outcome(ending=ending, joules=joules, seconds=seconds, epochs=epochs)
        following = self._cost.cost(*(plan.rest if epochs else plan.first))
        return Outcome(ending=Ending.STOPPED, joules=joules, seconds=seconds, epochs=epochs, next_epoch_cost=following)

    def _stop(self, trial: Trial, plan: Plan, done: int, last: int) -> int:
        """After how many epochs the policy stops it, or `last`."""
        if not self._monotone:
            return next((n for n in range(done, last) if not self._may_begin(trial, plan, n)), last)
        if done >= last or self._may_begin(trial, plan, last - 1):  # then it went on before, too
            return last
        return done + bisect_left(range(done, last), True, key=lambda n: not self._may_begin(trial, plan, n))

    def _may_begin(self, trial: Trial, plan: Plan, epochs: int) -> bool:
        """Whether the policy lets it begin the next epoch after this many."""
        cost = self._cost.cost(
            plan.first.joules + epochs * plan.rest.joules, plan.first.seconds + epochs * plan.rest.seconds
        )
        return self._policy.keep_going(self._state, trial, epochs, cost)

    def _learn(self, trial: Trial, plan: Plan) -> None:
        use = self._limits.learn(trial.decision, plan)
        if use is not None:
            known = Profiled(
                sequence=self._next(),
                batch_size=trial.batch_size,
                gpu_model=self.workload.gpu,
                joules=use.joules,
                seconds=use.seconds,
                max_watts=self.workload.max_watts,
            )
            self._state = self._policy.observe(self._state, known)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence
