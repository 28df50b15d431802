"""A replay is a real run whose time and energy are looked up: the same drawn runs end alike, try by try.

The real path is `recur` over a job in a store, with each trial's engine fed event by event. With several recurrences in
flight it is the same verbs, in the order of simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

import pytest

from support.published import TRACES, needs_traces
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.cost import CostModel, Use
from zeus.job import Gpus, Kind, Outcome, Trial, replace
from zeus.launch.recurrence import recur
from zeus.ledger.charge import spent
from zeus.policy.registry import find_policy
from zeus.simulate import virtual
from zeus.simulate.baselines import contender
from zeus.simulate.limit_plans import JustInTime, Limits
from zeus.simulate.replay import ReplayedRecurrence, draw, job_of, replay
from zeus.simulate.traces import published
from zeus.simulate.workload import Workload
from zeus.store.memory import MemoryStore
from zeus.store.rules import is_over
from zeus.trial.driver import Driver
from zeus.trial.engine import (
    AskPolicy,
    EpochBegan,
    EpochEnded,
    Evaluated,
    Measured,
    Started,
    Terms,
    TrialEngine,
)

POLICIES = ("paper", "structured", "paper:no-pruning", "paper:no-early-stop", "default")
RECURRENCES = 40
SEED = 3
MISS, REACH = 0.0, 1.0  # metrics


class Real:
    """A job that is really asked for, run and told; only its time and energy are looked up."""

    def __init__(self, workload: Workload, policy: str) -> None:
        self.workload, self.policy = workload, find_policy(policy)
        self.spec = job_of(workload, policy=policy, mab_seed=SEED, target_metric=REACH)
        self.gpus = Gpus(workload.gpu, 1, workload.max_watts)
        self.limits = limits_of(workload, policy)
        self.job = RecurringJob.register(LocalJobs(MemoryStore()), self.spec)

    def run(self, trial: Trial) -> Outcome:
        """One trial from its beginning to its end."""
        run = Running(self, trial)
        while not run.driver.is_over:
            run.epoch()
        assert run.driver.outcome is not None
        return run.driver.outcome


def limits_of(workload: Workload, policy: str) -> Limits:
    """The contender's; the default policy of jobs, unlike what Zeus is compared with, finds its limit as it trains."""
    made = JustInTime if policy == "default" else contender(policy, workload, 0.5).limits
    return made(workload, 0.5)


class Running:
    """A trial under way, as a shell would run it: its engine hears of an epoch after the other."""

    def __init__(self, real: Real, trial: Trial) -> None:
        self.real, self.trial = real, trial
        self.plan = real.limits.plan(trial.decision)
        cost = CostModel(trial.ask.eta, trial.ask.max_watts)
        terms = Terms.of(real.job.spec, cost, trial.decision.cost_limit)
        self.driver = Driver(TrialEngine(terms, real.job.knowledge(trial)), ask=self._ask)
        ask = trial.ask
        self.needed = draw(real.workload, SEED, ask.recurrence, ask.attempt, trial.batch_size)
        self.driver.feed(Started())

    def _ask(self, question: AskPolicy) -> bool:
        return self.real.job.progress(self.trial.number, question.so_far, question.cost)

    @property
    def next_use(self) -> Use:
        return self.plan.rest if self.driver.engine.epochs else self.plan.first

    def epoch(self) -> None:
        """One more epoch has been trained and evaluated."""
        number = self.driver.engine.epochs + 1
        # What lies in it is charged as a whole: of units that were measured, a first few are held uncertain.
        self.driver.feed(EpochBegan(), Measured(Kind.EPOCH, 0, self.next_use, self.plan.limit_watts))
        if number == 1 and self.plan.profiles:
            self._profiled()
        self.driver.feed(Evaluated(REACH if number == self.needed else MISS), EpochEnded())

    def _profiled(self) -> None:
        size, rest = self.trial.batch_size, self.plan.rest
        engine = self.driver.engine
        self.driver.engine = replace(engine, known=replace(engine.known, epoch=rest))
        use = self.real.limits.learn(self.trial.decision, self.plan)
        if use is not None:
            self.real.job.profiled(size, self.trial.ask.gpus, joules=use.joules, seconds=use.seconds)


@dataclass(slots=True)
class RunningRecurrence:
    """A recurrence in flight: its present run, when that run's time began to be counted, and the tries before."""

    run: Running
    since: float
    before: float  # seconds of the run until then
    tries: list[Trial]


def in_flight(real: Real, concurrency: int) -> Iterator[tuple[Trial, ...]]:
    """The tries of each recurrence, in the order in which they were submitted, with so many at the same time.

    Sums of seconds are rounded as a replay rounds them, so that what happens at the same time falls into one order.
    """
    monotone = getattr(real.policy, "monotone", False)
    waiting: list[tuple[float, int, RunningRecurrence]] = []
    over: dict[int, tuple[Trial, ...]] = {}
    now, submitted = 0.0, 0

    def ask(recurrence: int | None, tries: list[Trial]) -> tuple[float, RunningRecurrence]:
        one = RunningRecurrence(Running(real, real.job.ask(real.gpus, recurrence)), now, 0.0, tries)
        return moment(one), one

    def moment(one: RunningRecurrence) -> float:
        """When the next epoch of a run is over; now, where it has none."""
        if one.run.driver.is_over:
            return now
        plan, epochs = one.run.plan, one.run.driver.engine.epochs
        return one.since + (plan.first.seconds + epochs * plan.rest.seconds - one.before)

    while True:
        while len(waiting) < concurrency and submitted < RECURRENCES:
            submitted += 1
            at, one = ask(None, [])
            heappush(waiting, (at, submitted, one))
        if not waiting:
            break
        now, number, one = heappop(waiting)
        driver = one.run.driver
        if not driver.is_over:
            one.run.epoch()
            epochs, plan = driver.engine.epochs, one.run.plan
            if not monotone or (epochs == 1 and plan.profiles):
                one.since, one.before = now, plan.first.seconds + (epochs - 1) * plan.rest.seconds
            if not driver.is_over:
                heappush(waiting, (moment(one), number, one))
                continue
        assert driver.outcome is not None
        one.tries.append(real.job.tell(one.run.trial.number, driver.outcome))
        if not is_over(real.job.spec, one.tries):
            at, one = ask(number, one.tries)
            heappush(waiting, (at, number, one))
            continue
        over[number] = tuple(one.tries)
    yield from (over[number] for number in range(1, RECURRENCES + 1))


def one_by_one(real: Real) -> Iterator[tuple[Trial, ...]]:
    for _ in range(RECURRENCES):
        yield recur(real.job, real.gpus, real.run).tries


def check(workload: Workload, policy: str, concurrency: int) -> None:
    real = Real(workload, policy)
    past = one_by_one(real) if concurrency == 1 else in_flight(real, concurrency)
    made = partial(limits_of, policy=policy)
    replayed: list[ReplayedRecurrence] = list(
        replay(
            workload,
            find_policy(policy),
            real.spec,
            SEED,
            limits=lambda workload, eta: made(workload),
            concurrency=concurrency,
            recurrences=RECURRENCES,
        )
    )
    assert len(replayed) == RECURRENCES
    for number, (tries, simulated) in enumerate(zip(past, replayed, strict=True), 1):
        where = f"{workload.name}, {policy}, {concurrency} in flight: recurrence {number}"
        assert [one.batch_size for one in tries] == [one.decision.batch_size for one in simulated.tries], where
        for trial, one in zip(tries, simulated.tries, strict=True):
            outcome = trial.outcome
            assert outcome is not None
            assert (outcome.ending, outcome.epochs) == (one.outcome.ending, one.outcome.epochs), where
            assert trial.decision.phase is one.decision.phase, where
            use = spent(outcome, trial.ask.eta, trial.ask.max_watts)
            assert use is not None
            there = (one.outcome.joules, one.outcome.seconds, one.cost)
            assert (use.joules, use.seconds, use.cost) == pytest.approx(there, rel=1e-9, abs=0), where
            assert trial.decision.cost_limit == _near(one.decision.cost_limit), where
            assert outcome.next_epoch_cost == _near(one.outcome.next_epoch_cost), where


def _near(value: float | None) -> object:
    return None if value is None else pytest.approx(value, rel=1e-9, abs=0)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["BERT-SA", "NeuMF"])
def test_virtual_workloads_replay_as_they_run(name: str, policy: str, concurrency: int) -> None:
    check(virtual.load("v100", [name])[name], policy, concurrency)


class TestOnThePublishedTraces:
    pytestmark = needs_traces

    @pytest.mark.parametrize("concurrency", [1, 4])
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("name", ["DeepSpeech2", "BERT-QA", "ShuffleNet-v2"])
    def test_they_replay_as_they_run(self, name: str, policy: str, concurrency: int) -> None:
        check(published.load(TRACES, "v100", [name])[name], policy, concurrency)
