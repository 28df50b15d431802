"""`BatchSizeOptimizer` in a loop of the user's own, on a virtual V100."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.launched import Launch
from support.programs import run_python
from zeus.client.api import RENEW_SECONDS
from zeus.client.policy_states import PolicyStateCache
from zeus.cost import CostModel
from zeus.device.clock import VirtualClock
from zeus.device.virtual import VirtualMachine, step
from zeus.errors import InputError
from zeus.job import MAX_TRIES, Ending, Gpus, JobSpec, Outcome, Phase, Profiled, replace
from zeus.job.wire import from_json, loads
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import gpus_of
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.store import LEASE_SECONDS, MemoryStore, open_store

pytestmark = pytest.mark.usefixtures("warm")

SPEC = JobSpec(
    job_id="asr",
    job_id_prefix="asr",
    batch_sizes=(32, 64, 128),
    default_batch_size=64,
    target_metric=0.8,
    policy="paper",
)
SAMPLES = 6400


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("ZEUS_")]:
        monkeypatch.delenv(name)


class Bench:
    """A machine, a store that goes by a virtual clock, and a loop such as a user writes."""

    def __init__(self, spec: JobSpec = SPEC, gpus: int = 1, card: str = "v100") -> None:
        self.machine = VirtualMachine.in_memory(card, gpus)
        self.monitor = ZeusMonitor(gpus=dict(enumerate(self.machine.gpus)))
        self.time = VirtualClock()
        self.store = MemoryStore(self.time.wall)
        self.spec = spec

    def optimizer(self) -> BatchSizeOptimizer:
        return BatchSizeOptimizer(self.monitor, job=self.spec, store=self.store, clock=self.time)

    def epoch(self, batch_size: int) -> None:
        for _ in range(SAMPLES // batch_size):
            step(self.machine.gpus, batch_size)

    def train(self, optimizer: BatchSizeOptimizer, metrics: Callable[[int], Iterator[float]]) -> int:
        batch_size = optimizer.get_batch_size()
        optimizer.on_train_begin()
        for metric in metrics(batch_size):
            self.epoch(batch_size)
            optimizer.on_evaluate(metric)
            if optimizer.training_finished:
                break
        return batch_size

    def outcome(self, number: int) -> Outcome:
        outcome = self.store.trial("asr", number).trial.outcome
        assert outcome is not None
        return outcome


def after(epochs: int) -> Callable[[int], Iterator[float]]:
    """Reaches the target after so many epochs."""
    return lambda _: iter([0.1] * (epochs - 1) + [0.9])


def never(_: int) -> Iterator[float]:
    return iter([0.1] * 1000)


def test_a_recurring_job_gets_cheaper_and_ends_on_the_cheapest_size() -> None:
    bench = Bench(replace(SPEC, mab_seed=0))
    epochs = {32: 9, 64: 5, 128: 3}
    optimizer = bench.optimizer()
    chosen = [bench.train(optimizer, lambda size: after(epochs[size])(size)) for _ in range(16)]
    costs = [kept.trial.outcome.joules for kept in bench.store.trials("asr") if kept.trial.outcome is not None]
    assert chosen[0] == 64
    assert set(chosen[8:]) == {128}
    assert min(costs[:6]) == pytest.approx(costs[-1], rel=0.01)  # type: ignore[type-var]


def test_a_run_that_reaches_the_target_tells_what_it_used_since_it_began() -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    assert optimizer.get_batch_size() == optimizer.get_batch_size() == 64
    bench.machine.run([0], seconds=100, watts=100)  # loading data is set-up
    before, began = bench.machine.gpus[0].energy(), bench.machine.clock.now()
    bench.train(optimizer, after(3))
    bench.machine.run([0], seconds=100, watts=100)
    assert optimizer.training_finished and optimizer.converged
    outcome = bench.outcome(1)
    assert (outcome.ending, outcome.epochs, outcome.metric) == (Ending.CONVERGED, 3, 0.9)
    assert outcome.joules == pytest.approx(bench.machine.gpus[0].energy() - before - 100 * 100)
    assert outcome.seconds == pytest.approx(bench.machine.clock.now() - began - 100)
    optimizer.on_evaluate(0.95)  # a last look at the model
    assert bench.outcome(1) == outcome


def test_a_run_that_costs_too_much_is_stopped_and_tried_again_in_the_same_recurrence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    bench.train(optimizer, after(2))
    size = bench.train(optimizer, never)
    assert optimizer.training_finished and not optimizer.converged
    stopped = bench.store.trial("asr", 2).trial
    assert stopped.outcome is not None and stopped.decision.cost_limit is not None
    assert (stopped.ending, stopped.batch_size) == (Ending.STOPPED, size)
    cost = 0.5 * (stopped.outcome.joules or 0) + 0.5 * 250 * stopped.outcome.seconds
    assert cost <= stopped.decision.cost_limit < cost + (stopped.outcome.next_epoch_cost or 0)
    assert [r.levelno for r in caplog.records if "trial 2" in r.getMessage()] == [logging.WARNING]
    optimizer.get_batch_size()
    again = bench.store.trial("asr", 3).trial
    assert (again.ask.recurrence, again.ask.attempt) == (2, 2)
    assert again.batch_size != size


def test_a_recurrence_ends_after_its_tries_and_the_next_begins() -> None:
    bench = Bench(replace(SPEC, batch_sizes=(64,), max_epochs=1))
    optimizer = bench.optimizer()
    for _ in range(MAX_TRIES + 1):
        bench.train(optimizer, never)
    tries = [kept.trial for kept in bench.store.trials("asr")]
    assert [one.ask.recurrence for one in tries] == [1] * MAX_TRIES + [2]
    assert tries[MAX_TRIES - 1].decision.phase is Phase.UNBOUNDED
    assert {one.ending for one in tries} == {Ending.NOT_CONVERGED}


def test_training_that_ends_without_the_target_has_not_converged() -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    bench.train(optimizer, lambda _: iter([0.1, math.nan]))
    optimizer.on_train_end()
    assert optimizer.training_finished
    outcome = bench.outcome(1)
    assert (outcome.ending, outcome.epochs, outcome.metric) == (Ending.NOT_CONVERGED, 2, None)


def test_an_exception_is_a_crash_and_its_size_is_not_offered_again() -> None:
    bench = Bench()
    optimizer = bench.optimizer()

    def run() -> None:
        try:
            bench.train(optimizer, after(1))
            optimizer.get_batch_size()
            optimizer.on_train_begin()
            raise MemoryError("out of memory")
        finally:
            optimizer.on_train_end()

    with pytest.raises(MemoryError):
        run()
    crashed = bench.store.trial("asr", 2).trial
    assert crashed.ending is Ending.CRASHED
    assert optimizer.get_batch_size() != crashed.batch_size
    assert bench.store.trial("asr", 3).trial.ask.recurrence == 2


def test_a_training_that_begins_and_ends_while_another_exception_is_handled_has_not_crashed() -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    try:
        {}["checkpoint"]
    except KeyError:  # there is none, so it trains from the start
        bench.train(optimizer, lambda _: iter([0.1]))
        optimizer.on_train_end()
    assert bench.outcome(1).ending is Ending.NOT_CONVERGED


def test_a_training_that_raises_while_another_exception_is_handled_has_crashed() -> None:
    bench = Bench()
    optimizer = bench.optimizer()

    def run() -> None:
        try:
            {}["checkpoint"]
        except KeyError:
            try:
                optimizer.on_train_begin()
                raise MemoryError("out of memory") from None
            finally:
                optimizer.on_train_end()

    with pytest.raises(MemoryError):
        run()
    assert bench.outcome(1).ending is Ending.CRASHED
    kept = bench.store.logs.find("asr", 1)  # of a script without a launcher, which would send all of its output
    assert kept is not None and kept.text.endswith("MemoryError: out of memory\n")


@pytest.mark.parametrize("epochs", [0, 1])
def test_what_a_training_used_until_it_crashed_is_known(epochs: int) -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    bench.train(optimizer, lambda _: iter([0.1] * epochs))
    before = bench.machine.gpus[0].energy()
    bench.epoch(64)
    used = bench.machine.gpus[0].energy() - before
    so_far = bench.store.trial("asr", 1).so_far
    optimizer.on_exception(MemoryError("out of memory"))
    outcome = bench.outcome(1)
    earlier = 0.0 if so_far is None else so_far.joules
    assert earlier is not None and used > 0
    assert outcome.joules == pytest.approx(earlier + used, rel=0.01)


def test_epochs_count_where_the_loop_tells_of_them_however_often_it_evaluates() -> None:
    bench = Bench(replace(SPEC, max_epochs=3))
    optimizer = bench.optimizer()
    size = optimizer.get_batch_size()
    optimizer.on_train_begin()
    for epoch in range(3):
        assert not optimizer.training_finished
        optimizer.on_epoch_begin()
        for _ in range(4):
            step(bench.machine.gpus, size)
            optimizer.on_evaluate(0.1)
        optimizer.on_epoch_end()
        kept = bench.store.trial("asr", 1)
        assert epoch == 2 or (kept.so_far is not None and kept.so_far.epochs == epoch + 1)
    assert optimizer.training_finished
    assert (bench.outcome(1).ending, bench.outcome(1).epochs) == (Ending.NOT_CONVERGED, 3)


def test_the_target_may_be_reached_in_the_midst_of_an_epoch() -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    optimizer.on_train_begin()
    optimizer.on_epoch_begin()
    step(bench.machine.gpus, 64)
    optimizer.on_evaluate(0.9)
    optimizer.on_epoch_end()
    optimizer.on_train_end()
    assert (bench.outcome(1).ending, bench.outcome(1).epochs) == (Ending.CONVERGED, 1)


def test_unknown_energy_is_told_as_unknown_and_stops_nothing() -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    bench.train(optimizer, after(1))
    optimizer.get_batch_size()
    optimizer.on_train_begin()
    bench.machine.lose(0)
    for _ in range(50):
        optimizer.on_evaluate(0.1)
    assert not optimizer.training_finished
    optimizer.on_evaluate(0.9)
    assert (bench.outcome(2).ending, bench.outcome(2).joules) == (Ending.CONVERGED, None)


def test_on_another_gpu_each_size_is_looked_at_once_and_what_it_needed_before_is_translated() -> None:
    needed = {32: 3, 64: 4, 128: 6}
    seeded = replace(SPEC, mab_seed=0)
    there, here = Bench(seeded), Bench(seeded, card="a40")
    here.store, here.time = there.store, there.time
    for _ in range(8):
        there.train(there.optimizer(), lambda size: after(needed[size])(size))
    sizes = [here.train(here.optimizer(), lambda size: after(needed[size])(size)) for _ in range(6)]
    assert (sorted(sizes[:3]), sizes[3:]) == ([32, 64, 128], [32] * 3)
    assert here.store.trial("asr", 9).trial.decision.cost_limit is None  # a bound in another GPU's joules
    told = {
        one.batch_size: one
        for one in here.store.log("asr").events
        if isinstance(one, Profiled) and "A40" in one.gpu_model
    }
    state = PolicyStateCache().state(here.store.job("asr"), partial(here.store.log, "asr"))
    seen = state.costs(64, told[64].gpu_model)
    epoch = CostModel(SPEC.eta_knob, told[64].max_watts).cost(told[64].joules, told[64].seconds)
    assert seen.count > 1 and seen.mean == pytest.approx(4 * epoch, rel=0.01)


def test_what_an_epoch_uses_is_told_once_the_first_is_over() -> None:
    bench = Bench()
    bench.train(bench.optimizer(), after(4))
    notes = [fact for fact in bench.store.log("asr").events if isinstance(fact, Profiled)]
    assert [(note.batch_size, note.gpu_model) for note in notes] == [(64, "Tesla V100-PCIE-32GB")]
    assert 4 * notes[0].joules == pytest.approx(bench.outcome(1).joules)


# ---------------------------------------------------------------------------------------------- leases


def test_the_lease_is_renewed_while_the_trial_runs_and_no_longer() -> None:
    bench = Bench()
    optimizer = bench.optimizer()
    optimizer.get_batch_size()
    for _ in range(20):
        bench.time.sleep(RENEW_SECONDS)
    assert bench.store.expire("asr") == []
    first = bench.store.trial("asr", 1).leased_until
    bench.train(optimizer, after(1))
    assert bench.store.trial("asr", 1).leased_until is None
    assert first is not None


def test_a_run_that_was_given_up_for_lost_is_heard_late() -> None:
    bench = Bench()
    optimizer = BatchSizeOptimizer(bench.monitor, job=SPEC, store=bench.store, clock=VirtualClock())  # it stands still
    optimizer.get_batch_size()
    bench.time.sleep(2 * LEASE_SECONDS)
    other = bench.optimizer()
    other.get_batch_size()
    assert bench.store.trial("asr", 1).trial.ending is Ending.LOST
    assert bench.store.trial("asr", 2).trial.decision.phase is Phase.PRUNING  # nobody waits for the lost one
    bench.train(optimizer, after(2))
    late = bench.store.trial("asr", 1).trial
    assert (late.ending, late.lost is not None) == (Ending.CONVERGED, True)
    bench.train(other, after(2))


SCRIPT = """
import sys
from zeus.device.virtual import VirtualMachine, step
from zeus.job import JobSpec
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer

machine = VirtualMachine.in_memory("v100")
spec = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(32, 64), default_batch_size=64, target_metric=0.8)
optimizer = BatchSizeOptimizer(ZeusMonitor(gpus={0: machine.gpus[0]}), "%s", spec)
size = optimizer.get_batch_size()
optimizer.on_train_begin()
step(machine.gpus, size)
optimizer.on_evaluate(0.1)
how = sys.argv[1]
if how == "error":
    raise RuntimeError("out of memory")
if how == "reach":
    optimizer.on_evaluate(0.9)
"""


@pytest.mark.parametrize(
    ("how", "code", "ending"),
    [("error", 1, Ending.CRASHED), ("end", 0, Ending.LOST), ("reach", 0, Ending.CONVERGED)],
)
def test_a_process_that_ends_leaves_no_trial_open(tmp_path: Path, how: str, code: int, ending: Ending) -> None:
    url = f"sqlite:///{tmp_path}/zeus.db"
    run_python("-c", SCRIPT % url, how, code=code)
    store = open_store(url)
    (kept,) = store.trials("asr")
    store.close()
    assert kept.trial.ending is ending
    assert kept.trial.outcome is not None and kept.trial.outcome.epochs > 0


# ---------------------------------------------------------------------------------------------- under zeus run


TERMS = {"TARGET_METRIC": 0.8, "HIGHER_IS_BETTER": 1, "MAX_EPOCHS": 100, "ETA_KNOB": 0.5}


def test_under_zeus_run_it_takes_the_launchers_trial(launched: Launch) -> None:
    bench = Bench()
    job = launched(bench.spec, bench.monitor, **TERMS)
    optimizer = BatchSizeOptimizer(bench.monitor)
    bench.train(optimizer, after(3))
    assert job.trial(1).ending is Ending.CONVERGED
    with pytest.raises(InputError, match="trial 1 is over"):
        optimizer.get_batch_size()


def test_under_zeus_run_a_failure_is_left_for_the_launcher_to_judge(tmp_path: Path, launched: Launch) -> None:
    bench = Bench()
    job = launched(bench.spec, bench.monitor, **TERMS)
    optimizer = BatchSizeOptimizer(bench.monitor)
    bench.train(optimizer, lambda _: iter([0.1, 0.1]))
    optimizer.on_exception(MemoryError())
    assert job.trial(1).ending is Ending.OPEN
    left = from_json(loads((tmp_path / "outcome.json").read_text()), Outcome)
    assert (left.ending, left.epochs) == (Ending.LOST, 2)


def test_under_zeus_run_a_store_that_is_away_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launched: Launch
) -> None:
    bench = Bench()
    launched(bench.spec, bench.monitor, **TERMS)
    monkeypatch.setenv("ZEUS_STORE", f"sqlite:///{tmp_path}/zeus.db/below/a/file.db")
    optimizer = BatchSizeOptimizer(bench.monitor)
    assert bench.train(optimizer, after(2)) == 64
    left = from_json(loads((tmp_path / "outcome.json").read_text()), Outcome)
    assert (left.ending, left.epochs) == (Ending.CONVERGED, 2)
    monkeypatch.delenv("ZEUS_HIGHER_IS_BETTER")  # then nobody knows what the target is
    with pytest.raises(InputError, match="the environment has no full description"):
        BatchSizeOptimizer(bench.monitor).get_batch_size()


# ---------------------------------------------------------------------------------------------- bad input


def test_what_cannot_be_used_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    bench = Bench()
    with pytest.raises(InputError, match="give a JobSpec"):
        BatchSizeOptimizer(bench.monitor)
    with pytest.raises(InputError, match="give only one of them"):
        BatchSizeOptimizer(bench.monitor, f"sqlite:///{tmp_path}/a.db", SPEC, store=bench.store)
    with pytest.raises(InputError, match=r"http://\*\*\* is not the address of a service"):
        BatchSizeOptimizer(bench.monitor, "http://host:one", SPEC)
    with pytest.raises(InputError, match=r"before on_train_begin"):
        bench.optimizer().on_evaluate(0.5)
    with pytest.raises(InputError, match="init_process_group"):
        BatchSizeOptimizer(bench.monitor, job=SPEC, rank=1, store=bench.store).get_batch_size()
    blind = ZeusMonitor(gpus={})
    with pytest.raises(InputError, match=r"no GPU is visible .* the highest power limit of the GPUs"):
        BatchSizeOptimizer(blind, job=SPEC, store=bench.store).get_batch_size()


def test_a_place_is_all_the_gpus_with_their_highest_limits() -> None:
    bench = Bench(gpus=2)
    bench.machine.gpus[0].set_limit(150)
    assert gpus_of(bench.monitor) == Gpus("Tesla V100-PCIE-32GB", 2, 500.0)
