"""`include = ["gpu", "cpu"]`: what a training is charged for with its CPU, against numbers worked out by hand."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.cards import VirtualCards
from support.sensors import FlakyCounter
from zeus.client.api import EpochUsed, OfflineRun
from zeus.client.report import full, report
from zeus.client.resilient.spool import message_from_text, message_to_json
from zeus.cost import GPU_AND_CPU, GPU_ONLY, CostModel, Use
from zeus.device.cpu import CpuCounters, CpuPackage
from zeus.device.virtual import VirtualMachine, presets, step
from zeus.device.virtual.physics import Operation, operate
from zeus.errors import InputError
from zeus.job import Ending, Gpus, JobSpec, Outcome, replace
from zeus.job.wire import to_text
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.store import MemoryStore
from zeus.training.training_run import TrainingRun

pytestmark = pytest.mark.usefixtures("warm")

CPU_WATTS, DRAM_WATTS = 150.0, 20.0
STEPS, EPOCHS, SIZE = 50, 3, 64
SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(SIZE,), default_batch_size=SIZE, target_metric=0.8)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("ZEUS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "keeper"))


def one_step(limit: float = 250.0, size: int = SIZE) -> Operation:
    return operate(presets.card("v100"), presets.load("v100"), size, limit)


class Bench:
    """A virtual node, a monitor of it, a store, and a training of three epochs."""

    def __init__(
        self, include: tuple[str, ...] = GPU_AND_CPU, cpu: float = CPU_WATTS, dram: float = DRAM_WATTS
    ) -> None:
        self.machine = VirtualMachine.in_memory("v100", cpu_watts=cpu, dram_watts=dram)
        self.monitor = ZeusMonitor(gpus={0: self.machine.gpus[0]})
        self.store = MemoryStore(lambda: 0.0)
        self.spec = replace(SPEC, include=include, mab_seed=0)

    def optimizer(self, **arguments: Any) -> BatchSizeOptimizer:
        return BatchSizeOptimizer(self.monitor, job=self.spec, store=self.store, **arguments)

    def epoch(self) -> None:
        for _ in range(STEPS):
            step(self.machine.gpus, SIZE)

    def train(self, **arguments: Any) -> Outcome:
        optimizer = self.optimizer(**arguments)
        optimizer.get_batch_size()
        optimizer.on_train_begin()
        for epoch in range(1, EPOCHS + 1):
            self.epoch()
            optimizer.on_evaluate(0.3 * epoch)
        outcome = self.store.trials("asr")[-1].trial.outcome
        assert outcome is not None
        return outcome


# ------------------------------------------------------------------------------------------------ the batch size


def test_a_loop_of_ones_own_is_charged_for_gpu_cpu_and_memory() -> None:
    bench, each = Bench(), one_step()
    outcome, steps = bench.train(), STEPS * EPOCHS
    seconds = steps * each.seconds
    joules = steps * each.seconds * (each.watts + CPU_WATTS + DRAM_WATTS)
    assert (outcome.ending, outcome.epochs) == (Ending.CONVERGED, EPOCHS)
    assert outcome.seconds == pytest.approx(seconds)
    assert outcome.joules == pytest.approx(joules)
    told = full(report(bench.store, "asr"))
    assert told["spec"]["include"] == told["tries"][0]["include"] == ["gpu", "cpu"]
    assert told["max_watts"] == 250, "MAXPOWER is that of the GPU"
    assert told["tries"][0]["cost"] == pytest.approx(CostModel(0.5, 250.0).cost(joules, seconds))
    assert told["default"]["joules"] == pytest.approx(joules)
    assert told["gpu_model"] == "Tesla V100-PCIE-32GB + CPU"


def test_the_bound_is_in_the_same_joules() -> None:
    bench = Bench()
    bench.spec = replace(bench.spec, policy="paper", beta_knob=1.5, batch_sizes=(SIZE // 2, SIZE))
    first = bench.train()
    assert first.joules is not None
    bench.optimizer().get_batch_size()
    bound = bench.store.trials("asr")[-1].trial.decision.cost_limit
    assert bound == pytest.approx(1.5 * CostModel(0.5, 250.0).cost(first.joules, first.seconds))


def test_without_a_word_nothing_changes_whatever_the_cpu_draws() -> None:
    """A job that counts GPUs is told in the same bytes, whether or not there is a CPU and whether or not it is said."""
    texts = set()
    for include, cpu in ((GPU_ONLY, 0.0), (GPU_ONLY, CPU_WATTS), (("gpu",), 400.0)):
        bench = Bench(include, cpu=cpu, dram=0.0)
        outcome = bench.train()
        trial = bench.store.trials("asr")[-1].trial
        unnumbered = replace(trial, ask=replace(trial.ask, id=""))
        texts.add((to_text(outcome), to_text(unnumbered), to_text(bench.store.job("asr").spec)))
    assert len(texts) == 1
    assert set(re.findall(r"\"include\":(\[.*?\])", "".join(next(iter(texts))))) == {'["gpu"]'}


def test_a_counter_that_fails_in_an_epoch_makes_the_energy_unknown_and_never_less() -> None:
    bench = Bench()
    cpu = FlakyCounter(CPU_WATTS)
    bench.monitor = ZeusMonitor(gpus={0: bench.machine.gpus[0]}, cpus=CpuCounters([CpuPackage(0, "cpu", cpu, None)]))
    optimizer = bench.optimizer()
    optimizer.get_batch_size()
    optimizer.on_train_begin()
    for epoch in range(1, EPOCHS + 1):
        bench.epoch()
        cpu.broken = epoch == 2
        optimizer.on_evaluate(0.3 * epoch)
    outcome = bench.store.trials("asr")[-1].trial.outcome
    assert outcome is not None and optimizer.converged
    assert outcome.joules is None
    assert outcome.seconds == pytest.approx(STEPS * EPOCHS * one_step().seconds)
    assert full(report(bench.store, "asr"))["joules"] is None


def test_a_cpu_that_cannot_be_read_is_refused_before_anything_is_registered() -> None:
    bench = Bench(cpu=0.0, dram=0.0)
    with pytest.raises(InputError, match=r"the cost includes the CPU, but .* cannot be measured.*leave \"cpu\" out"):
        bench.optimizer()
    assert bench.store.names().page == []


def test_what_a_job_counts_is_not_changed_silently() -> None:
    bench = Bench(GPU_ONLY)
    gpu_only = bench.train()
    bench.spec = replace(bench.spec, include=GPU_AND_CPU)
    with pytest.raises(InputError, match="revise"):
        bench.optimizer()
    both = bench.train(revise=True)
    assert gpu_only.joules is not None and both.joules is not None
    told = full(report(bench.store, "asr"))
    assert [row["current"] for row in told["history"]] == [False, True]
    assert [row["default_joules"] for row in told["history"]] == [None, pytest.approx(both.joules)]
    assert told["recent"]["joules"] == pytest.approx(both.joules)
    assert len(told["costs"]) == 1, "costs with and without the CPU are not compared"
    bench.spec = replace(bench.spec, include=GPU_ONLY)
    bench.train(revise=True)
    again = full(report(bench.store, "asr"))
    assert [row["current"] for row in again["history"]] == [True, False, True]


# ------------------------------------------------------------------------------------------------ the power limit


def best_by_hand(watts_beside: float, limits: list[float], eta: float = 0.5) -> float:
    """Equation 7, with this many watts of CPU beside the GPU."""

    def cost(limit: float) -> float:
        each = one_step(limit)
        return (eta * (each.watts + watts_beside) + (1 - eta) * 250.0) * each.seconds

    return min(limits, key=lambda limit: (cost(limit), -limit))


@pytest.fixture
def node(virtual_cards: VirtualCards) -> Callable[[float], VirtualMachine]:
    """Makes a virtual node that the keeper sees too, with a CPU of this power."""
    return lambda cpu: virtual_cards(f"v100?clock=virtual&cpu={cpu:g}")[0].machine


def profile(optimizer: GlobalPowerLimitOptimizer) -> GlobalPowerLimitOptimizer:
    """Train until the limits are profiled."""
    for _ in range(100):
        optimizer.on_epoch_begin()
        for _ in range(20):
            optimizer.monitor.report_step(SIZE)
            optimizer.on_step_end()
        optimizer.on_epoch_end()
        if optimizer.best_limit is not None:
            break
    optimizer.on_train_end()
    return optimizer


def test_the_best_limit_moves_upward_with_the_power_of_the_cpu(node: Callable[[float], VirtualMachine]) -> None:
    """At a lower limit the training takes longer, and so the CPU burns more."""
    limits = [float(watts) for watts in range(100, 251, 25)]
    chosen = []
    for cpu in (1.0, 100.0, 400.0):
        node(cpu)
        optimizer = profile(GlobalPowerLimitOptimizer(ZeusMonitor(), include=GPU_AND_CPU))
        assert optimizer.profile is not None and optimizer.best_limit is not None
        assert optimizer.best_limit == best_by_hand(cpu, limits)
        assert optimizer.profile.at(250.0).watts == pytest.approx(one_step().watts + cpu)
        chosen.append(optimizer.best_limit)
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]
    alone = profile(GlobalPowerLimitOptimizer(ZeusMonitor()))
    assert (alone.best_limit, alone.include) == (best_by_hand(0.0, limits), GPU_ONLY)


def test_a_profile_with_the_cpu_is_not_used_without_it(node: Callable[[float], VirtualMachine], tmp_path: Path) -> None:
    node(400.0)
    path, monitor = tmp_path / "profile.json", ZeusMonitor()
    first = profile(GlobalPowerLimitOptimizer(monitor, profile_path=path, include=["gpu", "cpu"]))
    assert first.key.gpu_model == "Tesla V100-PCIE-32GB + CPU"
    again = GlobalPowerLimitOptimizer(monitor, profile_path=path, include=["gpu", "cpu"])
    assert again.best_limit == first.best_limit is not None
    with pytest.raises(InputError, match=r"\+ CPU"):
        GlobalPowerLimitOptimizer(monitor, profile_path=path)


def test_limits_are_restored_if_the_cpu_counter_fails_while_they_are_profiled(
    node: Callable[[float], VirtualMachine],
) -> None:
    machine = node(CPU_WATTS)
    cpu = FlakyCounter(CPU_WATTS)
    monitor = ZeusMonitor(cpus=CpuCounters([CpuPackage(0, "cpu", cpu, None)]))
    optimizer = GlobalPowerLimitOptimizer(monitor, include=["gpu", "cpu"])
    optimizer.on_epoch_begin()
    for number in range(100):
        cpu.broken = number > 5
        monitor.report_step(SIZE)
        optimizer.on_step_end()
    optimizer.on_epoch_end()
    assert optimizer.best_limit is None
    assert "CPU" in str(optimizer.why_not)
    assert machine.gpus[0].limit() == 250.0
    optimizer.on_train_end()


def test_the_controller_refuses_a_cpu_that_cannot_be_read() -> None:
    monitor = ZeusMonitor(gpus={0: VirtualMachine.in_memory("v100").gpus[0]})
    with pytest.raises(InputError, match="cannot be measured"):
        GlobalPowerLimitOptimizer(monitor, include=["gpu", "cpu"])
    with pytest.raises(InputError, match="include"):
        GlobalPowerLimitOptimizer(monitor, include=["cpu"])


# ------------------------------------------------------------------------------------------------ a measurement


def test_joules_that_count_and_are_unknown_make_the_sum_unknown() -> None:
    machine = VirtualMachine.in_memory("v100")
    with ZeusMonitor(gpus={0: machine.gpus[0]}).window("w") as window:
        machine.run([0], seconds=2, watts=100)
    assert window.measurement is not None
    assert window.measurement.use() == Use(200.0, 2.0)
    assert math.isnan(window.measurement.use(GPU_AND_CPU).joules), "without a CPU its energy is unknown, not 0"


def test_the_log_of_a_framework_counts_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for include in ("", "gpu,cpu"):
        monkeypatch.setenv("ZEUS_COST_INCLUDE", include)
        machine = VirtualMachine.in_memory("v100", cpu_watts=CPU_WATTS, dram_watts=DRAM_WATTS)
        run = TrainingRun(ZeusMonitor(gpus={0: machine.gpus[0]}))
        run.begin()
        machine.run([0], seconds=2, watts=200)
        told.append(run.use_now().joules)
    assert told == [400.0, 740.0]


def test_a_run_without_its_store_says_what_it_counted() -> None:
    gpus = Gpus("V100", 2, 500.0, GPU_AND_CPU)
    outcome = Outcome(ending=Ending.CONVERGED, joules=5.0, seconds=1.0, epochs=1)
    run = OfflineRun(replace(SPEC, include=GPU_AND_CPU), gpus, SIZE, "key", outcome)
    for message in (run, EpochUsed("asr", SIZE, gpus, 5.0, 1.0)):
        assert message_from_text(json.dumps(message_to_json(message, "here")), "here") == message
