"""Replays a policy on a known workload (§6.1).

    submit ──▶ ask ──▶ [first epoch, if it profiles] ──▶ the rest ──▶ tell ──▶ over
                ▲                                                      │
                └───────────── missed the target: another trial ◀──────┘

A replay uses the code of real jobs. Asks and recurrences follow the rules of the store, the policy decides with each
trial's own random numbers, the trial engine ends runs, and the ledger says what they cost. Only time and energy are
looked up in the trace instead of measured.

With `concurrency` K, K recurrences run at a time (§4.4), and the next is submitted when one is over. Events happen in
the order of simulated time. So a decision knows which trials have ended by then, and which are still open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

import msgspec

from zeus.cost import Use
from zeus.errors import InputError
from zeus.job import Decision, Ending, Gpus, JobSpec, Outcome, Phase, Profiled, Trial, replace
from zeus.policy.api import Policy, decided
from zeus.simulate.limit_plans import JustInTime, LimitPlan, Limits
from zeus.simulate.workload import Workload
from zeus.store.api import Request
from zeus.store.rules import is_over, next_ask
from zeus.trial.closed_form import run_through
from zeus.trial.estimate import first_epoch
from zeus.trial.knowledge import from_epochs


class ReplayedTrial(msgspec.Struct, frozen=True):
    """One trial of a recurrence, with what it cost."""

    decision: Decision
    limit_watts: float
    outcome: Outcome
    cost: float
    charged: bool = True


class ReplayedRecurrence(msgspec.Struct, frozen=True):
    """All trials of one recurrence."""

    tries: tuple[ReplayedTrial, ...]

    @property
    def converged(self) -> bool:
        """Whether the last trial reached the target."""
        return self.tries[-1].outcome.ending is Ending.CONVERGED

    @property
    def cost(self) -> float:
        """Equation 2, summed over all charged trials."""
        return sum(one.cost for one in self.tries if one.charged)

    @property
    def joules(self) -> float:
        return sum(one.outcome.joules or 0.0 for one in self.tries if one.charged)

    @property
    def seconds(self) -> float:
        return sum(one.outcome.seconds for one in self.tries if one.charged)

    @property
    def choice(self) -> tuple[int, float]:
        """Batch size and power limit of the last trial."""
        return self.tries[-1].decision.batch_size, self.tries[-1].limit_watts

    def charged_if_converged(self) -> ReplayedRecurrence:
        """The same recurrence, but trials that missed the target are free."""
        return ReplayedRecurrence(tuple(replace(t, charged=t.outcome.ending is Ending.CONVERGED) for t in self.tries))


def job_of(workload: Workload, **knobs: Any) -> JobSpec:
    """The workload as a job. `knobs` are passed on to JobSpec."""
    return JobSpec(
        job_id=f"{workload.name} on {workload.gpu}",
        job_id_prefix=workload.name,
        batch_sizes=workload.sizes,
        default_batch_size=workload.default,
        max_epochs=workload.max_epochs,
        **knobs,
    )


def draw(workload: Workload, seed: int, recurrence: int, attempt: int, size: int) -> int | None:
    """Draw a traced run of this size and return its epochs to target. The draw is the same for every policy."""
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
) -> Iterator[ReplayedRecurrence]:
    """Replay recurrences and yield them in the order of submission. Without `recurrences` there is no end."""
    if concurrency < 1:
        raise InputError(f"concurrency is {concurrency}; it must be at least 1.")
    simulated = SimulatedJob(workload, policy, job, seed, limits(workload, job.eta_knob), alone=concurrency == 1)
    running: list[tuple[float, int, RunningRecurrence]] = []  # by the time of their next event
    over: dict[int, ReplayedRecurrence] = {}
    now, submitted, following = 0.0, 0, 1
    while True:
        while len(running) < concurrency and submitted != recurrences:
            submitted += 1
            one = simulated.submit(submitted)
            heappush(running, (now + one.run.seconds, submitted, one))
        if not running:
            return
        now, number, one = heappop(running)
        if simulated.goes_on(one):
            heappush(running, (now + one.run.seconds, number, one))
            continue
        over[number] = ReplayedRecurrence(tuple(one.tries))
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
) -> Iterator[ReplayedRecurrence]:
    """Replay one recurrence on each workload: one job whose data drift (§6.4).

    The workloads may differ only in the epochs that runs need. What an epoch uses is taken from the first one.
    """
    simulated: SimulatedJob | None = None
    for recurrence, workload in enumerate(workloads, start=1):
        simulated = simulated or SimulatedJob(workload, policy, job, seed, limits(workload, job.eta_knob))
        simulated.workload = workload
        one = simulated.submit(recurrence)
        while simulated.goes_on(one):
            pass
        yield ReplayedRecurrence(tuple(one.tries))


def quick_profile(workload: Workload, size: int, seconds: float = 5.0, set_up: float = 30.0) -> Use:
    """What `zeus profile` uses for a size: this long at each limit, after a set-up at the highest one."""
    slices = workload.profiles[size].slices
    spent = [(set_up, slices[0].watts), *((seconds, one.watts) for one in slices)]
    return Use(sum(time * watts for time, watts in spent), sum(time for time, _ in spent))


class ReplayedRun(msgspec.Struct, frozen=True):
    """A run in progress. After `seconds`, either its next epoch ends or the run does."""

    trial: Trial
    plan: LimitPlan
    seconds: float
    epochs: int  # done at that time
    outcome: Outcome | None  # None: the run goes on


class RunningRecurrence(msgspec.Struct):
    """A recurrence that is not over: its current run and its earlier trials."""

    recurrence: int
    run: ReplayedRun
    tries: list[ReplayedTrial]
    trials: list[Trial]


class SimulatedJob:
    """A job on a simulated GPU: the policy state, the profiles so far, and the random seed.

    The caller keeps the time. Each recurrence says in how many seconds the next event of its run happens. A run goes to
    its end in one step if no other run can interfere (`alone`), or if the policy is monotone: then its answer to
    `keep_going` depends on this run alone and never turns from no to yes.
    """

    def __init__(
        self, workload: Workload, policy: Policy[Any], job: JobSpec, seed: int, limits: Limits, *, alone: bool = True
    ) -> None:
        self._job = job if job.mab_seed is not None else replace(job, mab_seed=seed)
        if getattr(policy, "one_size", False):  # the recurrence ends once this size has missed the target twice
            self._job = replace(self._job, policy="default")
        self._policy = policy
        self._seed = seed
        self._settle(workload, limits)
        self._monotone = getattr(policy, "monotone", False)
        self._at_once = alone or self._monotone
        self._state = policy.start(self._job)
        self._sequence = 0
        self._number = 0
        self._recurrences = 0

    def move(self, workload: Workload, limits: Limits) -> None:
        """Continue the job on another GPU. What the policy has learnt stays. No recurrence may be running."""
        self._settle(workload, limits)

    def _settle(self, workload: Workload, limits: Limits) -> None:
        self.workload = workload
        self._limits = limits
        self._cost = workload.cost_model(self._job.eta_knob)
        self._gpus = Gpus(workload.gpu, 1, workload.max_watts)
        self._request = Request(gpus=self._gpus)
        self._epochs: dict[int, Use] = {}  # use of one epoch on this GPU, for each profiled size

    def profile(self, size: int) -> None:
        """`zeus profile`: the power limits and the epoch of this size become known without a run."""
        decision = Decision(size, Phase.DEFAULT, "zeus profile")
        self._learn(decision, self._limits.plan(decision))

    def _profile_first(self) -> Use:
        """What `zeus run` does first in a job with `start = "profiled"`. Returns what that uses."""
        used = Use()
        for size in self._job.first_sizes if self._job.start == "profiled" else ():
            self.profile(size)
            used += quick_profile(self.workload, size)
        return used

    def submit(self, recurrence: int) -> RunningRecurrence:
        if not self._number:
            self._owed = self._profile_first()
        self._recurrences = max(self._recurrences, recurrence)
        trials: list[Trial] = []
        return RunningRecurrence(recurrence, self._ask(recurrence, trials), [], trials)

    def _ask(self, recurrence: int, trials: list[Trial]) -> ReplayedRun:
        self._number += 1
        request = Request(gpus=self._gpus, recurrence=recurrence) if trials else self._request
        begun = self._recurrences if trials else recurrence - 1
        ask = next_ask(self._job, request, self._number, begun, trials)
        decision = decided(self._policy, self._state, self._job, ask)
        trial = Trial(ask=ask, decision=decision, asked=self._next())
        self._state = self._policy.observe(self._state, trial)
        plan = self._limits.plan(decision)
        if not plan.profiles:
            return self._onward(trial, plan, 0)
        refused = self._refused_unseen(trial)
        if refused is not None:
            return ReplayedRun(trial, plan, 0.0, 0, refused)
        return ReplayedRun(trial, plan, plan.first.seconds, 1, None)

    def goes_on(self, one: RunningRecurrence) -> bool:
        """Handle the next event of this recurrence. Return whether it goes on; False means that it is over."""
        trial, plan, outcome = one.run.trial, one.run.plan, one.run.outcome
        if outcome is None:
            if one.run.epochs == 1 and plan.profiles:
                self._learn(trial.decision, plan)
            one.run = self._onward(trial, plan, one.run.epochs)
            return True
        if self._owed.seconds:  # the first trial is charged with the profiling before it
            outcome = replace(
                outcome,
                joules=(outcome.joules or 0.0) + self._owed.joules,
                seconds=outcome.seconds + self._owed.seconds,
            )
            self._owed = Use()
        ended = trial.end(self._next(), outcome)
        self._state = self._policy.observe(self._state, ended)
        one.trials.append(ended)
        cost = self._cost.cost(outcome.joules or 0.0, outcome.seconds)
        one.tries.append(ReplayedTrial(trial.decision, plan.limit_watts, outcome, cost))
        if is_over(self._job, one.trials):
            return False
        one.run = self._ask(one.recurrence, one.trials)
        return True

    def _onward(self, trial: Trial, plan: LimitPlan, done: int) -> ReplayedRun:
        """Continue the run to its end, or only to the end of its next epoch if other runs may interfere.

        The traced run that is drawn depends only on (seed, recurrence, attempt, size).
        """
        ask = trial.ask
        needed = draw(self.workload, self._seed, ask.recurrence, ask.attempt, trial.batch_size)
        reaches = needed is not None and needed <= self.workload.max_epochs
        last = needed if needed is not None and reaches else self.workload.max_epochs
        until = last if self._at_once else min(last, done + 1)
        outcome = run_through(
            plan.first,
            plan.rest,
            done,
            until,
            reaches=reaches,
            cost=self._cost,
            keep_going=lambda epochs, cost: self._policy.keep_going(self._state, trial, epochs, cost),
            monotone=self._monotone,
        )
        before = plan.first.seconds + (done - 1) * plan.rest.seconds if done else 0.0
        if until < last and outcome.epochs == until:
            return ReplayedRun(trial, plan, outcome.seconds - before, until, None)
        return ReplayedRun(trial, plan, outcome.seconds - before, outcome.epochs, outcome)

    def _refused_unseen(self, trial: Trial) -> Outcome | None:
        """Stop a size that was never profiled if its nearest profiled size predicts that one epoch costs too much."""
        found = first_epoch(from_epochs(self._epochs, trial.batch_size), None, None)
        if found is None or self._policy.keep_going(self._state, trial, 0, self._cost.of(found.least)):
            return None
        return Outcome(ending=Ending.STOPPED, joules=0.0, next_epoch_cost=self._cost.of(found.use))

    def _learn(self, decision: Decision, plan: LimitPlan) -> None:
        use = self._limits.learn(decision, plan)
        if use is not None:
            self._epochs[decision.batch_size] = use
            known = Profiled(
                sequence=self._next(),
                batch_size=decision.batch_size,
                gpu_model=self.workload.gpu,
                joules=use.joules,
                seconds=use.seconds,
                max_watts=self.workload.max_watts,
            )
            self._state = self._policy.observe(self._state, known)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence
