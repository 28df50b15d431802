"""One story, told in every way that a training can be run: each must come to the same outcome.

A story is epochs with their energy, time and metric, a bound, and perhaps a card that is lost, a crash, or a lease that
lapses. The ways are the loader's session, `BatchSizeOptimizer` with and without calls around epochs, the lines of an
unmodified script in each style, and the reports of the old routes. What a way cannot tell is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.laws import examples
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.running import RunningTrial
from zeus.cost import ZERO, CostModel, Use
from zeus.device.clock import VirtualClock
from zeus.device.virtual import VirtualMachine
from zeus.job import Ending, Gpus, JobSpec, Outcome, Trial
from zeus.launch.script_events import Line, Script
from zeus.launcher_env import LauncherEnv
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import gpus_of
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.launched_trial import LaunchedTrial
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.service.app import create
from zeus.store import MemoryStore
from zeus.training.session import Session
from zeus.trial.driver import Driver
from zeus.trial.engine import Ended, Started, Terms, TrialEngine

TARGET = 0.9
STEPS = 5  # an epoch
MAX_WATTS = 250.0
COST = CostModel(0.5, MAX_WATTS)


class Crash(Exception):
    """Of a training script."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch uses, and its metric."""

    seconds: float  # of training
    watts: float
    metric: float


@dataclass(frozen=True)
class Story:
    """What happens to a trial."""

    epochs: tuple[Epoch, ...]  # as many as max_epochs
    evaluation: Use = ZERO  # after each
    bound: float | None = None
    set_up: float = 0.0  # seconds before the first epoch
    lost_card: int | None = None  # after so many epochs
    breaks: tuple[int, float] | None = None  # after so many epochs, and this share of the training of the next
    how: type[BaseException] = Crash  # it breaks
    late: int | None = None  # the lease lapses after so many epochs

    def use(self, epoch: Epoch) -> Use:
        """Of a whole epoch."""
        return Use(epoch.seconds * epoch.watts, epoch.seconds) + self.evaluation

    def after(self, epochs: int) -> Use:
        """What so many epochs use."""
        total = Use()
        for epoch in self.epochs[:epochs]:
            total = total + self.use(epoch)
        return total


@dataclass
class Stage:
    """A machine, a store and the trial that a story is told of."""

    story: Story
    number: int = 0
    machine: VirtualMachine = field(default_factory=lambda: VirtualMachine.in_memory("v100"))
    now: float = 1e9

    def __post_init__(self) -> None:
        self.monitor = ZeusMonitor(gpus=dict(enumerate(self.machine.gpus)))
        self.gpus = gpus_of(self.monitor)
        self.store = MemoryStore(lambda: self.now)
        self.spec = spec_of(self.story, "story")
        self.job = RecurringJob.register(LocalJobs(self.store), self.spec)
        set_bound(self.job, self.gpus, self.story.bound)

    def ask(self) -> Trial:
        trial = self.job.ask(self.gpus)
        self.number = trial.number
        return trial

    @property
    def outcome(self) -> Outcome:
        outcome = self.store.trial("story", self.number).trial.outcome
        assert outcome is not None
        return outcome

    # ------------------------------------------------------------------ what the training does

    def work(self, seconds: float, watts: float) -> None:
        if seconds:
            self.machine.run([0], seconds=seconds, watts=watts)

    def happens(self, done: int) -> None:
        """What befalls it after so many epochs, other than training."""
        if done == self.story.lost_card:
            self.machine.lose(0)
        if done == self.story.late:
            self.now += 1e6
            assert self.store.expire("story")

    def train(self, done: int) -> Iterator[None]:
        """The next epoch, step by step; it may break, but not in its last step."""
        epoch, breaks = self.story.epochs[done], self.story.breaks
        self.happens(done)
        for step in range(STEPS):
            if breaks is not None and breaks[0] == done and step >= breaks[1] * STEPS:
                raise self.story.how
            self.work(epoch.seconds / STEPS, epoch.watts)
            yield

    def evaluate(self) -> None:
        use = self.story.evaluation
        if use.seconds:
            self.work(use.seconds, use.joules / use.seconds)


def spec_of(story: Story, name: str) -> JobSpec:
    return JobSpec(
        job_id=name,
        job_id_prefix=name,
        batch_sizes=(32, 64),
        default_batch_size=32,
        eta_knob=COST.eta,
        beta_knob=1.0,
        target_metric=TARGET,
        max_epochs=len(story.epochs),
        policy="paper",
        mab_seed=0,
    )


def set_bound(job: RecurringJob, gpus: Gpus, bound: float | None) -> None:
    """A recurrence that has cost just this: with β = 1 it is the bound of the next."""
    if bound is not None:
        before = job.ask(gpus)
        joules = (bound - (1 - COST.eta) * MAX_WATTS * 1e-6) / COST.eta
        job.tell(before.number, Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1e-6, epochs=1))


# ---------------------------------------------------------------------- the ways


class ToldTrial(LaunchedTrial):
    """A trial whose launcher tells the store at once how it ended, also if its loop was left."""

    def over(self, outcome: Outcome) -> None:
        assert self._running is not None
        self._running.tell(outcome)


def loader(story: Story) -> Outcome:
    """The session behind `ZeusDataLoader`. How it broke is for its launcher to say."""
    stage = Stage(story)
    trial = stage.ask()
    running = RunningTrial("story", trial.number, lambda: stage.job, cost_limit=trial.decision.cost_limit)
    terms = Terms.of(
        stage.job.spec, COST, trial.decision.cost_limit, batch_size=trial.batch_size, steps_per_epoch=STEPS
    )
    told = ToldTrial(running, LauncherEnv(trial_id=trial.id))
    session = Session(GlobalPowerLimitOptimizer(stage.monitor, mode="off"), terms, told)
    stage.work(story.set_up, 100.0)
    with suppress(Crash, KeyboardInterrupt):
        for done in session.epochs():
            session.begin_steps()
            for _ in stage.train(done):
                if not session.step_end():
                    break
            session.end_steps()
            stage.evaluate()
            session.report_metric(story.epochs[done].metric)
    return stage.outcome


def in_a_loop(story: Story, epochs: str) -> Outcome:
    """`BatchSizeOptimizer` in a loop of the user's own, whose calls around epochs and evaluations are in this order."""
    stage = Stage(story)
    optimizer = BatchSizeOptimizer(stage.monitor, job=stage.spec, store=stage.store, clock=VirtualClock())
    optimizer.get_batch_size()
    stage.number = len(stage.store.trials("story"))
    stage.work(story.set_up, 100.0)
    optimizer.on_train_begin()
    done = 0
    try:
        while not optimizer.training_finished:
            metric = story.epochs[done].metric
            if epochs != "none":
                optimizer.on_epoch_begin()
            for _ in stage.train(done):
                if "steps" in epochs:
                    optimizer.on_step_end()
            if epochs in ("evaluated after", "steps, evaluated after"):
                optimizer.on_epoch_end()
            stage.evaluate()
            optimizer.on_evaluate(metric)
            if epochs in ("evaluated inside", "steps, evaluated inside"):
                optimizer.on_epoch_end()
            done += 1
    except (Crash, KeyboardInterrupt) as broke:
        optimizer.on_exception(broke)
    return stage.outcome


def lines(story: Story, style: str) -> Outcome:
    """An unmodified script whose lines are read: the watcher without its process."""
    stage = Stage(story)
    trial = stage.ask()
    running = RunningTrial("story", trial.number, lambda: stage.job, cost_limit=trial.decision.cost_limit)
    terms = Terms.of(stage.spec, COST, trial.decision.cost_limit, found_watts=MAX_WATTS)
    driver = Driver(TrialEngine(terms, running.knowledge()), ask=running.answer, tell_epoch=running.tell_epoch)
    ends = {"begin": False, "end, then metric": True, "file": True}.get(style)  # else its lines must tell
    script = Script(ends=ends)

    def used() -> Use:
        card = stage.machine.gpus[0]
        joules = math.nan if stage.machine.holder.read().cards[0].lost else card.energy()
        return Use(joules, stage.machine.clock.now())

    def say(line: Line) -> None:
        nonlocal script
        if driver.is_over:
            return
        is_last = line.metric is not None and line.metric >= TARGET
        script, events = script.read(line, used(), MAX_WATTS, is_last=is_last)
        driver.feed(*events)

    stage.work(story.set_up if "begin" in style else 0.0, 100.0)
    driver.feed(Started())
    done = 0
    try:
        while not driver.is_over and done < len(story.epochs):
            name, metric = str(done + 1), story.epochs[done].metric
            if "begin" in style:
                say(Line(name))
                if driver.is_over:
                    break
            for _ in stage.train(done):
                pass
            if "end, then" in style:
                say(Line(name))
            stage.evaluate()
            say(Line(name if style in ("file", "end with metric") else None, metric))
            if style == "metric, then end":
                say(Line(name))
            done += 1
        broke: type[BaseException] | None = None
    except (Crash, KeyboardInterrupt) as exception:
        broke = type(exception)
    if not driver.is_over:
        driver.feed(*script.close(used(), MAX_WATTS))
        driver.feed(Ended({None: Ending.NOT_CONVERGED, Crash: Ending.CRASHED}.get(broke, Ending.LOST)))
    assert driver.outcome is not None
    stage.job.tell(trial.number, driver.outcome)
    return stage.outcome


SERVED = MemoryStore(lambda: NOW[0])
NOW = [1e9]
CLIENT = TestClient(create(SERVED))
NAMES = count(1)


def old_routes(story: Story) -> Outcome:
    """A client of the old routes: it sums up time and energy itself, and reports them after each epoch."""
    name, spec = f"story-{next(NAMES)}", spec_of(story, "old")
    machine = VirtualMachine.in_memory("v100")
    body = {
        "job_id": name,
        "job_id_prefix": name,
        "batch_sizes": list(spec.batch_sizes),
        "default_batch_size": spec.default_batch_size,
        "eta_knob": spec.eta_knob,
        "beta_knob": spec.beta_knob,
        "target_metric": spec.target_metric,
        "max_epochs": spec.max_epochs,
        "policy": spec.policy,
        "mab_seed": 0,
        "max_power": MAX_WATTS,
        "gpu_model": "V100",
    }
    assert CLIENT.post("/jobs", json=body).status_code == 201
    set_bound(RecurringJob.find(LocalJobs(SERVED), name), Gpus("V100", 1, MAX_WATTS), story.bound)
    opened = CLIENT.get("/jobs/batch_size", params={"job_id": name}).json()
    for done, epoch in enumerate(story.epochs):
        if done == story.late:
            NOW[0] += 1e6
            assert SERVED.expire(name)
        if story.breaks is not None and story.breaks[0] == done:
            assert CLIENT.patch("/trials", json=opened).status_code == 200
            break
        machine.run([0], seconds=epoch.seconds, watts=epoch.watts)
        if story.evaluation.seconds:
            machine.run([0], seconds=story.evaluation.seconds, watts=story.evaluation.joules / story.evaluation.seconds)
        used = {"time": machine.clock.now(), "energy": machine.gpus[0].energy()}
        report = {**opened, **used, "metric": epoch.metric, "current_epoch": done + 1}
        told = CLIENT.post("/report", json=report)
        assert told.status_code == 200, told.text
        if told.json()["stop_train"]:
            break
    outcome = SERVED.trial(name, opened["trial_number"]).trial.outcome
    assert outcome is not None
    return outcome


LOOPS = ("none", "evaluated after", "evaluated inside", "steps, evaluated after", "steps, evaluated inside")
STYLES = ("begin", "end, then metric", "metric, then end", "end with metric", "file")
DOUBTFUL = ("begin, in doubt", "end, then metric, in doubt")  # what comes before the first line is known at the second
WAYS: dict[str, Callable[[Story], Outcome]] = {
    "loader": loader,
    **{f"loop, epochs: {how}": (lambda story, how=how: in_a_loop(story, how)) for how in LOOPS},
    **{f"lines: {style}": (lambda story, style=style: lines(story, style)) for style in STYLES},
    "old routes": old_routes,
}
VAGUE = "loop, epochs: steps, evaluated inside"  # does not tell where its steps end and evaluation begins


# ---------------------------------------------------------------------- stories


@st.composite
def stories(draw: st.DrawFn, least: int = 1, most: int = 6) -> Story:
    """Epochs that differ a little; the first is the slowest by far, or not at all; evaluations are all alike.

    So units are cold for every way that counts them, be they steps or epochs, or for none.
    """
    epochs = draw(st.integers(least, most))
    seconds, watts = draw(st.floats(1, 1000)), draw(st.floats(50, 240))
    warm = draw(st.sampled_from([1.0, 1.0, 1.5, 2.0, 5.0]))
    wobble = st.sampled_from([1.0, 1.0, 0.995, 1.005])
    reaches = draw(st.none() | st.integers(1, epochs + 2))
    rows = tuple(
        Epoch(
            seconds * (warm if number == 1 else draw(wobble)),
            watts,
            TARGET if number == reaches else draw(st.floats(-1, 0.8)),
        )
        for number in range(1, epochs + 1)
    )
    length = seconds * draw(st.sampled_from([0.0, 0.05, 0.2, 0.45]))
    story = Story(rows, Use(length * draw(st.floats(40, 240)), length), set_up=draw(st.sampled_from([0.0, 3.0, 100.0])))
    stops = draw(st.none() | st.integers(2, epochs + 1))
    if stops is None:
        return story
    share = draw(st.floats(0.2, 0.8))  # of the epoch that does not fit: neither nearly, nor by far
    bound = COST.of(story.after(stops)) + share * COST.of(story.use(rows[min(stops, epochs - 1)]))
    return Story(rows, story.evaluation, bound, story.set_up)


def expected(story: Story) -> tuple[Ending, int]:
    """How the story ends, and after how many epochs, if nothing breaks."""
    for number, epoch in enumerate(story.epochs, 1):
        if epoch.metric >= TARGET:
            return Ending.CONVERGED, number
        if number == len(story.epochs):
            break
        following = story.epochs[min(number, len(story.epochs) - 1)]
        known = number >= 2 and story.lost_card is None
        if known and COST.of(story.after(number)) + COST.of(story.use(following)) > (story.bound or math.inf):
            return Ending.STOPPED, number
    return Ending.NOT_CONVERGED, len(story.epochs)


def near(value: float | None) -> object:
    return None if value is None else pytest.approx(value, rel=1e-6, abs=1e-6)


@settings(max_examples=examples(60))
@given(stories(least=2))
def test_lines_that_must_tell_what_they_mean_come_to_the_same_outcome(story: Story) -> None:
    """Unless the trial ends in its first epoch, where set-up is charged in doubt."""
    if expected(story)[1] == 1:
        return
    outcomes = {f"lines: {style}": lines(story, style) for style in ("file", *DOUBTFUL)}
    told_alike(story, {**outcomes, VAGUE: in_a_loop(story, "steps, evaluated inside")})


def told_alike(story: Story, outcomes: dict[str, Outcome]) -> None:
    ending, epochs = expected(story)
    use = story.after(epochs)
    for way, outcome in outcomes.items():
        assert (outcome.ending, outcome.epochs) == (ending, epochs), way
        assert outcome.metric == story.epochs[epochs - 1].metric, way
        assert outcome.seconds == near(use.seconds), way
        assert outcome.joules == near(None if story.lost_card is not None else use.joules), way
    following = {way: outcome.next_epoch_cost for way, outcome in outcomes.items()}
    if ending is not Ending.STOPPED:
        assert set(following.values()) == {None}
        return
    first = following["lines: file"]
    assert first is not None
    unlike = {way: cost for way, cost in following.items() if cost != near(first) and way != VAGUE}
    assert not unlike, (first, story)
    assert following[VAGUE] == pytest.approx(first, rel=0.25)
    assert first == pytest.approx(COST.of(story.use(story.epochs[min(epochs, len(story.epochs) - 1)])), rel=0.02)


@settings(max_examples=examples(300))
@given(stories())
def test_every_way_to_run_a_trial_comes_to_the_same_outcome(story: Story) -> None:
    told_alike(story, {way: tell(story) for way, tell in WAYS.items()})


@settings(max_examples=examples(80))
@given(stories(), st.data())
def test_energy_that_is_not_known_is_not_known_in_any_way(story: Story, data: st.DataObject) -> None:
    """The old routes cannot say so: they refuse a report without energy."""
    lost = data.draw(st.integers(0, expected(story)[1] - 1))
    story = Story(story.epochs, story.evaluation, None, story.set_up, lost_card=lost)
    told_alike(story, {way: tell(story) for way, tell in WAYS.items() if way != "old routes"})


@settings(max_examples=examples(80))
@given(stories(least=2), st.data())
def test_a_trial_that_breaks_is_charged_until_then_in_any_way(story: Story, data: st.DataObject) -> None:
    """A client of the old routes tells of whole epochs alone, and a loader leaves it to its launcher how it broke."""
    _, epochs = expected(story)
    done = data.draw(st.integers(0, epochs - 1))
    share = data.draw(st.sampled_from([0.0, 0.2, 0.4, 0.8]))
    how = data.draw(st.sampled_from([Crash, KeyboardInterrupt]))
    story = Story(story.epochs, story.evaluation, story.bound, story.set_up, breaks=(done, share), how=how)
    partial = story.epochs[done].seconds * share
    use = story.after(done) + Use(partial * story.epochs[done].watts, partial)
    for way, tell in WAYS.items():
        outcome = tell(story)
        assert outcome.epochs == done, way
        assert outcome.metric == (story.epochs[done - 1].metric if done else None), way
        assert outcome.next_epoch_cost is None, way
        if way == "old routes":
            assert outcome.ending is (Ending.LOST if done else Ending.CRASHED)
            whole = story.after(done)
            assert (outcome.seconds, outcome.joules) == (near(whole.seconds), near(whole.joules if done else None))
            continue
        assert outcome.ending is (Ending.LOST if way == "loader" or how is KeyboardInterrupt else Ending.CRASHED), way
        assert (outcome.seconds, outcome.joules) == (near(use.seconds), near(use.joules)), way


@settings(max_examples=examples(60))
@given(stories(), st.data())
def test_a_trial_that_is_lost_meanwhile_tells_late_and_the_same(story: Story, data: st.DataObject) -> None:
    """Reports of the old routes that begin after the loss are not kept: nobody can tell the first epoch from others."""
    late = data.draw(st.integers(0, expected(story)[1] - 1))
    story = Story(story.epochs, story.evaluation, story.bound, story.set_up, late=late)
    silent = {"old routes"} if late == 0 and story.bound is not None else set()
    told_alike(story, {way: tell(story) for way, tell in WAYS.items() if way not in silent})
